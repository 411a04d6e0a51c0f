#include "config.h"

#include <string.h>

#include "json.h"
#include "offer.h"

#define OPS_COMPATIBLE (OP_BIT(OP_READ_FILE) | OP_BIT(OP_SEARCH_TEXT))
#define OPS_EDIT       (OP_BIT(OP_PREVIEW_EDIT) | OP_BIT(OP_EDIT_FILE))

static const char *const write_mode_names[] = { "replace", "create", NULL };
static const char *const edit_mode_names[] = { "single", "batch", NULL };
static const char *const edit_feature_names[] = { "expected_base_sha256",
	NULL };
static const char *const list_feature_names[] = { "after_path", NULL };

/* Drops the modes and features whose operation is not offered. */
static void
trim(struct offer *o)
{
	if ((o->operations & OP_BIT(OP_WRITE_FILE)) == 0)
		o->write_modes = 0;
	if ((o->operations & OPS_EDIT) == 0)
		o->edit_modes = 0;
	if ((o->operations & OP_BIT(OP_EDIT_FILE)) == 0)
		o->edit_features = 0;
	if ((o->operations & OP_BIT(OP_LIST_FILES)) == 0)
		o->list_features = 0;
}

void
offer_wanted(struct offer *o, const struct bridge_config *c)
{
	size_t i;

	memset(o, 0, sizeof(*o));
	for (i = 0; i < c->nworkspaces; i++)
		o->operations |= c->workspaces[i].operations;
	for (i = 0; i < c->nworkspaces; i++) {
		if (c->workspaces[i].operations == 0)
			continue;
		o->roots[o->nroots].root = (uint32_t)i;
		if (c->workspaces[i].operations != o->operations)
			o->roots[o->nroots].operations =
			    c->workspaces[i].operations;
		o->nroots++;
	}
	o->write_modes = WRITE_REPLACE | WRITE_CREATE;
	o->edit_modes = EDIT_SINGLE | EDIT_BATCH;
	o->edit_features = EDIT_EXPECTED_BASE;
	o->list_features = LIST_AFTER_PATH;
	trim(o);
}

static int
restricts_a_root(const struct offer *o)
{
	size_t i;

	for (i = 0; i < o->nroots; i++)
		if (o->roots[i].operations != 0)
			return 1;
	return 0;
}

void
offer_compatible(struct offer *o, const struct offer *wanted)
{
	const struct offer_root *r;
	uint32_t ops;
	size_t i;

	if ((wanted->operations & ~OPS_COMPATIBLE) == 0 &&
	    !restricts_a_root(wanted)) {
		*o = *wanted;
		return;
	}
	memset(o, 0, sizeof(*o));
	ops = wanted->operations & OPS_COMPATIBLE;
	for (i = 0; i < wanted->nroots; i++) {
		r = &wanted->roots[i];
		/* Without its own list the root would get more. */
		if (r->operations != 0 && (r->operations & ops) != ops)
			continue;
		o->roots[o->nroots++].root = r->root;
	}
	if (ops == 0 || o->nroots == 0)
		memset(o, 0, sizeof(*o));
	else
		o->operations = ops;
}

/*
 * Modes both sides know. Before the member existed there was one mode, so a
 * server that does not list any has that one, and the member is not sent.
 */
static int
common_modes(
    uint32_t wanted, int listed, uint32_t server, uint32_t only, uint32_t *send)
{
	uint32_t common;

	if (wanted == 0)
		wanted = only;
	common = wanted & (listed ? server : only);
	*send = listed ? common : 0;
	return common != 0;
}

int
offer_promote(
    struct offer *o, const struct offer *wanted, const struct support *s)
{
	const struct offer_root *r;
	struct offer_root *to;
	uint32_t ops;
	size_t i;

	memset(o, 0, sizeof(*o));
	if (!s->present)
		return 0;
	ops = wanted->operations & s->operations;
	if ((ops & OP_BIT(OP_WRITE_FILE)) &&
	    !common_modes(wanted->write_modes, s->has_write_modes,
		s->write_modes, WRITE_REPLACE, &o->write_modes))
		ops &= ~OP_BIT(OP_WRITE_FILE);
	if ((ops & OPS_EDIT) &&
	    !common_modes(wanted->edit_modes, s->has_edit_modes, s->edit_modes,
		EDIT_SINGLE, &o->edit_modes))
		ops &= ~OPS_EDIT;
	for (i = 0; i < wanted->nroots; i++) {
		r = &wanted->roots[i];
		if (r->operations != 0 && (r->operations & ops) == 0)
			continue;
		to = &o->roots[o->nroots++];
		to->root = r->root;
		to->operations = r->operations & ops;
	}
	if (ops == 0 || o->nroots == 0) {
		memset(o, 0, sizeof(*o));
		return 0;
	}
	o->operations = ops;
	o->edit_features = wanted->edit_features & s->edit_features;
	o->list_features = wanted->list_features & s->list_features;
	trim(o);
	return 1;
}

