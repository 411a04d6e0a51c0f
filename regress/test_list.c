#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "harness.h"
#include "log.h"
#include "path.h"
#include "tree.h"

/* list_files, workspace-tools 7; the numbers are rows of 7.6. */

/* Each root has one purpose. */
enum {
	R_SMALL,
	R_IGNORE,
	R_GLOBS,
	R_NAMES,
	R_LINKS,
	R_GIT,
	R_NO_GIT,
	R_EMPTY,
	R_CLOSED,
	R_FIFO,
	R_MANY,
	R_HOSTILE,
	R_COUNT
};

static struct harness H;
static struct harness *asked = &H; /* by send_list and ask */

static uint32_t
send_list(size_t root, const char *path, const char *after, uint32_t max)
{
	struct request q;
	uint32_t id;

	memset(&q, 0, sizeof(q));
	q.operation = OP_LIST_FILES;
	q.root = (uint32_t)root;
	text_set(&q.path, path, strlen(path));
	text_set(&q.after, after, strlen(after));
	q.max = max;
	id = harness_send(asked, &q);
	request_free(&q);
	return id;
}

static void
ask(size_t root, const char *path, const char *after, uint32_t max,
    struct answer *a)
{
	uint32_t id = send_list(root, path, after, max);

	assert_int_equal(harness_wait(asked, id, a), 0);
}

/* The paths of the answer, one a line, "+" at the end when truncated. */
static char *
lines(const struct answer *a)
{
	struct buf b;
	size_t i;

	buf_init(&b);
	if (!a->ok)
		buf_adds(&b, error_code_name((enum error_code)a->error.code));
	for (i = 0; a->ok && i < a->result.npaths; i++) {
		buf_add(&b, a->result.paths[i].data, a->result.paths[i].len);
		buf_addc(&b, '\n');
	}
	if (a->ok && a->result.truncated)
		buf_addc(&b, '+');
	return buf_steal(&b);
}

struct row {
	const char *name;
	int root;
	const char *path;
	const char *after;
	uint32_t max;
	const char *expected; /* as lines() */
};

static void
check(const struct row *t)
{
	struct answer a;
	char *got;

	ask((size_t)t->root, t->path, t->after, t->max, &a);
	got = lines(&a);
	if (strcmp(got, t->expected) != 0)
		fail_msg("%s: got:\n%swant:\n%s", t->name, got, t->expected);
	free(got);
	answer_free(&a);
}

static void
check_all(const struct row *t, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		check(&t[i]);
}
#define CHECK_ALL(t) check_all(t, sizeof(t) / sizeof((t)[0]))

static void
pages_in_path_order(void **state)
{
	static const struct row t[] = {
		{ "1", R_SMALL, "", "", 2, "docs/guide.md\nsrc/app.ts\n+" },
		{ "2", R_SMALL, "", "src/app.ts", 2, "src/worker.ts\n" },
		{ "3", R_SMALL, "src", "", 2, "src/app.ts\nsrc/worker.ts\n" },
		{ "7 exactly so many", R_SMALL, "", "", 3,
		    "docs/guide.md\nsrc/app.ts\nsrc/worker.ts\n" },
		{ "14 ./src/", R_SMALL, "./src/", "", 1, "src/app.ts\n+" },
		{ "14 src//", R_SMALL, "src//", "", 1, "src/app.ts\n+" },
		{ "23", R_SMALL, "./src", "src/app.ts", 9, "src/worker.ts\n" },
		{ "24 a file that is gone", R_SMALL, "", "src/b", 9,
		    "src/worker.ts\n" },
		{ "24 after the path itself", R_SMALL, "src", "src", 9,
		    "src/app.ts\nsrc/worker.ts\n" },
		{ "25", R_SMALL, "", "src/worker.ts", 9, "" },
		{ "8 no files", R_EMPTY, "", "", 9, "" },
		{ "8 an empty directory", R_EMPTY, "empty", "", 9, "" },
		{ "9", R_SMALL, "missing", "", 9, "INVALID_PATH" },
		{ "9 below a file", R_SMALL, "src/app.ts/x", "", 9,
		    "INVALID_PATH" },
		{ "20 zero", R_SMALL, "", "", 0, "INVALID_REQUEST" },
		{ "20 too many", R_SMALL, "", "", 501, "INVALID_REQUEST" },
	};

	(void)state;
	CHECK_ALL(t);
}

