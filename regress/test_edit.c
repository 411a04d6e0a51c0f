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
#include <sodium.h>

#include "buf.h"
#include "filetool.h"
#include "log.h"

/*
 * edit_file and preview_edit. The numbers are rows of workspace-tools 9.4 and
 * 10; rows 9.4/30 to 34 and 10/13 are validation and belong to the bridge,
 * rows 9.4/40, 9.4/41 and 10/15 need a fault (test_faults).
 */
static struct harness H;

#define BOM   "\xef\xbb\xbf"
#define SMILE "\xf0\x9f\x98\x80" /* U+1F600 */

/* Both tools give the same answer for the same text. */
static const struct edit_row {
	const char *name;
	const char *file;
	size_t n;
	struct pair edits[4];
	size_t nedits;
	const char *want; /* NULL: code */
	size_t want_n;
	enum error_code code;
} edit_rows[] = {
	{ "1 one edit", S("hello world"), { PAIR("world", "BYOM") }, 1,
	    S("hello BYOM"), 0 },
	{ "2 found twice", S("same same"), { PAIR("same", "x") }, 1, NULL, 0,
	    EC_EDIT_CONFLICT },
	{ "3 not found", S("same same"), { PAIR("missing", "x") }, 1, NULL, 0,
	    EC_EDIT_CONFLICT },
	{ "4 overlap counts", S("aaa"), { PAIR("aa", "b") }, 1, NULL, 0,
	    EC_EDIT_CONFLICT },
	{ "5 overlap beyond the BMP", S(SMILE SMILE SMILE),
	    { PAIR(SMILE SMILE, "x") }, 1, NULL, 0, EC_EDIT_CONFLICT },
	{ "6 two edits", S("alpha beta gamma"),
	    { PAIR("alpha", "one"), PAIR("gamma", "three") }, 2,
	    S("one beta three"), 0 },
	{ "7 the second fails", S("one beta three"),
	    { PAIR("one", "partial"), PAIR("missing", "never") }, 2, NULL, 0,
	    EC_EDIT_CONFLICT },
	{ "8 later edits see earlier ones", S("one"),
	    { PAIR("one", "two"), PAIR("two", "three") }, 2, S("three"), 0 },
	{ "9 made ambiguous", S("ab"), { PAIR("a", "b"), PAIR("b", "c") }, 2,
	    NULL, 0, EC_EDIT_CONFLICT },
	{ "10 three edits", S("ab"),
	    { PAIR("a", "c"), PAIR("b", "a"), PAIR("a", "z") }, 3, S("cz"), 0 },
	{ "11 doubled", S("ab"), { PAIR("ab", "abab"), PAIR("ab", "x") }, 2,
	    NULL, 0, EC_EDIT_CONFLICT },
	{ "12 nothing left", S("x"), { PAIR("x", "") }, 1, S(""), 0 },
	{ "13 empty file", S(""), { PAIR("x", "y") }, 1, NULL, 0,
	    EC_EDIT_CONFLICT },
	{ "14 empty old text", S("abc"), { PAIR("", "x") }, 1, NULL, 0,
	    EC_INVALID_REQUEST },
	{ "15 the same text", S("abc"), { PAIR("b", "b") }, 1, S("abc"), 0 },
	/*
	 * Decided otherwise than the row (field report FT-1): text with LF is
	 * found in a file with CRLF when it is not there exactly.
	 */
	{ "16 LF finds CRLF", S("a\r\nb"), { PAIR("a\nb", "c") }, 1, S("c"),
	    0 },
	{ "17 CRLF to LF", S("a\r\nb"), { PAIR("\r\n", "\n") }, 1, S("a\nb"),
	    0 },
	{ "18 nothing is expanded", S("$x"), { PAIR("$x", "$&$1$$") }, 1,
	    S("$&$1$$"), 0 },
	{ "19 case matters", S("Abc"), { PAIR("abc", "x") }, 1, NULL, 0,
	    EC_EDIT_CONFLICT },
	{ "20 no normalisation", S("\xc3\xa9"), { PAIR("e\xcc\x81", "x") }, 1,
	    NULL, 0, EC_EDIT_CONFLICT },
	{ "21 the mark stays", S(BOM "before"), { PAIR("before", "after") }, 1,
	    S(BOM "after"), 0 },
	{ "22 the mark cannot be found", S(BOM "a"), { PAIR(BOM "a", "x") }, 1,
	    NULL, 0, EC_EDIT_CONFLICT },
	{ "23 the second mark can", S(BOM BOM "a"), { PAIR(BOM, "x") }, 1,
	    S(BOM "xa"), 0 },
	{ "24 UTF-16LE",
	    S("\xff\xfe"
	      "a\0"),
	    { PAIR("a", "b") }, 1, NULL, 0, EC_INVALID_REQUEST },
	{ "24 UTF-16BE", S("\xfe\xff\0a"), { PAIR("a", "b") }, 1, NULL, 0,
	    EC_INVALID_REQUEST },
	{ "24 malformed", S("ab\xff"), { PAIR("a", "b") }, 1, NULL, 0,
	    EC_INVALID_REQUEST },
	{ "24 surrogate", S("ab\xed\xa0\x80"), { PAIR("a", "b") }, 1, NULL, 0,
	    EC_INVALID_REQUEST },
	{ "24 overlong", S("ab\xc0\x80"), { PAIR("a", "b") }, 1, NULL, 0,
	    EC_INVALID_REQUEST },
	{ "24 cut short", S("ab\xe2\x82"), { PAIR("a", "b") }, 1, NULL, 0,
	    EC_INVALID_REQUEST },
	{ "U+FFFD is text", S("a\xef\xbf\xbd"), { PAIR("\xef\xbf\xbd", "b") },
	    1, S("ab"), 0 },
	{ "25 NUL", S("a\0b"), { PAIR("\0", "x") }, 1, S("axb"), 0 },
	{ "NUL in the new text", S("axb"), { PAIR("x", "\0") }, 1, S("a\0b"),
	    0 },
	{ "at the start", S("abc"), { PAIR("a", "xy") }, 1, S("xybc"), 0 },
	{ "at the end", S("abc"), { PAIR("c", "xy") }, 1, S("abxy"), 0 },
	{ "longer than the file", S("abc"), { PAIR("abcd", "x") }, 1, NULL, 0,
	    EC_EDIT_CONFLICT },

	/* field report FT-1 */
	{ "FT-1 as reported", S("one\r\ntwo\r\n"),
	    { PAIR("one\ntwo", "one\n2") }, 1, S("one\r\n2\r\n"), 0 },
	{ "FT-1 the other way round", S("one\ntwo\n"),
	    { PAIR("one\r\ntwo", "one\r\n2") }, 1, S("one\n2\n"), 0 },
	{ "FT-1 an exact match wins", S("a\nb a\r\nb"),
	    { PAIR("a\nb", "x\ny") }, 1, S("x\ny a\r\nb"), 0 },
	{ "FT-1 two exact matches", S("a\nb a\nb a\r\nb"),
	    { PAIR("a\nb", "x") }, 1, NULL, 0, EC_EDIT_CONFLICT },
	{ "FT-1 two folded matches", S("a\r\nb a\r\nb"), { PAIR("a\nb", "x") },
	    1, NULL, 0, EC_EDIT_CONFLICT },
	{ "FT-1 overlapping folded matches", S("\r\na\r\na\r\n"),
	    { PAIR("\na\n", "x\n") }, 1, NULL, 0, EC_EDIT_CONFLICT },
	{ "FT-1 more lines than before", S("a\r\nb\r\nc\r\n"),
	    { PAIR("a\nb", "1\n2\n3\n4") }, 1, S("1\r\n2\r\n3\r\n4\r\nc\r\n"),
	    0 },
	{ "FT-1 the rest keeps its own", S("k\nl\r\na\r\nb\r\nm\n"),
	    { PAIR("a\nb\n", "x\n") }, 1, S("k\nl\r\nx\r\nm\n"), 0 },
	{ "FT-1 a mixed region line by line", S("a\r\nb\nc\r\n"),
	    { PAIR("a\nb\nc\n", "A\nB\nC\nD\n") }, 1, S("A\r\nB\nC\r\nD\r\n"),
	    0 },
	{ "FT-1 from the line ending on", S("a\r\nb\r\nc"),
	    { PAIR("\nb\nc", "\nx") }, 1, S("a\r\nx"), 0 },
	{ "FT-1 new text in the other style", S("a\r\nb"),
	    { PAIR("a\nb", "x\r\ny\nz") }, 1, S("x\r\ny\r\nz"), 0 },
	{ "FT-1 CRCRLF is not CRLF", S("a\r\r\nb"), { PAIR("a\nb", "x") }, 1,
	    NULL, 0, EC_EDIT_CONFLICT },
	{ "FT-1 a lone CR stays one", S("a\rb\r\nc"),
	    { PAIR("a\rb\nc", "1\r2\n3") }, 1, S("1\r2\r\n3"), 0 },
	{ "FT-1 with a mark", S(BOM "a\r\nb\r\n"), { PAIR("a\nb\n", "c\n") }, 1,
	    S(BOM "c\r\n"), 0 },
	{ "FT-1 lines removed", S("a\r\nb\r\nc\r\n"), { PAIR("a\nb\n", "") }, 1,
	    S("c\r\n"), 0 },
	{ "FT-1 in a batch", S("a\r\nb\r\nc\r\nd\r\n"),
	    { PAIR("a\nb\n", "x\n"), PAIR("x\nc\n", "y\nz\n") }, 2,
	    S("y\r\nz\r\nd\r\n"), 0 },
};

