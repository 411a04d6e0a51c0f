#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>

#include <errno.h>
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
#include "imsg.h"
#include "json.h"
#include "log.h"
#include "msg.h"
#include "path.h"
#include "times.h"
#include "utf8.h"

/* ---- UTF-8 (workspace-tools 4, table of replacements) ---- */

static const struct {
	const char *bytes;
	size_t n;
	const char *text;
} replaced[] = {
	{ "\xff", 1, "\xef\xbf\xbd" },
	{ "\x80", 1, "\xef\xbf\xbd" },
	{ "\xc2", 1, "\xef\xbf\xbd" },
	{ "\xe2\x82", 2, "\xef\xbf\xbd" },
	{ "\xe0\xa0", 2, "\xef\xbf\xbd" },
	{ "\xf1\x80", 2, "\xef\xbf\xbd" },
	{ "\xf0\x9f\x92", 3, "\xef\xbf\xbd" },
	{ "\xe2\x28\xa1", 3, "\xef\xbf\xbd(\xef\xbf\xbd" },
	{ "\xc3\x28", 2, "\xef\xbf\xbd(" },
	{ "\xf1\x80\x80\x41", 4,
	    "\xef\xbf\xbd"
	    "A" },
	{ "\xc0\x80", 2, "\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xe0\x80\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xf0\x80\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xf4\x90\x80\x80", 4,
	    "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xf8\x88\x80\x80\x80", 5,
	    "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
	{ "a\xf0\x9f\x98\x80z", 6, "a\xf0\x9f\x98\x80z" },
};

static void
malformed_utf8_is_replaced_by_maximal_parts(void **state)
{
	struct buf b;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(replaced) / sizeof(replaced[0]); i++) {
		buf_init(&b);
		utf8_sanitize(&b, replaced[i].bytes, replaced[i].n);
		if (b.len != strlen(replaced[i].text) ||
		    memcmp(b.data, replaced[i].text, b.len) != 0)
			fail_msg("row %zu", i);
		assert_int_equal(b.len,
		    utf8_sanitized_length(replaced[i].bytes, replaced[i].n));
		buf_free(&b);
	}
}

/* Wherever it is in text that is otherwise ASCII. */
static void
no_malformed_byte_is_passed_over(void **state)
{
	char text[48], want[64];
	struct buf b;
	size_t n, at;

	(void)state;
	for (n = 1; n <= sizeof(text); n++)
		for (at = 0; at < n; at++) {
			memset(text, 'a', sizeof(text));
			assert_true(utf8_valid(text, n));
			assert_int_equal(utf8_units(text, n), n);
			text[at] = '\xff';
			memset(want, 'a', sizeof(want));
			memcpy(want + at, "\xef\xbf\xbd", 3);
			assert_false(utf8_valid(text, n));
			assert_int_equal(utf8_units(text, n), n);
			assert_int_equal(utf8_sanitized_length(text, n), n + 2);
			buf_init(&b);
			utf8_sanitize(&b, text, n);
			assert_int_equal(b.len, n + 2);
			assert_memory_equal(b.data, want, n + 2);
			buf_free(&b);
		}
}

