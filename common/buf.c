#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "log.h"

void
buf_init(struct buf *b)
{
	memset(b, 0, sizeof(*b));
}

void
buf_free(struct buf *b)
{
	free(b->data);
	buf_init(b);
}

void
buf_wipe(struct buf *b)
{
	if (b->data != NULL)
		explicit_bzero(b->data, b->cap);
	buf_free(b);
}

void
buf_reset(struct buf *b)
{
	b->len = 0;
}

uint8_t *
buf_reserve(struct buf *b, size_t n)
{
	size_t need, cap;
	uint8_t *data;

	if (__builtin_add_overflow(b->len, n, &need))
		fatalx("buffer of %zu and %zu bytes", b->len, n);
	if (need > b->cap) {
		cap = b->cap < 64 ? 64 : b->cap;
		while (cap < need) {
			if (__builtin_mul_overflow(cap, 2, &cap))
				fatalx("buffer of %zu bytes", need);
		}
		if ((data = realloc(b->data, cap)) == NULL)
			fatal("buffer of %zu bytes", cap);
		b->data = data;
		b->cap = cap;
	}
	return b->data + b->len;
}

void
buf_exact(struct buf *b, size_t n)
{
	buf_free(b);
	b->data = xmalloc(n);
	b->cap = n == 0 ? 1 : n;
}

void
buf_add(struct buf *b, const void *p, size_t n)
{
	uint8_t *to;

	if (n == 0)
		return;
	to = buf_reserve(b, n);
	memcpy(to, p, n);
	b->len += n;
}

void
buf_addc(struct buf *b, uint8_t c)
{
	buf_add(b, &c, 1);
}

void
buf_adds(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void
buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	char *s;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	if (n == -1)
		fatal("vasprintf");
	buf_add(b, s, (size_t)n);
	free(s);
}

void
buf_drain(struct buf *b, size_t n)
{
	if (n > b->len)
		fatalx("drain of %zu bytes out of %zu", n, b->len);
	if (n == 0)
		return;
	memmove(b->data, b->data + n, b->len - n);
	b->len -= n;
}

char *
buf_cstr(struct buf *b)
{
	*buf_reserve(b, 1) = '\0';
	return (char *)b->data;
}

char *
buf_steal(struct buf *b)
{
	char *s;

	s = buf_cstr(b);
	buf_init(b);
	return s;
}

void *
xmalloc(size_t n)
{
	void *p;

	if ((p = malloc(n == 0 ? 1 : n)) == NULL)
		fatal("malloc of %zu bytes", n);
	return p;
}

void *
xcalloc(size_t n, size_t size)
{
	void *p;

	if (n == 0 || size == 0)
		n = size = 1;
	if ((p = calloc(n, size)) == NULL)
		fatal("calloc of %zu times %zu bytes", n, size);
	return p;
}

void *
xreallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		fatalx("array of %zu times %zu bytes", n, size);
	if ((p = realloc(p, bytes == 0 ? 1 : bytes)) == NULL)
		fatal("array of %zu bytes", bytes);
	return p;
}

char *
xstrdup(const char *s)
{
	return xstrndup(s, strlen(s));
}

char *
xstrndup(const char *s, size_t n)
{
	char *p;

	p = xmalloc(n + 1);
	memcpy(p, s, n);
	p[n] = '\0';
	return p;
}

char *
xasprintf(const char *fmt, ...)
{
	va_list ap;
	char *s;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	if (n == -1)
		fatal("vasprintf");
	return s;
}

size_t
xsnprintf(char *dst, size_t size, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (size == 0)
		return 0;
	va_start(ap, fmt);
	n = vsnprintf(dst, size, fmt, ap);
	va_end(ap);
	if (n < 0) {
		dst[0] = '\0';
		return 0;
	}
	return (size_t)n < size ? (size_t)n : size - 1;
}
