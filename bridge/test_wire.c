#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api.h"
#include "credential.h"
#include "json.h"
#include "offer.h"
#include "request.h"
#include "result.h"
#include "retry.h"
#include "settlement.h"
#include "url.h"

/* What the process says and accepts on the wire, without a process. */

void
failure_set(struct failure *f, enum failure_class class, const char *fmt, ...)
{
	(void)f;
	(void)class;
	(void)fmt;
}

uint32_t
bridge_id(struct bridge *b)
{
	return ++b->last_id;
}

void
bridge_report(struct bridge *b, enum bridge_state s, const char *text)
{
	(void)b;
	(void)s;
	(void)text;
}

void
bridge_end(struct bridge *b, enum end_status status, const char *text)
{
	(void)b;
	(void)text;
	exit((int)status);
}

/* ---- requests (workspace-tools 1, 5 to 11) ---- */

#define HEAD(op) \
	"{\"protocolVersion\":1,\"operation\":\"" op "\",\"workspaceId\":\"w\""
#define RD  HEAD("read_file") ",\"path\":"
#define SE  HEAD("search_text") ",\"query\":"
#define LI  HEAD("list_files")
#define WR  HEAD("write_file") ",\"path\":\"a\",\"content\":"
#define ED  HEAD("edit_file") ",\"path\":\"a\""
#define PR  HEAD("preview_edit") ",\"path\":\"a\""
#define EX  HEAD("execute_command") ",\"command\":"
#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct {
	int valid;
	const char *json;
} requests[] = {
	/* objects */
	{ 0, "[]" },
	{ 0, "\"x\"" },
	{ 0, "null" },
	{ 0, "{}" },
	{ 1, RD "\"a\"}" },
	{ 1,
	    "{\"protocolVersion\":1.0,\"operation\":\"read_file\","
	    "\"workspaceId\":\"w\",\"path\":\"a\"}" },
	{ 0,
	    "{\"protocolVersion\":2,\"operation\":\"read_file\","
	    "\"workspaceId\":\"w\",\"path\":\"a\"}" },
	{ 0,
	    "{\"protocolVersion\":\"1\",\"operation\":\"read_file\","
	    "\"workspaceId\":\"w\",\"path\":\"a\"}" },
	{ 0,
	    "{\"protocolVersion\":true,\"operation\":\"read_file\","
	    "\"workspaceId\":\"w\",\"path\":\"a\"}" },
	{ 0,
	    "{\"operation\":\"read_file\",\"workspaceId\":\"w\","
	    "\"path\":\"a\"}" },
	{ 0, HEAD("delete_file") ",\"path\":\"a\"}" },
	{ 0, HEAD("read_file\\u0000") ",\"path\":\"a\"}" },
	{ 0,
	    "{\"protocolVersion\":1,\"operation\":\"read_file\","
	    "\"workspaceId\":\"w\\n\",\"path\":\"a\"}" },
	{ 0,
	    "{\"protocolVersion\":1,\"operation\":\"read_file\","
	    "\"workspaceId\":\"-w\",\"path\":\"a\"}" },
	{ 0, RD "\"a\",\"encoding\":\"x\"}" },
	{ 0, RD "\"a\",\"__proto__\":{}}" },
	{ 0, RD "\"a\",\"query\":\"x\"}" },
	{ 0, RD "\"a\",\"path\\u0000\":\"x\"}" },
	{ 1, RD "\"../x\",\"path\":\"a\"}" }, /* the last one wins */
	{ 0, RD "\"a\",\"path\":\"../x\"}" },
	/* paths */
	{ 0, HEAD("read_file") "}" },
	{ 0, RD "null}" },
	{ 0, RD "1}" },
	{ 0, RD "\"\"}" },
	{ 1, RD "\".\"}" },
	{ 1, RD "\"./a//b/.\"}" },
	{ 0, RD "\"..\"}" },
	{ 0, RD "\"a/../b\"}" },
	{ 1, RD "\"..a\"}" },
	{ 0, RD "\"/a\"}" },
	{ 0, RD "\"a\\\\b\"}" },
	{ 0, RD "\"C:x\"}" },
	{ 1, RD "\"ab:c\"}" },
	{ 0, RD "\"a\\u0000b\"}" },
	{ 0, RD "\"\\ud800.txt\"}" },
	{ 1, RD "\"\\ufffd.txt\"}" },
	{ 1, RD "\"\\ud83d\\ude00\"}" },
	/* read_file */
	{ 1, RD "\"a\",\"startLine\":9007199254740991}" },
	{ 1, RD "\"a\",\"startLine\":9007199254740991.4}" },
	{ 0, RD "\"a\",\"startLine\":9007199254740992}" },
	{ 0, RD "\"a\",\"startLine\":0}" },
	{ 0, RD "\"a\",\"startLine\":-0}" },
	{ 0, RD "\"a\",\"startLine\":1e400}" },
	{ 1, RD "\"a\",\"startLine\":1e2}" },
	{ 1, RD "\"a\",\"startLine\":0.99999999999999999}" },
	{ 1, RD "\"a\",\"maxLines\":500.0}" },
	{ 0, RD "\"a\",\"maxLines\":501}" },
	{ 0, RD "\"a\",\"maxLines\":0}" },
	{ 0, RD "\"a\",\"maxLines\":null}" },
	{ 0, RD "\"a\",\"maxLines\":\"10\"}" },
	{ 0, RD "\"a\",\"maxLines\":1.5}" },
	{ 0, RD "\"a\",\"maxLines\":[]}" },
	/* search_text */
	{ 1, SE "\"x\"}" },
	{ 0, SE "\"\"}" },
	{ 0, SE "\"a\\nb\"}" },
	{ 0, SE "\"a\\rb\"}" },
	{ 0, SE "\"a\\u0000\"}" },
	{ 0, SE "\"\\udc00\"}" },
	{ 1, SE "\"\\t\\u2028\\ufeff\"}" },
	{ 1, SE "\"x\",\"path\":\".\",\"maxResults\":200}" },
	{ 0, SE "\"x\",\"maxResults\":201}" },
	{ 0, SE "\"x\",\"maxResults\":0}" },
	{ 0, SE "\"x\",\"path\":\"/\"}" },
	{ 0, HEAD("search_text") "}" },
	/* list_files */
	{ 1, LI "}" },
	{ 1, LI ",\"maxResults\":500}" },
	{ 0, LI ",\"maxResults\":501}" },
	{ 0, LI ",\"maxResults\":null}" },
	{ 1, LI ",\"path\":\"./src\",\"afterPath\":\"src/a.ts\"}" },
	{ 0, LI ",\"path\":\"src\",\"afterPath\":\"outside/app.ts\"}" },
	{ 0, LI ",\"afterPath\":\"src//a\"}" },
	{ 0, LI ",\"afterPath\":\"./a\"}" },
	{ 0, LI ",\"afterPath\":\"a/\"}" },
	{ 0, LI ",\"afterPath\":\"../a\"}" },
	{ 0, LI ",\"afterPath\":\"\"}" },
	{ 1, LI ",\"afterPath\":\".\"}" },
	{ 1, LI ",\"path\":\"src\",\"afterPath\":\"src\"}" },
	{ 0, LI ",\"path\":\"src\",\"afterPath\":\"srcs/a\"}" },
	/* write_file */
	{ 1, WR "\"\"}" },
	{ 1, WR "\"a\\u0000b\"}" },
	{ 0, WR "\"\\ud800\"}" },
	{ 0, WR "1}" },
	{ 1, WR "\"\",\"overwrite\":false}" },
	{ 0, WR "\"\",\"overwrite\":\"false\"}" },
	{ 0, WR "\"\",\"overwrite\":null}" },
	{ 0, HEAD("write_file") ",\"path\":\"a\"}" },
	/* edits */
	{ 1, ED ",\"oldText\":\"a\",\"newText\":\"\"}" },
	{ 0, ED ",\"oldText\":\"\",\"newText\":\"\"}" },
	{ 0, ED ",\"oldText\":\"a\"}" },
	{ 0, ED ",\"newText\":\"a\"}" },
	{ 0, ED "}" },
	{ 0, ED ",\"oldText\":\"a\",\"newText\":null}" },
	{ 1, ED ",\"edits\":[{\"oldText\":\"a\",\"newText\":\"b\"}]}" },
	{ 0,
	    ED ",\"edits\":[{\"oldText\":\"a\",\"newText\":\"b\"}],"
	       "\"oldText\":\"x\"}" },
	{ 0,
	    ED ",\"edits\":[{\"oldText\":\"a\",\"newText\":\"b\"}],"
	       "\"oldText\":null}" },
	{ 0, ED ",\"edits\":[]}" },
	{ 0, ED ",\"edits\":null}" },
	{ 0, ED ",\"edits\":{}}" },
	{ 0, ED ",\"edits\":[1]}" },
	{ 0,
	    ED ",\"edits\":[{\"oldText\":\"a\",\"newText\":\"b\","
	       "\"x\":1}]}" },
	{ 0, ED ",\"edits\":[{\"oldText\":\"a\"}]}" },
	{ 1,
	    ED ",\"oldText\":\"a\",\"newText\":\"b\","
	       "\"expectedBaseSha256\":\"" SHA "\"}" },
	{ 0,
	    ED ",\"oldText\":\"a\",\"newText\":\"b\","
	       "\"expectedBaseSha256\":\"not-a-sha\"}" },
	{ 0,
	    ED ",\"oldText\":\"a\",\"newText\":\"b\","
	       "\"expectedBaseSha256\":null}" },
	{ 1, PR ",\"oldText\":\"a\",\"newText\":\"b\"}" },
	{ 0,
	    PR ",\"oldText\":\"a\",\"newText\":\"b\","
	       "\"expectedBaseSha256\":\"" SHA "\"}" },
	/* execute_command */
	{ 1, EX "\"ls\"}" },
	{ 0, EX "\"   \"}" },
	{ 0, EX "\"\"}" },
	{ 0, EX "\"\\u00a0\\ufeff\"}" },
	{ 1, EX "\"\\u200b\"}" },
	{ 1, EX "\"\\u0085\"}" },
	{ 0, EX "\"a\\u0000\"}" },
	{ 0, EX "\"\\ud800\"}" },
	{ 0, EX "123}" },
	{ 0, HEAD("execute_command") "}" },
	{ 0, EX "\"ls\",\"cwd\":\"../outside\"}" },
	{ 0, EX "\"ls\",\"cwd\":\"/tmp\"}" },
	{ 0, EX "\"ls\",\"cwd\":\"\"}" },
	{ 1, EX "\"ls\",\"timeoutMs\":1,\"maxOutputBytes\":1}" },
	{ 1, EX "\"ls\",\"timeoutMs\":300000,\"maxOutputBytes\":1048576}" },
	{ 0, EX "\"ls\",\"timeoutMs\":300001}" },
	{ 0, EX "\"ls\",\"timeoutMs\":0}" },
	{ 0, EX "\"ls\",\"timeoutMs\":-1}" },
	{ 0, EX "\"ls\",\"timeoutMs\":1.5}" },
	{ 0, EX "\"ls\",\"timeoutMs\":\"1\"}" },
	{ 0, EX "\"ls\",\"timeoutMs\":null}" },
	{ 0, EX "\"ls\",\"maxOutputBytes\":1048577}" },
	{ 0, EX "\"ls\",\"env\":{}}" },
	{ 0, EX "\"ls\",\"stdin\":\"\"}" },
};

