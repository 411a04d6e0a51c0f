#ifndef CODEAPI_ASSIGNMENT_H
#define CODEAPI_ASSIGNMENT_H

#include "server.h"

struct dispatch;

/*
 * An assignment and all that is remembered of it after it is over. The real
 * server keeps these as separate records with lives of their own (chapter
 * 20); the parts here say when they end.
 */
struct assignment {
	TAILQ_ENTRY(assignment) entry; /* of its bucket */
	TAILQ_ENTRY(assignment) active; /* of the worker's list */
	struct worker *worker;
	struct dispatch *dispatch; /* NULL when it is done */
	char id[RANDOM_ID_SIZE];
	char token[RANDOM_ID_SIZE];
	char incarnation[INCARNATION_ID_SIZE];
	char identity[RANDOM_ID_SIZE]; /* empty: static */
	uint64_t generation;
	uint64_t owner; /* of the lock or slot */
	int lane;
	int sandbox;
	char *session; /* stateful sandbox work */
	char *fence; /* name, or NULL */
	struct json *request;
	int64_t expires; /* the deadline */

	int record; /* the record exists */
	int64_t record_expires;
	int listed; /* is on the active list */
	int claimed; /* delivered (8.4) */
	int acked;
	int open; /* right to fulfil (13.4) */
	int64_t mark_expires; /* cancellation mark, or 0 */

	char *settlement; /* its 4.4 form, or NULL */
	struct json *settled;
	int64_t settlement_expires;

	int receipt; /* ownership receipt (15.2) */
	int64_t receipt_expires;
	uint64_t epoch;
	int committed;
	int cleaned;
};

/* Routes of chapters 10 and 12. */
void assignment_ack(struct server *, struct req *);
void assignment_cancellation(struct server *, struct req *);

/*
 * Makes an assignment for the worker's current incarnation and queues it on
 * the lane. The request is taken over, the session copied.
 */
struct assignment *assignment_new(
    struct worker *, int lane, struct json *, int64_t expires);
struct assignment *assignment_find(struct server *, const char *id);

/* Ends claim, acknowledgement and place in the queue. */
void assignment_unclaim(struct assignment *);

/*
 * Clean-up when the dispatcher is done, and again whenever a settlement or a
 * receipt comes later (13.4). Sets the cancellation mark.
 */
void assignment_cleanup(struct assignment *);

/*
 * 1 if generation, token and incarnation of a body, and the identity of the
 * request, are those of the assignment.
 */
int assignment_matches(const struct assignment *, const struct req *);

/* Forgets what has outlived its time; all of it if all is set. */
void assignments_sweep(struct server *, int all);

#endif