static void
order_of_names(void **state)
{
	static const struct row t[] = {
		{ "4 first page", R_NAMES, "four", "", 1,
		    "four/src/app.ts\n+" },
		{ "4 next page", R_NAMES, "four", "four/src/app.ts", 1,
		    "four/src.ts\n" },
		{ "5", R_NAMES, "five", "", 9, "five/a/x\nfive/a-b/x\n" },
		{ "15 backslash, 16 not UTF-8", R_NAMES, "bytes", "", 9,
		    "bytes/a\nbytes/z\n" },
		{ "15, 16 and the limit", R_NAMES, "bytes", "", 1,
		    "bytes/a\n+" },
		{ "16 no page of nothing", R_NAMES, "unnamed", "", 1, "" },
		{ "17", R_NAMES, "bom", "", 9, "bom/\xef\xbb\xbfx\n" },
		{ "33", R_NAMES, "units", "", 9,
		    "units/\xee\x80\x80\nunits/\xf0\x90\x80\x80\n" },
		{ "odd names", R_NAMES, "odd", "", 9,
		    "odd/ \nodd/-x\nodd/a\nb\nodd/c \n" },
		{ "a file that ends in white space", R_NAMES, "odd/c ", "", 9,
		    "odd/c \n" },
		{ "a file with a line feed", R_NAMES, "odd/a\nb", "", 9,
		    "odd/a\nb\n" },
		{ "a directory -", R_NAMES, "-", "", 9, "-/x\n" },
		{ "the cursor may be the root", R_NAMES, ".", "-/x", 1,
		    "bom/\xef\xbb\xbfx\n+" },
	};

	(void)state;
	CHECK_ALL(t);
}

static void
visible_and_ignored(void **state)
{
	static const struct row t[] = {
		{ "7.4 no path", R_IGNORE, "", "", 99,
		    "nested/seen\nsrc/app.ts\n" },
		{ "7.4 path .", R_IGNORE, ".", "", 99,
		    "nested/seen\nsrc/app.ts\n" },
		{ "7.4 src", R_IGNORE, "src", "", 99,
		    "src/.hidden\nsrc/.secret/k\nsrc/app.ts\nsrc/debug.log\n"
		    "src/node_modules/m.js\nsrc/sub/y.log\n" },
		{ "7.4 nested", R_IGNORE, "nested", "", 99,
		    "nested/.git/config\nnested/seen\n" },
		{ "7.4 vendor", R_IGNORE, "vendor", "", 99, "" },
		{ "7.4 vendor/sub", R_IGNORE, "vendor/sub", "", 99, "" },
		{ "7.4 a file of vendor", R_IGNORE, "vendor/v", "", 99, "" },
		{ "7.4 .github", R_IGNORE, ".github", "", 99, "" },
		{ "7.4 x/.y", R_IGNORE, "x/.y", "", 99, "" },
		{ "7.4 src/debug.log", R_IGNORE, "src/debug.log", "", 99,
		    "src/debug.log\n" },
		{ "7.4 src/.hidden", R_IGNORE, "src/.hidden", "", 99,
		    "src/.hidden\n" },
		{ "7.4 .env", R_IGNORE, ".env", "", 99, ".env\n" },
		{ "7.4 no size filter", R_IGNORE, "large", "", 99,
		    "large/big\n" },
		{ "29", R_NO_GIT, "", "", 99, "a.tmp\nb\n" },
		{ "30", R_GIT, "", "", 99, "b\n" },
	};

	(void)state;
	CHECK_ALL(t);
}