static void
check_result(const struct edit_row *r, const struct result *res)
{
	assert_int_equal(res->replacements, r->nedits);
	assert_int_equal(res->bytes_written, r->want_n);
}

static void
check_preview(const struct edit_row *r, const struct result *res)
{
	unsigned char hash[crypto_hash_sha256_BYTES];
	char hex[2 * sizeof(hash) + 1];
	size_t skip;

	check_result(r, res);
	skip = r->want_n >= 3 && memcmp(r->want, BOM, 3) == 0 ? 3 : 0;
	assert_int_equal(res->has_bom, skip > 0);
	assert_int_equal(res->content.len, r->want_n - skip);
	if (res->content.len > 0)
		assert_memory_equal(
		    res->content.data, r->want + skip, res->content.len);
	crypto_hash_sha256(hash, (const unsigned char *)r->file, r->n);
	sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
	assert_string_equal(res->base_sha256, hex);
}

static void
run_edit_row(void **state)
{
	const struct edit_row *r = *state;
	struct answer a;

	put_file(&H, H.roots[0], "f", r->file, r->n, 0640);
	H.outcome = NOT_COMMITTED;
	ask_edit(&H, OP_PREVIEW_EDIT, "f", r->edits, r->nedits, NULL, &a);
	if (r->want == NULL)
		expect_failure(&H, r->name, &a, r->code, NOT_COMMITTED);
	else if (!a.ok)
		fail_msg("%s: %s", r->name, a.error.text);
	else {
		check_preview(r, &a.result);
		answer_free(&a);
	}
	expect_content(&H, "f", r->file, r->n);

	ask_edit(&H, OP_EDIT_FILE, "f", r->edits, r->nedits, NULL, &a);
	if (r->want == NULL) {
		expect_failure(&H, r->name, &a, r->code, NOT_COMMITTED);
		expect_content(&H, "f", r->file, r->n);
	} else {
		if (!a.ok)
			fail_msg("%s: %s", r->name, a.error.text);
		check_result(r, &a.result);
		assert_int_equal(H.outcome, COMMITTED);
		expect_content(&H, "f", r->want, r->want_n);
		answer_free(&a);
	}
	expect_mode(&H, "f", 0640);
	assert_int_equal(count_staging(&H, "."), 0);
}