static const char *
validate(const char *text, size_t len, struct tool_request *tr)
{
	const char *error, *wrong;
	struct json *j = json_parse(text, len, &error);

	assert_non_null(j);
	wrong = request_validate(j, tr);
	json_free(j);
	return wrong;
}

static void
requests_are_validated(void **state)
{
	struct tool_request tr;
	const char *wrong;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		wrong = validate(
		    requests[i].json, strlen(requests[i].json), &tr);
		if ((wrong == NULL) != requests[i].valid)
			fail_msg("%s: %s", requests[i].json,
			    wrong == NULL ? "accepted" : wrong);
		if (wrong == NULL)
			tool_request_free(&tr);
	}
}

/* head, n times unit, tail: is it valid? */
static int
sized(const char *head, const char *unit, size_t n, const char *tail)
{
	struct tool_request tr;
	struct buf b;
	int valid;

	buf_init(&b);
	buf_adds(&b, head);
	while (n-- > 0)
		buf_adds(&b, unit);
	buf_adds(&b, tail);
	valid = validate((const char *)b.data, b.len, &tr) == NULL;
	if (valid)
		tool_request_free(&tr);
	buf_free(&b);
	return valid;
}

static void
sizes_are_bounded(void **state)
{
	(void)state;
	assert_true(sized(RD "\"", "a", 4096, "\"}"));
	assert_false(sized(RD "\"", "a", 4097, "\"}"));
	assert_true(sized(RD "\"", "\xf0\x9f\x98\x80", 2048, "\"}"));
	assert_false(sized(RD "\"", "\xf0\x9f\x98\x80", 2049, "\"}"));
	assert_true(sized(RD "\"", "\xc3\xa9", 4096, "\"}"));
	assert_true(sized(SE "\"", "\xc3\xa9", 1000, "\"}"));
	assert_false(sized(SE "\"", "\xc3\xa9", 1001, "\"}"));
	assert_false(sized(SE "\"", "a", 2001, "\"}"));
	assert_true(sized(WR "\"", "a", 1048576, "\"}"));
	assert_false(sized(WR "\"", "a", 1048577, "\"}"));
	assert_false(sized(WR "\"", "\xe4\xb8\x80", 349526, "\"}"));
	assert_true(sized(EX "\"", "a", 32768, "\"}"));
	assert_false(sized(EX "\"", "a", 32769, "\"}"));
	assert_true(sized(EX "\"", "\xc3\xa9", 16384, "\"}"));
	assert_false(sized(EX "\"", "\xc3\xa9", 16385, "\"}"));
	assert_true(sized(ED ",\"edits\":[{\"oldText\":\"x\",\"newText\":\"\"}",
	    ",{\"oldText\":\"x\",\"newText\":\"\"}", 99, "]}"));
	assert_false(
	    sized(ED ",\"edits\":[{\"oldText\":\"x\",\"newText\":\"\"}",
		",{\"oldText\":\"x\",\"newText\":\"\"}", 100, "]}"));
	/* Single form: each text; batch form: all of them together. */
	assert_true(
	    sized(ED ",\"newText\":\"b\",\"oldText\":\"", "a", 1048576, "\"}"));
	assert_false(sized(ED ",\"edits\":[{\"newText\":\"b\",\"oldText\":\"",
	    "a", 1048576, "\"}]}"));
}

