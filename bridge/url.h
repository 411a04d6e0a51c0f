#ifndef BRIDGE_URL_H
#define BRIDGE_URL_H

#include <stddef.h>

struct buf;

/* A base URL, taken apart. */
struct url {
	char *origin; /* "https://host:port" */
	char *prefix; /* path without a trailing slash, "" if none */
	int https;
};

/*
 * Takes a Code API base URL apart: http or https, a host, an optional port
 * and path. User information, a query, a fragment, empty and dot segments,
 * escapes of them, and bytes that a URL parser would change are refused: the
 * path is part of what a proof signs (protocol 4.2). Returns 0, or -1 with a
 * fixed phrase in *error.
 */
int url_parse(const char *, struct url *, const char **error);
void url_free(struct url *);

/*
 * Appends the id percent-encoded (protocol 2.3): all but A-Z a-z 0-9
 * - _ . ! ~ * ' ( ) becomes % and two upper-case hex digits. An id that is
 * "." or ".." could name another resource; its dots are encoded as well.
 */
void url_encode(struct buf *, const char *);

#endif