/* ---- the path ---- */

static const struct path_row {
	const char *name;
	const char *path;
	enum error_code edit; /* EC_NONE: fulfilled */
	enum error_code preview;
} path_rows[] = {
	{ "35 missing", "missing", EC_INVALID_PATH, EC_INVALID_PATH },
	{ "35 below a file", "kept/x", EC_INVALID_PATH, EC_INVALID_PATH },
	{ "36 link inside", "link-in", EC_INVALID_PATH, EC_INVALID_PATH },
	{ "36 link outside", "link-out", EC_INVALID_PATH, EC_INVALID_PATH },
	{ "36 directory", "dir", EC_INVALID_PATH, EC_INVALID_PATH },
	{ "36 the root", ".", EC_INVALID_PATH, EC_INVALID_PATH },
	{ "36 FIFO", "fifo", EC_INVALID_PATH, EC_INVALID_PATH },
	{ "37 socket", "socket", EC_WRITE_UNAVAILABLE, EC_INVALID_PATH },
	{ "38 through a link to a directory", "dir-in/inner", EC_INVALID_PATH,
	    EC_NONE },
	{ "38 out of the root", "dir-out/passwd", EC_INVALID_PATH,
	    EC_INVALID_PATH },
	{ "39 in a directory of mode 0000", "sealed/x", EC_WRITE_UNAVAILABLE,
	    EC_INVALID_PATH },
	{ "39 file of mode 0000", "closed", EC_WRITE_UNAVAILABLE,
	    EC_INVALID_PATH },
	{ "39 file of mode 0200", "blind", EC_WRITE_UNAVAILABLE,
	    EC_INVALID_PATH },
	{ "name of 256 bytes", NULL, EC_WRITE_UNAVAILABLE, EC_INVALID_PATH },
	{ "FT-4 file with two names", "one", EC_INVALID_PATH, EC_NONE },
	{ "42 read-only workspace", "@1", EC_WRITE_DISABLED,
	    EC_WRITE_DISABLED },
	{ "trailing slash", "./dir//inner/", EC_NONE, EC_NONE },
};

