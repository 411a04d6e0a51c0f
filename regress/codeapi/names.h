#ifndef CODEAPI_NAMES_H
#define CODEAPI_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "json.h"

#define WORKER_ID_SIZE      129 /* 128 characters and the NUL */
#define INCARNATION_ID_SIZE 129
#define RANDOM_ID_SIZE      44 /* base64url of up to 32 bytes, and the NUL */
#define HASH_SIZE           65 /* SHA-256 in hex, and the NUL */
#define ISO_TIME_SIZE       32

/* The pattern of worker and workspace ids, and of tenants (6.1, 5.1). */
int name_is_id(const char *);

/* The pattern of incarnation ids (6.1). NULL is none, here and above. */
int name_is_incarnation(const char *);

/* 1 if the text is 64 lower-case hex digits. */
int name_is_digest(const char *);

/* n random bytes, at most 32, in base64url without padding (5.1, 9.1). */
void random_id(char out[RANDOM_ID_SIZE], size_t n);

/* SHA-256 in lower-case hex. */
void sha256_hex(char out[HASH_SIZE], const void *, size_t);

/*
 * Decodes base64 of either alphabet, padded or not (4.4). Returns the number
 * of bytes, or -1 if the text is not base64 or does not fit.
 */
int base64_decode(uint8_t *out, size_t size, const char *text, size_t len);

/* ISO 8601, UTC, three digits of milliseconds. */
void iso_time(char out[ISO_TIME_SIZE], int64_t ms);

/* The reverse, also with an offset from UTC or without a fraction. -1: no. */
int iso_parse(const char *, int64_t *ms);

/* Milliseconds of a clock that nobody sets. */
int64_t monotonic_ms(void);

/* A path of chapter 18: portable, relative, without a ".." segment. */
int path_valid(const struct json *);

/* The normalised form of a valid path; the caller frees it. */
char *path_normalise(const char *);

/* 1 if path lies within top; both any form, top NULL is everything. */
int path_within(const char *path, const char *top);

/* The order of chapter 18 over normalised paths, as strcmp(3) tells it. */
int path_compare(const char *, const char *);

#endif
