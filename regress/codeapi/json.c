#include "config.h"

#include <sys/types.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <yajl/yajl_parse.h>

#include "buf.h"
#include "json.h"
#include "utf8.h"

#define NUMBER_TEXT_MAX 4096 /* bytes of one number's text */

struct parser {
	struct json *root;
	struct json *open[JSON_DEPTH_MAX];
	struct json_string name[JSON_DEPTH_MAX];
	size_t depth;
};

static struct json *
json_new(enum json_type type)
{
	struct json *v;

	v = xcalloc(1, sizeof(*v));
	v->type = type;
	return v;
}

static struct json *
string_new(const void *data, size_t len)
{
	struct json *v;

	v = json_new(JSON_STRING);
	v->u.string.data = xstrndup(data, len);
	v->u.string.len = len;
	return v;
}

void
json_free(struct json *v)
{
	size_t i;

	if (v == NULL)
		return;
	switch (v->type) {
	case JSON_STRING:
		free(v->u.string.data);
		break;
	case JSON_ARRAY:
		for (i = 0; i < v->u.array.n; i++)
			json_free(v->u.array.item[i]);
		free(v->u.array.item);
		break;
	case JSON_OBJECT:
		for (i = 0; i < v->u.object.n; i++) {
			free(v->u.object.member[i].name.data);
			json_free(v->u.object.member[i].value);
		}
		free(v->u.object.member);
		break;
	default:
		break;
	}
	free(v);
}

static size_t
grown(size_t cap)
{
	return cap == 0 ? 8 : cap * 2;
}

static void
array_add(struct json *v, struct json *item)
{
	if (v->u.array.n == v->u.array.cap) {
		v->u.array.cap = grown(v->u.array.cap);
		v->u.array.item = xreallocarray(
		    v->u.array.item, v->u.array.cap, sizeof(*v->u.array.item));
	}
	v->u.array.item[v->u.array.n++] = item;
}

/* Takes over name and value. Returns -1, having freed both, beyond bounds. */
static int
object_add(struct json *v, struct json_string name, struct json *value)
{
	struct json_member *m;
	size_t i;

	for (i = 0; i < v->u.object.n; i++) {
		m = &v->u.object.member[i];
		if (m->name.len != name.len ||
		    memcmp(m->name.data, name.data, name.len) != 0)
			continue;
		free(name.data);
		json_free(m->value);
		m->value = value;
		return 0;
	}
	if (v->u.object.n == JSON_MEMBERS_MAX) {
		free(name.data);
		json_free(value);
		return -1;
	}
	if (v->u.object.n == v->u.object.cap) {
		v->u.object.cap = grown(v->u.object.cap);
		v->u.object.member = xreallocarray(v->u.object.member,
		    v->u.object.cap, sizeof(*v->u.object.member));
	}
	m = &v->u.object.member[v->u.object.n++];
	m->name = name;
	m->value = value;
	return 0;
}

struct json *
json_copy(const struct json *v)
{
	struct json *c;
	struct json_string name;
	size_t i;

	if (v == NULL)
		return NULL;
	if (v->type == JSON_STRING)
		return string_new(v->u.string.data, v->u.string.len);
	c = json_new(v->type);
	switch (v->type) {
	case JSON_BOOL:
		c->u.boolean = v->u.boolean;
		break;
	case JSON_NUMBER:
		c->u.number = v->u.number;
		break;
	case JSON_ARRAY:
		for (i = 0; i < v->u.array.n; i++)
			array_add(c, json_copy(v->u.array.item[i]));
		break;
	case JSON_OBJECT:
		for (i = 0; i < v->u.object.n; i++) {
			name.len = v->u.object.member[i].name.len;
			name.data = xstrndup(
			    v->u.object.member[i].name.data, name.len);
			object_add(
			    c, name, json_copy(v->u.object.member[i].value));
		}
		break;
	default:
		break;
	}
	return c;
}

