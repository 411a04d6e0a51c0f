#ifndef CODEAPI_DISPATCH_H
#define CODEAPI_DISPATCH_H

#include "server.h"

/*
 * One request on its way through the pipeline of chapter 13: it waits for
 * admission, then has an assignment, then answers its caller and is gone.
 */
struct dispatch {
	TAILQ_ENTRY(dispatch) entry; /* of the worker, by arrival */
	struct worker *worker;
	struct req *req; /* of the caller */
	struct assignment *assignment; /* NULL while it waits */
	struct event *timer;
	struct json *request; /* until it is assigned */
	uint64_t number; /* names it as owner of locks */
	int sandbox;
	int fail_finaliser; /* to show 15.6 */
	char *session;
	char *tenant;
	int binding_required;
	unsigned int slots; /* granted when it came */
	char root[WORKER_ID_SIZE];
	char incarnation[INCARNATION_ID_SIZE];
	char identity[RANDOM_ID_SIZE];
	int64_t queue_deadline;
	int64_t budget; /* ms of execution */
};

/* What is to be dispatched; request and session are copied. */
struct work {
	const struct json *request;
	const char *session; /* sandbox only; may be NULL */
	const char *tenant;
	int sandbox;
	int fail_finaliser;
	int binding_required; /* 17.3 */
	int64_t job_timeout; /* sandbox only; 0: default */
};

/* Steps 1 to 8 and on; the request is answered now or later. */
void dispatch_start(
    struct server *, struct req *, struct worker *, const struct work *);

/* Admits whoever can be admitted, after any change to a worker. */
void dispatch_pump(struct worker *);

/* A settlement is stored for the dispatch's assignment (steps 16, 17). */
void dispatch_settled(struct dispatch *);

/* Ends waiting and running dispatches whose time is over. */
void dispatch_sweep(struct worker *);

/*
 * Drops all dispatches of a worker without clean-up or answer, as the death
 * of the server process does.
 */
void dispatch_forget(struct worker *);

#endif