/* ---- negotiation (protocol 5.4, 5.6) ---- */

#define R OP_BIT(OP_READ_FILE)
#define S OP_BIT(OP_SEARCH_TEXT)
#define L OP_BIT(OP_LIST_FILES)
#define W OP_BIT(OP_WRITE_FILE)
#define P OP_BIT(OP_PREVIEW_EDIT)
#define E OP_BIT(OP_EDIT_FILE)

static void
one_root(struct offer *o, uint32_t ops)
{
	memset(o, 0, sizeof(*o));
	o->operations = ops;
	o->nroots = 1;
}

static void
negotiation_outcomes(void **state)
{
	struct offer wanted, got;
	struct support s;

	(void)state;
	/* legacy server */
	one_root(&wanted, R | S | L);
	memset(&s, 0, sizeof(s));
	offer_compatible(&got, &wanted);
	assert_int_equal(got.operations, R | S);
	assert_false(offer_promote(&got, &wanted, &s));
	/* all listed */
	s.present = 1;
	s.operations = R | S | L;
	assert_true(offer_promote(&got, &wanted, &s));
	assert_int_equal(got.operations, R | S | L);
	assert_int_equal(got.list_features, 0);
	/* write modes unknown to the server */
	one_root(&wanted, R | W);
	wanted.write_modes = WRITE_REPLACE | WRITE_CREATE;
	s.operations = R | W;
	assert_true(offer_promote(&got, &wanted, &s));
	assert_int_equal(got.operations, R | W);
	assert_int_equal(got.write_modes, 0);
	/* edit modes known, features not */
	one_root(&wanted, R | E);
	wanted.edit_modes = EDIT_SINGLE | EDIT_BATCH;
	wanted.edit_features = EDIT_EXPECTED_BASE;
	s.operations = R | E;
	s.has_edit_modes = 1;
	s.edit_modes = EDIT_SINGLE | EDIT_BATCH;
	assert_true(offer_promote(&got, &wanted, &s));
	assert_int_equal(got.edit_modes, EDIT_SINGLE | EDIT_BATCH);
	assert_int_equal(got.edit_features, 0);
	/* no common mode: the operations go */
	one_root(&wanted, R | W | P);
	wanted.roots[0].operations = R | W | P;
	wanted.write_modes = WRITE_CREATE;
	wanted.edit_modes = EDIT_BATCH;
	s.operations = R | W | P;
	s.has_write_modes = 1;
	s.write_modes = WRITE_REPLACE;
	s.edit_modes = EDIT_SINGLE;
	assert_true(offer_promote(&got, &wanted, &s));
	assert_int_equal(got.operations, R);
	assert_int_equal(got.roots[0].operations, R);
	assert_int_equal(got.write_modes | got.edit_modes, 0);
	/* a narrower root is not widened */
	memset(&wanted, 0, sizeof(wanted));
	wanted.operations = R | S;
	wanted.nroots = 2;
	wanted.roots[0].operations = R;
	wanted.roots[1].root = 1;
	wanted.roots[1].operations = R | S;
	offer_compatible(&got, &wanted);
	assert_int_equal(got.operations, R | S);
	assert_int_equal(got.nroots, 1);
	assert_int_equal(got.roots[0].root, 1);
	assert_int_equal(got.roots[0].operations, 0);
	/* nothing compatible */
	one_root(&wanted, W);
	offer_compatible(&got, &wanted);
	assert_int_equal(got.operations, 0);
	assert_int_equal(got.nroots, 0);
}