static void
path_is_no_pattern(void **state)
{
	static const struct row t[] = {
		{ "7.5 app.ts", R_GLOBS, "app.ts", "", 99, "app.ts\n" },
		{ "7.5 a[b]", R_GLOBS, "a[b]", "", 99, "a[b]/f\n" },
		{ "7.5 q*", R_GLOBS, "q*", "", 99, "q*/f\n" },
		{ "7.5 e{a,b}", R_GLOBS, "e{a,b}", "", 99, "e{a,b}/f\n" },
		{ "7.5 !neg", R_GLOBS, "!neg", "", 99, "!neg/f\n" },
		{ "7.5 #h", R_GLOBS, "#h", "", 99, "#h/f\n" },
		{ "7.5 {brace", R_GLOBS, "{brace", "", 99, "{brace/f\n" },
		{ "a[b]] beside a[b]", R_GLOBS, "a[b]]", "", 99, "a[b]]/f\n" },
		{ "a prefix of others", R_GLOBS, "pre", "", 99, "pre/f\n" },
		{ "with a prefix beside", R_GLOBS, "prefix", "", 99,
		    "prefix/f\n" },
		{ "case", R_GLOBS, "Pre", "", 99, "Pre/f\n" },
		{ "not ASCII", R_GLOBS, "d\xc3\xa9j\xc3\xa0", "", 99,
		    "d\xc3\xa9j\xc3\xa0/f\n" },
		{ "deep", R_GLOBS, "one/t?wo/[three]/f*", "", 99,
		    "one/t?wo/[three]/f*\n" },
		{ "^", R_GLOBS, "^x", "", 99, "^x/f\n" },
		{ "-d", R_GLOBS, "-d", "", 99, "-d/f\n" },
	};

	(void)state;
	CHECK_ALL(t);
}

static void
links_and_special_files(void **state)
{
	static const struct row t[] = {
		{ "10", R_LINKS, "outside", "", 9, "INVALID_PATH" },
		{ "10 a file outside", R_LINKS, "passwd", "", 9,
		    "INVALID_PATH" },
		{ "11", R_LINKS, "alias", "", 9,
		    "alias/app.ts\nalias/sub/x\n" },
		{ "11 page", R_LINKS, "alias", "alias/app.ts", 9,
		    "alias/sub/x\n" },
		{ "11 file in it", R_LINKS, "alias/app.ts", "", 9,
		    "alias/app.ts\n" },
		{ "11 absolute, inside", R_LINKS, "absolute", "", 9,
		    "absolute/app.ts\nabsolute/sub/x\n" },
		{ "11 to the root", R_LINKS, "self", "", 9,
		    "self/src/app.ts\nself/src/sub/x\n" },
		{ "12", R_LINKS, "alias.txt", "", 9, "" },
		{ "13", R_LINKS, "fifo", "", 9, "" },
		{ "18", R_LINKS, "", "", 9, "src/app.ts\nsrc/sub/x\n" },
		{ "a loop", R_LINKS, "loop", "", 9, "INVALID_PATH" },
		{ "a dangling link", R_LINKS, "dangling", "", 9,
		    "INVALID_PATH" },
		{ "a magic link", R_LINKS, "proc/root/etc", "", 9,
		    "INVALID_PATH" },
	};

	(void)state;
	CHECK_ALL(t);
}

static void
unreadable_directory_is_left_out(void **state)
{
	static const struct row t[] = {
		{ "26", R_CLOSED, "", "", 9, "a\nz/file\n" },
		{ "26 below a path", R_CLOSED, "z", "", 9, "z/file\n" },
		{ "26 itself", R_CLOSED, "shut", "", 9, "LIST_UNAVAILABLE" },
		{ "27 unreadable file", R_CLOSED, "z/file", "", 9, "z/file\n" },
	};

	(void)state;
	CHECK_ALL(t);
}

