#include "config.h"

#include <string.h>

#include "decode.h"
#include "utf8.h"

static void
add_character(struct buf *b, uint32_t c)
{
	uint8_t p[4];

	if (c < 0x80) {
		buf_addc(b, (uint8_t)c);
		return;
	}
	if (c < 0x800) {
		p[0] = (uint8_t)(0xc0 | c >> 6);
		p[1] = (uint8_t)(0x80 | (c & 0x3f));
		buf_add(b, p, 2);
		return;
	}
	if (c < 0x10000) {
		p[0] = (uint8_t)(0xe0 | c >> 12);
		p[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		p[2] = (uint8_t)(0x80 | (c & 0x3f));
		buf_add(b, p, 3);
		return;
	}
	p[0] = (uint8_t)(0xf0 | c >> 18);
	p[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
	p[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
	p[3] = (uint8_t)(0x80 | (c & 0x3f));
	buf_add(b, p, 4);
}

static uint32_t
unit(const uint8_t *p, int big_endian)
{
	if (big_endian)
		return (uint32_t)p[0] << 8 | p[1];
	return (uint32_t)p[1] << 8 | p[0];
}

/*
 * p follows the byte-order mark. A second mark is dropped too. An unpaired
 * surrogate and an odd last byte are one U+FFFD each, but a high surrogate
 * right before the odd byte shares its one.
 */
static void
decode_utf16(struct buf *b, const uint8_t *p, size_t n, int big_endian)
{
	uint32_t c, d;
	size_t i;

	i = n >= 2 && unit(p, big_endian) == 0xfeff ? 2 : 0;
	while (n - i >= 2) {
		c = unit(p + i, big_endian);
		i += 2;
		if (c < 0xd800 || c > 0xdfff) {
			add_character(b, c);
			continue;
		}
		if (c < 0xdc00 && n - i >= 2) {
			d = unit(p + i, big_endian);
			if (d >= 0xdc00 && d <= 0xdfff) {
				i += 2;
				add_character(b,
				    0x10000 + ((c - 0xd800) << 10) +
					(d - 0xdc00));
				continue;
			}
		}
		if (c < 0xdc00 && n - i == 1)
			i++;
		add_character(b, 0xfffd);
	}
	if (n - i == 1)
		add_character(b, 0xfffd);
}

static int
marked(const uint8_t *p, size_t n)
{
	return (n >= 2 && p[0] == 0xff && p[1] == 0xfe) ||
	    (n >= 2 && p[0] == 0xfe && p[1] == 0xff) ||
	    (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0);
}

void
decode_whole(struct buf *text, struct buf *raw)
{
	if (!marked(raw->data, raw->len) && utf8_valid(raw->data, raw->len)) {
		*text = *raw;
		buf_init(raw);
		return;
	}
	decode_file(text, raw->data, raw->len);
	buf_free(raw);
}

void
decode_file(struct buf *b, const uint8_t *p, size_t n)
{
	if (n >= 2 && p[0] == 0xff && p[1] == 0xfe)
		decode_utf16(b, p + 2, n - 2, 0);
	else if (n >= 2 && p[0] == 0xfe && p[1] == 0xff)
		decode_utf16(b, p + 2, n - 2, 1);
	else if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
		utf8_sanitize(b, p + 3, n - 3);
	else
		utf8_sanitize(b, p, n);
}

void
line_window(const uint8_t *p, size_t n, int64_t start_line, uint32_t max_lines,
    struct result *res)
{
	const uint8_t *lf;
	size_t at = 0, from = 0, to = 0;
	int64_t line = 1, last;
	uint32_t taken = 0;

	if (n > 0 && p[n - 1] == '\n')
		n--;
	/* at: start of line number line; n is the end of the last line. */
	for (;;) {
		lf = at < n ? memchr(p + at, '\n', n - at) : NULL;
		if (line >= start_line && taken < max_lines) {
			if (taken == 0)
				from = at;
			to = lf == NULL ? n : (size_t)(lf - p);
			taken++;
		}
		if (lf == NULL)
			break;
		at = (size_t)(lf - p) + 1;
		line++;
	}
	last = start_line + taken - 1;
	res->start_line = start_line;
	res->end_line = last;
	res->truncated = taken > 0 && last < line;
	text_view(&res->content, p + from, to - from);
}
