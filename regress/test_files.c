#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
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

#define MIB 1048576

static struct harness H;

static char *
in_root(const char *name)
{
	return xasprintf("%s/%s", H.roots[0], name);
}

static void
ask_read(const char *path, int64_t start, uint32_t max, struct answer *a)
{
	struct request q;

	memset(&q, 0, sizeof(q));
	q.operation = OP_READ_FILE;
	text_set(&q.path, path, strlen(path));
	q.start_line = start;
	q.max = max;
	assert_int_equal(harness_request(&H, &q, a), 0);
	request_free(&q);
}

/* ---- read_file (workspace-tools 5.4; the numbers are its rows) ---- */

#define S(s) s, sizeof(s) - 1
#define U    "\xef\xbf\xbd" /* U+FFFD */

static const struct read_row {
	const char *name;
	const char *bytes;
	size_t n;
	int64_t start;
	uint32_t max;
	const char *content;
	size_t content_n;
	int64_t end;
	int truncated;
} read_rows[] = {
	{ "1 empty file", S(""), 1, 200, S(""), 1, 0 },
	{ "2 one line feed", S("\n"), 1, 200, S(""), 1, 0 },
	{ "3 two line feeds", S("\n\n"), 1, 200, S("\n"), 2, 0 },
	{ "4 two line feeds, one line", S("\n\n"), 1, 1, S(""), 1, 1 },
	{ "5 two line feeds, second line", S("\n\n"), 2, 200, S(""), 2, 0 },
	{ "6 no final line feed", S("a"), 1, 200, S("a"), 1, 0 },
	{ "6 final line feed", S("a\n"), 1, 200, S("a"), 1, 0 },
	{ "7 empty last line", S("a\n\n"), 1, 200, S("a\n"), 2, 0 },
	{ "8 empty first line", S("\nb"), 1, 200, S("\nb"), 2, 0 },
	{ "9 CR stays", S("a\r\nb\r\n"), 1, 200, S("a\r\nb\r"), 2, 0 },
	{ "10 CR separates nothing", S("a\rb\r"), 1, 200, S("a\rb\r"), 1, 0 },
	{ "11 other separators",
	    S("a\xe2\x80\xa8"
	      "b\xc2\x85"
	      "c\n"),
	    1, 200,
	    S("a\xe2\x80\xa8"
	      "b\xc2\x85"
	      "c"),
	    1, 0 },
	{ "12 a window", S("first\nsecond\nthird\nfourth\n"), 2, 2,
	    S("second\nthird"), 3, 1 },
	{ "13 just past the end", S("a\nb\nc\n"), 4, 200, S(""), 3, 0 },
	{ "14 far past the end", S("a\nb\nc\n"), 9, 200, S(""), 8, 0 },
	{ "15 the largest start", S("a"), 9007199254740991, 200, S(""),
	    9007199254740990, 0 },
	{ "17 mark only", S("\xef\xbb\xbf"), 1, 200, S(""), 1, 0 },
	{ "18 second mark stays",
	    S("\xef\xbb\xbf\xef\xbb\xbf"
	      "a"),
	    1, 200,
	    S("\xef\xbb\xbf"
	      "a"),
	    1, 0 },
	{ "19 malformed", S("a\xff\xc0\x80\n"), 1, 200, S("a" U U U), 1, 0 },
	{ "20 NUL stays", S("a\0b\n"), 1, 200, S("a\0b"), 1, 0 },
	{ "21 UTF-16LE",
	    S("\xff\xfe"
	      "a\0\n\0b\0"),
	    1, 200, S("a\nb"), 2, 0 },
	{ "21 UTF-16BE", S("\xfe\xff\0a\0\n\0b"), 1, 200, S("a\nb"), 2, 0 },
	{ "22 UTF-16LE CRLF",
	    S("\xff\xfe"
	      "a\0\r\0\n\0"),
	    1, 200, S("a\r"), 1, 0 },
	{ "23 both UTF-16 marks go",
	    S("\xff\xfe\xff\xfe"
	      "a\0"),
	    1, 200, S("a"), 1, 0 },
	{ "24 UTF-16 mark only", S("\xff\xfe"), 1, 200, S(""), 1, 0 },
	{ "25 FF only", S("\xff"), 1, 200, S(U), 1, 0 },
	{ "25 EF BB only", S("\xef\xbb"), 1, 200, S(U), 1, 0 },
	{ "UTF-16 unpaired then pair", S("\xff\xfe\x3d\xd8\x3d\xd8\0\xde"), 1,
	    200, S(U "\xf0\x9f\x98\x80"), 1, 0 },
	{ "UTF-16 high surrogate and odd byte",
	    S("\xff\xfe\x3d\xd8"
	      "a"),
	    1, 200, S(U), 1, 0 },
	{ "UTF-16 odd last byte",
	    S("\xff\xfe"
	      "a\0b"),
	    1, 200, S("a" U), 1, 0 },
	{ "UTF-32LE mark is UTF-16LE", S("\xff\xfe\0\0a\0"), 1, 200, S("\0a"),
	    1, 0 },
};