static const struct pair old_to_new[] = { PAIR("old", "new") };

static void
make_fixture(void)
{
	struct sockaddr_un sun;
	char *p, *q;
	int fd;

	p = in_root(&H, "dir");
	assert_int_equal(mkdir(p, 0755), 0);
	assert_int_equal(chown(p, H.uid, H.gid), 0);
	free(p);
	p = in_root(&H, "sealed");
	assert_int_equal(mkdir(p, 0), 0);
	assert_int_equal(chown(p, H.uid, H.gid), 0);
	free(p);
	p = in_root(&H, "link-in");
	assert_int_equal(symlink("kept", p), 0);
	free(p);
	p = in_root(&H, "link-out");
	assert_int_equal(symlink("/etc/passwd", p), 0);
	free(p);
	p = in_root(&H, "dir-in");
	assert_int_equal(symlink("dir", p), 0);
	free(p);
	p = in_root(&H, "dir-out");
	assert_int_equal(symlink("/etc", p), 0);
	free(p);
	p = in_root(&H, "fifo");
	assert_int_equal(mkfifo(p, 0666), 0);
	assert_int_equal(chown(p, H.uid, H.gid), 0);
	free(p);
	memset(&sun, 0, sizeof(sun));
	sun.sun_family = AF_UNIX;
	xsnprintf(sun.sun_path, sizeof(sun.sun_path), "%s/socket", H.roots[0]);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	close(fd);
	put_file(&H, H.roots[0], "kept", "old", 3, 0644);
	put_file(&H, H.roots[0], "closed", "old", 3, 0);
	put_file(&H, H.roots[0], "blind", "old", 3, 0200);
	put_file(&H, H.roots[0], "one", "old", 3, 0644);
	p = in_root(&H, "one");
	q = in_root(&H, "two");
	assert_int_equal(link(p, q), 0);
	free(p);
	free(q);
}

