#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <yajl/yajl_parse.h>

#include "json.h"
#include "utf8.h"

#define SAFE_INTEGER_MAX 9007199254740991.0

struct parser {
	struct json *root;
	struct json *stack[JSON_DEPTH_MAX];
	size_t depth;
	size_t nodes;
	char *name; /* of the next member */
	size_t name_len;
	const char *error;
};

static int
hex4(const uint8_t *p, size_t left, uint32_t *out)
{
	uint32_t v = 0;
	size_t i;

	if (left < 4)
		return 0;
	for (i = 0; i < 4; i++) {
		v <<= 4;
		if (p[i] >= '0' && p[i] <= '9')
			v |= (uint32_t)(p[i] - '0');
		else if (p[i] >= 'a' && p[i] <= 'f')
			v |= (uint32_t)(p[i] - 'a' + 10);
		else if (p[i] >= 'A' && p[i] <= 'F')
			v |= (uint32_t)(p[i] - 'A' + 10);
		else
			return 0;
	}
	*out = v;
	return 1;
}

/*
 * yajl decodes a lone surrogate escape as '?', which would change a path
 * into another valid one. Such an escape is replaced here, in place, by the
 * three bytes that it would be in generalised UTF-8. Only backslashes can
 * start an escape and they occur in strings only, so no further lexing is
 * needed; a malformed escape is left for yajl to refuse.
 */
static size_t
keep_lone_surrogates(uint8_t *p, size_t n)
{
	size_t i = 0, o = 0;
	uint32_t c, d;

	while (i < n) {
		if (p[i] != '\\' || i + 1 >= n) {
			p[o++] = p[i++];
			continue;
		}
		if (p[i + 1] != 'u' || !hex4(p + i + 2, n - i - 2, &c) ||
		    c < 0xd800 || c > 0xdfff) {
			p[o++] = p[i++];
			p[o++] = p[i++];
			continue;
		}
		if (c < 0xdc00 && n - i >= 12 && p[i + 6] == '\\' &&
		    p[i + 7] == 'u' && hex4(p + i + 8, n - i - 8, &d) &&
		    d >= 0xdc00 && d <= 0xdfff) {
			memmove(p + o, p + i, 12);
			o += 12;
			i += 12;
			continue;
		}
		p[o++] = (uint8_t)(0xe0 | c >> 12);
		p[o++] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		p[o++] = (uint8_t)(0x80 | (c & 0x3f));
		i += 6;
	}
	return o;
}

static int
refuse(struct parser *ps, const char *why)
{
	ps->error = why;
	return 0;
}

static struct json *
add_node(struct parser *ps, enum json_type type)
{
	struct json *j, *parent;

	if (++ps->nodes > JSON_NODES_MAX) {
		ps->error = "too many JSON values";
		return NULL;
	}
	j = xcalloc(1, sizeof(*j));
	j->type = type;
	if (ps->depth == 0) {
		ps->root = j;
		return j;
	}
	parent = ps->stack[ps->depth - 1];
	/* Grow at the powers of two. */
	if ((parent->n & (parent->n - 1)) == 0) {
		size_t cap = parent->n == 0 ? 1 : parent->n * 2;

		parent->items = xreallocarray(
		    parent->items, cap, sizeof(*parent->items));
		if (parent->type == JSON_OBJECT) {
			parent->names = xreallocarray(
			    parent->names, cap, sizeof(*parent->names));
			parent->name_lens = xreallocarray(
			    parent->name_lens, cap, sizeof(*parent->name_lens));
		}
	}
	if (parent->type == JSON_OBJECT) {
		parent->names[parent->n] = ps->name;
		parent->name_lens[parent->n] = ps->name_len;
		ps->name = NULL;
	}
	parent->items[parent->n++] = j;
	return j;
}

static int
open_node(struct parser *ps, enum json_type type)
{
	struct json *j;

	if (ps->depth == JSON_DEPTH_MAX)
		return refuse(ps, "JSON is nested too deeply");
	if ((j = add_node(ps, type)) == NULL)
		return 0;
	ps->stack[ps->depth++] = j;
	return 1;
}

static int
on_null(void *ctx)
{
	return add_node(ctx, JSON_NULL) != NULL;
}

static int
on_boolean(void *ctx, int v)
{
	struct json *j;

	if ((j = add_node(ctx, JSON_BOOL)) == NULL)
		return 0;
	j->boolean = v;
	return 1;
}

static int
on_number(void *ctx, const char *s, size_t len)
{
	struct parser *ps = ctx;
	struct json *j;
	char text[64], *dyn = NULL, *p = text;

	if ((j = add_node(ps, JSON_NUMBER)) == NULL)
		return 0;
	if (len >= sizeof(text))
		p = dyn = xstrndup(s, len);
	else {
		memcpy(text, s, len);
		text[len] = '\0';
	}
	j->number = strtod(p, NULL);
	free(dyn);
	return 1;
}