static void
nothing_of_the_workspace_runs_or_configures(void **state)
{
	static const struct row t[] = {
		{ "19", R_HOSTILE, "", "", 99, "evil\nseen\n" },
	};
	struct stat st;
	char *mark;

	(void)state;
	CHECK_ALL(t);
	mark = tree_path(&H, R_HOSTILE, "EXECUTED");
	assert_int_equal(stat(mark, &st), -1);
	free(mark);
}

/* ---- many files ---- */

#define MANY_DIRS  200
#define MANY_FILES 250 /* in each */

static char *
many_name(int i)
{
	return xasprintf("d%03d/f%04d", i / MANY_FILES, i % MANY_FILES);
}

static void
check_many(int from, uint32_t max)
{
	struct answer a;
	char *after, *want;
	size_t i;

	after = from == 0 ? xstrdup("") : many_name(from - 1);
	ask(R_MANY, "", after, max, &a);
	free(after);
	assert_true(a.ok);
	for (i = 0; i < a.result.npaths; i++) {
		want = many_name(from + (int)i);
		assert_int_equal(a.result.paths[i].len, strlen(want));
		assert_memory_equal(a.result.paths[i].data, want, strlen(want));
		free(want);
	}
	if (from + (int)max < MANY_DIRS * MANY_FILES) {
		assert_int_equal(a.result.npaths, max);
		assert_true(a.result.truncated);
	} else {
		assert_int_equal(
		    a.result.npaths, MANY_DIRS * MANY_FILES - from);
		assert_false(a.result.truncated);
	}
	answer_free(&a);
}

static long
peak_kib(pid_t pid)
{
	char path[64], line[128];
	long kib = -1;
	FILE *fp;

	xsnprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	assert_non_null(fp = fopen(path, "r"));
	while (fgets(line, sizeof(line), fp) != NULL)
		if (sscanf(line, "VmHWM: %ld", &kib) == 1)
			break;
	fclose(fp);
	return kib;
}

static void
pages_of_a_large_tree(void **state)
{
	const int all = MANY_DIRS * MANY_FILES;
	pid_t pids[R_COUNT];
	char *prefix;
	size_t n;
	int i;

	(void)state;
	for (i = 0; i < MANY_DIRS; i++) {
		prefix = xasprintf("d%03d/f", i);
		tree_many(&H, R_MANY, prefix, 4, 0, MANY_FILES);
		free(prefix);
	}
	check_many(0, 500); /* 6 */
	check_many(500, 500);
	check_many(all / 2 + 7, 500);
	check_many(all - 501, 500);
	check_many(all - 500, 500); /* 7 */
	check_many(all - 1, 500);
	check_many(all, 500); /* 25 */
#ifndef SANITIZERS
	n = tree_file_processes(&H, pids, R_COUNT);
	/* Sandboxes of roots not used of late are gone (pool.h). */
	assert_int_equal(n, R_COUNT < SLOTS_MAX ? R_COUNT : SLOTS_MAX);
	while (n-- > 0)
		assert_in_range(peak_kib(pids[n]), 1, 16 * 1024);
#else
	(void)n;
	(void)pids;
	(void)peak_kib;
#endif
}

/* ---- time and cancellation: rg waits for the writer of an ignore file ---- */

static int
open_ignore(void)
{
	char *p = tree_path(&H, R_FIFO, "wait/.ignore");
	int fd;

	/* Returns when rg has opened it. */
	assert_int_not_equal(fd = open(p, O_WRONLY | O_CLOEXEC), -1);
	free(p);
	return fd;
}

static void
rg_is_dead(int fd)
{
	assert_int_equal(write(fd, "x", 1), -1);
	assert_int_equal(errno, EPIPE);
	close(fd);
}