static void
ask_path(const struct path_row *r, enum operation op, enum error_code code)
{
	struct request q;
	struct answer a;
	char longname[300];
	const char *path = r->path;

	memset(longname, 'n', sizeof(longname));
	longname[256] = '\0';
	if (path == NULL)
		path = longname;
	H.outcome = NOT_COMMITTED;
	edit_request(&q, op, path[0] == '@' ? "x" : path, old_to_new, 1, NULL);
	q.root = path[0] == '@';
	assert_int_equal(harness_request(&H, &q, &a), 0);
	request_free(&q);
	assert_true(a.ms < 1000);
	if (code != EC_NONE)
		expect_failure(&H, r->name, &a, code, NOT_COMMITTED);
	else {
		if (!a.ok)
			fail_msg("%s: %s", r->name, a.error.text);
		answer_free(&a);
	}
}

static void
run_path_row(void **state)
{
	const struct path_row *r = *state;

	put_file(&H, H.roots[0], "dir/inner", "old", 3, 0644);
	ask_path(r, OP_PREVIEW_EDIT, r->preview);
	expect_content(&H, "dir/inner", "old", 3);
	ask_path(r, OP_EDIT_FILE, r->edit);
	if (r->edit == EC_NONE)
		expect_content(&H, "dir/inner", "new", 3);
	else
		expect_content(&H, "dir/inner", "old", 3);
	expect_content(&H, "kept", "old", 3);
	expect_content(&H, "one", "old", 3);
	expect_content(&H, "two", "old", 3);
	assert_int_equal(count_staging(&H, "."), 0);
	assert_int_equal(count_staging(&H, "dir"), 0);
}

/* ---- limits ---- */

static void
edit_limits(void **state)
{
	static const struct {
		const char *name;
		size_t n; /* 'a' once, then 'b' */
		struct pair edit;
		enum error_code edit_code;
		enum error_code preview_code;
	} t[] = {
		{ "26", MIB + 1, PAIR("a", "c"), EC_WRITE_LIMIT_EXCEEDED,
		    EC_READ_LIMIT_EXCEEDED },
		{ "27", MIB, PAIR("a", "cc"), EC_WRITE_LIMIT_EXCEEDED,
		    EC_WRITE_LIMIT_EXCEEDED },
		{ "the largest outcome", MIB - 1, PAIR("a", "cc"), EC_NONE,
		    EC_NONE },
	};
	struct answer a;
	uint8_t *p;
	size_t i;

	(void)state;
	p = xmalloc(MIB + 1);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		memset(p, 'b', MIB + 1);
		p[MIB / 2] = 'a';
		put_file(&H, H.roots[0], "big", p, t[i].n, 0644);
		H.outcome = NOT_COMMITTED;
		ask_edit(&H, OP_PREVIEW_EDIT, "big", &t[i].edit, 1, NULL, &a);
		if (t[i].preview_code != EC_NONE)
			expect_failure(&H, t[i].name, &a, t[i].preview_code,
			    NOT_COMMITTED);
		else {
			assert_true(a.ok);
			assert_int_equal(a.result.content.len, MIB);
			answer_free(&a);
		}
		ask_edit(&H, OP_EDIT_FILE, "big", &t[i].edit, 1, NULL, &a);
		if (t[i].edit_code != EC_NONE) {
			expect_failure(
			    &H, t[i].name, &a, t[i].edit_code, NOT_COMMITTED);
			expect_content(&H, "big", p, t[i].n);
			continue;
		}
		assert_true(a.ok);
		assert_int_equal(a.result.bytes_written, MIB);
		answer_free(&a);
		memmove(p + MIB / 2 + 2, p + MIB / 2 + 1, MIB / 2 - 2);
		memcpy(p + MIB / 2, "cc", 2);
		expect_content(&H, "big", p, MIB);
	}
	free(p);
}