static void
units_count_as_javascript_does(void **state)
{
	(void)state;
	assert_int_equal(
	    utf8_units("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10), 5);
	assert_int_equal(utf8_cut_units("ab\xf0\x9f\x98\x80"
					"c",
			     7, 3),
	    2);
	assert_int_equal(utf8_cut_units("ab\xf0\x9f\x98\x80"
					"c",
			     7, 4),
	    6);
}

static void
blank_is_javascript_white_space(void **state)
{
	(void)state;
	assert_true(utf8_blank("", 0));
	assert_true(utf8_blank(" \t\n\v\f\r", 6));
	assert_true(utf8_blank("\xc2\xa0\xef\xbb\xbf\xe3\x80\x80", 8));
	assert_false(utf8_blank("\xe2\x80\x8b", 3)); /* U+200B */
	assert_false(utf8_blank("\xc2\x85", 2)); /* U+0085 */
	assert_false(utf8_blank(" x", 2));
}

/* ---- JSON ---- */

static void
written_json_is_what_the_server_hashes(void **state)
{
	static const char in[] = "\"\\/\b\t\n\f\r\x01\x1b\x7f \xc3\xa9\xe2\x80"
				 "\xa8\xf0\x9f\x98\x80\xff";
	struct jwriter w;
	struct buf b;

	(void)state;
	buf_init(&b);
	jw_init(&w, &b);
	jw_object(&w);
	jw_member_bytes(&w, "s", in, sizeof(in)); /* with the final NUL */
	jw_member_int(&w, "n", -9007199254740991);
	jw_name(&w, "a");
	jw_array(&w);
	jw_bool(&w, 1);
	jw_null(&w);
	jw_object(&w);
	jw_object_end(&w);
	jw_array_end(&w);
	jw_object_end(&w);
	assert_string_equal(buf_cstr(&b),
	    "{\"s\":\"\\\"\\\\/\\b\\t\\n\\f\\r\\u0001\\u001b\x7f \xc3\xa9"
	    "\xe2\x80\xa8\xf0\x9f\x98\x80\xef\xbf\xbd\\u0000\","
	    "\"n\":-9007199254740991,\"a\":[true,null,{}]}");
	buf_free(&b);
}

static struct json *
parse(const char *s)
{
	const char *error;

	return json_parse(s, strlen(s), &error);
}

static void
json_reads_as_the_runtime_does(void **state)
{
	struct json *j;
	int64_t v;

	(void)state;
	j = parse("\xef\xbb\xbf{\"a\":1,\"b\":\"x\\u0000y\",\"a\":2.0,"
		  "\"s\":\"\\ud83d\\ude00\",\"l\":\"\\ud800.txt\","
		  "\"m\":\"\\\\ud800\",\"e\":1e2}");
	assert_non_null(j);
	assert_int_equal(json_get_integer(j, "a", &v), 0);
	assert_int_equal(v, 2);
	assert_null(json_get_str(j, "b"));
	assert_int_equal(json_get(j, "b")->len, 3);
	assert_string_equal(json_get_str(j, "s"), "\xf0\x9f\x98\x80");
	assert_false(utf8_valid(json_get(j, "l")->str, json_get(j, "l")->len));
	assert_int_equal(json_get(j, "l")->len, 7);
	assert_string_equal(json_get_str(j, "m"), "\\ud800");
	assert_int_equal(json_get_integer(j, "e", &v), 0);
	assert_int_equal(v, 100);
	assert_null(json_get(j, "missing"));
	json_free(j);
	j = parse("\"\xff\"");
	assert_string_equal(j->str, "\xef\xbf\xbd");
	json_free(j);
}

static void
integers_are_safe_integers(void **state)
{
	static const struct {
		const char *text;
		int ok;
		int64_t v;
	} t[] = { { "1.0", 1, 1 }, { "0.99999999999999999", 1, 1 },
		{ "9007199254740991", 1, 9007199254740991 },
		{ "9007199254740991.4", 1, 9007199254740991 },
		{ "9007199254740992", 0, 0 }, { "1.5", 0, 0 }, { "-1", 1, -1 },
		{ "-0", 1, 0 }, { "1e400", 0, 0 }, { "\"1\"", 0, 0 },
		{ "true", 0, 0 }, { "null", 0, 0 }, { "[]", 0, 0 } };
	struct json *j;
	int64_t v;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		j = parse(t[i].text);
		assert_non_null(j);
		if ((json_integer(j, &v) == 0) != t[i].ok)
			fail_msg("%s", t[i].text);
		if (t[i].ok)
			assert_int_equal(v, t[i].v);
		json_free(j);
	}
}

static void
malformed_json_is_refused(void **state)
{
	static const char *const t[] = { "", " ", "{", "[1,", "{\"a\":}",
		"{\"obj\":{\"k\":1 \"z\":2}}", "[1]]", "nul", "\"\\x\"",
		"\"\\u12\"", "\"\\", "01", "+1", "1 2", "{'a':1}", "\"\n\"",
		"<html>", "\"\\ud8\"" };
	struct json *j;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if ((j = parse(t[i])) != NULL)
			fail_msg("%s", t[i]);
}

static void
json_depth_and_size_are_bounded(void **state)
{
	struct buf b;
	struct json *j;
	const char *error;
	int i;

	(void)state;
	buf_init(&b);
	for (i = 0; i < JSON_DEPTH_MAX; i++)
		buf_addc(&b, '[');
	for (i = 0; i < JSON_DEPTH_MAX; i++)
		buf_addc(&b, ']');
	j = json_parse(b.data, b.len, &error);
	assert_non_null(j);
	json_free(j);
	buf_reset(&b);
	for (i = 0; i < 1000000; i++)
		buf_addc(&b, '[');
	assert_null(json_parse(b.data, b.len, &error));
	buf_reset(&b);
	buf_addc(&b, '[');
	for (i = 0; i < JSON_NODES_MAX + 1; i++)
		buf_adds(&b, "1,");
	buf_adds(&b, "1]");
	assert_null(json_parse(b.data, b.len, &error));
	buf_free(&b);
}

static void
closed_objects_refuse_unknown_members(void **state)
{
	static const char *const names[] = { "a", "b", NULL };
	struct json *j;

	(void)state;
	j = parse("{\"a\":1}");
	assert_true(json_closed(j, names));
	json_free(j);
	j = parse("{\"a\":1,\"__proto__\":1}");
	assert_false(json_closed(j, names));
	json_free(j);
	j = parse("[]");
	assert_false(json_closed(j, names));
	json_free(j);
}

/* ---- paths (workspace-tools 1.4, 1.5, 1.7, 1.8) ---- */

static void
portable_paths(void **state)
{
	static const struct {
		const char *path;
		int ok;
	} t[] = { { "", 0 }, { ".", 1 }, { "./", 1 }, { "./a", 1 }, { "a/", 1 },
		{ "a//b", 1 }, { "a/./b", 1 }, { "a/.", 1 }, { "..", 0 },
		{ "../a", 0 }, { "a/..", 0 }, { "a/../b", 0 }, { "a/b/..", 0 },
		{ "...", 1 }, { "..a", 1 }, { "a..", 1 }, { "a/...", 1 },
		{ "/", 0 }, { "/a", 0 }, { "//a", 0 }, { "a\\b", 0 },
		{ "\\", 0 }, { "..\\a", 0 }, { "C:", 0 }, { "C:x", 0 },
		{ "c:/x", 0 }, { "z:", 0 }, { "1:x", 1 }, { "ab:c", 1 },
		{ "\xc3\xa9:x", 1 }, { "a/C:x", 1 }, { "\xed\xa0\x80.txt", 0 },
		{ "\xef\xbf\xbd.txt", 1 },
		{ "\xef\xbb\xbf"
		  "foo.txt",
		    1 },
		{ " ", 1 }, { "~", 1 }, { "C", 1 }, { "a\nb", 1 } };
	struct buf b;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if (path_portable(t[i].path, strlen(t[i].path)) != t[i].ok)
			fail_msg("%s", t[i].path);
	assert_false(path_portable("a\0b", 3));
	buf_init(&b);
	for (i = 0; i < 4096; i++)
		buf_adds(&b, "\xc3\xa9");
	assert_true(path_portable(b.data, b.len));
	buf_addc(&b, 'a');
	assert_false(path_portable(b.data, b.len));
	buf_reset(&b);
	for (i = 0; i < 2048; i++)
		buf_adds(&b, "\xf0\x9f\x98\x80");
	assert_true(path_portable(b.data, b.len));
	buf_addc(&b, 'a');
	assert_false(path_portable(b.data, b.len));
	buf_free(&b);
}

static void
normal_form_and_scope(void **state)
{
	static const char *const t[][2] = { { "a//b", "a/b" }, { "./a", "a" },
		{ ".", "." }, { "a/", "a" }, { "./", "." },
		{ "a/./b/.", "a/b" } };
	struct buf b;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		buf_init(&b);
		path_normalise(&b, t[i][0], strlen(t[i][0]));
		assert_string_equal(buf_cstr(&b), t[i][1]);
		buf_free(&b);
	}
	assert_true(path_within("src/a", 5, "src", 3));
	assert_true(path_within("src", 3, "./src/", 6));
	assert_true(path_within("x", 1, "", 0));
	assert_true(path_within("x", 1, ".", 1));
	assert_false(path_within("srcx", 4, "src", 3));
	assert_false(path_within("a", 1, "a/b", 3));
}

