#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "json.h"
#include "names.h"
#include "utf8.h"
#include "validate.h"

#define TEXT_MAX    1048576 /* bytes of contents, edits and outputs */
#define COMMAND_MAX 32768 /* bytes */
#define QUERY_MAX   2000 /* bytes */
#define COMMON      "protocolVersion operation workspaceId "
#define SAFE_MAX    9007199254740991LL

/* 1 if absent, or an integer between the bounds. */
static int
opt_int(const struct json *v, const char *name, long long min, long long max)
{
	const struct json *m;

	m = json_get(v, name);
	return m == NULL || json_int(m, min, max, NULL);
}

/* An integer member, or the default when it is absent. */
static long long
int_or(const struct json *v, const char *name, long long otherwise)
{
	long long n;

	return json_int(json_get(v, name), 0, SAFE_MAX, &n) ? n : otherwise;
}

static int
is_text(const struct json *v, size_t max)
{
	return json_is(v, JSON_STRING) && json_well_formed(v) &&
	    v->u.string.len <= max;
}

static size_t
count_byte(const struct json *v, char c)
{
	size_t i, n;

	for (i = n = 0; i < v->u.string.len; i++)
		n += v->u.string.data[i] == c;
	return n;
}

static int
has_byte(const struct json *v, char c)
{
	return count_byte(v, c) > 0;
}

/* Absent or a path. */
static int
opt_path(const struct json *v, const char *name)
{
	const struct json *m;

	m = json_get(v, name);
	return m == NULL || path_valid(m);
}

static int
is_normal(const char *path)
{
	char *n;
	int r;

	n = path_normalise(path);
	r = strcmp(n, path) == 0;
	free(n);
	return r;
}

static int
read_request(const struct json *v)
{
	return json_only(v, COMMON "path startLine maxLines") &&
	    path_valid(json_get(v, "path")) &&
	    opt_int(v, "startLine", 1, SAFE_MAX) &&
	    opt_int(v, "maxLines", 1, 500);
}

static int
search_request(const struct json *v)
{
	const struct json *q;

	q = json_get(v, "query");
	return json_only(v, COMMON "query path maxResults") &&
	    is_text(q, QUERY_MAX) && q->u.string.len > 0 &&
	    !has_byte(q, '\0') && !has_byte(q, '\n') && !has_byte(q, '\r') &&
	    opt_path(v, "path") && opt_int(v, "maxResults", 1, 200);
}

static int
list_request(const struct json *v)
{
	const struct json *after;

	if (!json_only(v, COMMON "path maxResults afterPath") ||
	    !opt_path(v, "path") || !opt_int(v, "maxResults", 1, 500))
		return 0;
	if ((after = json_get(v, "afterPath")) == NULL)
		return 1;
	return path_valid(after) && is_normal(json_text(after)) &&
	    path_within(json_text(after), json_text(json_get(v, "path")));
}

static int
write_request(const struct json *v)
{
	const struct json *overwrite;

	overwrite = json_get(v, "overwrite");
	return json_only(v, COMMON "path content overwrite") &&
	    path_valid(json_get(v, "path")) &&
	    is_text(json_get(v, "content"), TEXT_MAX) &&
	    (overwrite == NULL || json_is(overwrite, JSON_BOOL));
}

/* One pair of texts; adds its bytes. */
static int
edit_valid(const struct json *v, size_t *bytes)
{
	const struct json *from, *to;

	from = json_get(v, "oldText");
	to = json_get(v, "newText");
	if (!is_text(from, TEXT_MAX) || from->u.string.len == 0 ||
	    !is_text(to, TEXT_MAX))
		return 0;
	*bytes += from->u.string.len + to->u.string.len;
	return 1;
}

