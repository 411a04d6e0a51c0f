#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "offer.h"
#include "path.h"
#include "request.h"
#include "utf8.h"

#define TEXT_MAX        1048576 /* bytes of content and of edit texts */
#define QUERY_MAX_UNITS 4096
#define QUERY_MAX       2000 /* bytes */
#define COMMAND_MAX     32768
#define TIMEOUT_MAX     300000
#define OUTPUT_MAX      1048576
#define INTEGER_MAX     9007199254740991LL

#define TIMEOUT_DEFAULT 30000
#define OUTPUT_DEFAULT  262144

/*
 * One member of a request: how its value is checked and where it goes. A
 * table below lists the members of each operation.
 */
struct member {
	const char *name;
	int required;
	/* NULL, or what is wrong with the value */
	const char *(*take)(
	    const struct json *, const struct member *, struct tool_request *);
	size_t offset; /* into struct request */
	int64_t min;
	int64_t max;
};

static void *
target(struct tool_request *tr, const struct member *m)
{
	return (char *)&tr->q + m->offset;
}

static int
well_formed(const struct json *j)
{
	return j->type == JSON_STRING && utf8_valid(j->str, j->len);
}

static const char *
take_path(const struct json *j, const struct member *m, struct tool_request *tr)
{
	if (j->type != JSON_STRING || !path_portable(j->str, j->len))
		return "a path is not a portable relative path";
	text_set(target(tr, m), j->str, j->len);
	return NULL;
}

static const char *
take_int64(
    const struct json *j, const struct member *m, struct tool_request *tr)
{
	int64_t v;

	if (json_integer(j, &v) == -1 || v < m->min || v > m->max)
		return "a number is not an integer in its range";
	*(int64_t *)target(tr, m) = v;
	return NULL;
}

static const char *
take_uint32(
    const struct json *j, const struct member *m, struct tool_request *tr)
{
	int64_t v;

	if (json_integer(j, &v) == -1 || v < m->min || v > m->max)
		return "a number is not an integer in its range";
	*(uint32_t *)target(tr, m) = (uint32_t)v;
	return NULL;
}

static const char *
take_query(
    const struct json *j, const struct member *m, struct tool_request *tr)
{
	size_t i;

	if (!well_formed(j) || j->len == 0 || j->len > QUERY_MAX ||
	    utf8_units(j->str, j->len) > QUERY_MAX_UNITS)
		return "the query is empty, too long or not well-formed";
	for (i = 0; i < j->len; i++)
		if (j->str[i] == '\0' || j->str[i] == '\n' || j->str[i] == '\r')
			return "the query contains NUL, LF or CR";
	text_set(target(tr, m), j->str, j->len);
	return NULL;
}

static const char *
take_text(const struct json *j, const struct member *m, struct tool_request *tr)
{
	if (!well_formed(j) || j->len > TEXT_MAX)
		return "a text is longer than 1 MiB or not well-formed";
	text_set(target(tr, m), j->str, j->len);
	return NULL;
}

static const char *
take_overwrite(
    const struct json *j, const struct member *m, struct tool_request *tr)
{
	if (j->type != JSON_BOOL)
		return "overwrite is not a boolean";
	*(uint8_t *)target(tr, m) = !j->boolean;
	tr->has_overwrite = 1;
	return NULL;
}

static const char *
take_command(
    const struct json *j, const struct member *m, struct tool_request *tr)
{
	if (!well_formed(j) || j->len > COMMAND_MAX ||
	    memchr(j->str, '\0', j->len) != NULL)
		return "the command is too long, contains NUL or is not "
		       "well-formed";
	if (utf8_blank(j->str, j->len))
		return "the command is blank";
	text_set(target(tr, m), j->str, j->len);
	return NULL;
}

static const char *
take_digest(
    const struct json *j, const struct member *m, struct tool_request *tr)
{
	if (j->type != JSON_STRING || j->len != 64 ||
	    strspn(j->str, "0123456789abcdef") != 64)
		return "a digest is not 64 lower-case hex digits";
	*(char **)target(tr, m) = xstrdup(j->str);
	return NULL;
}

static const char *
take_edit(const struct json *old, const struct json *new, struct edit *e)
{
	if (old == NULL || new == NULL || !well_formed(old) ||
	    !well_formed(new) || old->len == 0)
		return "an edit needs a non-empty oldText and a newText";
	if (old->len > TEXT_MAX || new->len > TEXT_MAX)
		return "an edit text is longer than 1 MiB";
	text_set(&e->old, old->str, old->len);
	text_set(&e->new, new->str, new->len);
	return NULL;
}

