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
#include "tree.h"
#include "utf8.h"

/* search_text, workspace-tools 6; the numbers are rows of 6.7. */

/* Each root has one purpose. */
enum {
	R_ONE, /* one file, f */
	R_UTF16,
	R_TREE,
	R_HOSTILE,
	R_CLOSED,
	R_FIFO,
	R_COUNTED,
	R_NAMED,
	R_COUNT
};

#define MIB  1048576
#define S(s) s, sizeof(s) - 1
#define U    "\xef\xbf\xbd" /* U+FFFD */

static struct harness H;

static uint32_t
send_search(
    size_t root, const char *path, const void *query, size_t len, uint32_t max)
{
	struct request q;
	uint32_t id;

	memset(&q, 0, sizeof(q));
	q.operation = OP_SEARCH_TEXT;
	q.root = (uint32_t)root;
	text_set(&q.path, path, strlen(path));
	text_set(&q.query, query, len);
	q.max = max;
	id = harness_send(&H, &q);
	request_free(&q);
	return id;
}

static void
ask(size_t root, const char *path, const char *query, uint32_t max,
    struct answer *a)
{
	uint32_t id = send_search(root, path, query, strlen(query), max);

	assert_int_equal(harness_wait(&H, id, a), 0);
}

/* "path:line:column:text", one match a line, "+" at the end if truncated. */
static char *
lines(const struct answer *a)
{
	const struct match *m;
	struct buf b;
	size_t i;

	buf_init(&b);
	if (!a->ok)
		buf_adds(&b, error_code_name((enum error_code)a->error.code));
	for (i = 0; a->ok && i < a->result.nmatches; i++) {
		m = &a->result.matches[i];
		buf_add(&b, m->path.data, m->path.len);
		buf_addf(&b, ":%lld:%lld:", (long long)m->line,
		    (long long)m->column);
		buf_add(&b, m->text.data, m->text.len);
		buf_addc(&b, '\n');
	}
	if (a->ok && a->result.truncated)
		buf_addc(&b, '+');
	return buf_steal(&b);
}

static void
compare(const char *name, struct answer *a, const char *expected)
{
	char *got = lines(a);

	if (strcmp(got, expected) != 0)
		fail_msg("%s: got:\n%swant:\n%s", name, got, expected);
	free(got);
	answer_free(a);
}

/* ---- one file ---- */

static const struct one {
	const char *name;
	const char *bytes;
	size_t n;
	const char *query;
	uint32_t max;
	const char *expected;
} ones[] = {
	{ "1", S("needle one\nignore\nneedle two\n"), "needle", 1,
	    "f:1:1:needle one\n+" },
	{ "2 exactly so many", S("needle one\nignore\nneedle two\n"), "needle",
	    2, "f:1:1:needle one\nf:3:1:needle two\n" },
	{ "3 one match a line", S("needle needle\n"), "needle", 9,
	    "f:1:1:needle needle\n" },
	{ "4 CRLF", S("a\r\nneedle\r\n"), "needle", 9, "f:2:1:needle\n" },
	{ "5 CR at the end", S("needle\r"), "needle", 9, "f:1:1:needle\n" },
	{ "5 only one CR", S("needle\r\r"), "needle", 9, "f:1:1:needle\r\n" },
	{ "6 CR inside", S("x\rneedle\n"), "needle", 9, "f:1:3:x\rneedle\n" },
	{ "7 UTF-8 mark", S("\xef\xbb\xbfneedle"), "needle", 9,
	    "f:1:1:needle\n" },
	{ "8 malformed", S("\xff needle\n"), "needle", 9,
	    "f:1:3:" U " needle\n" },
	{ "10 UTF-16 without mark", S("n\0e\0e\0d\0l\0e\0"), "needle", 9, "" },
	{ "10 one character", S("n\0"), "n", 9, "f:1:1:n" },
	{ "12 U+FFFD", S("ok\na\xc3(\n"), U, 9, "f:2:2:a" U "(\n" },
	{ "12 with more", S("a\xe2\x28\xa1"), U "(" U, 9,
	    "f:1:2:a" U "(" U "\n" },
	{ "12 literal U+FFFD", S("a" U "b"), U "b", 9, "f:1:2:a" U "b\n" },
	{ "13 mark is no text", S("\xef\xbb\xbfx"), "\xef\xbb\xbf", 9, "" },
	{ "13 second mark is", S("\xef\xbb\xbf\xef\xbb\xbfx"), "\xef\xbb\xbf",
	    9, "f:1:1:\xef\xbb\xbfx\n" },
	{ "case", S("Needle\n"), "needle", 9, "" },
	{ "literal", S("a.c\nabc\n"), "a.c", 9, "f:1:1:a.c\n" },
	{ "looks like an option", S("x --files y\n"), "--files", 9,
	    "f:1:3:x --files y\n" },
	{ "tab", S("a\tb\n"), "\t", 9, "f:1:2:a\tb\n" },
	{ "other separators are text", S("a\xe2\x80\xa8needle\n"), "needle", 9,
	    "f:1:3:a\xe2\x80\xa8needle\n" },
	{ "units", S("\xf0\x9f\x98\x80needle"), "needle", 9,
	    "f:1:3:\xf0\x9f\x98\x80needle\n" },
	{ "combining", S("e\xcc\x81needle"), "needle", 9,
	    "f:1:3:e\xcc\x81needle\n" },
	{ "empty lines", S("\n\n\nneedle\n\nneedle"), "needle", 9,
	    "f:4:1:needle\nf:6:1:needle\n" },
	{ "over a malformed byte",
	    S("nee\xff"
	      "dle"),
	    "needle", 9, "" },
	{ "half a character is no match", S("\xc3\xa9"), "\xc2\xa9", 9, "" },
	{ "UTF-32LE mark is UTF-16LE", S("\xff\xfe\0\0n\0e\0"), "ne", 9,
	    "f:1:2:" },
	{ "empty file", S(""), "needle", 9, "" },
};

