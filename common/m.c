#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "imsg.h"
#include "log.h"

#define STR_NULL 0xffffffffU

void
m_add_u8(struct buf *b, uint8_t v)
{
	buf_addc(b, v);
}

void
m_add_u32(struct buf *b, uint32_t v)
{
	uint8_t p[4];
	size_t i;

	for (i = 0; i < sizeof(p); i++)
		p[i] = (uint8_t)(v >> (8 * i));
	buf_add(b, p, sizeof(p));
}

void
m_add_u64(struct buf *b, uint64_t v)
{
	uint8_t p[8];
	size_t i;

	for (i = 0; i < sizeof(p); i++)
		p[i] = (uint8_t)(v >> (8 * i));
	buf_add(b, p, sizeof(p));
}

void
m_add_i64(struct buf *b, int64_t v)
{
	m_add_u64(b, (uint64_t)v);
}

void
m_add_bytes(struct buf *b, const void *p, size_t n)
{
	if (n >= STR_NULL)
		fatalx("member of %zu bytes is too long", n);
	m_add_u32(b, (uint32_t)n);
	buf_add(b, p, n);
}

void
m_add_str(struct buf *b, const char *s)
{
	if (s == NULL)
		m_add_u32(b, STR_NULL);
	else
		m_add_bytes(b, s, strlen(s));
}

void
m_begin(struct mreader *r, const struct imsg *im)
{
	r->p = im->data.data;
	r->left = im->data.len;
	r->bad = 0;
	r->view = 0;
}

static const uint8_t *
take(struct mreader *r, size_t n)
{
	const uint8_t *p;

	if (r->bad || n > r->left) {
		r->bad = 1;
		return NULL;
	}
	p = r->p;
	r->p += n;
	r->left -= n;
	return p;
}

uint8_t
m_get_u8(struct mreader *r)
{
	const uint8_t *p = take(r, 1);

	return p == NULL ? 0 : *p;
}

uint64_t
m_get_u64(struct mreader *r)
{
	const uint8_t *p = take(r, 8);
	uint64_t v = 0;
	size_t i;

	if (p == NULL)
		return 0;
	for (i = 8; i > 0; i--)
		v = v << 8 | p[i - 1];
	return v;
}

uint32_t
m_get_u32(struct mreader *r)
{
	const uint8_t *p = take(r, 4);
	uint32_t v = 0;
	size_t i;

	if (p == NULL)
		return 0;
	for (i = 4; i > 0; i--)
		v = v << 8 | p[i - 1];
	return v;
}

int64_t
m_get_i64(struct mreader *r)
{
	return (int64_t)m_get_u64(r);
}

const uint8_t *
m_get_bytes(struct mreader *r, size_t *len)
{
	static const uint8_t nothing[1];
	const uint8_t *p;
	uint32_t n;

	*len = 0;
	n = m_get_u32(r);
	if (n == STR_NULL)
		r->bad = 1;
	if (r->bad)
		return nothing;
	if (n == 0)
		return nothing;
	if ((p = take(r, n)) == NULL)
		return nothing;
	*len = n;
	return p;
}

char *
m_get_str(struct mreader *r)
{
	const uint8_t *p;
	uint32_t n;

	n = m_get_u32(r);
	if (r->bad || n == STR_NULL)
		return NULL;
	if ((p = take(r, n)) == NULL)
		return NULL;
	if (n > 0 && memchr(p, '\0', n) != NULL) {
		r->bad = 1;
		return NULL;
	}
	return xstrndup((const char *)p, n);
}

int
m_end(const struct mreader *r)
{
	return r->bad || r->left != 0 ? -1 : 0;
}
