#ifndef CODEAPI_CANON_H
#define CODEAPI_CANON_H

#include "json.h"

struct buf;

/*
 * The serialised form of chapter 4.4: compact, array-index member names first
 * in numeric order, JavaScript's number and string spelling. Bodies are
 * hashed and settlements compared in this form; answers are written in it.
 */
void canon_json(struct buf *, const struct json *);

/* A quoted string from WTF-8 bytes. */
void canon_string(struct buf *, const void *, size_t);

/* Number::toString of ECMAScript; not finite becomes null, -0 becomes 0. */
void canon_number(struct buf *, double);

/*
 * A small writer for answers. A comma is put in front by itself unless the
 * text so far ends in an opening bracket, a colon or nothing at all; name may
 * be NULL for an element of an array.
 */
void w_open(struct buf *, const char *name, char bracket);
void w_close(struct buf *, char bracket);
void w_str(struct buf *, const char *name, const char *);
void w_int(struct buf *, const char *name, long long);
void w_bool(struct buf *, const char *name, int);
void w_json(struct buf *, const char *name, const struct json *);

#endif
