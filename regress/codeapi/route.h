#ifndef CODEAPI_ROUTE_H
#define CODEAPI_ROUTE_H

struct req;
struct server;

enum route_kind {
	ROUTE_WORKER, /* journalled and subject to faults */
	ROUTE_OTHER, /* of the administrator and of callers */
	ROUTE_CONTROL /* below the root, not below the base */
};

enum route_auth { AUTH_NONE, AUTH_ADMIN, AUTH_WORKER };

/*
 * One line of the table of chapter 2; ":w" and ":a" in the path stand for the
 * worker id and the assignment id.
 */
struct route {
	const char *name; /* in faults and in the journal */
	const char *method;
	const char *path;
	enum route_auth auth;
	enum route_kind kind;
	void (*handler)(struct server *, struct req *);
};

/*
 * Finds the route of the request's method and path (3.1) and fills in the
 * path parameters. Returns 0 with req->route set or NULL if there is none;
 * -1 if an escape in the path cannot be decoded.
 */
int route_find(struct server *, struct req *);

/* 1 if a path lies below the bridge routes (3.4). */
int route_is_bridge(const struct server *, const char *path);

/* 1 if the request is a worker's; an unknown bridge route counts as such. */
int route_of_worker(const struct server *, const struct req *);

/* The route's name, "unknown" if there is none. */
const char *route_name(const struct req *);

#endif