/* Puts a finished or just opened value where it belongs. */
static int
place(struct parser *p, struct json *v)
{
	struct json *in;
	struct json_string name;

	if (p->depth == 0) {
		if (p->root != NULL) {
			json_free(v);
			return 0;
		}
		p->root = v;
		return 1;
	}
	in = p->open[p->depth - 1];
	if (in->type == JSON_ARRAY) {
		array_add(in, v);
		return 1;
	}
	name = p->name[p->depth - 1];
	p->name[p->depth - 1].data = NULL;
	return object_add(in, name, v) == 0;
}

static int
open_container(struct parser *p, enum json_type type)
{
	struct json *v;

	if (p->depth == JSON_DEPTH_MAX)
		return 0;
	v = json_new(type);
	if (!place(p, v))
		return 0;
	p->name[p->depth].data = NULL;
	p->open[p->depth++] = v;
	return 1;
}

static int
on_null(void *ctx)
{
	return place(ctx, json_new(JSON_NULL));
}

static int
on_boolean(void *ctx, int value)
{
	struct json *v;

	v = json_new(JSON_BOOL);
	v->u.boolean = value != 0;
	return place(ctx, v);
}

static int
on_number(void *ctx, const char *text, size_t len)
{
	struct json *v;
	char *s;

	if (len > NUMBER_TEXT_MAX)
		return 0;
	s = xstrndup(text, len);
	v = json_number(strtod(s, NULL));
	free(s);
	return place(ctx, v);
}

static int
on_string(void *ctx, const unsigned char *text, size_t len)
{
	return place(ctx, string_new(text, len));
}

static int
on_start_map(void *ctx)
{
	return open_container(ctx, JSON_OBJECT);
}

static int
on_map_key(void *ctx, const unsigned char *text, size_t len)
{
	struct parser *p = ctx;

	p->name[p->depth - 1].data = xstrndup((const char *)text, len);
	p->name[p->depth - 1].len = len;
	return 1;
}

static int
on_start_array(void *ctx)
{
	return open_container(ctx, JSON_ARRAY);
}

static int
on_end(void *ctx)
{
	struct parser *p = ctx;

	p->depth--;
	return 1;
}

static int
hex4(const uint8_t *p, size_t n, unsigned int *value)
{
	unsigned int v;
	size_t i;
	uint8_t c;

	if (n < 6 || p[0] != '\\' || p[1] != 'u')
		return 0;
	v = 0;
	for (i = 2; i < 6; i++) {
		c = p[i];
		v <<= 4;
		if (c >= '0' && c <= '9')
			v |= c - '0';
		else if (c >= 'a' && c <= 'f')
			v |= c - 'a' + 10U;
		else if (c >= 'A' && c <= 'F')
			v |= c - 'A' + 10U;
		else
			return 0;
	}
	*value = v;
	return 1;
}

/*
 * yajl turns an escape that is half a surrogate pair into '?', so such an
 * escape is replaced by its three raw bytes before yajl sees it. A backslash
 * outside a string is an error anyway, so strings need not be tracked.
 */
static void
unescape_surrogates(struct buf *to, const uint8_t *p, size_t n)
{
	unsigned int hi, lo;
	size_t i;

	for (i = 0; i < n;) {
		if (p[i] != '\\' || i + 1 == n) {
			buf_addc(to, p[i++]);
			continue;
		}
		if (!hex4(p + i, n - i, &hi) || hi < 0xd800 || hi > 0xdfff) {
			buf_add(to, p + i, 2);
			i += 2;
			continue;
		}
		if (hi < 0xdc00 && hex4(p + i + 6, n - i - 6, &lo) &&
		    lo >= 0xdc00 && lo <= 0xdfff) {
			buf_add(to, p + i, 12);
			i += 12;
			continue;
		}
		buf_addc(to, (uint8_t)(0xe0 | hi >> 12));
		buf_addc(to, (uint8_t)(0x80 | (hi >> 6 & 0x3f)));
		buf_addc(to, (uint8_t)(0x80 | (hi & 0x3f)));
		i += 6;
	}
}