static void
path_order(void **state)
{
	static const struct {
		const char *a;
		const char *b;
		int sign;
	} t[] = { { "a/x", "a-b/x", -1 }, { "src/app.ts", "src.ts", -1 },
		{ "src", "src/app.ts", -1 }, { "Z", "a", -1 },
		{ "file-10", "file-9", -1 }, { "a b", "a/b", 1 },
		{ "a/b/c", "a/bb", -1 }, { "a", "a", 0 },
		{ "x/\xee\x80\x80.ts", "x/\xf0\x90\x80\x80.ts", -1 } };
	size_t i;
	int r;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		r = path_compare(
		    t[i].a, strlen(t[i].a), t[i].b, strlen(t[i].b));
		if ((r > 0) - (r < 0) != t[i].sign)
			fail_msg("%s %s", t[i].a, t[i].b);
		r = path_compare(
		    t[i].b, strlen(t[i].b), t[i].a, strlen(t[i].a));
		assert_int_equal((r > 0) - (r < 0), -t[i].sign);
	}
}

static void
identifiers(void **state)
{
	char id[130];

	(void)state;
	memset(id, 'a', sizeof(id));
	assert_true(id_valid(id, 128));
	assert_false(id_valid(id, 129));
	assert_false(id_valid("", 0));
	assert_true(id_valid("build-box:7", 11));
	assert_false(id_valid("-a", 2));
	assert_false(id_valid("a\n", 2));
	assert_false(id_valid("a/b", 3));
}