static void
admission_follows_the_active_set(void **state)
{
	static const struct {
		const char *json;
		int batch_only, modes, admitted;
	} rows[] = {
		{ RD "\"a\"}", 0, 0, 1 },
		{ SE "\"a\"}", 0, 0, 0 }, /* not offered */
		{ WR "\"a\"}", 0, 0, 1 },
		{ WR "\"a\",\"overwrite\":true}", 0, 0, 0 },
		{ WR "\"a\",\"overwrite\":false}", 0, 0, 0 },
		{ WR "\"a\",\"overwrite\":true}", 0, 1, 1 },
		{ WR "\"a\",\"overwrite\":false}", 0, 1, 0 },
		{ ED ",\"oldText\":\"a\",\"newText\":\"b\"}", 0, 0, 1 },
		{ ED ",\"oldText\":\"a\",\"newText\":\"b\"}", 1, 0, 0 },
		{ ED ",\"edits\":[{\"oldText\":\"a\",\"newText\":\"b\"}]}", 0,
		    0, 0 },
		{ ED ",\"edits\":[{\"oldText\":\"a\",\"newText\":\"b\"}]}", 1,
		    0, 1 },
		{ ED ",\"oldText\":\"a\",\"newText\":\"b\","
		     "\"expectedBaseSha256\":\"" SHA "\"}",
		    0, 0, 0 },
		{ LI ",\"afterPath\":\"a\"}", 0, 0, 0 },
		{ LI "}", 0, 0, 1 },
	};
	struct workspace ws = { (char *)(uintptr_t) "w", NULL, R | L | W | E,
		0 };
	struct tool_request tr;
	struct offer o;
	const char *wrong;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		one_root(&o, R | L | W | E);
		o.edit_modes = rows[i].batch_only ? EDIT_BATCH : 0;
		o.write_modes = rows[i].modes ? WRITE_REPLACE : 0;
		assert_null(validate(rows[i].json, strlen(rows[i].json), &tr));
		wrong = request_admit(&tr, &o, &ws, 1);
		if ((wrong == NULL) != rows[i].admitted)
			fail_msg("%s: %s", rows[i].json,
			    wrong == NULL ? "admitted" : wrong);
		tool_request_free(&tr);
	}
	assert_null(validate(RD "\"a\"}", strlen(RD "\"a\"}"), &tr));
	ws.id = (char *)(uintptr_t) "other";
	assert_string_equal(
	    request_admit(&tr, &o, &ws, 1), "workspace is not advertised");
	tool_request_free(&tr);
}

