#ifndef BRIDGE_FLIGHT_H
#define BRIDGE_FLIGHT_H

#include <sys/queue.h>
#include <stdint.h>

#include "bridge.h"

/*
 * Something that is under way at most once in the process, a registration or
 * a rotation, and those who wait for it (protocol 3.3, 6.2). All of them get
 * the one result. When the last waiter goes away, abandon is called.
 */
struct waiter;

struct flight {
	struct event_base *base;
	unsigned int round;
	TAILQ_HEAD(, waiter) waiters;
	void (*abandon)(void *);
	void *arg;
};

void flight_init(
    struct flight *, struct event_base *, void (*abandon)(void *), void *arg);

/* 1 if nobody waits. */
int flight_empty(const struct flight *);

/*
 * Waits for the result; after limit ms (0: no limit) done is called with
 * FAIL_RETRY and the text of late, and the wait is over.
 */
struct waiter *flight_join(struct flight *, int64_t limit, const char *late,
    void (*done)(const struct failure *, void *), void *arg);

/* Ends *w without calling back and makes it NULL; NULL is fine. */
void waiter_cancel(struct waiter **);

/* Gives the result to all who wait now. */
void flight_land(struct flight *, const struct failure *);

#endif
