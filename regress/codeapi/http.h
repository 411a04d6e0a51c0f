#ifndef CODEAPI_HTTP_H
#define CODEAPI_HTTP_H

#include "fault.h"
#include "route.h"
#include "server.h"

/*
 * One HTTP request from its arrival to its answer. It is freed by the answer,
 * or after its gone callback when the peer closes the connection first.
 */
struct req {
	TAILQ_ENTRY(req) entry;
	struct server *srv;
	struct evhttp_request *ev;
	const struct route *route;
	char *path; /* as sent, without query */
	char *query; /* or NULL */
	char *worker_id; /* from the path, or NULL */
	char *assignment_id;
	struct json *body; /* {} if there was none */
	char body_hash[HASH_SIZE]; /* of the 4.4 form */
	char identity[RANDOM_ID_SIZE]; /* or empty */
	const struct json *binding; /* of the credential */
	uint64_t number; /* in the journal, or 0 */
	int64_t started; /* monotonic */
	struct fault_action fault;
	struct event *watch;
	struct event *timer;
	void (*gone)(struct req *, void *);
	void *gone_arg;
	struct buf raw; /* bytes of a slow answer */
	size_t raw_sent;
};

/* The callback of evhttp for every request; arg is the server. */
void http_request(struct evhttp_request *, void *);

/* A request header, or NULL. */
const char *req_header(const struct req *, const char *);

/* A member of the query, undecoded, as a number; or the default. */
uint64_t req_query_number(const struct req *, const char *, uint64_t);

/*
 * Answers with a JSON text, or applies the fault that was chosen for the
 * request, and frees the request. The buffer is emptied and freed.
 */
void req_reply(struct req *, int status, struct buf *);

/* Answers {"error":text} with "code" unless that is NULL (3.2). */
void req_error(struct req *, int status, const char *code, const char *text);

/* Opens an answer: {"protocolVersion":1. */
void reply_open(struct buf *);

/* Answers {"protocolVersion":1,"<name>":true} with status 200. */
void req_accept(struct req *, const char *name);

/*
 * Calls back once if the peer closes its connection before the answer. The
 * callback must not answer; the request is freed after it.
 */
void req_on_gone(struct req *, void (*)(struct req *, void *), void *);

/* 1 if the peer has closed its connection already. */
int req_is_gone(const struct req *);

/* Closes the connection without an answer and frees the request. */
void req_drop(struct req *);

/* The same by a TCP reset. */
void req_reset(struct req *);

/*
 * Frees all requests but one without answering and closes all connections
 * but its own. Whoever holds one of the requests must have let it go.
 */
void http_drop_all(struct server *, const struct req *except);

#endif
