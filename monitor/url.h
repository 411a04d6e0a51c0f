#ifndef MONITOR_URL_H
#define MONITOR_URL_H

/*
 * The Code API base URL. Accepted is the plain subset of absolute http and
 * https URLs for which every URL parser agrees: no user information, query,
 * fragment, dot segment, blank or backslash; a host name in ASCII, a dotted
 * quad or a bracketed IPv6 address (cli-and-storage 7.2, 14.2; protocol 4.2).
 */
struct base_url {
	char *canonical; /* hashed into state names; "/" as path if empty */
	char *base; /* the same without the final slash; for requests */
	const char *path; /* path within base: "" or "/v1" */
	int https;
	int loopback; /* the host is this machine by its spelling */
};

/* 0, or -1 with one line in *error. */
int base_url_parse(const char *, struct base_url *, char **error);
void base_url_free(struct base_url *);

#endif
