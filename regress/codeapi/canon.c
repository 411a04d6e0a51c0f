#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "canon.h"
#include "utf8.h"

#define INDEX_MAX 4294967294ULL /* the largest array index of ECMAScript */

/* Bytes that stand for themselves, counted from p on. */
static size_t
plain_run(const uint8_t *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] < 0x20 || p[i] == '"' || p[i] == '\\' || p[i] == 0xed)
			break;
	return i;
}

/* Adds what does not stand for itself; the number of bytes it takes. */
static size_t
add_special(struct buf *b, const uint8_t *p, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	static const char from[] = "\"\\\b\t\n\f\r", to[] = "\"\\btnfr";
	const char *at;
	unsigned int cp;

	if (p[0] == 0xed) {
		if (len < 3 || p[1] < 0xa0) {
			buf_addc(b, p[0]);
			return 1;
		}
		cp = 0xd000U | (p[1] & 0x3fU) << 6 | (p[2] & 0x3fU);
		buf_addf(b, "\\u%04x", cp);
		return 3;
	}
	if (p[0] != 0 && (at = strchr(from, p[0])) != NULL) {
		buf_addc(b, '\\');
		buf_addc(b, (uint8_t)to[at - from]);
		return 1;
	}
	buf_adds(b, "\\u00");
	buf_addc(b, (uint8_t)hex[p[0] >> 4]);
	buf_addc(b, (uint8_t)hex[p[0] & 15]);
	return 1;
}

void
canon_string(struct buf *b, const void *data, size_t len)
{
	const uint8_t *p = data;
	size_t i, n;

	buf_addc(b, '"');
	for (i = 0; i < len;) {
		n = plain_run(p + i, len - i);
		buf_add(b, p + i, n);
		i += n;
		if (i < len)
			i += add_special(b, p + i, len - i);
	}
	buf_addc(b, '"');
}

/* Adds one unit to the last of n decimal digits; 0 if a digit would be added.
 */
static int
next_decimal(char *digits, size_t n)
{
	while (n-- > 0) {
		if (digits[n] != '9') {
			digits[n]++;
			return 1;
		}
		digits[n] = '0';
	}
	return 0;
}

static int
is_spelled(const char *digits, size_t n, int exponent, double v)
{
	char text[64];

	snprintf(text, sizeof(text), "%.*se%d", (int)n, digits,
	    exponent - (int)n + 1);
	return strtod(text, NULL) == v;
}

/*
 * The fewest decimal digits that read back as v, and the exponent of the
 * first one. The nearest decimal of a length can fail where v is a power of
 * two, because the gap below is half as wide; then the next one is tried.
 */
static size_t
shortest(double v, char *digits, int *exponent)
{
	char text[64], *e;
	size_t n;

	for (n = 1; n <= 17; n++) {
		snprintf(text, sizeof(text), "%.*e", (int)n - 1, v);
		e = strchr(text, 'e');
		*exponent = atoi(e + 1);
		digits[0] = text[0];
		if (n > 1)
			memcpy(digits + 1, text + 2, n - 1);
		if (is_spelled(digits, n, *exponent, v))
			break;
		if (next_decimal(digits, n) &&
		    is_spelled(digits, n, *exponent, v))
			break;
	}
	if (n > 17)
		n = 17;
	while (n > 1 && digits[n - 1] == '0')
		n--;
	return n;
}

static void
add_zeros(struct buf *b, int n)
{
	while (n-- > 0)
		buf_addc(b, '0');
}

void
canon_number(struct buf *b, double v)
{
	char digits[24];
	size_t k;
	int e, n;

	if (!isfinite(v)) {
		buf_adds(b, "null");
		return;
	}
	if (v == 0) {
		buf_addc(b, '0');
		return;
	}
	if (v < 0) {
		buf_addc(b, '-');
		v = -v;
	}
	k = shortest(v, digits, &e);
	n = e + 1; /* digits in front of the point */
	if ((int)k <= n && n <= 21) {
		buf_add(b, digits, k);
		add_zeros(b, n - (int)k);
	} else if (n > 0 && n <= 21) {
		buf_add(b, digits, (size_t)n);
		buf_addc(b, '.');
		buf_add(b, digits + n, k - (size_t)n);
	} else if (n > -6 && n <= 0) {
		buf_adds(b, "0.");
		add_zeros(b, -n);
		buf_add(b, digits, k);
	} else {
		buf_addc(b, (uint8_t)digits[0]);
		if (k > 1) {
			buf_addc(b, '.');
			buf_add(b, digits + 1, k - 1);
		}
		buf_addf(b, "e%c%d", e < 0 ? '-' : '+', abs(e));
	}
}

