#ifndef CODEAPI_LEASE_H
#define CODEAPI_LEASE_H

#include "server.h"

struct assignment;

/* A lease request that waits for work (8.3). */
struct poll {
	TAILQ_ENTRY(poll) entry;
	struct req *req;
	struct worker *worker;
	struct event *timer;
	char incarnation[INCARNATION_ID_SIZE];
	int lane;
};

/* The route of chapter 8. */
void lease_poll(struct server *, struct req *);

/* Hands queued work to the polls that wait for it. */
void lease_offer(struct worker *);

/* Forgets the polls of a worker without answering. */
void lease_forget(struct worker *);

#endif