/* ---- small rules ---- */

static void
back_off_vectors(void **state)
{
	static const int64_t want[6][4] = {
		{ 500, 625, 750, 1000 },
		{ 1000, 1250, 1500, 2000 },
		{ 2000, 2500, 3000, 4000 },
		{ 4000, 5000, 6000, 8000 },
		{ 8000, 10000, 12000, 16000 },
		{ 15000, 18750, 22500, 30000 },
	};
	static const uint32_t r[4] = { 0, 250000, 500000, 1000000 };
	unsigned int i, k;

	(void)state;
	for (i = 0; i < 6; i++)
		for (k = 0; k < 4; k++)
			assert_int_equal(retry_delay_with(i, r[k]), want[i][k]);
	assert_int_equal(retry_delay_with(1000000, 0), 15000);
}

static void
budget_arithmetic(void **state)
{
	(void)state;
	assert_int_equal(retry_remaining(1000, 50, 20), 970);
	assert_int_equal(retry_remaining(1000, 20, 50), 1000);
	assert_int_equal(retry_remaining(10, 500, 0), 0);
}

static void
answers_have_classes(void **state)
{
	int64_t skew;

	(void)state;
	assert_int_equal(api_outcome(200, 1), API_OK);
	assert_int_equal(api_outcome(299, 1), API_OK);
	assert_int_equal(api_outcome(204, 0), API_AMBIGUOUS);
	assert_int_equal(api_outcome(302, 1), API_DEFINITE);
	assert_int_equal(api_outcome(400, 1), API_DEFINITE);
	assert_int_equal(api_outcome(408, 1), API_AMBIGUOUS);
	assert_int_equal(api_outcome(409, 0), API_DEFINITE);
	assert_int_equal(api_outcome(429, 1), API_AMBIGUOUS);
	assert_int_equal(api_outcome(500, 1), API_AMBIGUOUS);
	assert_int_equal(api_outcome(0, 0), API_AMBIGUOUS);
	assert_true(api_terminal(401, ""));
	assert_true(api_terminal(403, ""));
	assert_true(api_terminal(503, "WORKER_FENCED"));
	assert_true(api_terminal(409, "WORKER_QUARANTINED"));
	assert_false(api_terminal(409, "WORKSPACE_QUARANTINED"));
	assert_true(api_clock_suspect(401, "PROOF_INVALID", 1200000, 0, &skew));
	assert_int_equal(skew, 1200000);
	assert_true(api_clock_suspect(401, "", 0, 1200000, &skew));
	assert_false(api_clock_suspect(401, "PROOF_INVALID", 30000, 0, &skew));
	assert_false(
	    api_clock_suspect(401, "CREDENTIAL_INVALID", 1200000, 0, &skew));
	assert_false(
	    api_clock_suspect(401, "PROOF_REPLAYED", 1200000, 0, &skew));
	assert_false(api_clock_suspect(403, "", 1200000, 0, &skew));
	assert_false(api_clock_suspect(401, "", -1, 1200000, &skew));
}

