#ifndef MONITOR_GUARD_H
#define MONITOR_GUARD_H

#include <stdint.h>

#include "msg.h"
#include "roots.h"

/*
 * The mutation guard of one root: which assignment may change it now, and
 * whether its marker may be removed (architecture "a mutation", cli-and-
 * storage chapter 7). States: FREE -> ALLOWING (the marker is on disk, the
 * executor has been told) -> ARMED -> FREE. There is no way from ARMED to
 * FREE but a certain outcome and an accepted settlement.
 */
enum guard_state { GUARD_FREE, GUARD_ALLOWING, GUARD_ARMED };

struct guard {
	struct root *root;
	enum guard_state state;
	char *assignment;
	uint32_t request; /* id of the MSG_ARM to answer */
	int known; /* the executor reported the outcome */
	enum certainty outcome;
	int clearing; /* a MSG_CLEAR waits for the outcome */
	uint32_t clear_request;
	int64_t clear_deadline; /* monotonic ms */
};

/*
 * Arms the marker for the assignment: 0, or -1 with *error for the answer.
 */
int guard_arm(struct guard *, const char *worker, const char *owner,
    const char *assignment, uint32_t request, char **error);

/* The executor confirmed: 0, or -1 if it was not asked. */
int guard_allowed(struct guard *, const char *assignment);

/*
 * Remembers an outcome. UNCERTAIN is final. Reports that do not belong to
 * the armed assignment are ignored.
 */
void guard_outcome(struct guard *, const char *assignment, enum certainty);

enum clear_result {
	CLEAR_FAILED = -1, /* *error for the answer */
	CLEAR_DONE = 0,
	CLEAR_LATER = 1 /* waits for the outcome; see guard_settle */
};

/* The settlement was accepted: removes the marker if the outcome permits. */
enum clear_result guard_clear(struct guard *, const char *assignment,
    uint32_t request, int64_t now, char **error);

/*
 * For a guard that is clearing: tries again, gives up after its time.
 */
enum clear_result guard_settle(struct guard *, int64_t now, char **error);

/* Milliseconds that a clear waits for the outcome (cli-and-storage 7.7). */
#define CLEAR_WAIT_MS 5000

void guard_free(struct guard *);

#endif
