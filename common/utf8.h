#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

#include <stddef.h>
#include <stdint.h>

struct buf;

/*
 * Decodes one character at p (n bytes left). Returns its length, 1 to 4, and
 * the code point; 0 if the bytes are not well-formed UTF-8 (RFC 3629:
 * no overlong forms, no surrogates, at most U+10FFFF) or n is 0.
 */
size_t utf8_decode(const uint8_t *p, size_t n, uint32_t *cp);

/*
 * Length of the maximal subpart of an ill-formed sequence at p, at least 1:
 * what one U+FFFD stands for (Unicode 15 section 3.9, WHATWG decoder).
 * Only to be called where utf8_decode returned 0 and n is not 0.
 */
size_t utf8_bad_length(const uint8_t *p, size_t n);

/* 1 if all n bytes are well-formed UTF-8, which includes "no surrogate". */
int utf8_valid(const void *p, size_t n);

/*
 * Number of UTF-16 code units of well-formed text: one a character, two
 * above U+FFFF. Ill-formed bytes count one per maximal subpart.
 */
size_t utf8_units(const void *p, size_t n);

/* Appends the text with each ill-formed subpart replaced by U+FFFD. */
void utf8_sanitize(struct buf *to, const void *p, size_t n);

/* Bytes that utf8_sanitize would append. */
size_t utf8_sanitized_length(const void *p, size_t n);

/*
 * 1 if the well-formed text is empty or consists of ECMAScript white space
 * only (workspace-tools 1.3: TAB..CR, space, U+00A0, U+1680, U+2000..U+200A,
 * U+2028, U+2029, U+202F, U+205F, U+3000, U+FEFF).
 */
int utf8_blank(const void *p, size_t n);

/* Cuts well-formed text to at most max UTF-16 units; returns the new length. */
size_t utf8_cut_units(const void *p, size_t n, size_t max);

#endif