static void
urls_are_taken_apart(void **state)
{
	static const struct {
		const char *text, *origin, *prefix;
	} rows[] = {
		{ "https://code.example.net/v1", "https://code.example.net",
		    "/v1" },
		{ "HTTPS://code.example.net/v1///", "https://code.example.net",
		    "/v1" },
		{ "http://127.0.0.1:8080", "http://127.0.0.1:8080", "" },
		{ "http://[::1]:80/a/b%20c", "http://[::1]:80", "/a/b%20c" },
		{ "ftp://host/", NULL, NULL },
		{ "https://", NULL, NULL },
		{ "https://u:p@host/", NULL, NULL },
		{ "https://host/?q", NULL, NULL },
		{ "https://host/#f", NULL, NULL },
		{ "https://host/a/../b", NULL, NULL },
		{ "https://host/a/./b", NULL, NULL },
		{ "https://host/a//b", NULL, NULL },
		{ "https://host/%2e%2e/b", NULL, NULL },
		{ "https://host/a b", NULL, NULL },
		{ "https://host/a\\b", NULL, NULL },
		{ "https://host:x/", NULL, NULL },
		{ "https://host:/", NULL, NULL },
		{ "https://ho st/", NULL, NULL },
		{ "https://[::1/", NULL, NULL },
	};
	const char *error;
	struct url u;
	size_t i;
	int r;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		r = url_parse(rows[i].text, &u, &error);
		if ((r == 0) != (rows[i].origin != NULL))
			fail_msg("%s: %s", rows[i].text,
			    r == 0 ? "accepted" : error);
		if (r == 0) {
			assert_string_equal(u.origin, rows[i].origin);
			assert_string_equal(u.prefix, rows[i].prefix);
			url_free(&u);
		}
	}
}

