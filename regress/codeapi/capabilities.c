#include "config.h"

#include <string.h>

#include "capabilities.h"
#include "json.h"
#include "names.h"
#include "utf8.h"

int
name_in(const char *list, const char *name)
{
	size_t n;

	if (name == NULL)
		return 0;
	for (; *list != '\0'; list += n + (list[n] == ' ' ? 1U : 0U)) {
		n = strcspn(list, " ");
		if (strlen(name) == n && strncmp(list, name, n) == 0)
			return 1;
	}
	return 0;
}

static int
array_has(const struct json *array, const char *value)
{
	const char *s;
	size_t i;

	if (!json_is(array, JSON_ARRAY))
		return 0;
	for (i = 0; i < array->u.array.n; i++) {
		s = json_text(array->u.array.item[i]);
		if (s != NULL && strcmp(s, value) == 0)
			return 1;
	}
	return 0;
}

/* An array of 1..max distinct texts out of a list. */
static int
is_choice(const struct json *v, size_t max, const char *list)
{
	size_t i, j;

	if (!json_is(v, JSON_ARRAY) || v->u.array.n < 1 || v->u.array.n > max)
		return 0;
	for (i = 0; i < v->u.array.n; i++) {
		if (!name_in(list, json_text(v->u.array.item[i])))
			return 0;
		for (j = 0; j < i; j++) {
			if (json_same_string(
				v->u.array.item[i], v->u.array.item[j]))
				return 0;
		}
	}
	return 1;
}

/* A string of at most max units that is not blank. */
static int
is_label(const struct json *v, size_t max)
{
	return json_is(v, JSON_STRING) && json_units(v) <= max &&
	    !utf8_blank(v->u.string.data, v->u.string.len);
}

static int
descriptor_valid(const struct json *d, const struct json *outer)
{
	const struct json *v;
	size_t i;

	if (!json_only(d, "id name operations") ||
	    !name_is_id(json_text(json_get(d, "id"))))
		return 0;
	if ((v = json_get(d, "name")) != NULL && !is_label(v, 128))
		return 0;
	if ((v = json_get(d, "operations")) == NULL)
		return 1;
	if (!is_choice(v, outer->u.array.n, WORKSPACE_OPERATIONS))
		return 0;
	for (i = 0; i < v->u.array.n; i++) {
		if (!array_has(outer, json_text(v->u.array.item[i])))
			return 0;
	}
	return 1;
}

static int
descriptors_valid(const struct json *v, const struct json *operations)
{
	struct json **item;
	size_t i, j;

	if (!json_is(v, JSON_ARRAY) || v->u.array.n < 1 || v->u.array.n > 32)
		return 0;
	item = v->u.array.item;
	for (i = 0; i < v->u.array.n; i++) {
		if (!descriptor_valid(item[i], operations))
			return 0;
		for (j = 0; j < i; j++) {
			if (json_same_string(json_get(item[i], "id"),
				json_get(item[j], "id")))
				return 0;
		}
	}
	return 1;
}

static int
tools_valid(const struct json *t)
{
	const struct json *ops, *v;

	ops = json_get(t, "operations");
	if (!json_int(json_get(t, "protocolVersion"), 1, 1, NULL) ||
	    !is_choice(ops, 7, WORKSPACE_OPERATIONS) ||
	    !descriptors_valid(json_get(t, "workspaces"), ops))
		return 0;
	if ((v = json_get(t, "writeFileModes")) != NULL &&
	    (!is_choice(v, 2, "replace create") ||
		!array_has(ops, "write_file")))
		return 0;
	if ((v = json_get(t, "editFileModes")) != NULL &&
	    (!is_choice(v, 2, "single batch") ||
		(!array_has(ops, "edit_file") &&
		    !array_has(ops, "preview_edit"))))
		return 0;
	if ((v = json_get(t, "editFileFeatures")) != NULL &&
	    (!is_choice(v, 1, "expected_base_sha256") ||
		!array_has(ops, "edit_file")))
		return 0;
	if ((v = json_get(t, "listFileFeatures")) != NULL &&
	    (!is_choice(v, 1, "after_path") || !array_has(ops, "list_files")))
		return 0;
	return 1;
}

