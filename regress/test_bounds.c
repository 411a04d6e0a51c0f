#include "config.h"

#include <sys/types.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "filetool.h"
#include "log.h"
#include "tree.h"

/*
 * The bounds of search_text and list_files on a tree of 200,000 files
 * (workspace-tools 6.3, 7.2): counts are exact, no answer is waited for
 * longer than the tools' time, and the file process stays small.
 */
#define DIRS       200
#define FILES      1000 /* in each */
#define CANDIDATES 20000
#define ANSWER_MS  40000 /* 10 s, and what a loaded machine may add */
#define RETURN_MS  60000

#define GROWTH_KIB 8192 /* above idle, of the file process */
#define KEPT_KIB   1024 /* after a while without a request */

static struct harness H;
static int mounted;
static pid_t files;
static long idle_kib;

/* ---- the tree ---- */

/*
 * All names are links of one empty file in each directory: names are what
 * costs time here.
 */
static void
make_tree(void)
{
	char name[64];
	size_t d, f;
	int root, dir, fd;

	root = open(H.roots[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_not_equal(root, -1);
	for (d = 0; d < DIRS; d++) {
		(void)xsnprintf(name, sizeof(name), "d%03zu", d);
		assert_int_equal(mkdirat(root, name, 0755), 0);
		dir = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_int_not_equal(dir, -1);
		fd = openat(dir, "f0000",
		    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		assert_int_not_equal(fd, -1);
		close(fd);
		for (f = 1; f < FILES; f++) {
			(void)xsnprintf(name, sizeof(name), "f%04zu", f);
			assert_int_equal(linkat(dir, "f0000", dir, name, 0), 0);
		}
		close(dir);
	}
	close(root);
}

/* Number n of the tree, from 1 on, gets content of its own. */
static void
replace_file(size_t n, const char *text)
{
	char name[64], *p;

	(void)xsnprintf(name, sizeof(name), "d%03zu/f%04zu", (n - 1) / FILES,
	    (n - 1) % FILES);
	p = in_root(&H, name);
	assert_int_equal(unlink(p), 0);
	put_file(&H, H.roots[0], name, text, strlen(text), 0644);
	free(p);
}

/* ---- memory ---- */

/* A line of /proc/PID/status in KiB; proc(5). */
static long
status_kib(const char *field)
{
	char path[64], line[256];
	size_t n = strlen(field);
	long kib = -1;
	FILE *f;

	(void)xsnprintf(path, sizeof(path), "/proc/%d/status", (int)files);
	if ((f = fopen(path, "r")) == NULL)
		fail_msg("%s", path);
	while (kib == -1 && fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, field, n) == 0 && line[n] == ':')
			kib = strtol(line + n + 1, NULL, 10);
	fclose(f);
	return kib;
}

static void
expect_small(const char *what)
{
	long peak = status_kib("VmHWM");

	assert_true(peak > 0);
	print_message(
	    "# %s: at most %ld KiB above idle\n", what, peak - idle_kib);
#ifndef SANITIZERS
	if (peak > idle_kib + GROWTH_KIB)
		fail_msg("%s: %ld KiB, idle %ld", what, peak, idle_kib);
#endif
}

/* ---- requests ---- */

static void
ask_search(const char *query, uint32_t max, struct answer *a)
{
	struct request q;

	memset(&q, 0, sizeof(q));
	q.operation = OP_SEARCH_TEXT;
	text_set(&q.query, query, strlen(query));
	q.max = max;
	assert_int_equal(harness_request(&H, &q, a), 0);
	request_free(&q);
	assert_true(a->ms < ANSWER_MS);
}

static void
ask_list(const char *after, struct answer *a)
{
	struct request q;

	memset(&q, 0, sizeof(q));
	q.operation = OP_LIST_FILES;
	text_set(&q.after, after, strlen(after));
	q.max = PATHS_MAX;
	assert_int_equal(harness_request(&H, &q, a), 0);
	request_free(&q);
	assert_true(a->ms < ANSWER_MS);
}

/* 1, or 0 if a slow machine needs more time than the tool has. */
static int
in_time(struct answer *a, enum error_code timeout)
{
	if (a->ok)
		return 1;
	if (a->error.code != timeout)
		fail_msg("%s", a->error.text);
	print_message("# %s\n", a->error.text);
	answer_free(a);
	return 0;
}

static int
is(const struct text *t, const char *s)
{
	return t->len == strlen(s) && memcmp(t->data, s, t->len) == 0;
}

/* ---- tests ---- */

/* 6.7 row 37: the first 20,000, of which the last one counts. */
static void
search_ends_at_its_candidates(void **state)
{
	struct answer a;

	(void)state;
	replace_file(1, "needle\n");
	replace_file(CANDIDATES, "a needle\n");
	replace_file(CANDIDATES + 1, "needle\n");
	replace_file(DIRS * FILES, "needle\n");
	ask_search("needle", MATCHES_MAX, &a);
	if (!in_time(&a, EC_SEARCH_TIMEOUT))
		return;
	assert_int_equal(a.result.nmatches, 2);
	assert_true(is(&a.result.matches[0].path, "d000/f0000"));
	assert_true(is(&a.result.matches[1].path, "d019/f0999"));
	assert_int_equal(a.result.matches[1].column, 3);
	assert_true(a.result.truncated);
	answer_free(&a);
	expect_small("search of the first 20,000");
}

/* The second match is known before the tree is walked any further. */
static void
search_ends_at_its_matches(void **state)
{
	struct answer a;

	(void)state;
	replace_file(2, "needle\n");
	ask_search("needle", 1, &a);
	if (!in_time(&a, EC_SEARCH_TIMEOUT))
		return;
	assert_int_equal(a.result.nmatches, 1);
	assert_true(is(&a.result.matches[0].path, "d000/f0000"));
	assert_true(a.result.truncated);
	answer_free(&a);
}

static void
list_has_pages_up_to_the_last(void **state)
{
	static const struct {
		const char *after, *first;
		size_t n;
		int truncated;
	} t[] = {
		{ "", "d000/f0000", PATHS_MAX, 1 },
		{ "d000/f0499", "d000/f0500", PATHS_MAX, 1 },
		{ "d099/f0998", "d099/f0999", PATHS_MAX, 1 },
		{ "d199/f0498", "d199/f0499", PATHS_MAX, 1 },
		{ "d199/f0499", "d199/f0500", PATHS_MAX, 0 },
		{ "d199/f0998", "d199/f0999", 1, 0 },
		{ "d199/f0999", NULL, 0, 0 },
	};
	struct answer a;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		ask_list(t[i].after, &a);
		if (!in_time(&a, EC_LIST_TIMEOUT))
			continue;
		if (a.result.npaths != t[i].n ||
		    a.result.truncated != t[i].truncated)
			fail_msg("after \"%s\": %zu paths, truncated %d",
			    t[i].after, a.result.npaths, a.result.truncated);
		if (t[i].first != NULL)
			assert_true(is(&a.result.paths[0], t[i].first));
		answer_free(&a);
	}
	expect_small("lists of 200,000");
}

/* Large files are read in pieces: a match may lie across two of them. */
static void
a_match_across_pieces_is_found(void **state)
{
	const size_t edge = 128 * 1024, size = 3 * edge;
	char *text = xmalloc(size + 1);
	struct answer a;
	size_t at;

	(void)state;
	memset(text, 'n', size);
	text[size] = '\0';
	for (at = edge - 7; at <= edge + 1; at++) {
		memcpy(text + at, "needle", 6);
		memcpy(text + at + edge, "NEEDLE", 6);
		replace_file(1, text);
		ask_search("needle", 1, &a);
		if (in_time(&a, EC_SEARCH_TIMEOUT)) {
			assert_int_equal(a.result.matches[0].column, at + 1);
			answer_free(&a);
		}
		ask_search("nNEEDLEn", 1, &a);
		if (in_time(&a, EC_SEARCH_TIMEOUT)) {
			assert_int_equal(a.result.nmatches, 1);
			assert_int_equal(a.result.matches[0].column, at + edge);
			answer_free(&a);
		}
		memset(text + at, 'n', 6);
		memset(text + at + edge, 'n', 6);
	}
	free(text);
}

/* Memory of large answers is kept for the next, but not for long. */
static void
kept_memory_is_returned(void **state)
{
	char *text = xmalloc(MIB + 1);
	struct timespec ts = { 0, 50000000 };
	struct answer a;
	long kib = 0;
	int i;

	(void)state;
	memset(text, 'x', MIB);
	text[MIB] = '\0';
	replace_file(1, text);
	free(text);
	for (i = 0; i < 20; i++) {
		ask_read(&H, "d000/f0000", &a);
		assert_true(a.ok);
		assert_int_equal(a.result.content.len, MIB);
		answer_free(&a);
	}
	expect_small("read_file of 1 MiB");
#ifdef SANITIZERS
	skip_because("the sanitizers keep freed memory");
#endif
	for (i = 0; i < RETURN_MS / 50; i++) {
		kib = status_kib("VmRSS");
		if (kib <= idle_kib + KEPT_KIB)
			return;
		(void)nanosleep(&ts, NULL);
	}
	fail_msg("%ld KiB, idle %ld", kib, idle_kib);
}

static int
start(void **state)
{
	struct answer a;
	char *options;

	(void)state;
	harness_init(&H, 1);
	if (mounted) {
		options = xasprintf("size=256m,nr_inodes=400000,mode=0755,"
				    "uid=%u,gid=%u",
		    H.uid, H.gid);
		mounted = mount_tmpfs(H.roots[0], options) == 0;
		free(options);
	}
	make_tree();
	if (harness_start(&H) == -1)
		fail_msg("%s", H.failed);
	assert_int_equal(tree_file_processes(&H, &files, 1), 1);
	/* Once through everything, on little. */
	ask_read(&H, "d000/f0001", &a);
	assert_true(a.ok);
	answer_free(&a);
	idle_kib = status_kib("VmHWM");
	return 0;
}

static int
stop(void **state)
{
	(void)state;
	if (mounted)
		(void)umount2(H.roots[0], MNT_DETACH);
	harness_stop(&H);
	return 0;
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(search_ends_at_its_candidates),
		cmocka_unit_test(search_ends_at_its_matches),
		cmocka_unit_test(list_has_pages_up_to_the_last),
		cmocka_unit_test(a_match_across_pieces_is_found),
		cmocka_unit_test(kept_memory_is_returned),
	};

	log_init("test", 0);
	/* On a file system in memory where that can be arranged. */
	mounted = private_mounts() == 0;
	return cmocka_run_group_tests_name("bounds", tests, start, stop);
}
