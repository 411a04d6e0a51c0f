#ifndef BRIDGE_CANCELLATION_H
#define BRIDGE_CANCELLATION_H

#include "bridge.h"

/*
 * Asks the Code API, every half second while something runs, whether its
 * assignment was cancelled (protocol 10.1). cancelled is called at most once,
 * and the asking is over then.
 */
struct cancellation;

/* id, of the assignment, is kept by reference. */
struct cancellation *cancellation_start(
    struct bridge *, const char *id, void (*cancelled)(void *), void *arg);

/*
 * The work has ended. 1: an answer is already arriving and still counts
 * (10.2); drained is called when it is there, after cancelled if it says
 * that. 0: it is over at once.
 */
int cancellation_drain(struct cancellation *, void (*drained)(void *));

/* Ends *c without calling back and makes it NULL; NULL is fine. */
void cancellation_stop(struct cancellation **);

#endif