static int
edits_valid(const struct json *v)
{
	const struct json *edits, *e;
	size_t i, bytes;

	bytes = 0;
	if ((edits = json_get(v, "edits")) == NULL)
		return edit_valid(v, &bytes);
	if (json_get(v, "oldText") != NULL || json_get(v, "newText") != NULL ||
	    !json_is(edits, JSON_ARRAY) || edits->u.array.n < 1 ||
	    edits->u.array.n > 100)
		return 0;
	for (i = 0; i < edits->u.array.n; i++) {
		e = edits->u.array.item[i];
		if (!json_only(e, "oldText newText") || !edit_valid(e, &bytes))
			return 0;
	}
	return bytes <= TEXT_MAX;
}

static int
preview_request(const struct json *v)
{
	return json_only(v, COMMON "path oldText newText edits") &&
	    path_valid(json_get(v, "path")) && edits_valid(v);
}

static int
edit_request(const struct json *v)
{
	const struct json *base;

	base = json_get(v, "expectedBaseSha256");
	return json_only(
		   v, COMMON "path oldText newText edits expectedBaseSha256") &&
	    path_valid(json_get(v, "path")) && edits_valid(v) &&
	    (base == NULL || name_is_digest(json_text(base)));
}

static int
command_request(const struct json *v)
{
	const struct json *c;

	c = json_get(v, "command");
	return json_only(v, COMMON "command cwd timeoutMs maxOutputBytes") &&
	    is_text(c, COMMAND_MAX) && !has_byte(c, '\0') &&
	    !utf8_blank(c->u.string.data, c->u.string.len) &&
	    opt_path(v, "cwd") && opt_int(v, "timeoutMs", 1, 300000) &&
	    opt_int(v, "maxOutputBytes", 1, TEXT_MAX);
}

/* 1 if both have that path, byte for byte. */
static int
same_path(const struct json *q, const struct json *r)
{
	return json_same_string(json_get(q, "path"), json_get(r, "path"));
}

static int
is_bool(const struct json *v, const char *name)
{
	return json_is(json_get(v, name), JSON_BOOL);
}

static int
read_result(const struct json *q, const struct json *r)
{
	const struct json *content, *next;
	long long start, end, lines;

	content = json_get(r, "content");
	next = json_get(r, "nextStartLine");
	start = int_or(q, "startLine", 1);
	if (!json_only(r,
		COMMON "path content startLine endLine truncated "
		       "nextStartLine") ||
	    !same_path(q, r) || !json_is(content, JSON_STRING) ||
	    content->u.string.len > TEXT_MAX ||
	    !json_int(json_get(r, "startLine"), start, start, NULL) ||
	    !json_int(json_get(r, "endLine"), 0, SAFE_MAX, &end) ||
	    !is_bool(r, "truncated"))
		return 0;
	lines = end - start + 1;
	if (lines < 0 || lines > int_or(q, "maxLines", 200))
		return 0;
	if (content->u.string.len == 0
		? lines > 1
		: lines != (long long)count_byte(content, '\n') + 1)
		return 0;
	if (!json_true(json_get(r, "truncated")))
		return next == NULL;
	return json_int(next, end + 1, end + 1, NULL) && end + 1 > start;
}

/* 1 if the bytes of needle occur in the text. */
static int
contains(const struct json *text, const struct json *needle)
{
	return memmem(text->u.string.data, text->u.string.len,
		   needle->u.string.data, needle->u.string.len) != NULL;
}

static int
match_valid(const struct json *q, const struct json *m)
{
	const struct json *text, *path;

	text = json_get(m, "text");
	path = json_get(m, "path");
	return json_only(m, "path line column text") && path_valid(path) &&
	    path_within(json_text(path), json_text(json_get(q, "path"))) &&
	    json_int(json_get(m, "line"), 1, SAFE_MAX, NULL) &&
	    json_int(json_get(m, "column"), 1, SAFE_MAX, NULL) &&
	    json_is(text, JSON_STRING) && json_units(text) <= 2000 &&
	    contains(text, json_get(q, "query"));
}