/* ---- time ---- */

static void
iso_time_round_trip(void **state)
{
	static const struct {
		const char *in;
		const char *out; /* NULL: refused */
	} t[] = { { "2026-03-04T05:06:07.089Z", "2026-03-04T05:06:07.089Z" },
		{ "2026-03-04T05:06:07Z", "2026-03-04T05:06:07.000Z" },
		{ "2024-02-29T23:59:59.9999Z", "2024-02-29T23:59:59.999Z" },
		{ "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z" },
		{ "2026-03-04T06:06:07.5+01:00", "2026-03-04T05:06:07.500Z" },
		{ "2023-02-29T00:00:00Z", NULL }, { "2026-03-04", NULL },
		{ "2026-03-04T05:06:07", NULL }, { "", NULL },
		{ "2026-13-04T05:06:07Z", NULL },
		{ "2026-03-04T05:06:07.Z", NULL },
		{ "2026-03-04T05:06:07Z ", NULL } };
	char out[TIME_ISO_SIZE];
	int64_t ms;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		if ((time_parse_iso(t[i].in, &ms) == 0) != (t[i].out != NULL))
			fail_msg("%s", t[i].in);
		if (t[i].out == NULL)
			continue;
		time_format_iso(ms, out);
		assert_string_equal(out, t[i].out);
	}
	assert_int_equal(time_parse_iso("1970-01-01T00:00:00Z", &ms), 0);
	assert_int_equal(ms, 0);
}

/* ---- typed messages ---- */

/* Every shorter or longer payload must be refused. */
static void
exact(struct buf *b, int (*parses)(const struct imsg *))
{
	struct imsg im;
	size_t n;

	memset(&im, 0, sizeof(im));
	im.fd = -1;
	im.data = *b;
	assert_true(parses(&im));
	for (n = 0; n < b->len; n++) {
		im.data.len = n;
		if (parses(&im))
			fail_msg("%zu of %zu bytes were enough", n, b->len);
	}
	buf_addc(b, 0);
	im.data = *b;
	assert_false(parses(&im));
	buf_free(b);
}

static int
parse_request(const struct imsg *im)
{
	struct request q;

	if (request_parse(im, &q) == -1)
		return 0;
	request_free(&q);
	return 1;
}