static void
run_one(void **state)
{
	const struct one *t = *state;
	struct answer a;
	char *got;

	tree_file(&H, R_ONE, "f", t->bytes, t->n);
	ask(R_ONE, "", t->query, t->max, &a);
	got = lines(&a);
	/* The expectation may stop before a NUL of the text. */
	if (strcmp(got, t->expected) != 0)
		fail_msg("got %s, want %s", got, t->expected);
	free(got);
	answer_free(&a);
	/* A file as the path gives the same. */
	ask(R_ONE, "f", t->query, t->max, &a);
	compare("as path", &a, t->expected);
}

static void
binary_file(void **state)
{
	struct answer a;
	const struct match *m;

	(void)state;
	tree_file(&H, R_ONE, "f", S("\0\1\2\nx\0needle\0\n"));
	ask(R_ONE, "", "needle", 9, &a); /* 11 */
	assert_true(a.ok);
	assert_int_equal(a.result.nmatches, 1);
	m = &a.result.matches[0];
	assert_int_equal(m->line, 2);
	assert_int_equal(m->column, 3);
	assert_int_equal(m->text.len, 9);
	assert_memory_equal(m->text.data, "x\0needle\0", 9);
	answer_free(&a);
}

static void
long_queries(void **state)
{
	static const struct {
		const char *name;
		const char *unit;
		size_t n;
	} t[] = { { "15 1000 x e'", "\xc3\xa9", 1000 },
		{ "15 500 x U+1F600", "\xf0\x9f\x98\x80", 500 },
		{ "2000 x a", "a", 2000 } };
	struct answer a;
	struct buf b;
	size_t i, j;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		buf_init(&b);
		for (j = 0; j < t[i].n; j++)
			buf_adds(&b, t[i].unit);
		(void)buf_cstr(&b);
		buf_addc(&b, '\n');
		tree_file(&H, R_ONE, "f", b.data, b.len);
		b.data[b.len - 1] = '\0';
		ask(R_ONE, "", (char *)b.data, 9, &a);
		if (!a.ok || a.result.nmatches != 1)
			fail_msg("%s", t[i].name);
		assert_int_equal(a.result.matches[0].text.len, b.len - 1);
		answer_free(&a);
		buf_free(&b);
	}
}

static void
what_the_executor_checks_again(void **state)
{
	static const struct {
		const char *query;
		size_t n;
		uint32_t max;
	} t[] = { { S(""), 9 }, { S("a\nb"), 9 }, { S("\n"), 9 },
		{ S("\r"), 9 }, { S("\xff"), 9 }, { S("a"), 0 },
		{ S("a"), 201 } };
	struct answer a;
	uint32_t id;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		id = send_search(R_ONE, "", t[i].query, t[i].n, t[i].max);
		assert_int_equal(harness_wait(&H, id, &a), 0);
		compare("14, 16", &a, "INVALID_REQUEST");
	}
}

