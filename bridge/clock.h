#ifndef BRIDGE_CLOCK_H
#define BRIDGE_CLOCK_H

#include <stdint.h>

#include "bridge.h"

/*
 * Notices that the machine was suspended and that the wall clock was set.
 * After a suspend the connections are of no use, though nobody has closed
 * them; after either the server's clock has to be measured anew and the
 * registration may have run out. So both lead to a new registration at once.
 */
struct clocks {
	int64_t mono; /* ms; stands still while suspended */
	int64_t boot; /* goes on */
	int64_t wall;
};

#define CLOCK_SLEPT_MIN 1000 /* ms that count as a suspend */
#define CLOCK_STEP_MIN  2000 /* ms that count as a change of the wall clock */

/*
 * What happened between two readings: *slept and *step in ms, 0 if it is too
 * little to count. 1 if either is not 0.
 */
int clock_compare(const struct clocks *was, const struct clocks *now,
    int64_t *slept, int64_t *step);

/* Begins to watch; once in the life of the process. */
void clock_watch(struct bridge *);

#endif