static int
parse_result(const struct imsg *im)
{
	struct result q;

	if (result_parse(im, &q) == -1)
		return 0;
	result_free(&q);
	return 1;
}

static int
parse_bridge_config(const struct imsg *im)
{
	struct bridge_config c;

	if (bridge_config_parse(im, &c) == -1)
		return 0;
	bridge_config_free(&c);
	return 1;
}

static int
parse_executor_config(const struct imsg *im)
{
	struct executor_config c;

	if (executor_config_parse(im, &c) == -1)
		return 0;
	executor_config_free(&c);
	return 1;
}

static int
parse_cgroup_config(const struct imsg *im)
{
	struct cgroup_config c;

	return cgroup_config_parse(im, &c) == 0;
}

static int
parse_tool_error(const struct imsg *im)
{
	struct tool_error e;

	if (tool_error_parse(im, &e) == -1)
		return 0;
	tool_error_free(&e);
	return 1;
}

static int
parse_sign(const struct imsg *im)
{
	struct sign_request s;

	if (sign_request_parse(im, &s) == -1)
		return 0;
	sign_request_free(&s);
	return 1;
}

static void
messages_are_read_exactly_as_written(void **state)
{
	struct edit edit;
	struct request q;
	struct result r;
	struct bridge_config bc;
	struct executor_config ec;
	struct cgroup_config cg;
	struct sign_request s;
	struct workspace ws;
	struct match m;
	char *list[2];
	struct buf b;

	(void)state;
	buf_init(&b);
	memset(&q, 0, sizeof(q));
	memset(&edit, 0, sizeof(edit));
	q.operation = OP_EDIT_FILE;
	q.assignment = xstrdup("a");
	text_set(&q.path, "p\0q", 3);
	text_set(&edit.old, "o", 1);
	text_set(&edit.new, "", 0);
	q.edits = xmalloc(sizeof(edit));
	*q.edits = edit;
	q.nedits = 1;
	request_build(&b, &q);
	request_free(&q);
	exact(&b, parse_request);

	memset(&r, 0, sizeof(r));
	r.operation = OP_SEARCH_TEXT;
	memset(&m, 0, sizeof(m));
	text_set(&m.path, "p", 1);
	r.matches = xmalloc(sizeof(m));
	*r.matches = m;
	r.nmatches = 1;
	r.signal = xstrdup("SIGKILL");
	result_build(&b, &r);
	result_free(&r);
	exact(&b, parse_result);

	list[0] = list[1] = xstrdup("x");
	memset(&bc, 0, sizeof(bc));
	memset(&ws, 0, sizeof(ws));
	ws.id = list[0];
	bc.base_url = bc.worker_id = list[0];
	bc.runtimes = list;
	bc.nruntimes = 2;
	bc.workspaces = &ws;
	bc.nworkspaces = 1;
	bridge_config_build(&b, &bc);
	exact(&b, parse_bridge_config);

	memset(&ec, 0, sizeof(ec));
	ec.user = ec.home = list[0];
	ec.env = list;
	ec.nenv = 2;
	ec.slots = 1;
	executor_config_build(&b, &ec);
	exact(&b, parse_executor_config);

	memset(&cg, 0, sizeof(cg));
	cg.index = ROOTS_MAX - 1;
	cgroup_config_build(&b, &cg);
	exact(&b, parse_cgroup_config);

	tool_error_build(&b, EC_EDIT_CONFLICT, UNCERTAIN, "text");
	exact(&b, parse_tool_error);

	memset(&s, 0, sizeof(s));
	s.path = list[0];
	sign_request_build(&b, &s);
	exact(&b, parse_sign);
	free(list[0]);
}