/* Only the final outcome is limited (9.2 step 6). */
static void
edit_may_pass_the_limit_on_the_way(void **state)
{
	struct pair e[2];
	struct answer a;
	char *big;

	(void)state;
	big = xmalloc(MIB);
	memset(big, 'y', MIB);
	put_file(&H, H.roots[0], "f", "axb", 3, 0644);
	e[0].old = "x";
	e[0].old_n = 1;
	e[0].new = big;
	e[0].new_n = MIB;
	e[1].old = big;
	e[1].old_n = MIB;
	e[1].new = "z";
	e[1].new_n = 1;
	ask_edit(&H, OP_EDIT_FILE, "f", e, 2, NULL, &a);
	assert_true(a.ok);
	answer_free(&a);
	expect_content(&H, "f", "azb", 3);
	free(big);
}

static void
edit_of_one_huge_line_with_many_matches(void **state)
{
	struct pair e;
	struct answer a;
	char *line, *old;

	(void)state;
	/* Nearly matches everywhere: the search must not be quadratic. */
	line = xmalloc(MIB);
	memset(line, 'a', MIB);
	put_file(&H, H.roots[0], "f", line, MIB, 0644);
	old = xmalloc(MIB / 2);
	memset(old, 'a', MIB / 2);
	old[MIB / 4] = 'b';
	e.old = old;
	e.old_n = MIB / 2;
	e.new = "";
	e.new_n = 0;
	ask_edit(&H, OP_EDIT_FILE, "f", &e, 1, NULL, &a);
	assert_true(a.ms < 5000);
	expect_failure(&H, "line", &a, EC_EDIT_CONFLICT, NOT_COMMITTED);
	old[MIB / 4] = '\n';
	ask_edit(&H, OP_EDIT_FILE, "f", &e, 1, NULL, &a);
	assert_true(a.ms < 5000);
	expect_failure(&H, "line", &a, EC_EDIT_CONFLICT, NOT_COMMITTED);
	free(old);
	free(line);
}

static void
edit_a_hundred_places(void **state)
{
	struct pair e[EDITS_MAX];
	char names[EDITS_MAX][8], values[EDITS_MAX][8];
	struct answer a;
	struct buf b;
	size_t i;

	(void)state;
	buf_init(&b);
	for (i = 0; i < EDITS_MAX; i++) {
		xsnprintf(names[i], sizeof(names[i]), "<%zu>", i);
		xsnprintf(values[i], sizeof(values[i]), "[%zu]", i);
		buf_adds(&b, names[i]);
		e[i].old = names[i];
		e[i].old_n = strlen(names[i]);
		e[i].new = values[i];
		e[i].new_n = strlen(values[i]);
	}
	put_file(&H, H.roots[0], "f", b.data, b.len, 0644);
	ask_edit(&H, OP_EDIT_FILE, "f", e, EDITS_MAX, NULL, &a);
	assert_true(a.ok);
	assert_int_equal(a.result.replacements, EDITS_MAX);
	answer_free(&a);
	for (i = 0; i < b.len; i++)
		b.data[i] = b.data[i] == '<' ? '['
		    : b.data[i] == '>'       ? ']'
					     : b.data[i];
	expect_content(&H, "f", b.data, b.len);
	/* Which one failed is said. */
	e[42].old = "<42>";
	e[42].old_n = 4;
	for (i = 0; i < EDITS_MAX; i++)
		if (i != 42) {
			e[i].old = e[i].new;
			e[i].old_n = e[i].new_n;
		}
	ask_edit(&H, OP_EDIT_FILE, "f", e, EDITS_MAX, NULL, &a);
	assert_false(a.ok);
	assert_string_equal(
	    a.error.text, "edit 43 of 100: old text was not found");
	expect_failure(&H, "100", &a, EC_EDIT_CONFLICT, NOT_COMMITTED);
	expect_content(&H, "f", b.data, b.len);
	buf_free(&b);
}

