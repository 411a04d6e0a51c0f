#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "json.h"
#include "utf8.h"

void
jw_init(struct jwriter *w, struct buf *b)
{
	w->b = b;
	w->comma = 0;
}

static void
value(struct jwriter *w)
{
	if (w->comma)
		buf_addc(w->b, ',');
	w->comma = 1;
}

void
jw_object(struct jwriter *w)
{
	value(w);
	buf_addc(w->b, '{');
	w->comma = 0;
}

void
jw_object_end(struct jwriter *w)
{
	buf_addc(w->b, '}');
	w->comma = 1;
}

void
jw_array(struct jwriter *w)
{
	value(w);
	buf_addc(w->b, '[');
	w->comma = 0;
}

void
jw_array_end(struct jwriter *w)
{
	buf_addc(w->b, ']');
	w->comma = 1;
}

void
jw_name(struct jwriter *w, const char *name)
{
	jw_str(w, name);
	buf_addc(w->b, ':');
	w->comma = 0;
}

static void
escape(struct buf *b, uint8_t c)
{
	static const char hex[] = "0123456789abcdef";
	char u[6] = { '\\', 'u', '0', '0', '0', '0' };

	switch (c) {
	case '"':
		buf_add(b, "\\\"", 2);
		break;
	case '\\':
		buf_add(b, "\\\\", 2);
		break;
	case '\b':
		buf_add(b, "\\b", 2);
		break;
	case '\t':
		buf_add(b, "\\t", 2);
		break;
	case '\n':
		buf_add(b, "\\n", 2);
		break;
	case '\f':
		buf_add(b, "\\f", 2);
		break;
	case '\r':
		buf_add(b, "\\r", 2);
		break;
	default:
		u[4] = hex[c >> 4];
		u[5] = hex[c & 15];
		buf_add(b, u, sizeof(u));
		break;
	}
}

void
jw_bytes(struct jwriter *w, const void *data, size_t n)
{
	const uint8_t *p = data;
	uint32_t cp;
	size_t i, width, start = 0;

	value(w);
	buf_reserve(w->b, n + 2);
	buf_addc(w->b, '"');
	for (i = 0; i < n; i += width) {
		width = 1;
		if (p[i] < 0x20 || p[i] == '"' || p[i] == '\\') {
			buf_add(w->b, p + start, i - start);
			escape(w->b, p[i]);
			start = i + 1;
		} else if (p[i] >= 0x80) {
			if ((width = utf8_decode(p + i, n - i, &cp)) != 0)
				continue;
			width = utf8_bad_length(p + i, n - i);
			buf_add(w->b, p + start, i - start);
			buf_add(w->b, "\xef\xbf\xbd", 3);
			start = i + width;
		}
	}
	buf_add(w->b, p + start, n - start);
	buf_addc(w->b, '"');
}

void
jw_str(struct jwriter *w, const char *s)
{
	jw_bytes(w, s, strlen(s));
}

void
jw_int(struct jwriter *w, int64_t v)
{
	value(w);
	buf_addf(w->b, "%" PRId64, v);
}

void
jw_bool(struct jwriter *w, int v)
{
	value(w);
	buf_adds(w->b, v ? "true" : "false");
}

void
jw_null(struct jwriter *w)
{
	value(w);
	buf_adds(w->b, "null");
}

void
jw_member_str(struct jwriter *w, const char *name, const char *v)
{
	jw_name(w, name);
	jw_str(w, v);
}

void
jw_member_bytes(struct jwriter *w, const char *name, const void *p, size_t n)
{
	jw_name(w, name);
	jw_bytes(w, p, n);
}

void
jw_member_int(struct jwriter *w, const char *name, int64_t v)
{
	jw_name(w, name);
	jw_int(w, v);
}

void
jw_member_bool(struct jwriter *w, const char *name, int v)
{
	jw_name(w, name);
	jw_bool(w, v);
}
