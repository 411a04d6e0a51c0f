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
 * Reads the assignment object of a lease answer. Returns NULL and a fixed
 * phrase if it has no identity that could be acknowledged; a request that is
 * not valid is kept, to be rejected.
 */
struct assignment *assignment_new(
    struct bridge *, const struct json *, const char **error);
void assignment_free(struct assignment *);

const char *assignment_id(const struct assignment *);

/*
 * Acknowledges, runs and settles it; remaining is its budget in ms. done is
 * called once, from the event loop, with what the lane has to do next;
 * forget says that the server has accepted a settlement, or that the
 * assignment was not begun and may be handed out again. The assignment is then
 * to be freed.
 */
void assignment_start(struct assignment *, int64_t remaining,
    void (*done)(const struct failure *, int forget, void *), void *arg);

/*
 * Orderly stop: what was not started is not, what runs is cancelled, what is
 * known to be settled is delivered within STOP_LIMIT. done is still called.
 */
void assignment_stop(struct assignment *);
#define STOP_LIMIT 20000

/*
 * Messages that answer this assignment: 0, -1 if malformed or out of place.
 * The dispatcher finds the assignment with assignment_awaits.
 */
int assignment_awaits(const struct assignment *, uint32_t type, uint32_t id);
int assignment_message(struct assignment *, struct imsg *);

#endif