static int
search_result(const struct json *q, const struct json *r)
{
	const struct json *matches;
	size_t i;

	matches = json_get(r, "matches");
	if (!json_only(r, COMMON "matches truncated") ||
	    !json_is(matches, JSON_ARRAY) ||
	    (long long)matches->u.array.n > int_or(q, "maxResults", 50) ||
	    !is_bool(r, "truncated"))
		return 0;
	for (i = 0; i < matches->u.array.n; i++) {
		if (!match_valid(q, matches->u.array.item[i]))
			return 0;
	}
	return 1;
}

static int
compare_texts(const void *a, const void *b)
{
	char *const *x = a, *const *y = b;

	return strcmp(*x, *y);
}

/* 1 if no two paths are the same after normalising. */
static int
all_distinct(const struct json *paths)
{
	char **list;
	size_t i, n;
	int r;

	n = paths->u.array.n;
	list = xcalloc(n, sizeof(*list));
	for (i = 0; i < n; i++)
		list[i] = path_normalise(json_text(paths->u.array.item[i]));
	qsort(list, n, sizeof(*list), compare_texts);
	r = 1;
	for (i = 1; i < n; i++)
		r = r && strcmp(list[i - 1], list[i]) != 0;
	for (i = 0; i < n; i++)
		free(list[i]);
	free(list);
	return r;
}

/* The further rules of a worker with the feature after_path. */
static int
pages_valid(const struct json *q, const struct json *r)
{
	const struct json *paths, *next;
	const char *path, *before;
	size_t i, n;

	paths = json_get(r, "paths");
	next = json_get(r, "nextAfterPath");
	n = paths->u.array.n;
	before = json_text(json_get(q, "afterPath"));
	for (i = 0; i < n; i++) {
		path = json_text(paths->u.array.item[i]);
		if (!is_normal(path) ||
		    (before != NULL && path_compare(before, path) >= 0))
			return 0;
		before = path;
	}
	if (!json_true(json_get(r, "truncated")))
		return next == NULL;
	return n > 0 && json_same_string(next, paths->u.array.item[n - 1]);
}

static int
list_result(const struct json *q, const struct json *r, int after_path)
{
	const struct json *paths, *p;
	const char *top;
	size_t i;

	paths = json_get(r, "paths");
	top = json_text(json_get(q, "path"));
	if (!json_only(r, COMMON "paths truncated nextAfterPath") ||
	    !json_is(paths, JSON_ARRAY) ||
	    (long long)paths->u.array.n > int_or(q, "maxResults", 100) ||
	    !is_bool(r, "truncated"))
		return 0;
	for (i = 0; i < paths->u.array.n; i++) {
		p = paths->u.array.item[i];
		if (!path_valid(p) || !path_within(json_text(p), top))
			return 0;
	}
	if (!all_distinct(paths))
		return 0;
	return after_path ? pages_valid(q, r)
			  : json_get(r, "nextAfterPath") == NULL;
}

static int
write_result(const struct json *q, const struct json *r)
{
	const struct json *overwrite;
	long long n;

	overwrite = json_get(q, "overwrite");
	n = (long long)json_get(q, "content")->u.string.len;
	return json_only(r, COMMON "path created bytesWritten") &&
	    same_path(q, r) && is_bool(r, "created") &&
	    (overwrite == NULL || json_true(overwrite) ||
		json_true(json_get(r, "created"))) &&
	    json_int(json_get(r, "bytesWritten"), n, n, NULL);
}

static int
replacements_valid(const struct json *q, const struct json *r)
{
	const struct json *edits;
	long long n;

	edits = json_get(q, "edits");
	n = edits == NULL ? 1 : (long long)edits->u.array.n;
	return json_int(json_get(r, "replacements"), n, n, NULL);
}