static const char *
take_edits(
    const struct json *j, const struct member *m, struct tool_request *tr)
{
	static const char *const names[] = { "oldText", "newText", NULL };
	const struct json *item;
	const char *wrong;
	size_t i, sum = 0;

	(void)m;
	if (j->type != JSON_ARRAY || j->n < 1 || j->n > EDITS_MAX)
		return "edits is not a list of 1 to 100 edits";
	tr->batch = 1;
	tr->q.edits = xcalloc(j->n, sizeof(*tr->q.edits));
	tr->q.nedits = j->n;
	for (i = 0; i < j->n; i++) {
		item = j->items[i];
		if (!json_closed(item, names))
			return "an edit is not an object of oldText and "
			       "newText";
		wrong = take_edit(json_get(item, "oldText"),
		    json_get(item, "newText"), &tr->q.edits[i]);
		if (wrong != NULL)
			return wrong;
		sum += tr->q.edits[i].old.len + tr->q.edits[i].new.len;
		if (sum > TEXT_MAX)
			return "the edit texts together are longer than 1 MiB";
	}
	return NULL;
}

/* oldText and newText are taken together, by finish_edit. */
static const char *
take_nothing(
    const struct json *j, const struct member *m, struct tool_request *tr)
{
	(void)j;
	(void)m;
	(void)tr;
	return NULL;
}

#define AT(f) offsetof(struct request, f)

static const struct member read_members[] = {
	{ "path", 1, take_path, AT(path), 0, 0 },
	{ "startLine", 0, take_int64, AT(start_line), 1, INTEGER_MAX },
	{ "maxLines", 0, take_uint32, AT(max), 1, 500 },
	{ NULL, 0, NULL, 0, 0, 0 },
};
static const struct member search_members[] = {
	{ "query", 1, take_query, AT(query), 0, 0 },
	{ "path", 0, take_path, AT(path), 0, 0 },
	{ "maxResults", 0, take_uint32, AT(max), 1, MATCHES_MAX },
	{ NULL, 0, NULL, 0, 0, 0 },
};
static const struct member list_members[] = {
	{ "path", 0, take_path, AT(path), 0, 0 },
	{ "maxResults", 0, take_uint32, AT(max), 1, PATHS_MAX },
	{ "afterPath", 0, take_path, AT(after), 0, 0 },
	{ NULL, 0, NULL, 0, 0, 0 },
};
static const struct member write_members[] = {
	{ "path", 1, take_path, AT(path), 0, 0 },
	{ "content", 1, take_text, AT(content), 0, 0 },
	{ "overwrite", 0, take_overwrite, AT(create_only), 0, 0 },
	{ NULL, 0, NULL, 0, 0, 0 },
};
static const struct member preview_members[] = {
	{ "path", 1, take_path, AT(path), 0, 0 },
	{ "oldText", 0, take_nothing, 0, 0, 0 },
	{ "newText", 0, take_nothing, 0, 0, 0 },
	{ "edits", 0, take_edits, AT(edits), 0, 0 },
	{ NULL, 0, NULL, 0, 0, 0 },
};
static const struct member edit_members[] = {
	{ "path", 1, take_path, AT(path), 0, 0 },
	{ "oldText", 0, take_nothing, 0, 0, 0 },
	{ "newText", 0, take_nothing, 0, 0, 0 },
	{ "edits", 0, take_edits, AT(edits), 0, 0 },
	{ "expectedBaseSha256", 0, take_digest, AT(base_sha256), 0, 0 },
	{ NULL, 0, NULL, 0, 0, 0 },
};
static const struct member execute_members[] = {
	{ "command", 1, take_command, AT(command), 0, 0 },
	{ "cwd", 0, take_path, AT(cwd), 0, 0 },
	{ "timeoutMs", 0, take_uint32, AT(timeout_ms), 1, TIMEOUT_MAX },
	{ "maxOutputBytes", 0, take_uint32, AT(max_output), 1, OUTPUT_MAX },
	{ NULL, 0, NULL, 0, 0, 0 },
};

static const struct {
	const struct member *members;
	uint32_t max; /* default of struct request.max */
} operations[OP_MAX] = {
	[OP_READ_FILE] = { read_members, 200 },
	[OP_SEARCH_TEXT] = { search_members, 50 },
	[OP_LIST_FILES] = { list_members, 100 },
	[OP_WRITE_FILE] = { write_members, 0 },
	[OP_PREVIEW_EDIT] = { preview_members, 0 },
	[OP_EDIT_FILE] = { edit_members, 0 },
	[OP_EXECUTE_COMMAND] = { execute_members, 0 },
};

static int
known_member(const struct member *m, const char *name, size_t len)
{
	static const char *const common[] = { "protocolVersion", "operation",
		"workspaceId" };
	size_t i;

	for (i = 0; i < sizeof(common) / sizeof(common[0]); i++)
		if (strlen(common[i]) == len &&
		    memcmp(common[i], name, len) == 0)
			return 1;
	for (; m->name != NULL; m++)
		if (strlen(m->name) == len && memcmp(m->name, name, len) == 0)
			return 1;
	return 0;
}

/* The two forms of an edit exclude each other (workspace-tools 9.1). */
static const char *
finish_edit(const struct json *j, struct tool_request *tr)
{
	const struct json *old = json_get(j, "oldText");
	const struct json *new = json_get(j, "newText");

	if (tr->batch)
		return old == NULL && new == NULL
		    ? NULL
		    : "edits and oldText or newText exclude each other";
	tr->q.edits = xcalloc(1, sizeof(*tr->q.edits));
	tr->q.nedits = 1;
	return take_edit(old, new, &tr->q.edits[0]);
}

