#ifndef BRIDGE_HTTP_H
#define BRIDGE_HTTP_H

#include <stdint.h>

#include "buf.h"

struct event_base;
struct http;
struct http_request;

/*
 * HTTP client: libcurl's multi interface on libevent. POST only, no
 * redirect, no cookie, no compression, nothing from the environment. HTTP/2
 * over TLS where the server chooses it (RFC 9113 3.2), else HTTP/1.1; either
 * way each request under way has a connection of its own, so that one that
 * hangs holds up no other. A request is sent at most once: libcurl is kept
 * from repeating one on a new connection when a kept-alive one turns out to
 * be closed, since a proof counts once (code-api-server 3.7).
 */
#define HTTP_BODY_MAX   (16U << 20) /* of an answer */
#define HTTP_HEADER_MAX (64U << 10) /* all header lines of an answer */

struct http_config {
	const char *ca_file; /* or NULL: those of the system */
	const char *proxy; /* or NULL */
	const char *no_proxy; /* or NULL */
};

struct http_reply {
	const char *error; /* no complete answer: why; else NULL */
	int status;
	int64_t date; /* Date header, ms since 1970, or -1 */
	struct buf body;
};

/*
 * The configuration is kept by reference. Returns NULL with one line in
 * *error (allocated) if libcurl cannot be used.
 */
struct http *http_new(
    struct event_base *, const struct http_config *, char **error);

/* Cancels what is under way, and frees. */
void http_free(struct http *);

/*
 * Starts a POST of body (kept by reference until the end) with the header
 * lines of the NULL-terminated list (copied; overwritten after use). done is
 * called once, from the event loop, unless the request is cancelled. There is
 * no time limit but the caller's.
 */
struct http_request *http_post(struct http *, const char *url,
    const char *const *headers, const struct buf *body,
    void (*done)(struct http_reply *, void *), void *arg);

/* Status of the answer once all its headers came, else 0. */
int http_request_status(const struct http_request *);

/*
 * Gives up all connections, those kept alive too: what is under way ends with
 * this error. Not to be called from a callback of a request.
 */
void http_renew(struct http *, const char *error);

/*
 * Ends a request without calling back. late: no answer came in time, so that
 * its connection is not used again, nor is any other by the next request.
 */
void http_cancel(struct http_request *, int late);

#endif
