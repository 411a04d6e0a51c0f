#ifndef BRIDGE_REGISTRATION_H
#define BRIDGE_REGISTRATION_H

#include <stdint.h>

#include "bridge.h"
#include "offer.h"

struct registration;
struct waiter;

/*
 * Registration, which is also the heartbeat (protocol 5 and 6): at most two
 * rounds of negotiation, of which at most one is under way in the process.
 */
struct registration *registration_new(struct bridge *);
void registration_free(struct registration *);

/*
 * Registers, or joins the registration that is under way. limit in ms is for
 * one that this call starts; 0 means that of protocol 2.5.
 */
struct waiter *registration_join(struct registration *, int64_t limit,
    void (*done)(const struct failure *, void *), void *arg);

/* What the server last accepted; assignments are checked against it. */
const struct offer *registration_offer(const struct registration *);

/* Monotonic ms at which the next heartbeat is due (6.2). */
int64_t registration_beat_at(const struct registration *);

/* Monotonic ms at which the registration runs out. */
int64_t registration_ends_at(const struct registration *);

#endif
