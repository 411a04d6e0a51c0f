#ifndef CODEAPI_JSON_H
#define CODEAPI_JSON_H

#include <stddef.h>

/*
 * A JSON value as the JavaScript runtime of the real server sees it
 * (code-api-server 3.1, 4.4): of members with one name the last value stays
 * at the place of the first, and strings may hold lone surrogates. Strings
 * are therefore kept as WTF-8: UTF-8 in which a lone surrogate is three bytes.
 */
enum json_type {
	JSON_NULL,
	JSON_BOOL,
	JSON_NUMBER,
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT
};

struct json_string {
	char *data; /* NUL-terminated, may hold further NULs */
	size_t len;
};

struct json_member {
	struct json_string name;
	struct json *value;
};

struct json {
	enum json_type type;
	union {
		int boolean;
		double number;
		struct json_string string;
		struct {
			struct json **item;
			size_t n;
			size_t cap;
		} array;
		struct {
			struct json_member *member;
			size_t n;
			size_t cap;
		} object;
	} u;
};

#define JSON_DEPTH_MAX   256 /* containers within each other */
#define JSON_MEMBERS_MAX 65536 /* members of one object */

/*
 * Parses a text the way a request body is parsed (3.1): a leading byte order
 * mark is dropped and invalid UTF-8 becomes U+FFFD. Returns the tree, which
 * the caller frees, or NULL if the text is not JSON or exceeds the bounds.
 */
struct json *json_parse(const void *, size_t);

/* Frees a tree; NULL is fine. */
void json_free(struct json *);
struct json *json_copy(const struct json *);

/* Constructors for the few values that the server makes itself. */
struct json *json_object(void);
struct json *json_number(double);
struct json *json_str(const char *);

/* Sets a member and takes over the value. The tree must be an object. */
void json_put(struct json *, const char *name, struct json *);

/* The member's value; NULL if there is none or the tree is no object. */
struct json *json_get(const struct json *, const char *name);

/* The text of a string without embedded NUL, else NULL; NULL is fine. */
const char *json_text(const struct json *);

/* 1 if the value is that type; a NULL pointer is of no type. */
int json_is(const struct json *, enum json_type);

/* 1 if the value is an integer between the bounds; stores it if out is set. */
int json_int(const struct json *, long long min, long long max, long long *out);

/* 1 if the value is the boolean true. */
int json_true(const struct json *);

/* Length of a string in UTF-16 code units, a lone surrogate being one. */
size_t json_units(const struct json *);

/* 1 if the value is a string without lone surrogates. */
int json_well_formed(const struct json *);

/* 1 if two strings are equal. */
int json_same_string(const struct json *, const struct json *);

/*
 * 1 if the tree is an object all of whose members are named in the list, a
 * text of names separated by single spaces.
 */
int json_only(const struct json *, const char *names);

#endif