/* ---- the preview (6.5) ---- */

static const struct preview_row {
	const char *name;
	const char *before;
	size_t nbefore;
	const char *middle; /* holds the query */
	const char *query;
	const char *after;
	size_t nafter;
	int64_t column;
	size_t start; /* of the preview, in units */
	size_t end;
} previews[] = {
	{ "524288 x a", "a", 524288, " needle", "needle", "", 0, 524290, 522295,
	    524295 },
	{ "2500 x e'", "\xc3\xa9", 2500, " needle ", "needle", "\xc3\xa9", 2500,
	    2502, 1504, 3504 },
	{ "1500 x U+1F600", "\xf0\x9f\x98\x80", 1500, "needle", "needle",
	    "\xf0\x9f\x98\x80", 1500, 3001, 2004, 4004 },
	{ "1500 x U+1F600, needles", "\xf0\x9f\x98\x80", 1500, "needles",
	    "needles", "\xf0\x9f\x98\x80", 1500, 3001, 2004, 4003 },
	{ "U+1F600 needle", "\xf0\x9f\x98\x80", 1, "needle", "needle", "", 0, 3,
	    0, 8 },
	{ "combining", "e\xcc\x81", 1, "needle", "needle", "", 0, 3, 0, 8 },
	{ "997 before", "x", 997, "needle", "needle", "y", 5000, 998, 0, 2000 },
	{ "998 before", "x", 998, "needle", "needle", "y", 5000, 999, 1, 2001 },
	{ "2001 x a", "a", 2001, "b", "b", "", 0, 2002, 2, 2002 },
};

static void
repeat(struct buf *b, const char *s, size_t n)
{
	while (n-- > 0)
		buf_adds(b, s);
}

/* Characters that lie wholly between two offsets in units. */
static void
slice(const struct buf *line, size_t start, size_t end, struct buf *out)
{
	uint32_t cp;
	size_t i, w, units = 0;

	for (i = 0; i < line->len; i += w) {
		w = utf8_decode(line->data + i, line->len - i, &cp);
		if (units >= start && units + (cp > 0xffff ? 2 : 1) <= end)
			buf_add(out, line->data + i, w);
		units += cp > 0xffff ? 2 : 1;
	}
}

static void
check_preview(const struct preview_row *t, const struct buf *line)
{
	const struct match *m;
	struct answer a;
	struct buf want;

	tree_file(&H, R_ONE, "f", line->data, line->len);
	ask(R_ONE, "", t->query, 9, &a);
	if (!a.ok || a.result.nmatches != 1)
		fail_msg("%s", t->name);
	m = &a.result.matches[0];
	assert_int_equal(m->column, t->column);
	assert_int_equal(
	    utf8_units(m->text.data, m->text.len), t->end - t->start);
	buf_init(&want);
	slice(line, t->start, t->end, &want);
	assert_int_equal(m->text.len, want.len);
	assert_memory_equal(m->text.data, want.data, want.len);
	buf_free(&want);
	answer_free(&a);
}

static void
run_preview(void **state)
{
	const struct preview_row *t = *state;
	struct buf line;

	buf_init(&line);
	repeat(&line, t->before, t->nbefore);
	buf_adds(&line, t->middle);
	repeat(&line, t->after, t->nafter);
	check_preview(t, &line);
	buf_free(&line);
}

static void
preview_of_a_long_query(void **state)
{
	struct preview_row t = { "1999 x q", NULL, 0, NULL, NULL, NULL, 0, 5001,
		5000, 7000 };
	struct buf line, query;

	(void)state;
	buf_init(&line);
	buf_init(&query);
	repeat(&query, "q", 1999);
	repeat(&line, "x", 5000);
	buf_add(&line, query.data, query.len);
	repeat(&line, "y", 5000);
	t.query = buf_cstr(&query);
	check_preview(&t, &line);
	buf_free(&line);
	buf_free(&query);
}

/* ---- trees ---- */

struct row {
	const char *name;
	int root;
	const char *path;
	const char *query;
	uint32_t max;
	const char *expected;
};

