#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"
#include "log.h"
#include "output.h"
#include "utf8.h"

/* Feeds a stream in pieces of the given size. */
static void
feed(struct output *o, const void *p, size_t n, size_t piece)
{
	size_t i, m;

	for (i = 0; i < n; i += m) {
		m = n - i < piece ? n - i : piece;
		output_add(o, (const uint8_t *)p + i, m);
	}
}

static void
compose(const void *out, size_t on, const void *err, size_t en, size_t budget,
    size_t piece, struct text *ot, struct text *et, int *cut)
{
	struct output o, e;

	output_init(&o, budget);
	output_init(&e, budget);
	feed(&o, out, on, piece);
	feed(&e, err, en, piece);
	*cut = output_compose(&o, &e, budget, ot, et);
	output_free(&o);
	output_free(&e);
}

static void
expect(const char *out, const char *err, size_t budget, const char *want_out,
    const char *want_err, int want_cut)
{
	struct text ot, et;
	int cut;

	compose(out, strlen(out), err, strlen(err), budget, 3, &ot, &et, &cut);
	assert_string_equal((char *)ot.data, want_out);
	assert_string_equal((char *)et.data, want_err);
	assert_int_equal(cut, want_cut);
	text_free(&ot);
	text_free(&et);
}

static void
what_fits_is_complete(void **state)
{
	(void)state;
	expect("", "", 1, "", "", 0);
	expect("ok\n", "", 3, "ok\n", "", 0);
	expect("hello", "world", 10, "hello", "world", 0);
	expect("", "0123456789", 10, "", "0123456789", 0);
}

static void
the_mark_counts_what_is_left_out(void **state)
{
	char in[1001];
	int i;

	(void)state;
	for (i = 0; i < 1000; i++)
		in[i] = (char)('0' + i % 10);
	in[1000] = '\0';
	/* 29 bytes of mark with three digits, 12 before and 13 after. */
	expect(in, "", 54,
	    "012345678901\n[... 975 bytes omitted ...]\n"
	    "7890123456789",
	    "", 1);
}

static void
no_room_for_a_mark(void **state)
{
	(void)state;
	expect("0123456789", "", 4, "0189", "", 1);
	expect("0123456789", "", 1, "9", "", 1);
}

static void
errors_are_sure_of_half(void **state)
{
	struct text ot, et;
	char big[5000];
	int cut;

	(void)state;
	memset(big, 'x', sizeof(big));
	compose(big, sizeof(big), "error: no such file\n", 20, 200, 64, &ot,
	    &et, &cut);
	assert_int_equal(et.len, 20);
	assert_true(ot.len <= 180 && ot.len >= 175);
	assert_int_equal(cut, 1);
	text_free(&ot);
	text_free(&et);
	compose(big, sizeof(big), big, sizeof(big), 201, 64, &ot, &et, &cut);
	assert_true(et.len <= 101 && et.len >= 95);
	assert_true(ot.len <= 100 && ot.len >= 95);
	text_free(&ot);
	text_free(&et);
	/* What standard output leaves goes to errors. */
	compose("abc", 3, big, sizeof(big), 200, 64, &ot, &et, &cut);
	assert_int_equal(ot.len, 3);
	assert_true(et.len <= 197 && et.len >= 190);
	text_free(&ot);
	text_free(&et);
}

static void
malformed_bytes_are_charged_as_shown(void **state)
{
	struct text ot, et;
	uint8_t ff[12];
	int cut;

	(void)state;
	memset(ff, 0xff, sizeof(ff));
	compose(ff, sizeof(ff), "", 0, 12, 5, &ot, &et, &cut);
	assert_int_equal(ot.len, 12);
	assert_memory_equal(
	    ot.data, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 12);
	assert_int_equal(cut, 1);
	text_free(&ot);
	text_free(&et);
}

/*
 * Any input, in any pieces: never more than the budget, always well-formed,
 * start and end of the stream are there, the mark is exact.
 */
static void
random_streams_keep_the_rules(void **state)
{
	static const char *const parts[] = { "a", "\n", "\xc3\xa9",
		"\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xff", "\xe2\x82", "\0" };
	uint32_t seed = 4711;
	struct text ot, et;
	struct buf ob, eb;
	const char *p;
	size_t budget, n, i, round;
	int cut;

	(void)state;
	for (round = 0; round < 4000; round++) {
		buf_init(&ob);
		buf_init(&eb);
		seed = seed * 1664525 + 1013904223;
		budget = 1 + (seed >> 16) % 300;
		seed = seed * 1664525 + 1013904223;
		n = (seed >> 16) % 400;
		for (i = 0; i < n; i++) {
			seed = seed * 1664525 + 1013904223;
			p = parts[(seed >> 16) % 8];
			buf_add((seed >> 28) < 12 ? &ob : &eb, p,
			    *p == '\0' ? 1 : strlen(p));
		}
		compose(ob.data, ob.len, eb.data, eb.len, budget,
		    1 + (seed >> 20) % 50, &ot, &et, &cut);
		if (ot.len + et.len > budget)
			fail_msg("round %zu: %zu and %zu of %zu", round, ot.len,
			    et.len, budget);
		assert_true(utf8_valid(ot.data, ot.len));
		assert_true(utf8_valid(et.data, et.len));
		if (utf8_sanitized_length(ob.data, ob.len) +
			utf8_sanitized_length(eb.data, eb.len) <=
		    budget)
			assert_int_equal(cut, 0);
		else
			assert_int_equal(cut, 1);
		text_free(&ot);
		text_free(&et);
		buf_free(&ob);
		buf_free(&eb);
	}
}

static void
memory_is_bounded(void **state)
{
	static uint8_t chunk[65536];
	struct output o;
	int i;

	(void)state;
	output_init(&o, 1000);
	for (i = 0; i < 2000; i++)
		output_add(&o, chunk, sizeof(chunk));
	assert_int_equal(o.total, 2000ULL * sizeof(chunk));
	assert_true(o.head_cap + o.tail_cap <= 1000);
	output_free(&o);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_fits_is_complete),
		cmocka_unit_test(the_mark_counts_what_is_left_out),
		cmocka_unit_test(no_room_for_a_mark),
		cmocka_unit_test(errors_are_sure_of_half),
		cmocka_unit_test(malformed_bytes_are_charged_as_shown),
		cmocka_unit_test(random_streams_keep_the_rules),
		cmocka_unit_test(memory_is_bounded),
	};

	log_init("test", 0);
	return cmocka_run_group_tests_name("output", tests, NULL, NULL);
}