int
offer_equal(const struct offer *a, const struct offer *b)
{
	size_t i;

	if (a->operations != b->operations || a->nroots != b->nroots ||
	    a->write_modes != b->write_modes ||
	    a->edit_modes != b->edit_modes ||
	    a->edit_features != b->edit_features ||
	    a->list_features != b->list_features)
		return 0;
	for (i = 0; i < a->nroots; i++)
		if (a->roots[i].root != b->roots[i].root ||
		    a->roots[i].operations != b->roots[i].operations)
			return 0;
	return 1;
}

/* Names in an array member as a mask; 1 if the member is an array. */
static int
read_names(const struct json *j, const char *name, const char *const *known,
    uint32_t *mask)
{
	const struct json *list, *s;
	unsigned int bit;
	size_t i;

	*mask = 0;
	if ((list = json_get_type(j, name, JSON_ARRAY)) == NULL)
		return 0;
	for (i = 0; i < list->n; i++) {
		s = list->items[i];
		if (s->type != JSON_STRING)
			continue;
		for (bit = 0; known[bit] != NULL; bit++)
			if (strlen(known[bit]) == s->len &&
			    memcmp(known[bit], s->str, s->len) == 0)
				*mask |= 1U << bit;
	}
	return 1;
}

void
support_read(struct support *s, const struct json *j)
{
	const char *operations[OP_MAX + 1];
	unsigned int op;

	memset(s, 0, sizeof(*s));
	for (op = 0; op < OP_MAX; op++)
		operations[op] = operation_name((enum operation)op);
	operations[OP_MAX] = NULL;
	s->present = read_names(
	    j, "supportedWorkspaceToolOperations", operations, &s->operations);
	s->has_write_modes = read_names(j, "supportedWorkspaceWriteFileModes",
	    write_mode_names, &s->write_modes);
	s->has_edit_modes = read_names(j, "supportedWorkspaceEditFileModes",
	    edit_mode_names, &s->edit_modes);
	(void)read_names(j, "supportedWorkspaceEditFileFeatures",
	    edit_feature_names, &s->edit_features);
	(void)read_names(j, "supportedWorkspaceListFileFeatures",
	    list_feature_names, &s->list_features);
}

static void
write_names(struct jwriter *w, const char *name, const char *const *names,
    uint32_t mask)
{
	unsigned int bit;

	if (mask == 0)
		return;
	jw_name(w, name);
	jw_array(w);
	for (bit = 0; names[bit] != NULL; bit++)
		if (mask & (1U << bit))
			jw_str(w, names[bit]);
	jw_array_end(w);
}

static void
write_operations(struct jwriter *w, uint32_t mask)
{
	unsigned int op;

	jw_name(w, "operations");
	jw_array(w);
	for (op = 0; op < OP_MAX; op++)
		if (mask & OP_BIT(op))
			jw_str(w, operation_name((enum operation)op));
	jw_array_end(w);
}

void
offer_write(
    struct jwriter *w, const struct offer *o, const struct workspace *ws)
{
	const struct offer_root *r;
	size_t i;

	if (o->operations == 0)
		return;
	jw_name(w, "workspaceTools");
	jw_object(w);
	jw_member_int(w, "protocolVersion", 1);
	write_operations(w, o->operations);
	jw_name(w, "workspaces");
	jw_array(w);
	for (i = 0; i < o->nroots; i++) {
		r = &o->roots[i];
		jw_object(w);
		jw_member_str(w, "id", ws[r->root].id);
		if (ws[r->root].name != NULL)
			jw_member_str(w, "name", ws[r->root].name);
		if (r->operations != 0)
			write_operations(w, r->operations);
		jw_object_end(w);
	}
	jw_array_end(w);
	write_names(w, "writeFileModes", write_mode_names, o->write_modes);
	write_names(w, "editFileModes", edit_mode_names, o->edit_modes);
	write_names(
	    w, "editFileFeatures", edit_feature_names, o->edit_features);
	write_names(
	    w, "listFileFeatures", list_feature_names, o->list_features);
	jw_object_end(w);
}

uint32_t
offer_operations(const struct offer *o, uint32_t root)
{
	size_t i;

	for (i = 0; i < o->nroots; i++)
		if (o->roots[i].root == root)
			return o->roots[i].operations != 0
			    ? o->roots[i].operations
			    : o->operations;
	return 0;
}
