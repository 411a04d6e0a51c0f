#ifndef BRIDGE_PULSE_H
#define BRIDGE_PULSE_H

#include "bridge.h"

struct pulse;

/*
 * What keeps a worker known to the server while an assignment is in its
 * hands: the heartbeat (protocol 6.2), tried again while the registration
 * lives, and the renewal of the credential (3.3). A terminal answer to a
 * heartbeat ends the process. lost is called when the worker can no longer
 * count on being known: the registration ran out, or the credential cannot
 * be renewed; the pulse goes on trying.
 */
struct pulse *pulse_start(
    struct bridge *, void (*lost)(const char *why, void *), void *arg);
void pulse_stop(struct pulse **);

/* A heartbeat now; the renewal of the credential is reckoned anew. */
void pulse_beat(struct pulse *);

#endif