static void
run_read_row(void **state)
{
	const struct read_row *r = *state;
	struct answer a;

	put_file(&H, H.roots[0], "f", r->bytes, r->n, 0644);
	ask_read("f", r->start, r->max, &a);
	if (!a.ok)
		fail_msg("%s", a.error.text);
	assert_int_equal(a.result.start_line, r->start);
	assert_int_equal(a.result.end_line, r->end);
	assert_int_equal(a.result.truncated, r->truncated);
	assert_int_equal(a.result.content.len, r->content_n);
	if (r->content_n > 0)
		assert_memory_equal(
		    a.result.content.data, r->content, r->content_n);
	answer_free(&a);
}

static void
read_limits(void **state)
{
	static const struct {
		const char *name;
		uint8_t byte;
		size_t n;
		int ok;
	} t[] = { { "26", 'a', MIB, 1 }, { "27", 'a', MIB + 1, 0 },
		{ "28", 0xff, 349525, 1 }, { "29", 0xff, 349526, 0 } };
	struct answer a;
	uint8_t *p;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		p = xmalloc(t[i].n);
		memset(p, t[i].byte, t[i].n);
		put_file(&H, H.roots[0], "f", p, t[i].n, 0644);
		free(p);
		ask_read("f", 1, 1, &a);
		if (a.ok != t[i].ok)
			fail_msg("row %s", t[i].name);
		if (!a.ok)
			assert_int_equal(a.error.code, EC_READ_LIMIT_EXCEEDED);
		answer_free(&a);
	}
	/* 30: small on disk, too large as UTF-8 */
	p = xmalloc(800002);
	p[0] = 0xff;
	p[1] = 0xfe;
	for (i = 1; i <= 400000; i++) {
		p[2 * i] = 0x00;
		p[2 * i + 1] = 0x4e;
	}
	put_file(&H, H.roots[0], "f", p, 800002, 0644);
	free(p);
	ask_read("f", 1, 1, &a);
	assert_false(a.ok);
	assert_int_equal(a.error.code, EC_READ_LIMIT_EXCEEDED);
	answer_free(&a);
}

static void
read_default_window(void **state)
{
	struct answer a;
	struct buf b;
	int i;

	(void)state;
	buf_init(&b);
	for (i = 1; i <= 201; i++)
		buf_addf(&b, "%d\n", i);
	put_file(&H, H.roots[0], "f", b.data, b.len, 0644);
	buf_free(&b);
	ask_read("f", 1, 200, &a); /* row 16 */
	assert_int_equal(a.result.end_line, 200);
	assert_true(a.result.truncated);
	answer_free(&a);
}

