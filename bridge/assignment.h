#ifndef BRIDGE_ASSIGNMENT_H
#define BRIDGE_ASSIGNMENT_H

#include <stdint.h>

#include "bridge.h"

struct assignment;
struct imsg;
struct json;

/*
 * One leased assignment from its acknowledgement to the end of its marker
 * (protocol 7.3 to 10.5).
 */

/*
 * Reads the assignment object of a lease answer. slot is the one that was
 * leased, or LANE_LEGACY. Returns NULL and a fixed phrase if it has no
 * identity that could be acknowledged; a request that is not valid is kept,
 * to be rejected.
 */
struct assignment *assignment_new(
    struct bridge *, const struct json *, int slot, const char **error);
void assignment_free(struct assignment *);

const char *assignment_id(const struct assignment *);
int assignment_is(const struct assignment *, const char *id);

/* What the server has not been told of an assignment that is over. */
enum remnant {
	OWED_NOTHING, /* settled, or not begun and may be handed out again */
	OWED_SETTLEMENT,
	OWED_QUARANTINE /* a receipt; the root is fenced here */
};

/*
 * Acknowledges, runs and settles it, and with a slot sends its receipt;
 * remaining is its budget in ms. done is called once, from the event loop,
 * with what the lane has to do next. The assignment is then to be freed.
 */
void assignment_start(struct assignment *, int64_t remaining,
    void (*done)(const struct failure *, enum remnant, void *), void *arg);

/*
 * The same for one with a slot that was over here and is handed out again:
 * nothing is run, only what is owed is sent.
 */
void assignment_repeat(struct assignment *, enum remnant owed,
    void (*done)(const struct failure *, enum remnant, void *), void *arg);

/*
 * Orderly stop: what was not started is not, what runs is cancelled, what is
 * known to be settled is delivered within STOP_LIMIT, and receipts within
 * STOP_RECEIPT_LIMIT. done is still called.
 */
void assignment_stop(struct assignment *);
#define STOP_LIMIT         20000
#define STOP_RECEIPT_LIMIT 25000

/* The worker is no longer known to the server: cancels what runs. */
void assignment_lost(struct assignment *, const char *why);

/* Sends a heartbeat now, if heartbeats are sent at all. */
void assignment_beat(struct assignment *);

/*
 * Messages that answer this assignment: 0, -1 if malformed or out of place.
 * The dispatcher finds the assignment with assignment_awaits.
 */
int assignment_awaits(const struct assignment *, uint32_t type, uint32_t id);
int assignment_message(struct assignment *, struct imsg *);

#endif