static void
values_out_of_range_are_refused(void **state)
{
	struct imsg im;
	struct buf b;

	(void)state;
	memset(&im, 0, sizeof(im));
	im.fd = -1;
	buf_init(&b);
	m_add_u8(&b, EC_MAX);
	m_add_u8(&b, UNCERTAIN);
	m_add_str(&b, "x");
	im.data = b;
	assert_false(parse_tool_error(&im));
	/* An error cannot say that all is well. */
	b.data[0] = EC_INVALID_PATH;
	b.data[1] = COMMITTED;
	assert_false(parse_tool_error(&im));
	b.data[1] = UNCERTAIN;
	assert_true(parse_tool_error(&im));
	buf_free(&b);
	/* A length that goes beyond the message. */
	m_add_str(&b, "path");
	m_add_u32(&b, 0xfffffffe);
	im.data = b;
	assert_false(parse_sign(&im));
	buf_free(&b);
	/* A NUL inside a string. */
	m_add_bytes(&b, "a\0b", 3);
	m_add_bytes(&b, "0123456789abcdef0123456789abcdef", 32);
	im.data = b;
	assert_false(parse_sign(&im));
	buf_free(&b);
}

static void
random_payloads_never_break_a_parser(void **state)
{
	static int (*const parsers[])(const struct imsg *) = { parse_request,
		parse_result, parse_bridge_config, parse_executor_config,
		parse_cgroup_config, parse_tool_error, parse_sign };
	uint32_t seed = 20260304;
	struct imsg im;
	struct buf b;
	size_t i, n, k;

	(void)state;
	for (i = 0; i < 20000; i++) {
		buf_init(&b);
		seed = seed * 1664525 + 1013904223;
		n = (seed >> 16) % 200;
		for (k = 0; k < n; k++) {
			seed = seed * 1664525 + 1013904223;
			/* mostly small numbers, so that lengths make sense */
			buf_addc(&b,
			    (uint8_t)((seed >> 28) < 12 ? (seed >> 24) % 4
							: seed >> 16));
		}
		memset(&im, 0, sizeof(im));
		im.fd = -1;
		im.data = b;
		for (k = 0; k < sizeof(parsers) / sizeof(parsers[0]); k++)
			(void)parsers[k](&im);
		buf_free(&b);
	}
}

/* ---- log ---- */

static void
log_lines_cannot_be_forged(void **state)
{
	char line[8192], *text;
	int fds[2], save;
	ssize_t n;
	size_t i;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	save = dup(STDERR_FILENO);
	assert_int_equal(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
	text = xmalloc(6000);
	memset(text, 'x', 5999);
	text[5999] = '\0';
	log_info("a\nlibrechat-code: forged\033[1m\xff %s", text);
	assert_int_equal(dup2(save, STDERR_FILENO), STDERR_FILENO);
	close(save);
	close(fds[1]);
	n = read(fds[0], line, sizeof(line));
	close(fds[0]);
	assert_true(n > 0 && n < 2300);
	for (i = 0; i + 1 < (size_t)n; i++)
		if ((unsigned char)line[i] < 0x20)
			fail_msg("byte %zu", i);
	assert_int_equal(line[n - 1], '\n');
	assert_non_null(memmem(line, (size_t)n, "\\x0alibrechat", 13));
	free(text);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(malformed_utf8_is_replaced_by_maximal_parts),
		cmocka_unit_test(no_malformed_byte_is_passed_over),
		cmocka_unit_test(units_count_as_javascript_does),
		cmocka_unit_test(blank_is_javascript_white_space),
		cmocka_unit_test(written_json_is_what_the_server_hashes),
		cmocka_unit_test(json_reads_as_the_runtime_does),
		cmocka_unit_test(integers_are_safe_integers),
		cmocka_unit_test(malformed_json_is_refused),
		cmocka_unit_test(json_depth_and_size_are_bounded),
		cmocka_unit_test(closed_objects_refuse_unknown_members),
		cmocka_unit_test(portable_paths),
		cmocka_unit_test(normal_form_and_scope),
		cmocka_unit_test(path_order),
		cmocka_unit_test(identifiers),
		cmocka_unit_test(iso_time_round_trip),
		cmocka_unit_test(messages_are_read_exactly_as_written),
		cmocka_unit_test(values_out_of_range_are_refused),
		cmocka_unit_test(random_payloads_never_break_a_parser),
		cmocka_unit_test(log_lines_cannot_be_forged),
	};

	log_init("test", 0);
	return cmocka_run_group_tests_name("common", tests, NULL, NULL);
}