static void
cancelled_while_rg_runs(void **state)
{
	struct answer a;
	uint32_t id;
	int fd;

	(void)state;
	id = send_list(R_FIFO, "", "", 9); /* 34 */
	fd = open_ignore();
	harness_cancel(&H, id);
	assert_int_equal(harness_wait(&H, id, &a), 0);
	assert_false(a.ok);
	assert_int_equal(a.error.code, EC_EXECUTION_ABORTED);
	assert_int_equal(a.error.certainty, NOT_COMMITTED);
	answer_free(&a);
	rg_is_dead(fd);
}

static void
time_is_limited(void **state)
{
	static const struct row t = { "32 afterwards", R_FIFO, "", "", 9,
		"other/x\n" };
	struct answer a;
	uint32_t id;
	char *p;
	int fd;

	(void)state;
	id = send_list(R_FIFO, "", "", 9); /* 32 */
	fd = open_ignore();
	assert_int_equal(harness_wait(&H, id, &a), 0);
	assert_false(a.ok);
	assert_int_equal(a.error.code, EC_LIST_TIMEOUT);
	answer_free(&a);
	rg_is_dead(fd);
	/* The process serves on. */
	p = tree_path(&H, R_FIFO, "wait/.ignore");
	assert_int_equal(unlink(p), 0);
	free(p);
	check(&t);
}

/* ---- ignore files above the root, and no rg ---- */

static void
ignore_files_above_the_root(void **state)
{
	struct harness h;
	char *above;
	static const struct row t[] = {
		{ "28", 0, "", "", 9, "b\n" },
		{ "28 its path", 0, "a", "", 9, "" },
		{ "30 .git above", 1, "", "", 9, "y\n" },
	};

	(void)state;
	harness_init(&h, 2);
	if ((above = tree_outside(&h)) == NULL) {
		harness_remove(&h);
		print_message("no directory outside /tmp to use\n");
		skip();
	}
	remove_tree(h.dir);
	free(h.roots[0]);
	free(h.roots[1]);
	free(h.dir);
	free(h.home);
	h.dir = above;
	h.home = xasprintf("%s/home", above);
	h.roots[0] = xasprintf("%s/one/root", above);
	h.roots[1] = xasprintf("%s/two/root", above);
	tree_text(&h, 0, "../.ignore", "/root/a\n");
	tree_dir(&h, 1, "../.git/info");
	tree_text(&h, 1, "../.gitignore", "*.tmp\n");
	tree_text(&h, 1, "../.git/info/exclude", "/root/z\n");
	tree_text(&h, 0, "a/x", "");
	tree_text(&h, 0, "b", "");
	tree_text(&h, 1, "x.tmp", "");
	tree_text(&h, 1, "y", "");
	tree_text(&h, 1, "z", "");
	tree_dir(&h, 0, "../../home");
	if (harness_start(&h) == -1)
		fail_msg("%s", h.failed);
	asked = &h;
	CHECK_ALL(t);
	asked = &H;
	harness_stop(&h);
}