static int
on_string(void *ctx, const unsigned char *s, size_t len)
{
	struct json *j;

	if ((j = add_node(ctx, JSON_STRING)) == NULL)
		return 0;
	j->str = xstrndup((const char *)s, len);
	j->len = len;
	return 1;
}

static int
on_map(void *ctx)
{
	return open_node(ctx, JSON_OBJECT);
}

static int
on_key(void *ctx, const unsigned char *s, size_t len)
{
	struct parser *ps = ctx;

	free(ps->name);
	ps->name = xstrndup((const char *)s, len);
	ps->name_len = len;
	return 1;
}

static int
on_array(void *ctx)
{
	return open_node(ctx, JSON_ARRAY);
}

static int
on_end(void *ctx)
{
	struct parser *ps = ctx;

	ps->depth--;
	return 1;
}

static const yajl_callbacks callbacks = {
	.yajl_null = on_null,
	.yajl_boolean = on_boolean,
	.yajl_number = on_number,
	.yajl_string = on_string,
	.yajl_start_map = on_map,
	.yajl_map_key = on_key,
	.yajl_end_map = on_end,
	.yajl_start_array = on_array,
	.yajl_end_array = on_end,
};

struct json *
json_parse(const void *data, size_t len, const char **error)
{
	struct parser ps;
	struct buf text;
	const uint8_t *p = data;
	yajl_handle h;
	yajl_status st;

	memset(&ps, 0, sizeof(ps));
	buf_init(&text);
	if (len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) {
		p += 3;
		len -= 3;
	}
	utf8_sanitize(&text, p, len);
	if (text.len > 0 && memchr(text.data, '\\', text.len) != NULL)
		text.len = keep_lone_surrogates(text.data, text.len);

	if ((h = yajl_alloc(&callbacks, NULL, &ps)) == NULL) {
		buf_wipe(&text);
		*error = "out of memory";
		return NULL;
	}
	yajl_config(h, yajl_dont_validate_strings, 1);
	st = yajl_parse(h, text.data, text.len);
	if (st == yajl_status_ok)
		st = yajl_complete_parse(h);
	yajl_free(h);
	buf_wipe(&text);
	free(ps.name);
	if (st != yajl_status_ok || ps.root == NULL) {
		*error = ps.error != NULL ? ps.error : "malformed JSON";
		json_free(ps.root);
		return NULL;
	}
	return ps.root;
}

void
json_free(struct json *j)
{
	size_t i;

	if (j == NULL)
		return;
	for (i = 0; i < j->n; i++) {
		json_free(j->items[i]);
		if (j->type == JSON_OBJECT)
			free(j->names[i]);
	}
	if (j->str != NULL)
		explicit_bzero(j->str, j->len);
	free(j->str);
	free(j->items);
	free(j->names);
	free(j->name_lens);
	free(j);
}

const struct json *
json_get(const struct json *j, const char *name)
{
	size_t i, len = strlen(name);

	if (j == NULL || j->type != JSON_OBJECT)
		return NULL;
	for (i = j->n; i > 0; i--)
		if (j->name_lens[i - 1] == len &&
		    memcmp(j->names[i - 1], name, len) == 0)
			return j->items[i - 1];
	return NULL;
}

const struct json *
json_get_type(const struct json *j, const char *name, enum json_type type)
{
	const struct json *m;

	m = json_get(j, name);
	return m != NULL && m->type == type ? m : NULL;
}

const char *
json_get_str(const struct json *j, const char *name)
{
	const struct json *m;

	if ((m = json_get_type(j, name, JSON_STRING)) == NULL)
		return NULL;
	if (strlen(m->str) != m->len)
		return NULL;
	return m->str;
}

int
json_integer(const struct json *j, int64_t *out)
{
	if (j == NULL || j->type != JSON_NUMBER)
		return -1;
	if (!(j->number >= -SAFE_INTEGER_MAX && j->number <= SAFE_INTEGER_MAX))
		return -1;
	if (floor(j->number) != j->number)
		return -1;
	*out = (int64_t)j->number;
	return 0;
}

int
json_get_integer(const struct json *j, const char *name, int64_t *out)
{
	return json_integer(json_get(j, name), out);
}

int
json_closed(const struct json *j, const char *const *names)
{
	const char *const *np;
	size_t i;

	if (j == NULL || j->type != JSON_OBJECT)
		return 0;
	for (i = 0; i < j->n; i++) {
		for (np = names; *np != NULL; np++)
			if (strlen(*np) == j->name_lens[i] &&
			    memcmp(*np, j->names[i], j->name_lens[i]) == 0)
				break;
		if (*np == NULL)
			return 0;
	}
	return 1;
}