/* afterPath: in normal form, and at or below path (workspace-tools 7.1). */
static const char *
finish_list(struct tool_request *tr)
{
	const struct text *after = &tr->q.after, *path = &tr->q.path;
	struct buf normal;
	int same;

	if (after->len == 0)
		return NULL;
	buf_init(&normal);
	path_normalise(&normal, after->data, after->len);
	same = normal.len == after->len &&
	    memcmp(normal.data, after->data, after->len) == 0;
	buf_free(&normal);
	if (!same ||
	    !path_within(after->data, after->len, path->data, path->len))
		return "afterPath is not in normal form below path";
	return NULL;
}

static const char *
take_members(
    const struct json *j, const struct member *list, struct tool_request *tr)
{
	const struct member *m;
	const struct json *v;
	const char *wrong;
	size_t i;

	for (i = 0; i < j->n; i++)
		if (!known_member(list, j->names[i], j->name_lens[i]))
			return "it has a member that its operation does not "
			       "have";
	for (m = list; m->name != NULL; m++) {
		if ((v = json_get(j, m->name)) == NULL) {
			if (m->required)
				return "a required member is missing";
			continue;
		}
		if ((wrong = m->take(v, m, tr)) != NULL)
			return wrong;
	}
	return NULL;
}

static const char *
validate(const struct json *j, struct tool_request *tr)
{
	const struct json *v;
	const char *wrong;
	enum operation op;
	int64_t version;

	if (j == NULL || j->type != JSON_OBJECT)
		return "it is not an object";
	if (json_get_integer(j, "protocolVersion", &version) == -1 ||
	    version != 1)
		return "its protocol version is not 1";
	if ((v = json_get_type(j, "operation", JSON_STRING)) == NULL ||
	    (op = operation_by_name(v->str, v->len)) == OP_MAX)
		return "its operation is not known";
	if ((v = json_get_type(j, "workspaceId", JSON_STRING)) == NULL ||
	    !id_valid(v->str, v->len))
		return "its workspace id is not valid";
	tr->workspace = xstrdup(v->str);
	tr->q.operation = (uint8_t)op;
	tr->q.start_line = 1;
	tr->q.max = operations[op].max;
	if (op == OP_EXECUTE_COMMAND) {
		tr->q.timeout_ms = TIMEOUT_DEFAULT;
		tr->q.max_output = OUTPUT_DEFAULT;
	}
	if ((wrong = take_members(j, operations[op].members, tr)) != NULL)
		return wrong;
	if (op == OP_EDIT_FILE || op == OP_PREVIEW_EDIT)
		return finish_edit(j, tr);
	if (op == OP_LIST_FILES)
		return finish_list(tr);
	return NULL;
}

const char *
request_validate(const struct json *j, struct tool_request *tr)
{
	const char *wrong;

	memset(tr, 0, sizeof(*tr));
	if ((wrong = validate(j, tr)) != NULL)
		tool_request_free(tr);
	return wrong;
}

void
tool_request_free(struct tool_request *tr)
{
	request_free(&tr->q);
	free(tr->workspace);
	memset(tr, 0, sizeof(*tr));
}

static const char *
admit_modes(const struct tool_request *tr, const struct offer *o)
{
	uint32_t mode, active;

	switch (tr->q.operation) {
	case OP_WRITE_FILE:
		mode = tr->q.create_only ? WRITE_CREATE : WRITE_REPLACE;
		if (o->write_modes == 0 ? tr->has_overwrite
					: (o->write_modes & mode) == 0)
			return "write mode is not advertised";
		break;
	case OP_PREVIEW_EDIT:
	case OP_EDIT_FILE:
		mode = tr->batch ? EDIT_BATCH : EDIT_SINGLE;
		active = o->edit_modes != 0 ? o->edit_modes : EDIT_SINGLE;
		if ((active & mode) == 0)
			return "edit mode is not advertised";
		if (tr->q.base_sha256 != NULL &&
		    (o->edit_features & EDIT_EXPECTED_BASE) == 0)
			return "expectedBaseSha256 is not advertised";
		break;
	case OP_LIST_FILES:
		if (tr->q.after.len > 0 &&
		    (o->list_features & LIST_AFTER_PATH) == 0)
			return "afterPath is not advertised";
		break;
	default:
		break;
	}
	return NULL;
}

const char *
request_admit(struct tool_request *tr, const struct offer *o,
    const struct workspace *ws, size_t n)
{
	uint32_t ops;
	size_t i;

	if ((o->operations & OP_BIT(tr->q.operation)) == 0)
		return "operation is not advertised";
	for (i = 0; i < n; i++)
		if (strcmp(ws[i].id, tr->workspace) == 0)
			break;
	if (i == n || (ops = offer_operations(o, (uint32_t)i)) == 0)
		return "workspace is not advertised";
	if ((ops & OP_BIT(tr->q.operation)) == 0)
		return "operation is not advertised for this workspace";
	tr->q.root = (uint32_t)i;
	return admit_modes(tr, o);
}