static void
without_rg(void **state)
{
	struct answer a;
	pid_t pid;
	int st;

	(void)state;
	asked = &H;
	/* 31; in a process of its own for the mount that hides rg */
	if ((pid = fork()) == 0) {
		if (!tree_hide_rg())
			_exit(77);
		harness_init(&H, 1);
		if (harness_start(&H) == -1)
			_exit(1);
		ask(0, "", "", 9, &a);
		st = a.ok || a.error.code != EC_LIST_UNAVAILABLE;
		harness_stop(&H);
		_exit(st);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st));
	if (WEXITSTATUS(st) == 77) {
		print_message("no private mounts here\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(st), 0);
}

/* ---- the roots ---- */

static void
fill_names(void)
{
	static const char *const names[] = { "four/src/app.ts", "four/src.ts",
		"five/a/x", "five/a-b/x", "bytes/a", "bytes/b\\c",
		"bytes/d\xff\xfe", "bytes/e\\/x", "bytes/z", "unnamed/a\\b",
		"unnamed/x\xe9y", "bom/\xef\xbb\xbfx", "units/\xf0\x90\x80\x80",
		"units/\xee\x80\x80", "odd/ ", "odd/-x", "odd/a\nb", "odd/c ",
		"-/x" };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		tree_text(&H, R_NAMES, names[i], "");
}

static void
fill_ignore(void)
{
	static const char *const names[] = { "src/.hidden", "src/.secret/k",
		"src/app.ts", "src/debug.log", "src/node_modules/m.js",
		"src/sub/y.log", "nested/.git/config", "nested/seen",
		"vendor/v", "vendor/sub/v", ".github/g", "x/.y/z", ".env" };
	char *p;
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		tree_text(&H, R_IGNORE, names[i], "");
	tree_text(&H, R_IGNORE, ".ignore",
	    "vendor/\n*.log\nnode_modules/\nbig\n[malformed\n");
	tree_text(&H, R_IGNORE, "large/big", "");
	p = tree_path(&H, R_IGNORE, "large/big");
	assert_int_equal(truncate(p, 5 << 20), 0);
	free(p);
	tree_text(&H, R_NO_GIT, ".gitignore", "*.tmp\n");
	tree_text(&H, R_NO_GIT, "a.tmp", "");
	tree_text(&H, R_NO_GIT, "b", "");
	tree_text(&H, R_GIT, ".gitignore", "*.tmp\n");
	tree_dir(&H, R_GIT, ".git/info");
	tree_text(&H, R_GIT, ".git/info/exclude", "c\n");
	tree_text(&H, R_GIT, "a.tmp", "");
	tree_text(&H, R_GIT, "b", "");
	tree_text(&H, R_GIT, "c", "");
}

static void
fill_globs(void)
{
	static const char *const names[] = { "app.ts", "deep/app/app.ts",
		"deep/app.ts", "src/app.ts", "a[b]/f", "ab/f", "a[b]]/f",
		"q*/f", "qq/f", "e{a,b}/f", "ea/f", "eb/f", "!neg/f", "neg/f",
		"#h/f", "h/f", "{brace/f", "pre/f", "prefix/f", "Pre/f",
		"d\xc3\xa9j\xc3\xa0/f", "d\xc3\xa8j\xc3\xa0/f",
		"one/t?wo/[three]/f*", "one/two/t/f", "one/t?wo/[three]/ff",
		"^x/f", "x/f", "-d/f" };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		tree_text(&H, R_GLOBS, names[i], "");
}

static void
fill_links(void)
{
	char *p;

	tree_text(&H, R_LINKS, "src/app.ts", "");
	tree_text(&H, R_LINKS, "src/sub/x", "");
	tree_link(&H, R_LINKS, "src", "alias");
	tree_link(&H, R_LINKS, "src/app.ts", "alias.txt");
	p = tree_path(&H, R_LINKS, "src");
	tree_link(&H, R_LINKS, p, "absolute");
	free(p);
	tree_link(&H, R_LINKS, ".", "self");
	tree_link(&H, R_LINKS, "/etc", "outside");
	tree_link(&H, R_LINKS, "/etc/passwd", "passwd");
	tree_link(&H, R_LINKS, "/proc/self", "proc");
	tree_link(&H, R_LINKS, "loop", "loop");
	tree_link(&H, R_LINKS, "nowhere", "dangling");
	tree_link(&H, R_LINKS, "/etc", "src/outside");
	tree_fifo(&H, R_LINKS, "fifo");
}

/* PS-6: every way that rg or git could be told to run something. */
static void
fill_hostile(void)
{
	static const char *const settings[] = { ".ripgreprc", ".rgrc",
		".config/ripgrep/config" };
	struct buf b;
	char *p;
	size_t i;

	buf_init(&b);
	buf_addf(&b, "#!/bin/sh\ntouch '%s/EXECUTED'\n", H.roots[R_HOSTILE]);
	tree_file(&H, R_HOSTILE, "evil", b.data, b.len);
	p = tree_path(&H, R_HOSTILE, "evil");
	assert_int_equal(chmod(p, 0755), 0);
	free(p);
	tree_file(&H, R_HOSTILE, ".bin/rg", b.data, b.len);
	tree_file(&H, R_HOSTILE, ".git/hooks/post-index-change", b.data, b.len);
	buf_free(&b);
	for (i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		tree_text(&H, R_HOSTILE, settings[i],
		    "--follow\n--hidden\n--no-ignore\n--pre=./evil\n");
	tree_text(&H, R_HOSTILE, ".git/config",
	    "[core]\n\tfsmonitor = ./evil\n\texcludesFile = .all\n"
	    "\tsshCommand = ./evil\n[filter \"q\"]\n\tclean = ./evil\n"
	    "\tsmudge = ./evil\n[diff \"q\"]\n\ttextconv = ./evil\n");
	tree_text(&H, R_HOSTILE, ".git/HEAD", "ref: refs/heads/main\n");
	tree_text(&H, R_HOSTILE, ".gitattributes", "* filter=q diff=q\n");
	tree_text(&H, R_HOSTILE, ".all", "*\n");
	tree_text(&H, R_HOSTILE, "seen", "");
	tree_link(&H, R_HOSTILE, "/etc", "follow");
	tree_link(&H, R_HOSTILE, "/etc/passwd", ".rgignore");
}

static int
start(void **state)
{
	char *p;

	(void)state;
	(void)signal(SIGPIPE, SIG_IGN);
	harness_init(&H, R_COUNT);
	tree_text(&H, R_SMALL, "docs/guide.md", "");
	tree_text(&H, R_SMALL, "src/app.ts", "");
	tree_text(&H, R_SMALL, "src/worker.ts", "");
	fill_names();
	fill_ignore();
	fill_globs();
	fill_links();
	fill_hostile();
	tree_dir(&H, R_EMPTY, "empty");
	tree_text(&H, R_CLOSED, "a", "");
	tree_text(&H, R_CLOSED, "shut/x", "");
	tree_text(&H, R_CLOSED, "z/file", "");
	tree_text(&H, R_CLOSED, "z/shut/x", "");
	p = tree_path(&H, R_CLOSED, "z/file");
	assert_int_equal(chmod(p, 0), 0);
	free(p);
	p = tree_path(&H, R_CLOSED, "shut");
	assert_int_equal(chmod(p, 0), 0);
	free(p);
	p = tree_path(&H, R_CLOSED, "z/shut");
	assert_int_equal(chmod(p, 0), 0);
	free(p);
	tree_text(&H, R_FIFO, "other/x", "");
	tree_fifo(&H, R_FIFO, "wait/.ignore");
	if (harness_start(&H) == -1) {
		fprintf(stderr, "%s\n", H.failed);
		return -1;
	}
	return 0;
}

static int
stop(void **state)
{
	(void)state;
	harness_stop(&H);
	return 0;
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_in_path_order),
		cmocka_unit_test(order_of_names),
		cmocka_unit_test(visible_and_ignored),
		cmocka_unit_test(path_is_no_pattern),
		cmocka_unit_test(links_and_special_files),
		cmocka_unit_test(unreadable_directory_is_left_out),
		cmocka_unit_test(nothing_of_the_workspace_runs_or_configures),
		cmocka_unit_test(pages_of_a_large_tree),
		cmocka_unit_test(cancelled_while_rg_runs),
		cmocka_unit_test(time_is_limited),
		cmocka_unit_test(ignore_files_above_the_root),
		cmocka_unit_test(without_rg),
	};

	log_init("test", 0);
	return cmocka_run_group_tests_name("list", tests, start, stop);
}