/* ---- the fence ---- */

static void
digest(char *hex, const void *p, size_t n)
{
	unsigned char hash[crypto_hash_sha256_BYTES];

	crypto_hash_sha256(hash, p, n);
	sodium_bin2hex(hex, 65, hash, sizeof(hash));
}

static void
edit_28_29_fence_covers_the_raw_bytes(void **state)
{
	struct answer a;
	char hex[65];

	(void)state;
	put_file(&H, H.roots[0], "f", BOM "old", 6, 0644);
	digest(hex, "other", 5);
	ask_edit(&H, OP_EDIT_FILE, "f", old_to_new, 1, hex, &a);
	expect_failure(&H, "28", &a, EC_EDIT_CONFLICT, NOT_COMMITTED);
	digest(hex, "old", 3); /* 29: without the mark */
	ask_edit(&H, OP_EDIT_FILE, "f", old_to_new, 1, hex, &a);
	expect_failure(&H, "29", &a, EC_EDIT_CONFLICT, NOT_COMMITTED);
	digest(hex, BOM "old", 6);
	ask_edit(&H, OP_EDIT_FILE, "f", old_to_new, 1, hex, &a);
	assert_true(a.ok);
	answer_free(&a);
	expect_content(&H, "f", BOM "new", 6);
	/* Before the test for UTF-8 and before matching. */
	put_file(&H, H.roots[0], "f", "\xff", 1, 0644);
	ask_edit(&H, OP_EDIT_FILE, "f", old_to_new, 1, hex, &a);
	expect_failure(&H, "fence", &a, EC_EDIT_CONFLICT, NOT_COMMITTED);
	digest(hex, "\xff", 1);
	ask_edit(&H, OP_EDIT_FILE, "f", old_to_new, 1, hex, &a);
	expect_failure(&H, "fence", &a, EC_INVALID_REQUEST, NOT_COMMITTED);
	digest(hex, "", 0);
	put_file(&H, H.roots[0], "f", "", 0, 0644);
	ask_edit(&H, OP_EDIT_FILE, "f", old_to_new, 1, hex, &a);
	expect_failure(&H, "empty", &a, EC_EDIT_CONFLICT, NOT_COMMITTED);
}

static void
preview_3_mark_made_by_the_edit(void **state)
{
	static const struct pair e[] = { PAIR("a", BOM "b") };
	struct answer a;

	(void)state;
	put_file(&H, H.roots[0], "f", "a", 1, 0644);
	ask_edit(&H, OP_PREVIEW_EDIT, "f", e, 1, NULL, &a);
	assert_true(a.ok);
	assert_int_equal(a.result.has_bom, 1);
	assert_int_equal(a.result.content.len, 1);
	assert_int_equal(a.result.content.data[0], 'b');
	assert_int_equal(a.result.bytes_written, 4);
	answer_free(&a);
}