static void
check_all(const struct row *t, size_t n)
{
	struct answer a;
	size_t i;

	for (i = 0; i < n; i++) {
		ask((size_t)t[i].root, t[i].path, t[i].query, t[i].max, &a);
		compare(t[i].name, &a, t[i].expected);
	}
}
#define CHECK_ALL(t) check_all(t, sizeof(t) / sizeof((t)[0]))

static void
files_of_a_tree(void **state)
{
	static const struct row t[] = {
		{ "9", R_UTF16, "", "needle", 9,
		    "big-endian.txt:1:8:before needle after\n"
		    "little-endian.txt:1:8:before needle after\n" },
		{ "17", R_TREE, "missing", "needle", 9, "INVALID_PATH" },
		{ "18 directory", R_TREE, "outside", "root", 9,
		    "INVALID_PATH" },
		{ "18 file", R_TREE, "passwd", "root", 9, "INVALID_PATH" },
		{ "19", R_TREE, "alias", "app", 9, "alias/app.ts:1:1:app\n" },
		{ "19 below", R_TREE, "alias/sub", "deep", 9,
		    "alias/sub/deep:1:1:deep\n" },
		{ "19 a link to the root", R_TREE, "self", "app", 9,
		    "self/src/app.ts:1:1:app\n" },
		{ "20", R_TREE, "alias.txt", "app", 9, "alias.txt:1:1:app\n" },
		{ "20 absolute", R_TREE, "absolute.txt", "app", 9,
		    "absolute.txt:1:1:app\n" },
		{ "21", R_TREE, "./src/", "app", 9, "src/app.ts:1:1:app\n" },
		{ "22 .", R_TREE, ".", "app", 9, "src/app.ts:1:1:app\n" },
		{ "22 absent", R_TREE, "", "app", 9, "src/app.ts:1:1:app\n" },
		{ "23 not from above", R_TREE, "", "vendored", 9, "" },
		{ "23", R_TREE, "vendor", "vendored", 9,
		    "vendor/v:1:1:vendored\n" },
		{ "23 hidden", R_TREE, ".github", "hub", 9,
		    ".github/g:1:1:hub\n" },
		{ "24", R_TREE, "src", "logged", 9, "" },
		{ "25 ignored", R_TREE, "src/debug.log", "logged", 9,
		    "src/debug.log:1:1:logged\n" },
		{ "25 hidden", R_TREE, "src/.hidden", "hid", 9,
		    "src/.hidden:1:1:hid\n" },
		{ "26 FIFO", R_TREE, "fifo", "needle", 9, "" },
		{ "26 large file", R_TREE, "sizes/more", "needle", 9, "" },
		{ "27", R_TREE, "sizes", "needle", 9,
		    "sizes/most:1:1:needle\n" },
		{ "30", R_TREE, "malformed", "found", 9,
		    "malformed/f:1:1:found\n" },
		{ "31", R_TREE, "empty", "needle", 9, "" },
		{ "33 backslash, not UTF-8", R_TREE, "names", "named", 9,
		    "names/ok:1:1:named\n" },
		{ "33 and the limit", R_TREE, "names", "named", 1,
		    "names/ok:1:1:named\n" },
		{ "34", R_TREE, "-d", "dash", 9, "-d/f:1:1:dash\n" },
		{ "a directory -", R_TREE, "-", "dash", 9, "-/f:1:1:dash\n" },
		{ "order", R_TREE, "order", "o", 9,
		    "order/a/x:1:1:o\norder/a-b/x:1:1:o\norder/b:1:1:o\n" },
		{ "order and limit", R_TREE, "order", "o", 2,
		    "order/a/x:1:1:o\norder/a-b/x:1:1:o\n+" },
		{ "a pattern is no pattern", R_TREE, "a[b]", "bracket", 9,
		    "a[b]/f:1:1:bracket\n" },
	};

	(void)state;
	CHECK_ALL(t);
}

static void
unreadable_is_skipped(void **state)
{
	static const struct row t[] = {
		{ "29", R_CLOSED, "", "needle", 9, "a:1:1:needle\n" },
		{ "29 itself", R_CLOSED, "shut", "needle", 9,
		    "SEARCH_UNAVAILABLE" },
		{ "35 unreadable", R_CLOSED, "file", "needle", 9, "" },
	};

	(void)state;
	CHECK_ALL(t);
}

