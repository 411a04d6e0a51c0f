#include "config.h"

#include <string.h>

#include "buf.h"
#include "utf8.h"

/*
 * p is at an ASCII character. How many there are, or a few less but at least
 * one: most text is nothing else, and is passed over eight bytes at a time.
 */
static size_t
ascii_skip(const uint8_t *p, size_t n)
{
	uint64_t v;
	size_t i;

	for (i = 1; n - i >= sizeof(v); i += sizeof(v)) {
		memcpy(&v, p + i, sizeof(v));
		if ((v & 0x8080808080808080U) != 0)
			break;
	}
	return i;
}

size_t
utf8_decode(const uint8_t *p, size_t n, uint32_t *cp)
{
	uint32_t c;
	size_t i, len;

	if (n == 0)
		return 0;
	if (p[0] < 0x80) {
		*cp = p[0];
		return 1;
	}
	if (p[0] >= 0xc2 && p[0] <= 0xdf) {
		len = 2;
		c = p[0] & 0x1fU;
	} else if ((p[0] & 0xf0) == 0xe0) {
		len = 3;
		c = p[0] & 0x0fU;
	} else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		len = 4;
		c = p[0] & 0x07U;
	} else
		return 0;
	if (n < len)
		return 0;
	for (i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = (c << 6) | (p[i] & 0x3fU);
	}
	if (len == 3 && (c < 0x800 || (c >= 0xd800 && c <= 0xdfff)))
		return 0;
	if (len == 4 && (c < 0x10000 || c > 0x10ffff))
		return 0;
	*cp = c;
	return len;
}

size_t
utf8_bad_length(const uint8_t *p, size_t n)
{
	uint8_t lo = 0x80, hi = 0xbf;
	size_t i, len;

	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		len = 2;
	else if (p[0] >= 0xe0 && p[0] <= 0xef)
		len = 3;
	else if (p[0] >= 0xf0 && p[0] <= 0xf4)
		len = 4;
	else
		return 1;
	/* The second byte's range depends on the first. */
	if (p[0] == 0xe0)
		lo = 0xa0;
	else if (p[0] == 0xed)
		hi = 0x9f;
	else if (p[0] == 0xf0)
		lo = 0x90;
	else if (p[0] == 0xf4)
		hi = 0x8f;
	for (i = 1; i < len && i < n; i++) {
		if (p[i] < lo || p[i] > hi)
			break;
		lo = 0x80;
		hi = 0xbf;
	}
	return i;
}

int
utf8_valid(const void *data, size_t n)
{
	const uint8_t *p = data;
	uint32_t cp;
	size_t i, w;

	for (i = 0; i < n; i += w) {
		if (p[i] < 0x80)
			w = ascii_skip(p + i, n - i);
		else if ((w = utf8_decode(p + i, n - i, &cp)) == 0)
			return 0;
	}
	return 1;
}

size_t
utf8_units(const void *data, size_t n)
{
	const uint8_t *p = data;
	uint32_t cp;
	size_t i, w, units = 0;

	for (i = 0; i < n; i += w) {
		if (p[i] < 0x80) {
			w = ascii_skip(p + i, n - i);
			units += w;
			continue;
		}
		units++;
		if ((w = utf8_decode(p + i, n - i, &cp)) == 0)
			w = utf8_bad_length(p + i, n - i);
		else if (cp > 0xffff)
			units++;
	}
	return units;
}

void
utf8_sanitize(struct buf *to, const void *data, size_t n)
{
	const uint8_t *p = data;
	uint32_t cp;
	size_t i, w, start = 0;

	for (i = 0; i < n; i += w) {
		if (p[i] < 0x80) {
			w = ascii_skip(p + i, n - i);
			continue;
		}
		if ((w = utf8_decode(p + i, n - i, &cp)) != 0)
			continue;
		buf_add(to, p + start, i - start);
		buf_add(to, "\xef\xbf\xbd", 3);
		w = utf8_bad_length(p + i, n - i);
		start = i + w;
	}
	buf_add(to, p + start, n - start);
}

size_t
utf8_sanitized_length(const void *data, size_t n)
{
	const uint8_t *p = data;
	uint32_t cp;
	size_t i, w, len = 0;

	for (i = 0; i < n; i += w) {
		if (p[i] < 0x80) {
			w = ascii_skip(p + i, n - i);
			len += w;
		} else if ((w = utf8_decode(p + i, n - i, &cp)) != 0) {
			len += w;
		} else {
			w = utf8_bad_length(p + i, n - i);
			len += 3;
		}
	}
	return len;
}

static int
blank_character(uint32_t c)
{
	return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0xa0 ||
	    c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
	    c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000 ||
	    c == 0xfeff;
}

int
utf8_blank(const void *data, size_t n)
{
	const uint8_t *p = data;
	uint32_t cp;
	size_t i, w;

	for (i = 0; i < n; i += w) {
		if ((w = utf8_decode(p + i, n - i, &cp)) == 0)
			return 0;
		if (!blank_character(cp))
			return 0;
	}
	return 1;
}

size_t
utf8_cut_units(const void *data, size_t n, size_t max)
{
	const uint8_t *p = data;
	uint32_t cp;
	size_t i, w, need, units = 0;

	for (i = 0; i < n; i += w) {
		if ((w = utf8_decode(p + i, n - i, &cp)) == 0) {
			w = 1;
			cp = 0xfffd;
		}
		need = cp > 0xffff ? 2 : 1;
		if (units + need > max)
			break;
		units += need;
	}
	return i;
}