static void
read_refuses_what_is_no_regular_file_inside(void **state)
{
	static const struct {
		const char *name;
		const char *path;
	} t[] = { { "31 missing", "missing" }, { "32 directory", "dir" },
		{ "32 root", "." }, { "33 FIFO", "fifo" },
		{ "33 socket", "socket" }, { "34 link inside", "link-in" },
		{ "35 link outside", "link-out" },
		{ "37 directory link outside", "dir-out/passwd" },
		{ "39 below a file", "file/x" }, { "loop", "loop" },
		{ "absolute directory link", "proc/cwd" },
		{ "magic link", "self/root/etc/passwd" } };
	struct sockaddr_un sun;
	struct answer a;
	char *p, longname[300];
	size_t i;
	int fd;

	(void)state;
	put_file(&H, H.roots[0], "file", "x\n", 2, 0644);
	p = in_root("dir");
	assert_int_equal(mkdir(p, 0755), 0);
	free(p);
	put_file(&H, H.roots[0], "dir/inner", "inner\n", 6, 0644);
	p = in_root("fifo");
	assert_int_equal(mkfifo(p, 0666), 0);
	assert_int_equal(chown(p, H.uid, H.gid), 0);
	free(p);
	memset(&sun, 0, sizeof(sun));
	sun.sun_family = AF_UNIX;
	xsnprintf(sun.sun_path, sizeof(sun.sun_path), "%s/socket", H.roots[0]);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	close(fd);
	p = in_root("link-in");
	assert_int_equal(symlink("file", p), 0);
	free(p);
	p = in_root("link-out");
	assert_int_equal(symlink("/etc/passwd", p), 0);
	free(p);
	p = in_root("dir-out");
	assert_int_equal(symlink("/etc", p), 0);
	free(p);
	p = in_root("dir-in");
	assert_int_equal(symlink("dir", p), 0);
	free(p);
	p = in_root("loop");
	assert_int_equal(symlink("loop", p), 0);
	free(p);
	p = in_root("proc");
	assert_int_equal(symlink("/proc/self", p), 0);
	free(p);
	p = in_root("self");
	assert_int_equal(symlink("/proc/self", p), 0);
	free(p);
	p = in_root("abs-in");
	{
		char *target = in_root("dir");

		assert_int_equal(symlink(target, p), 0);
		free(target);
	}
	free(p);

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		ask_read(t[i].path, 1, 200, &a);
		if (a.ok || a.error.code != EC_INVALID_PATH)
			fail_msg("row %s", t[i].name);
		answer_free(&a);
	}
	memset(longname, 'n', sizeof(longname));
	longname[256] = '\0';
	ask_read(longname, 1, 200, &a); /* 41 */
	assert_false(a.ok);
	assert_int_equal(a.error.code, EC_INVALID_PATH);
	answer_free(&a);

	/* 36, 38: links in the middle that stay inside, a trailing slash */
	ask_read("dir-in/inner", 1, 200, &a);
	assert_true(a.ok);
	answer_free(&a);
	ask_read("abs-in/inner", 1, 200, &a);
	assert_true(a.ok);
	answer_free(&a);
	ask_read("./dir//inner/", 1, 200, &a);
	assert_true(a.ok);
	assert_memory_equal(a.result.content.data, "inner", 5);
	answer_free(&a);

	put_file(&H, H.roots[0], "closed", "x", 1, 0);
	ask_read("closed", 1, 200, &a); /* 40 */
	assert_false(a.ok);
	assert_int_equal(a.error.code, EC_INVALID_PATH);
	answer_free(&a);
}

static int
start(void **state)
{
	(void)state;
	harness_init(&H, 1);
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

#define NREAD (sizeof(read_rows) / sizeof(read_rows[0]))

int
main(void)
{
	static const struct CMUnitTest more[] = {
		cmocka_unit_test(read_limits),
		cmocka_unit_test(read_default_window),
		cmocka_unit_test(read_refuses_what_is_no_regular_file_inside),
	};
	struct CMUnitTest tests[NREAD + sizeof(more) / sizeof(more[0])];
	size_t i;

	log_init("test", 0);
	memset(tests, 0, sizeof(tests));
	for (i = 0; i < NREAD; i++) {
		tests[i].name = read_rows[i].name;
		tests[i].test_func = run_read_row;
		tests[i].initial_state = (void *)(uintptr_t)&read_rows[i];
	}
	memcpy(tests + NREAD, more, sizeof(more));
	return cmocka_run_group_tests_name("files", tests, start, stop);
}
