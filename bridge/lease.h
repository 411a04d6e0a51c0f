#ifndef BRIDGE_LEASE_H
#define BRIDGE_LEASE_H

#include "bridge.h"

struct assignment;
struct lane;

/*
 * One lease loop (protocol 7.5, 11.2): refresh the credential if due,
 * register, lease, hand the assignment over, and again. With lease slots a
 * lane registers only when the registration is no longer alive: there is a
 * heartbeat for all of them (lanes.h). slot is what is leased, LANE_LEGACY
 * without that member.
 */
#define LANE_LEGACY (-1)
struct lane *lane_new(struct bridge *, int slot);
void lane_free(struct lane *);

/* Starts the first turn. */
void lane_start(struct lane *);

/* Orderly stop: idle at once, else when the assignment has ended. */
void lane_stop(struct lane *);

/*
 * The connections or the clock are not what they were: an idle lane drops
 * what is under way (a lost lease answer costs nothing, protocol 7.3) and
 * begins a new turn; a busy one sends a heartbeat.
 */
void lane_pause(struct lane *);
void lane_resume(struct lane *);

/* The assignment it works on, or NULL. */
struct assignment *lane_assignment(const struct lane *);

#endif
