#ifndef COMMON_JSON_H
#define COMMON_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "buf.h"

/*
 * Bounded JSON. Reading goes through yajl's event parser (never its tree
 * parser, which has no depth limit and leaks on errors); writing produces
 * the one compact form that the server's re-serialisation leaves unchanged
 * (code-api-server 4.4).
 *
 * As the server's and the upstream worker's runtime does: a leading BOM is
 * dropped, bytes that are not UTF-8 become U+FFFD, of duplicate members the
 * last one counts, and a lone surrogate escape is kept, here as its three
 * generalised UTF-8 bytes, so that utf8_valid() refuses the string.
 */
enum json_type {
	JSON_NULL,
	JSON_BOOL,
	JSON_NUMBER,
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT
};

struct json {
	enum json_type type;
	int boolean;
	double number;
	char *str; /* string bytes, NUL-terminated */
	size_t len; /* of str */
	struct json **items; /* array items, object values */
	char **names; /* object member names */
	size_t *name_lens;
	size_t n; /* of items */
};

#define JSON_DEPTH_MAX 64
#define JSON_NODES_MAX 200000

/*
 * Parses one complete JSON text. Returns NULL and a fixed phrase in *error
 * if it is malformed, deeper than JSON_DEPTH_MAX, or has more than
 * JSON_NODES_MAX values. The caller bounds len.
 */
struct json *json_parse(const void *, size_t len, const char **error);
void json_free(struct json *);

/* Member of an object by name, or NULL (also when j is no object or NULL). */
const struct json *json_get(const struct json *, const char *name);

/* As json_get, but only if it has that type. */
const struct json *json_get_type(
    const struct json *, const char *name, enum json_type);

/*
 * String member without NUL bytes, or NULL. Points into the tree.
 */
const char *json_get_str(const struct json *, const char *name);

/*
 * A number with an integral value of at most 2^53-1 (protocol "safe
 * integer"): 0 and *out, else -1.
 */
int json_integer(const struct json *, int64_t *out);
int json_get_integer(const struct json *, const char *name, int64_t *out);

/* 1 if j is an object whose members are all in the NULL-terminated list. */
int json_closed(const struct json *, const char *const *names);

/*
 * Writer. Commas are put by the writer; the caller keeps begin and end in
 * balance. Names must be plain ASCII and not digits only. Strings are
 * escaped as JavaScript does: lower-case \u00xx, no \/, raw UTF-8;
 * ill-formed bytes become U+FFFD.
 */
struct jwriter {
	struct buf *b;
	int comma;
};

void jw_init(struct jwriter *, struct buf *);
void jw_object(struct jwriter *);
void jw_object_end(struct jwriter *);
void jw_array(struct jwriter *);
void jw_array_end(struct jwriter *);
void jw_name(struct jwriter *, const char *);
void jw_str(struct jwriter *, const char *);
void jw_bytes(struct jwriter *, const void *, size_t);
void jw_int(struct jwriter *, int64_t); /* within +/- 2^53-1 */
void jw_bool(struct jwriter *, int);
void jw_null(struct jwriter *);

/* name and value in one call */
void jw_member_str(struct jwriter *, const char *, const char *);
void jw_member_bytes(struct jwriter *, const char *, const void *, size_t);
void jw_member_int(struct jwriter *, const char *, int64_t);
void jw_member_bool(struct jwriter *, const char *, int);

#endif