struct json *
json_parse(const void *data, size_t len)
{
	static const yajl_callbacks callbacks = { on_null, on_boolean, NULL,
		NULL, on_number, on_string, on_start_map, on_map_key, on_end,
		on_start_array, on_end };
	const uint8_t *p = data;
	struct parser parser;
	struct buf clean, text;
	yajl_handle y;
	size_t i;
	int ok;

	buf_init(&clean);
	buf_init(&text);
	if (len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) {
		p += 3;
		len -= 3;
	}
	utf8_sanitize(&clean, p, len);
	unescape_surrogates(&text, clean.data, clean.len);
	memset(&parser, 0, sizeof(parser));
	y = yajl_alloc(&callbacks, NULL, &parser);
	yajl_config(y, yajl_dont_validate_strings, 1);
	ok = text.len > 0 &&
	    yajl_parse(y, text.data, text.len) == yajl_status_ok &&
	    yajl_complete_parse(y) == yajl_status_ok;
	yajl_free(y);
	buf_free(&text);
	buf_free(&clean);
	if (ok && parser.root != NULL)
		return parser.root;
	for (i = 0; i < parser.depth; i++)
		free(parser.name[i].data);
	json_free(parser.root);
	return NULL;
}

struct json *
json_object(void)
{
	return json_new(JSON_OBJECT);
}

struct json *
json_number(double number)
{
	struct json *v;

	v = json_new(JSON_NUMBER);
	v->u.number = number;
	return v;
}

struct json *
json_str(const char *s)
{
	return string_new(s, strlen(s));
}

void
json_put(struct json *v, const char *name, struct json *value)
{
	struct json_string s;

	s.data = xstrdup(name);
	s.len = strlen(name);
	object_add(v, s, value);
}

struct json *
json_get(const struct json *v, const char *name)
{
	const struct json_member *m;
	size_t i, len;

	if (!json_is(v, JSON_OBJECT))
		return NULL;
	len = strlen(name);
	for (i = 0; i < v->u.object.n; i++) {
		m = &v->u.object.member[i];
		if (m->name.len == len && memcmp(m->name.data, name, len) == 0)
			return m->value;
	}
	return NULL;
}

const char *
json_text(const struct json *v)
{
	if (!json_is(v, JSON_STRING) ||
	    strlen(v->u.string.data) != v->u.string.len)
		return NULL;
	return v->u.string.data;
}

int
json_is(const struct json *v, enum json_type type)
{
	return v != NULL && v->type == type;
}

int
json_int(const struct json *v, long long min, long long max, long long *out)
{
	if (!json_is(v, JSON_NUMBER) || !isfinite(v->u.number) ||
	    floor(v->u.number) != v->u.number || v->u.number < (double)min ||
	    v->u.number > (double)max)
		return 0;
	if (out != NULL)
		*out = (long long)v->u.number;
	return 1;
}

int
json_true(const struct json *v)
{
	return json_is(v, JSON_BOOL) && v->u.boolean;
}

size_t
json_units(const struct json *v)
{
	const uint8_t *p;
	size_t i, n;

	p = (const uint8_t *)v->u.string.data;
	for (i = n = 0; i < v->u.string.len; i++)
		n += ((p[i] & 0xc0) != 0x80 ? 1U : 0U) +
		    (p[i] >= 0xf0 ? 1U : 0U);
	return n;
}

int
json_well_formed(const struct json *v)
{
	return json_is(v, JSON_STRING) &&
	    utf8_valid(v->u.string.data, v->u.string.len);
}

int
json_same_string(const struct json *a, const struct json *b)
{
	return json_is(a, JSON_STRING) && json_is(b, JSON_STRING) &&
	    a->u.string.len == b->u.string.len &&
	    memcmp(a->u.string.data, b->u.string.data, a->u.string.len) == 0;
}

static int
listed(const char *names, const struct json_string *name)
{
	size_t n;

	for (; *names != '\0'; names += n + (names[n] == ' ' ? 1U : 0U)) {
		n = strcspn(names, " ");
		if (n == name->len && memcmp(names, name->data, n) == 0)
			return 1;
	}
	return 0;
}

int
json_only(const struct json *v, const char *names)
{
	size_t i;

	if (!json_is(v, JSON_OBJECT))
		return 0;
	for (i = 0; i < v->u.object.n; i++) {
		if (!listed(names, &v->u.object.member[i].name))
			return 0;
	}
	return 1;
}