static void
ids_are_percent_encoded(void **state)
{
	static const char *const rows[][2] = {
		{ "build-box-7", "build-box-7" },
		{ "build-box:7", "build-box%3A7" },
		{ "vm/example worker", "vm%2Fexample%20worker" },
		{ "-_.!~*'()", "-_.!~*'()" },
		{ "\xc3\xa9", "%C3%A9" },
		{ "..", "%2E%2E" },
	};
	struct buf b;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		buf_init(&b);
		url_encode(&b, rows[i][0]);
		assert_string_equal(buf_cstr(&b), rows[i][1]);
		buf_free(&b);
	}
}

static void
credential_responses_are_checked(void **state)
{
#define C32 "0123456789abcdef0123456789abcdef"
#define AT_ "\"expiresAt\":\"2031-02-03T04:20:00.000Z\"}"
	static const struct {
		int valid;
		const char *json;
	} rows[] = {
		{ 1,
		    "{\"protocolVersion\":1,\"workerId\":\"w\","
		    "\"credential\":\"" C32 "\",\"x\":1," AT_ },
		{ 0,
		    "{\"protocolVersion\":2,\"workerId\":\"w\","
		    "\"credential\":\"" C32 "\"," AT_ },
		{ 0,
		    "{\"protocolVersion\":1,\"workerId\":\"v\","
		    "\"credential\":\"" C32 "\"," AT_ },
		{ 0,
		    "{\"protocolVersion\":1,\"workerId\":\"w\","
		    "\"credential\":\"short\"," AT_ },
		{ 0,
		    "{\"protocolVersion\":1,\"workerId\":\"w\","
		    "\"credential\":\"" C32 "\\r\\nX: y\"," AT_ },
		{ 0,
		    "{\"protocolVersion\":1,\"workerId\":\"w\","
		    "\"credential\":\"" C32 "\",\"expiresAt\":\"soon\"}" },
		{ 0,
		    "{\"protocolVersion\":1,\"workerId\":\"w\","
		    "\"credential\":\"" C32 "\"}" },
	};
	struct credential c;
	const char *error;
	struct json *j;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		j = json_parse(rows[i].json, strlen(rows[i].json), &error);
		assert_non_null(j);
		if (credential_response(j, "w", &c) == NULL) {
			assert_true(rows[i].valid);
			credential_free(&c);
		} else
			assert_false(rows[i].valid);
		json_free(j);
	}
}

/* ---- results and settlements ---- */

static void
command_results_are_consistent(void **state)
{
	static const struct {
		int exit_code, timed_out, valid;
		const char *signal;
	} rows[] = {
		{ 0, 0, 1, NULL },
		{ -1, 0, 0, NULL },
		{ -1, 1, 1, NULL },
		{ -1, 0, 1, "SIGKILL" },
		{ 137, 0, 0, "SIGKILL" },
		{ 0, 1, 0, NULL },
		{ -1, 1, 0, "KILL" },
		{ -1, 1, 0, "SIGkill" },
		{ -1, 1, 0, "SIG" },
	};
	struct request q;
	struct result r;
	size_t i;

	(void)state;
	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	q.max_output = 4;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		memset(&r, 0, sizeof(r));
		r.operation = OP_EXECUTE_COMMAND;
		text_set(&r.out, "ab", 2);
		text_set(&r.err, "cd", 2);
		r.exit_code = rows[i].exit_code;
		r.timed_out = (uint8_t)rows[i].timed_out;
		if (rows[i].signal != NULL)
			r.signal = strdup(rows[i].signal);
		assert_int_equal(
		    result_check(&q, &r, 1) == NULL, rows[i].valid);
		if (rows[i].valid) {
			q.max_output = 3;
			assert_non_null(result_check(&q, &r, 1));
			q.max_output = 4;
		}
		result_free(&r);
	}
}