/* 1 and the value if the member name is a canonical array index. */
static int
array_index(const struct json_string *name, unsigned long long *index)
{
	unsigned long long v;
	size_t i;

	if (name->len == 0 || name->len > 10 ||
	    (name->len > 1 && name->data[0] == '0'))
		return 0;
	v = 0;
	for (i = 0; i < name->len; i++) {
		if (name->data[i] < '0' || name->data[i] > '9')
			return 0;
		v = v * 10 + (unsigned long long)(name->data[i] - '0');
	}
	*index = v;
	return v <= INDEX_MAX;
}

static int
compare_members(const void *a, const void *b)
{
	const struct json_member *const *x = a, *const *y = b;
	unsigned long long i, j;

	i = j = 0;
	array_index(&(*x)->name, &i);
	array_index(&(*y)->name, &j);
	return i < j ? -1 : i > j;
}

static void
add_member(struct buf *b, const struct json_member *m, int *first)
{
	if (!*first)
		buf_addc(b, ',');
	*first = 0;
	canon_string(b, m->name.data, m->name.len);
	buf_addc(b, ':');
	canon_json(b, m->value);
}

static void
canon_object(struct buf *b, const struct json *v)
{
	const struct json_member **indices;
	unsigned long long index;
	size_t i, n;
	int first;

	indices = xcalloc(v->u.object.n, sizeof(const struct json_member *));
	for (i = n = 0; i < v->u.object.n; i++) {
		if (array_index(&v->u.object.member[i].name, &index))
			indices[n++] = &v->u.object.member[i];
	}
	if (n > 1)
		qsort(indices, n, sizeof(const struct json_member *),
		    compare_members);
	buf_addc(b, '{');
	first = 1;
	for (i = 0; i < n; i++)
		add_member(b, indices[i], &first);
	for (i = 0; i < v->u.object.n; i++) {
		if (!array_index(&v->u.object.member[i].name, &index))
			add_member(b, &v->u.object.member[i], &first);
	}
	buf_addc(b, '}');
	free(indices);
}

void
canon_json(struct buf *b, const struct json *v)
{
	size_t i;

	if (v == NULL) {
		buf_adds(b, "null");
		return;
	}
	switch (v->type) {
	case JSON_NULL:
		buf_adds(b, "null");
		break;
	case JSON_BOOL:
		buf_adds(b, v->u.boolean ? "true" : "false");
		break;
	case JSON_NUMBER:
		canon_number(b, v->u.number);
		break;
	case JSON_STRING:
		canon_string(b, v->u.string.data, v->u.string.len);
		break;
	case JSON_ARRAY:
		buf_addc(b, '[');
		for (i = 0; i < v->u.array.n; i++) {
			if (i > 0)
				buf_addc(b, ',');
			canon_json(b, v->u.array.item[i]);
		}
		buf_addc(b, ']');
		break;
	case JSON_OBJECT:
		canon_object(b, v);
		break;
	}
}

static void
w_name(struct buf *b, const char *name)
{
	if (b->len > 0 && strchr("{[:", b->data[b->len - 1]) == NULL)
		buf_addc(b, ',');
	if (name != NULL) {
		canon_string(b, name, strlen(name));
		buf_addc(b, ':');
	}
}

void
w_open(struct buf *b, const char *name, char bracket)
{
	w_name(b, name);
	buf_addc(b, (uint8_t)bracket);
}

void
w_close(struct buf *b, char bracket)
{
	buf_addc(b, (uint8_t)bracket);
}

void
w_str(struct buf *b, const char *name, const char *s)
{
	w_name(b, name);
	canon_string(b, s, strlen(s));
}

void
w_int(struct buf *b, const char *name, long long n)
{
	w_name(b, name);
	buf_addf(b, "%lld", n);
}

void
w_bool(struct buf *b, const char *name, int v)
{
	w_name(b, name);
	buf_adds(b, v ? "true" : "false");
}

void
w_json(struct buf *b, const char *name, const struct json *v)
{
	w_name(b, name);
	canon_json(b, v);
}