static void
preview_1_4_5_then_edit(void **state)
{
	static const struct pair e[] = { PAIR(" suffix", "RET suffix") };
	struct answer p, a;

	(void)state;
	put_file(&H, H.roots[0], "f", S("prefix SEC suffix"), 0644);
	ask_edit(&H, OP_PREVIEW_EDIT, "f", e, 1, NULL, &p);
	assert_true(p.ok);
	assert_int_equal(p.result.content.len, 20);
	assert_memory_equal(p.result.content.data, "prefix SECRET suffix", 20);
	assert_int_equal(p.result.has_bom, 0);
	expect_content(&H, "f", S("prefix SEC suffix"));

	put_file(&H, H.roots[0], "f", S("PREFIX SEC suffix"), 0644); /* 4 */
	ask_edit(&H, OP_EDIT_FILE, "f", e, 1, p.result.base_sha256, &a);
	expect_failure(&H, "10/4", &a, EC_EDIT_CONFLICT, NOT_COMMITTED);
	put_file(&H, H.roots[0], "f", S("prefix SEC suffix"), 0644); /* 5 */
	ask_edit(&H, OP_EDIT_FILE, "f", e, 1, p.result.base_sha256, &a);
	assert_true(a.ok);
	answer_free(&a);
	expect_content(&H, "f", S("prefix SECRET suffix"));
	answer_free(&p);
}

/* A preview needs nobody's permission and leaves the inode alone. */
static void
preview_touches_nothing(void **state)
{
	struct stat before, after;
	struct answer a;
	char *p = in_root(&H, "f");

	(void)state;
	put_file(&H, H.roots[0], "f", "old", 3, 0444);
	assert_int_equal(stat(p, &before), 0);
	ask_edit(&H, OP_PREVIEW_EDIT, "f", old_to_new, 1, NULL, &a);
	assert_true(a.ok);
	answer_free(&a);
	assert_int_equal(stat(p, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_memory_equal(
	    &before.st_ctim, &after.st_ctim, sizeof(before.st_ctim));
	free(p);
}

static void
edit_15_makes_a_new_file(void **state)
{
	static const struct pair e[] = { PAIR("b", "b") };
	struct stat before, after;
	struct answer a;
	char *p = in_root(&H, "f");

	(void)state;
	put_file(&H, H.roots[0], "f", "abc", 3, 0755);
	assert_int_equal(stat(p, &before), 0);
	ask_edit(&H, OP_EDIT_FILE, "f", e, 1, NULL, &a);
	assert_true(a.ok);
	answer_free(&a);
	assert_int_equal(stat(p, &after), 0);
	assert_int_not_equal(before.st_ino, after.st_ino);
	expect_mode(&H, "f", 0755);
	free(p);
}

static int
start(void **state)
{
	(void)state;
	if (sodium_init() == -1)
		return -1;
	harness_init(&H, 2);
	H.without[1] = OPS_MUTATION | OP_BIT(OP_PREVIEW_EDIT);
	make_fixture();
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

#define N(a) (sizeof(a) / sizeof((a)[0]))

int
main(void)
{
	static const struct CMUnitTest more[] = {
		cmocka_unit_test(edit_limits),
		cmocka_unit_test(edit_may_pass_the_limit_on_the_way),
		cmocka_unit_test(edit_of_one_huge_line_with_many_matches),
		cmocka_unit_test(edit_a_hundred_places),
		cmocka_unit_test(edit_28_29_fence_covers_the_raw_bytes),
		cmocka_unit_test(edit_15_makes_a_new_file),
		cmocka_unit_test(preview_3_mark_made_by_the_edit),
		cmocka_unit_test(preview_1_4_5_then_edit),
		cmocka_unit_test(preview_touches_nothing),
	};
	struct CMUnitTest tests[N(edit_rows) + N(path_rows) + N(more)];
	size_t i, n = 0;

	log_init("test", 0);
	memset(tests, 0, sizeof(tests));
	for (i = 0; i < N(edit_rows); i++, n++) {
		tests[n].name = edit_rows[i].name;
		tests[n].test_func = run_edit_row;
		tests[n].initial_state = (void *)(uintptr_t)&edit_rows[i];
	}
	for (i = 0; i < N(path_rows); i++, n++) {
		tests[n].name = path_rows[i].name;
		tests[n].test_func = run_path_row;
		tests[n].initial_state = (void *)(uintptr_t)&path_rows[i];
	}
	memcpy(tests + n, more, sizeof(more));
	return cmocka_run_group_tests_name("edit_file", tests, start, stop);
}