static void
settlements_keep_their_bytes(void **state)
{
	/* code-api-server 4.4: what the server makes of them is the same */
	static const char text[] = "\x1b[0m\0\x7f\xe2\x80\xa8\xf0\x9f\x98\x80"
				   "\xff\"\\/\n";
	struct fence f = { (char *)(uintptr_t) "a1", 41,
		(char *)(uintptr_t) "tok" };
	struct bridge b;
	struct request q;
	struct result r;
	struct buf body;
	char *longer;

	(void)state;
	memset(&b, 0, sizeof(b));
	b.config.incarnation = (char *)(uintptr_t) "inc";
	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	memset(&r, 0, sizeof(r));
	text_set(&r.out, text, sizeof(text) - 1);
	text_set(&r.err, "", 0);
	buf_init(&body);
	settlement_fulfilled(&body, &b, &f, "primary", &q, &r, 1);
	assert_string_equal(buf_cstr(&body),
	    "{\"protocolVersion\":1,\"generation\":41,\"leaseToken\":\"tok\","
	    "\"incarnationId\":\"inc\",\"status\":\"fulfilled\",\"result\":"
	    "{\"protocolVersion\":1,\"operation\":\"execute_command\","
	    "\"workspaceId\":\"primary\",\"exitCode\":0,\"stdout\":"
	    "\"\\u001b[0m\\u0000\x7f\xe2\x80\xa8\xf0\x9f\x98\x80"
	    "\xef\xbf\xbd\\\"\\\\/\\n\",\"stderr\":\"\",\"truncated\":false,"
	    "\"timedOut\":false}}");
	buf_free(&body);
	result_free(&r);

	longer = malloc(5001);
	memset(longer, 'x', 5000);
	longer[5000] = '\0';
	buf_init(&body);
	settlement_rejected(&body, &b, &f, EC_NONE, longer);
	assert_null(strstr(buf_cstr(&body), "errorCode"));
	assert_int_equal(strspn(strstr((char *)body.data, "xxx"), "x"), 4096);
	buf_free(&body);
	free(longer);
}

static void
listing_results_are_ordered(void **state)
{
	struct request q;
	struct result r;

	(void)state;
	memset(&q, 0, sizeof(q));
	q.operation = OP_LIST_FILES;
	q.max = 2;
	text_set(&q.path, "src", 3);
	memset(&r, 0, sizeof(r));
	r.operation = OP_LIST_FILES;
	r.truncated = 1;
	assert_non_null(result_check(&q, &r, 1));
	r.paths = calloc(2, sizeof(*r.paths));
	r.npaths = 2;
	text_set(&r.paths[0], "src/a", 5);
	text_set(&r.paths[1], "src/b", 5);
	assert_null(result_check(&q, &r, 1));
	text_set(&q.after, "src/a", 5);
	assert_non_null(result_check(&q, &r, 1));
	text_free(&q.after);
	r.paths[1].data[4] = 'a';
	assert_non_null(result_check(&q, &r, 1));
	r.paths[1].data[0] = 'S';
	assert_non_null(result_check(&q, &r, 1));
	result_free(&r);
	request_free(&q);
}

#define TEST(name) cmocka_unit_test(name)

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(requests_are_validated),
		TEST(sizes_are_bounded),
		TEST(negotiation_outcomes),
		TEST(admission_follows_the_active_set),
		TEST(back_off_vectors),
		TEST(budget_arithmetic),
		TEST(answers_have_classes),
		TEST(urls_are_taken_apart),
		TEST(ids_are_percent_encoded),
		TEST(credential_responses_are_checked),
		TEST(command_results_are_consistent),
		TEST(settlements_keep_their_bytes),
		TEST(listing_results_are_ordered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