static void
nothing_of_the_workspace_runs_or_configures(void **state)
{
	static const struct row t[] = {
		{ "28", R_HOSTILE, "", "root:", 9, "seen:1:1:root:\n" },
	};
	struct stat st;
	char *mark;

	(void)state;
	CHECK_ALL(t);
	mark = tree_path(&H, R_HOSTILE, "EXECUTED");
	assert_int_equal(stat(mark, &st), -1);
	free(mark);
}

/* ---- bounds of the candidates ---- */

static void
twenty_thousand_candidates(void **state)
{
	static const struct row over[] = {
		{ "37", R_COUNTED, "", "needle", 9, "+" },
		{ "37 a match among the first", R_COUNTED, "", "first", 9,
		    "aa:1:1:first\n+" },
	};
	static const struct row exact[] = {
		{ "20000", R_COUNTED, "", "needle", 9, "z:1:1:needle\n" },
	};
	char *p;

	(void)state;
	tree_text(&H, R_COUNTED, "aa", "first\n");
	tree_many(&H, R_COUNTED, "f", 5, 0, 19999);
	tree_text(&H, R_COUNTED, "z", "needle\n");
	CHECK_ALL(over);
	/* One that is too large does not count. */
	p = tree_path(&H, R_COUNTED, "f00007");
	assert_int_equal(truncate(p, MIB + 1), 0);
	CHECK_ALL(exact);
	assert_int_equal(unlink(p), 0);
	free(p);
	CHECK_ALL(exact);
}

