#include "config.h"

#include <string.h>

#include "buf.h"
#include "path.h"
#include "utf8.h"

#define PATH_UNITS_MAX 4096

static int
ascii_alpha(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int
ascii_alnum(unsigned char c)
{
	return ascii_alpha(c) || (c >= '0' && c <= '9');
}

int
id_valid(const void *data, size_t n)
{
	const unsigned char *p = data;
	size_t i;

	if (n == 0 || n > 128 || !ascii_alnum(p[0]))
		return 0;
	for (i = 1; i < n; i++)
		if (!ascii_alnum(p[i]) && p[i] != '.' && p[i] != '_' &&
		    p[i] != ':' && p[i] != '-')
			return 0;
	return 1;
}

int
path_portable(const void *data, size_t n)
{
	const char *p = data;
	size_t i, start;

	if (n == 0 || !utf8_valid(p, n) || utf8_units(p, n) > PATH_UNITS_MAX)
		return 0;
	if (memchr(p, '\0', n) != NULL || memchr(p, '\\', n) != NULL)
		return 0;
	if (p[0] == '/')
		return 0;
	if (n >= 2 && ascii_alpha((unsigned char)p[0]) && p[1] == ':')
		return 0;
	for (start = i = 0; i <= n; i++) {
		if (i < n && p[i] != '/')
			continue;
		if (i - start == 2 && memcmp(p + start, "..", 2) == 0)
			return 0;
		start = i + 1;
	}
	return 1;
}

/* Next segment that is neither empty nor "."; 0 at the end. */
static int
next_segment(const char *p, size_t n, size_t *at, const char **seg, size_t *len)
{
	size_t start;

	while (*at < n) {
		start = *at;
		while (*at < n && p[*at] != '/')
			(*at)++;
		*seg = p + start;
		*len = *at - start;
		if (*at < n)
			(*at)++;
		if (*len == 0 || (*len == 1 && **seg == '.'))
			continue;
		return 1;
	}
	return 0;
}

void
path_normalise(struct buf *b, const void *data, size_t n)
{
	const char *seg;
	size_t at = 0, len, from = b->len;

	while (next_segment(data, n, &at, &seg, &len)) {
		if (b->len > from)
			buf_addc(b, '/');
		buf_add(b, seg, len);
	}
	if (b->len == from)
		buf_addc(b, '.');
}

int
path_within(const void *candidate, size_t n, const void *requested, size_t m)
{
	const char *cs, *rs;
	size_t ca = 0, ra = 0, cl, rl;

	while (next_segment(requested, m, &ra, &rs, &rl)) {
		if (!next_segment(candidate, n, &ca, &cs, &cl))
			return 0;
		if (cl != rl || memcmp(cs, rs, cl) != 0)
			return 0;
	}
	return 1;
}

int
path_compare(const void *a, size_t n, const void *b, size_t m)
{
	const unsigned char *p = a, *q = b;
	size_t i = 0;

	while (i < n && i < m && p[i] == q[i])
		i++;
	if (i == n && i == m)
		return 0;
	/* The end of the path and the end of a segment sort first. */
	if (i == n)
		return -1;
	if (i == m)
		return 1;
	if (p[i] == '/')
		return -1;
	if (q[i] == '/')
		return 1;
	return p[i] < q[i] ? -1 : 1;
}
