#ifndef BRIDGE_LANES_H
#define BRIDGE_LANES_H

#include <stdint.h>

#include "bridge.h"

struct assignment;
struct lanes;

/*
 * All lease loops of the process (protocol 11.2). With one lease slot there
 * is one, which registers before every lease; with more there is one for each
 * slot and the legacy lane beside them, and one heartbeat for all. What the
 * last registration granted decides.
 */
struct lanes *lanes_new(struct bridge *);

/* Begins with the legacy lane; a registration starts the others. */
void lanes_start(struct bridge *);

/* Orderly stop; the process ends when no lane has an assignment. */
void lanes_stop(struct bridge *);

/* Around a change of connections or clock, see lane_pause. */
void lanes_pause(struct bridge *);
void lanes_resume(struct bridge *);

/* 1 if lease slots are in use, so that the heartbeat is not the lanes'. */
int lanes_concurrent(const struct bridge *);

/* 1 if some lane has an assignment. */
int lanes_busy(const struct bridge *);

/* 1 if some lane but this one works on that assignment. */
int lanes_active(const struct bridge *, const struct lane *, const char *id);

/*
 * A registration is complete that granted so many slots: starts and ends
 * lanes. Never while one is busy, unless nothing changes (11.1).
 */
void lanes_follow(struct bridge *, unsigned int slots);

/* The number of slots that is in force; 0 before the first registration. */
unsigned int lanes_slots(const struct bridge *);

/* The assignment that this message answers, or NULL. */
struct assignment *lanes_awaiting(
    const struct bridge *, uint32_t type, uint32_t id);

/*
 * A mutation could not be delivered while the process stops: it will end
 * with status 1 and this line. The first one counts.
 */
void lanes_unclean(struct bridge *, const char *text);

/* Ends the process if it is to stop and no lane is busy. */
void lanes_end_if_stopping(struct bridge *);

#endif