static void
one_mebibyte_of_names(void **state)
{
	static const char *const expected = ":1:1:needle\n";
	struct answer a;
	char name[256], *p, *want;
	int n;

	(void)state;
	/* "./", 250 bytes and a NUL each: 144 of 1048576 bytes are left. */
	memset(name, 'l', sizeof(name));
	name[246] = '\0';
	tree_many(&H, R_NAMED, name, 4, 0, 4144);
	for (n = 141; n <= 142; n++) {
		memset(name, 'z', sizeof(name));
		name[n] = '\0';
		tree_text(&H, R_NAMED, name, "needle\n");
		ask(R_NAMED, "", "needle", 9, &a);
		want = n == 141 ? xasprintf("%s%s", name, expected)
				: xstrdup("+");
		compare("1 MiB of names", &a, want);
		free(want);
		p = tree_path(&H, R_NAMED, name);
		assert_int_equal(unlink(p), 0);
		free(p);
	}
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
vanished_file_is_skipped(void **state)
{
	struct answer a;
	uint32_t id;
	char *p;
	int fd;

	(void)state;
	tree_text(&H, R_FIFO, "gone", "needle\n");
	id = send_search(R_FIFO, "", S("needle"), 9); /* 35 */
	fd = open_ignore();
	p = tree_path(&H, R_FIFO, "gone");
	assert_int_equal(unlink(p), 0);
	free(p);
	close(fd);
	assert_int_equal(harness_wait(&H, id, &a), 0);
	compare("35", &a, "stays:1:1:needle\n");
}

static void
cancelled_while_rg_runs(void **state)
{
	struct answer a;
	uint32_t id;
	int fd;

	(void)state;
	id = send_search(R_FIFO, "", S("needle"), 9);
	fd = open_ignore();
	harness_cancel(&H, id);
	assert_int_equal(harness_wait(&H, id, &a), 0);
	assert_int_equal(a.error.certainty, NOT_COMMITTED);
	compare("cancelled", &a, "EXECUTION_ABORTED");
	rg_is_dead(fd);
}

static void
cancelled_before_it_starts(void **state)
{
	struct answer a, b;
	pid_t pids[R_COUNT];
	uint32_t id;
	size_t i, n;
	char *p;

	(void)state;
	n = tree_file_processes(&H, pids, R_COUNT);
	assert_int_equal(n, R_COUNT);
	for (i = 0; i < n; i++)
		assert_int_equal(kill(pids[i], SIGSTOP), 0);
	id = send_search(R_FIFO, "", S("needle"), 9); /* 36 */
	harness_cancel(&H, id);
	/* When another root has answered, both are on their way. */
	assert_int_equal(harness_run(&H, R_ONE, "true", &b), 0);
	answer_free(&b);
	for (i = 0; i < n; i++)
		assert_int_equal(kill(pids[i], SIGCONT), 0);
	assert_int_equal(harness_wait(&H, id, &a), 0);
	compare("36", &a, "EXECUTION_ABORTED");
	/* No rg came as far as the ignore file. */
	p = tree_path(&H, R_FIFO, "wait/.ignore");
	assert_int_equal(open(p, O_WRONLY | O_NONBLOCK | O_CLOEXEC), -1);
	assert_int_equal(errno, ENXIO);
	free(p);
}

static void
time_is_limited(void **state)
{
	struct answer a;
	uint32_t id;
	char *p;
	int fd;

	(void)state;
	id = send_search(R_FIFO, "", S("needle"), 9);
	fd = open_ignore();
	assert_int_equal(harness_wait(&H, id, &a), 0);
	compare("time", &a, "SEARCH_TIMEOUT");
	rg_is_dead(fd);
	/* The process serves on. */
	p = tree_path(&H, R_FIFO, "wait/.ignore");
	assert_int_equal(unlink(p), 0);
	free(p);
	ask(R_FIFO, "", "needle", 9, &a);
	compare("afterwards", &a, "stays:1:1:needle\n");
}

static void
without_rg(void **state)
{
	struct answer a;
	pid_t pid;
	int st;

	(void)state;
	/* 32; in a process of its own for the mount that hides rg */
	if ((pid = fork()) == 0) {
		if (!tree_hide_rg())
			_exit(77);
		harness_init(&H, 1);
		if (harness_start(&H) == -1)
			_exit(1);
		ask(0, "", "needle", 9, &a);
		st = a.ok || a.error.code != EC_SEARCH_UNAVAILABLE;
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
fill_tree(void)
{
	static const char *const texts[][2] = {
		{ ".ignore", "vendor/\n*.log\n" },
		{ "src/app.ts", "app\n" },
		{ "src/sub/deep", "deep\n" },
		{ "src/debug.log", "logged\n" },
		{ "src/.hidden", "hid\n" },
		{ "vendor/v", "vendored\n" },
		{ ".github/g", "hub\n" },
		{ "malformed/.ignore", "[\nz{\n" },
		{ "malformed/f", "found\n" },
		{ "names/a\\b", "named\n" },
		{ "names/x\xe9y", "named\n" },
		{ "names/ok", "named\n" },
		/* What a lossy name of the former would mean. */
		{ "names/.hidden" U, "named\n" },
		{ "-d/f", "dash\n" },
		{ "-/f", "dash\n" },
		{ "order/b", "o\n" },
		{ "order/a-b/x", "o\n" },
		{ "order/a/x", "o\n" },
		{ "a[b]/f", "bracket\n" },
		{ "ab/f", "bracket\n" },
	};
	char *big, *p;
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		tree_text(&H, R_TREE, texts[i][0], texts[i][1]);
	tree_dir(&H, R_TREE, "empty");
	tree_link(&H, R_TREE, "src", "alias");
	tree_link(&H, R_TREE, ".", "self");
	tree_link(&H, R_TREE, "src/app.ts", "alias.txt");
	p = tree_path(&H, R_TREE, "src/app.ts");
	tree_link(&H, R_TREE, p, "absolute.txt");
	free(p);
	tree_link(&H, R_TREE, "/etc", "outside");
	tree_link(&H, R_TREE, "/etc/passwd", "passwd");
	tree_fifo(&H, R_TREE, "fifo");
	big = xmalloc(MIB + 1);
	memset(big, '\n', MIB + 1);
	memcpy(big, "needle", 6);
	tree_file(&H, R_TREE, "sizes/most", big, MIB);
	tree_file(&H, R_TREE, "sizes/more", big, MIB + 1);
	free(big);
}

static void
fill_utf16(void)
{
	static const char text[] = "before needle after";
	struct buf le, be;
	const char *p;

	buf_init(&le);
	buf_init(&be);
	buf_add(&le, "\xff\xfe", 2);
	buf_add(&be, "\xfe\xff", 2);
	for (p = text; *p != '\0'; p++) {
		buf_addc(&le, (uint8_t)*p);
		buf_addc(&le, 0);
		buf_addc(&be, 0);
		buf_addc(&be, (uint8_t)*p);
	}
	tree_file(&H, R_UTF16, "little-endian.txt", le.data, le.len);
	tree_file(&H, R_UTF16, "big-endian.txt", be.data, be.len);
	buf_free(&le);
	buf_free(&be);
}

/* PS-6; test_list has more of it. */
static void
fill_hostile(void)
{
	struct buf b;
	char *p;

	buf_init(&b);
	buf_addf(&b, "#!/bin/sh\ntouch '%s/EXECUTED'\n", H.roots[R_HOSTILE]);
	tree_file(&H, R_HOSTILE, "evil", b.data, b.len);
	tree_file(&H, R_HOSTILE, "rg", b.data, b.len);
	buf_free(&b);
	p = tree_path(&H, R_HOSTILE, "evil");
	assert_int_equal(chmod(p, 0755), 0);
	free(p);
	p = tree_path(&H, R_HOSTILE, "rg");
	assert_int_equal(chmod(p, 0755), 0);
	free(p);
	tree_text(
	    &H, R_HOSTILE, ".ripgreprc", "--follow\n--hidden\n--pre=./evil\n");
	tree_text(&H, R_HOSTILE, ".git/config",
	    "[core]\n\tfsmonitor = ./evil\n\texcludesFile = .all\n"
	    "[diff \"q\"]\n\ttextconv = ./evil\n");
	tree_text(&H, R_HOSTILE, ".git/HEAD", "ref: refs/heads/main\n");
	tree_text(&H, R_HOSTILE, ".gitattributes", "* filter=q diff=q\n");
	tree_text(&H, R_HOSTILE, ".all", "*\n");
	tree_text(&H, R_HOSTILE, "seen", "root:\n");
	tree_link(&H, R_HOSTILE, "/etc", "follow");
	tree_link(&H, R_HOSTILE, "/etc/passwd", "link");
}

static int
start(void **state)
{
	char *p;

	(void)state;
	(void)signal(SIGPIPE, SIG_IGN);
	harness_init(&H, R_COUNT);
	fill_tree();
	fill_utf16();
	fill_hostile();
	tree_text(&H, R_CLOSED, "a", "needle\n");
	tree_text(&H, R_CLOSED, "shut/x", "needle\n");
	tree_text(&H, R_CLOSED, "file", "needle\n");
	p = tree_path(&H, R_CLOSED, "shut");
	assert_int_equal(chmod(p, 0), 0);
	free(p);
	p = tree_path(&H, R_CLOSED, "file");
	assert_int_equal(chmod(p, 0), 0);
	free(p);
	tree_text(&H, R_FIFO, "stays", "needle\n");
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

#define NONES     (sizeof(ones) / sizeof(ones[0]))
#define NPREVIEWS (sizeof(previews) / sizeof(previews[0]))

int
main(void)
{
	static const struct CMUnitTest more[] = {
		cmocka_unit_test(preview_of_a_long_query),
		cmocka_unit_test(binary_file),
		cmocka_unit_test(long_queries),
		cmocka_unit_test(what_the_executor_checks_again),
		cmocka_unit_test(files_of_a_tree),
		cmocka_unit_test(unreadable_is_skipped),
		cmocka_unit_test(nothing_of_the_workspace_runs_or_configures),
		cmocka_unit_test(twenty_thousand_candidates),
		cmocka_unit_test(one_mebibyte_of_names),
		cmocka_unit_test(vanished_file_is_skipped),
		cmocka_unit_test(cancelled_while_rg_runs),
		cmocka_unit_test(cancelled_before_it_starts),
		cmocka_unit_test(time_is_limited),
		cmocka_unit_test(without_rg),
	};
	struct CMUnitTest
	    tests[NONES + NPREVIEWS + sizeof(more) / sizeof(more[0])];
	size_t i, n = 0;

	log_init("test", 0);
	memset(tests, 0, sizeof(tests));
	for (i = 0; i < NONES; i++) {
		tests[n].name = ones[i].name;
		tests[n].test_func = run_one;
		tests[n++].initial_state = (void *)(uintptr_t)&ones[i];
	}
	for (i = 0; i < NPREVIEWS; i++) {
		tests[n].name = previews[i].name;
		tests[n].test_func = run_preview;
		tests[n++].initial_state = (void *)(uintptr_t)&previews[i];
	}
	memcpy(tests + n, more, sizeof(more));
	return cmocka_run_group_tests_name("search", tests, start, stop);
}
