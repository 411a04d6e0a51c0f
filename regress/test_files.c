#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <dirent.h>
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

static void
ask_write(const char *path, const void *data, size_t len, int create,
    struct answer *a)
{
	struct request q;

	memset(&q, 0, sizeof(q));
	q.operation = OP_WRITE_FILE;
	text_set(&q.path, path, strlen(path));
	text_set(&q.content, data, len);
	q.create_only = (uint8_t)create;
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

/* ---- write_file (workspace-tools 8.4) ---- */

static void
check_file(const char *name, const void *data, size_t len, mode_t mode)
{
	char *p = in_root(name), *got;
	struct stat st;
	int fd;

	assert_int_equal(lstat(p, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(st.st_mode & 07777, mode);
	assert_int_equal(st.st_uid, H.uid);
	assert_int_equal(st.st_size, len);
	(void)chmod(p, 0600);
	fd = open(p, O_RDONLY);
	assert_int_not_equal(fd, -1);
	got = xmalloc(len + 1);
	assert_int_equal(read(fd, got, len + 1), len);
	if (len > 0)
		assert_memory_equal(got, data, len);
	close(fd);
	free(got);
	free(p);
}

static void
no_staging_file_is_left(void)
{
	struct dirent *de;
	DIR *d = opendir(H.roots[0]);

	assert_non_null(d);
	while ((de = readdir(d)) != NULL)
		if (strncmp(de->d_name, ".librechat-code-", 16) == 0)
			fail_msg("%s", de->d_name);
	closedir(d);
}

static void
write_ok(const char *path, const void *data, size_t n, int create, int created)
{
	struct answer a;

	ask_write(path, data, n, create, &a);
	if (!a.ok)
		fail_msg("%s: %s", path, a.error.text);
	assert_int_equal(a.result.created, created);
	assert_int_equal(a.result.bytes_written, n);
	assert_int_equal(H.outcome, COMMITTED);
	answer_free(&a);
	no_staging_file_is_left();
}

static void
write_fails(const char *path, int create, enum error_code code)
{
	struct answer a;

	ask_write(path, "new", 3, create, &a);
	if (a.ok || a.error.code != code)
		fail_msg("%s: %s", path,
		    a.ok ? "written" : error_code_name(a.error.code));
	assert_int_equal(a.error.certainty, NOT_COMMITTED);
	assert_int_equal(H.outcome, NOT_COMMITTED);
	answer_free(&a);
	no_staging_file_is_left();
}

static void
write_new_and_old_files(void **state)
{
	static const mode_t modes[][2] = { { 0664, 0664 }, { 04755, 0755 },
		{ 0444, 0444 }, { 0755, 0755 }, { 0600, 0600 } };
	uint8_t *big;
	size_t i;

	(void)state;
	write_ok("w1", "hello world", 11, 0, 1);
	check_file("w1", "hello world", 11, 0644);
	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		put_file(&H, H.roots[0], "w2", "old", 3, modes[i][0]);
		write_ok("w2", "newer", 5, 0, 0);
		check_file("w2", "newer", 5, modes[i][1]);
	}
	write_ok("w3", "", 0, 0, 1);
	check_file("w3", "", 0, 0644);
	write_ok("w4", "a\0b", 3, 0, 1);
	check_file("w4", "a\0b", 3, 0644);
	write_ok("w5", "\xef\xbb\xbfx", 4, 0, 1);
	big = xmalloc(MIB);
	memset(big, 'b', MIB);
	write_ok("w6", big, MIB, 0, 1);
	check_file("w6", big, MIB, 0644);
	free(big);
	write_ok("w7", "x", 1, 1, 1); /* 14 */
	write_ok("new.txt/", "x", 1, 0, 1); /* 24 */
	check_file("new.txt", "x", 1, 0644);
}

static void
write_refusals_change_nothing(void **state)
{
	char *p, *q, longname[300];

	(void)state;
	put_file(&H, H.roots[0], "kept", "kept", 4, 0644);
	write_fails("kept", 1, EC_EDIT_CONFLICT); /* 15 */
	check_file("kept", "kept", 4, 0644);
	write_fails("link-in", 1, EC_INVALID_PATH); /* 16 */
	write_fails("dir", 1, EC_INVALID_PATH);
	write_fails("link-in", 0, EC_INVALID_PATH); /* 19 */
	write_fails("link-out", 0, EC_INVALID_PATH);
	write_fails("loop", 0, EC_INVALID_PATH);
	write_fails("nowhere/x", 0, EC_INVALID_PATH); /* 20 */
	write_fails("dir-in/x", 0, EC_INVALID_PATH); /* 21 */
	write_fails("dir-out/x", 0, EC_INVALID_PATH);
	write_fails("file/x", 0, EC_INVALID_PATH); /* 22 */
	write_fails(".", 0, EC_INVALID_PATH); /* 23 */
	write_fails("dir", 0, EC_INVALID_PATH);
	write_fails("fifo", 0, EC_INVALID_PATH);
	memset(longname, 'n', sizeof(longname));
	longname[256] = '\0';
	write_fails(longname, 0, EC_WRITE_UNAVAILABLE); /* 27 */

	p = in_root("sealed");
	assert_int_equal(mkdir(p, 0), 0);
	assert_int_equal(chown(p, H.uid, H.gid), 0);
	write_fails("sealed/x", 0, EC_WRITE_UNAVAILABLE); /* 25 */
	assert_int_equal(chmod(p, 0555), 0);
	write_fails("sealed/x", 0, EC_WRITE_UNAVAILABLE); /* 26 */
	assert_int_equal(rmdir(p), 0);
	free(p);

	/* Two names of one file stay one file (field report FT-4). */
	put_file(&H, H.roots[0], "one", "both", 4, 0644);
	p = in_root("one");
	q = in_root("two");
	assert_int_equal(link(p, q), 0);
	write_fails("one", 0, EC_INVALID_PATH);
	free(p);
	free(q);
	check_file("two", "both", 4, 0644);
}

static void
write_only_file_of_another_account_is_refused(void **state)
{
	char *p;

	(void)state;
	if (getuid() != 0) {
		print_message("needs root\n");
		skip();
	}
	put_file(&H, H.roots[0], "foreign", "old", 3, 0666);
	p = in_root("foreign");
	assert_int_equal(chown(p, 4242, 4242), 0);
	write_fails("foreign", 0, EC_WRITE_UNAVAILABLE); /* 7 */
	free(p);
}

static void
unconfirmed_write_is_uncertain(void **state)
{
	struct answer a;

	(void)state;
	/* 6: the installed file cannot be read back */
	put_file(&H, H.roots[0], "blind", "old", 3, 0200);
	ask_write("blind", "new", 3, 0, &a);
	assert_false(a.ok);
	assert_int_equal(a.error.code, EC_WRITE_UNAVAILABLE);
	assert_int_equal(a.error.certainty, UNCERTAIN);
	assert_int_equal(H.outcome, UNCERTAIN);
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
		cmocka_unit_test(write_new_and_old_files),
		cmocka_unit_test(write_refusals_change_nothing),
		cmocka_unit_test(write_only_file_of_another_account_is_refused),
		cmocka_unit_test(unconfirmed_write_is_uncertain),
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