static int
runtimes_valid(const struct json *v)
{
	const struct json *s;
	size_t i;

	if (!json_is(v, JSON_ARRAY) || v->u.array.n > 32)
		return 0;
	for (i = 0; i < v->u.array.n; i++) {
		s = v->u.array.item[i];
		if (!json_is(s, JSON_STRING) || json_units(s) < 1 ||
		    json_units(s) > 64)
			return 0;
	}
	return 1;
}

int
capabilities_valid(const struct json *c)
{
	const struct json *v;

	if (!json_is(json_get(c, "statefulWorkspace"), JSON_BOOL) ||
	    !is_label(json_get(c, "sandboxProfile"), 128) ||
	    !runtimes_valid(json_get(c, "runtimes")))
		return 0;
	if ((v = json_get(c, "policyDigest")) != NULL &&
	    !name_is_digest(json_text(v)))
		return 0;
	if ((v = json_get(c, "requiresReadyConfirmation")) != NULL &&
	    !json_is(v, JSON_BOOL))
		return 0;
	if ((v = json_get(c, "workspaceLeaseSlots")) != NULL &&
	    !json_int(v, 1, 8, NULL))
		return 0;
	v = json_get(c, "workspaceTools");
	return v == NULL || tools_valid(v);
}

int
capabilities_have(const struct json *c, const char *array, const char *value)
{
	return array_has(json_get(json_get(c, "workspaceTools"), array), value);
}

/* The descriptor of a workspace id, or NULL. */
static const struct json *
descriptor_find(const struct json *c, const struct json *id)
{
	const struct json *list, *d;
	size_t i;

	list = json_get(json_get(c, "workspaceTools"), "workspaces");
	if (!json_is(list, JSON_ARRAY))
		return NULL;
	for (i = 0; i < list->u.array.n; i++) {
		d = list->u.array.item[i];
		if (json_same_string(json_get(d, "id"), id))
			return d;
	}
	return NULL;
}

static int
write_advertised(
    const struct json *c, const struct json *tools, const struct json *request)
{
	const struct json *overwrite;

	overwrite = json_get(request, "overwrite");
	if (json_get(tools, "writeFileModes") == NULL)
		return overwrite == NULL;
	return capabilities_have(c, "writeFileModes",
	    overwrite != NULL && !json_true(overwrite) ? "create" : "replace");
}

static int
edit_advertised(
    const struct json *c, const struct json *tools, const struct json *request)
{
	int batch;

	batch = json_get(request, "edits") != NULL;
	if (json_get(tools, "editFileModes") == NULL) {
		if (batch)
			return 0;
	} else if (!capabilities_have(
		       c, "editFileModes", batch ? "batch" : "single"))
		return 0;
	return json_get(request, "expectedBaseSha256") == NULL ||
	    capabilities_have(c, "editFileFeatures", "expected_base_sha256");
}

int
capabilities_advertise(const struct json *c, const struct json *request)
{
	const struct json *tools, *d;
	const char *op;

	tools = json_get(c, "workspaceTools");
	op = json_text(json_get(request, "operation"));
	d = descriptor_find(c, json_get(request, "workspaceId"));
	if (op == NULL || d == NULL || !capabilities_have(c, "operations", op))
		return 0;
	if (json_get(d, "operations") != NULL &&
	    !array_has(json_get(d, "operations"), op))
		return 0;
	if (strcmp(op, "list_files") == 0)
		return json_get(request, "afterPath") == NULL ||
		    capabilities_have(c, "listFileFeatures", "after_path");
	if (strcmp(op, "write_file") == 0)
		return write_advertised(c, tools, request);
	if (strcmp(op, "preview_edit") == 0 || strcmp(op, "edit_file") == 0)
		return edit_advertised(c, tools, request);
	return 1;
}
