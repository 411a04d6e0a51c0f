#include "config.h"

#include "preview.h"
#include "utf8.h"

#define PREVIEW_UNITS 2000

static size_t
smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

void
preview(struct match *m, const uint8_t *line, size_t n, size_t at,
    const uint8_t *query, size_t query_len)
{
	size_t length, before, around, start, first, last;

	length = utf8_units(line, n);
	before = utf8_units(line, at);
	m->column = (int64_t)before + 1;
	if (length <= PREVIEW_UNITS) {
		text_set(&m->text, line, n);
		return;
	}
	/* A query has at most 2000 bytes and so at most as many units. */
	around = utf8_units(query, query_len);
	around = around < PREVIEW_UNITS ? (PREVIEW_UNITS - around) / 2 : 0;
	start = before > around ? before - around : 0;
	start = smaller(start, length - PREVIEW_UNITS);
	first = utf8_cut_units(line, n, start);
	/* Between the two units of a character: behind it. */
	if (utf8_units(line, first) < start) {
		first += 4;
		start++;
	}
	last = first + utf8_cut_units(line + first, n - first, PREVIEW_UNITS);
	text_set(&m->text, line + first, last - first);
}
