#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "output.h"
#include "utf8.h"

void
output_init(struct output *o, size_t budget)
{
	memset(o, 0, sizeof(*o));
	o->budget = budget;
	o->head_max = budget / 2;
	o->tail_max = budget - o->head_max;
}

void
output_free(struct output *o)
{
	free(o->head);
	free(o->tail);
	memset(o, 0, sizeof(*o));
}

/* The ring starts small; growing it puts its bytes in order. */
static void
tail_grow(struct output *o, size_t need)
{
	uint8_t *p;
	size_t cap = o->tail_cap == 0 ? 4096 : o->tail_cap;
	size_t first;

	while (cap < need)
		cap *= 2;
	if (cap > o->tail_max)
		cap = o->tail_max;
	p = xmalloc(cap);
	first = o->tail_cap - o->tail_start;
	if (first > o->tail_len)
		first = o->tail_len;
	if (o->tail_len > 0) {
		memcpy(p, o->tail + o->tail_start, first);
		memcpy(p + first, o->tail, o->tail_len - first);
	}
	free(o->tail);
	o->tail = p;
	o->tail_cap = cap;
	o->tail_start = 0;
}

static void
tail_add(struct output *o, const uint8_t *p, size_t n)
{
	size_t at, part, need;

	if (n > o->tail_max) {
		p += n - o->tail_max;
		n = o->tail_max;
	}
	if (n == 0)
		return;
	need = o->tail_len + n;
	if (need > o->tail_max)
		need = o->tail_max;
	if (need > o->tail_cap)
		tail_grow(o, need);
	if (o->tail_len + n > o->tail_cap) {
		part = o->tail_len + n - o->tail_cap;
		o->tail_start = (o->tail_start + part) % o->tail_cap;
		o->tail_len -= part;
	}
	at = (o->tail_start + o->tail_len) % o->tail_cap;
	part = o->tail_cap - at;
	if (part > n)
		part = n;
	memcpy(o->tail + at, p, part);
	memcpy(o->tail, p + part, n - part);
	o->tail_len += n;
}

void
output_add(struct output *o, const void *data, size_t n)
{
	const uint8_t *p = data;
	size_t part;

	if (n == 0)
		return;
	o->total += n;
	o->last = p[n - 1];
	if (o->head_len < o->head_max) {
		part = o->head_max - o->head_len;
		if (part > n)
			part = n;
		if (o->head_len + part > o->head_cap) {
			o->head_cap = o->head_cap == 0 ? 4096 : o->head_cap;
			while (o->head_cap < o->head_len + part)
				o->head_cap *= 2;
			if (o->head_cap > o->head_max)
				o->head_cap = o->head_max;
			o->head = xreallocarray(o->head, o->head_cap, 1);
		}
		memcpy(o->head + o->head_len, p, part);
		o->head_len += part;
		p += part;
		n -= part;
	}
	tail_add(o, p, n);
}

int
output_at_line_start(const struct output *o)
{
	return o->total == 0 || o->last == '\n';
}

/* The kept bytes in order; gap tells where the ones left out belong. */
static void
linear(const struct output *o, struct buf *b, size_t *gap)
{
	size_t first;

	buf_init(b);
	buf_add(b, o->head, o->head_len);
	*gap = b->len;
	if (o->tail_len == 0)
		return;
	first = o->tail_cap - o->tail_start;
	if (first > o->tail_len)
		first = o->tail_len;
	buf_add(b, o->tail + o->tail_start, first);
	buf_add(b, o->tail, o->tail_len - first);
}

/* Bytes of the character or ill-formed part at p, and of its text. */
static size_t
step(const uint8_t *p, size_t n, size_t *shown)
{
	uint32_t cp;
	size_t w;

	if ((w = utf8_decode(p, n, &cp)) != 0) {
		*shown = w;
		return w;
	}
	*shown = 3;
	return utf8_bad_length(p, n);
}

/*
 * Longest prefix of p whose text has at most max bytes. With open_end the
 * bytes went on after n, so an incomplete character there is left out.
 */
static size_t
prefix(const uint8_t *p, size_t n, size_t max, int open_end)
{
	size_t i = 0, used = 0, w, shown;

	while (i < n) {
		w = step(p + i, n - i, &shown);
		if (used + shown > max)
			break;
		/* A start of a character that the cut made ill-formed. */
		if (open_end && i + w == n && shown == 3 && w < 4 &&
		    p[i] >= 0xc2 && utf8_valid(p + i, w) == 0)
			break;
		used += shown;
		i += w;
	}
	return i;
}