static int
edit_result(const struct json *q, const struct json *r)
{
	return json_only(r, COMMON "path replacements bytesWritten") &&
	    same_path(q, r) && replacements_valid(q, r) &&
	    json_int(json_get(r, "bytesWritten"), 0, TEXT_MAX, NULL);
}

static int
preview_result(const struct json *q, const struct json *r)
{
	const struct json *content;
	long long n;

	content = json_get(r, "content");
	if (!json_only(r,
		COMMON "path content hasUtf8Bom baseSha256 replacements "
		       "bytesWritten") ||
	    !same_path(q, r) || !is_text(content, TEXT_MAX) ||
	    !is_bool(r, "hasUtf8Bom") ||
	    !name_is_digest(json_text(json_get(r, "baseSha256"))) ||
	    !replacements_valid(q, r))
		return 0;
	n = (long long)content->u.string.len +
	    (json_true(json_get(r, "hasUtf8Bom")) ? 3 : 0);
	return n <= TEXT_MAX &&
	    json_int(json_get(r, "bytesWritten"), n, n, NULL);
}

static int
signal_valid(const struct json *v)
{
	const char *s;

	return (s = json_text(v)) != NULL && strlen(s) <= 32 &&
	    strncmp(s, "SIG", 3) == 0 && s[3] != '\0' &&
	    strspn(s + 3, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") ==
	    strlen(s + 3);
}

static int
command_result(const struct json *q, const struct json *r)
{
	const struct json *out, *err, *code, *sig;
	int timed_out;

	out = json_get(r, "stdout");
	err = json_get(r, "stderr");
	code = json_get(r, "exitCode");
	sig = json_get(r, "signal");
	if (!json_only(
		r, COMMON "exitCode signal stdout stderr truncated timedOut") ||
	    !is_text(out, TEXT_MAX) || !is_text(err, TEXT_MAX) ||
	    (long long)(out->u.string.len + err->u.string.len) >
		int_or(q, "maxOutputBytes", 262144) ||
	    !is_bool(r, "truncated") || !is_bool(r, "timedOut") ||
	    (sig != NULL && !signal_valid(sig)))
		return 0;
	timed_out = json_true(json_get(r, "timedOut"));
	if (json_is(code, JSON_NULL))
		return timed_out || sig != NULL;
	return json_int(code, 0, 255, NULL) && !timed_out && sig == NULL;
}

static const struct {
	const char *operation;
	int (*request)(const struct json *);
	int (*result)(const struct json *, const struct json *);
} operations[] = {
	{ "read_file", read_request, read_result },
	{ "search_text", search_request, search_result },
	{ "list_files", list_request, NULL },
	{ "write_file", write_request, write_result },
	{ "preview_edit", preview_request, preview_result },
	{ "edit_file", edit_request, edit_result },
	{ "execute_command", command_request, command_result },
};

/* The index of a value's operation, or -1. */
static int
operation_of(const struct json *v)
{
	const char *op;
	size_t i, n;

	n = sizeof(operations) / sizeof(operations[0]);
	op = json_text(json_get(v, "operation"));
	for (i = 0; op != NULL && i < n; i++) {
		if (strcmp(op, operations[i].operation) == 0)
			return (int)i;
	}
	return -1;
}

int
request_valid(const struct json *v)
{
	int i;

	i = operation_of(v);
	return i != -1 &&
	    json_int(json_get(v, "protocolVersion"), 1, 1, NULL) &&
	    name_is_id(json_text(json_get(v, "workspaceId"))) &&
	    operations[i].request(v);
}

int
result_valid(const struct json *q, const struct json *r, int after_path)
{
	int i;

	i = operation_of(q);
	if (i == -1 || operation_of(r) != i ||
	    !json_int(json_get(r, "protocolVersion"), 1, 1, NULL) ||
	    !json_same_string(
		json_get(q, "workspaceId"), json_get(r, "workspaceId")))
		return 0;
	if (operations[i].result == NULL)
		return list_result(q, r, after_path);
	return operations[i].result(q, r);
}