/* Start of the longest suffix of p whose text has at most max bytes. */
static size_t
suffix(const uint8_t *p, size_t n, size_t max, int open_start)
{
	size_t i = 0, total, w, shown;

	/* Continuation bytes of a character whose start was left out. */
	if (open_start)
		while (i < n && i < 3 && (p[i] & 0xc0) == 0x80)
			i++;
	total = utf8_sanitized_length(p + i, n - i);
	while (i < n && total > max) {
		w = step(p + i, n - i, &shown);
		total -= shown;
		i += w;
	}
	return i;
}

#define MARK_BEFORE "\n[... "
#define MARK_AFTER  " bytes omitted ...]\n"
#define MARK_FIXED  (sizeof(MARK_BEFORE) - 1 + sizeof(MARK_AFTER) - 1)

static size_t
digits(uint64_t v)
{
	size_t n = 1;

	while (v >= 10) {
		v /= 10;
		n++;
	}
	return n;
}

/*
 * One shortened stream. The mark's length depends on the number in it, which
 * depends on what the mark leaves room for: try each number of digits.
 */
static void
shorten(const struct output *o, const struct buf *b, size_t gap, size_t budget,
    struct buf *to)
{
	int dropped = o->total > b->len;
	size_t head_n = dropped ? gap : b->len;
	const uint8_t *tail = dropped ? b->data + gap : b->data;
	size_t tail_n = dropped ? b->len - gap : b->len;
	size_t width, mark, room, head, start;
	uint64_t left = 0;

	for (width = 1; width <= 20; width++) {
		mark = MARK_FIXED + width;
		if (mark > budget)
			mark = 0;
		room = budget - mark;
		head = prefix(b->data, head_n, room / 2, dropped);
		start = suffix(tail, tail_n, room - room / 2, dropped);
		left = o->total - head - (tail_n - start);
		if (mark == 0 || digits(left) <= width)
			break;
	}
	utf8_sanitize(to, b->data, head);
	if (mark != 0)
		buf_addf(to, MARK_BEFORE "%llu" MARK_AFTER,
		    (unsigned long long)left);
	utf8_sanitize(to, tail + start, tail_n - start);
}

static void
finish(const struct output *o, const struct buf *b, size_t gap, size_t need,
    size_t budget, struct text *t, int *cut)
{
	struct buf to;

	buf_init(&to);
	if (o->total == b->len && need <= budget)
		utf8_sanitize(&to, b->data, b->len);
	else {
		shorten(o, b, gap, budget, &to);
		*cut = 1;
	}
	text_set(t, to.data, to.len);
	buf_free(&to);
}

/* Bytes of text that a stream could use. */
static size_t
wanted(const struct output *o, const struct buf *b, size_t budget)
{
	size_t n;

	if (o->total > b->len)
		return budget;
	n = utf8_sanitized_length(b->data, b->len);
	return n > budget ? budget : n;
}

int
output_compose(const struct output *out, const struct output *err,
    size_t budget, struct text *out_text, struct text *err_text)
{
	struct buf ob, eb;
	size_t ogap, egap, oneed, eneed, osize, esize, half;
	int cut = 0;

	linear(out, &ob, &ogap);
	linear(err, &eb, &egap);
	oneed = wanted(out, &ob, budget);
	eneed = wanted(err, &eb, budget);
	osize = oneed;
	esize = eneed;
	if (oneed + eneed > budget) {
		half = budget - budget / 2;
		esize = eneed < half ? eneed : half;
		osize = budget - esize;
		if (osize > oneed) {
			osize = oneed;
			esize = budget - osize;
			if (esize > eneed)
				esize = eneed;
		}
	}
	/* A complete stream is exactly as long as it needs. */
	finish(out, &ob, ogap,
	    out->total > ob.len ? budget + 1
				: utf8_sanitized_length(ob.data, ob.len),
	    osize, out_text, &cut);
	finish(err, &eb, egap,
	    err->total > eb.len ? budget + 1
				: utf8_sanitized_length(eb.data, eb.len),
	    esize, err_text, &cut);
	buf_free(&ob);
	buf_free(&eb);
	return cut;
}
