#ifndef BRIDGE_SETTLEMENT_H
#define BRIDGE_SETTLEMENT_H

#include <stdint.h>

#include "api.h"
#include "bridge.h"

struct settlement;

/* What the server needs to tell this delivery from every other (protocol 1). */
struct fence {
	char *assignment;
	int64_t generation;
	char *token; /* of the lease */
};
void fence_free(struct fence *);

/* Body {"protocolVersion":1,"incarnationId":...,fence} of ack (7.3). */
void fence_ack(struct buf *, const struct bridge *, const struct fence *);

/* Settlement bodies (protocol 9.1, 9.2). text is cut to 4096 UTF-16 units. */
void settlement_fulfilled(struct buf *, const struct bridge *,
    const struct fence *, const char *workspace, const struct request *,
    const struct result *, int after_path);
void settlement_rejected(struct buf *, const struct bridge *,
    const struct fence *, enum error_code, const char *text);

/*
 * Delivers one body, with a fresh proof for each attempt, until the server
 * accepts it, refuses it, or the deadline (monotonic ms) passes (9.3). There
 * is at least one attempt. body is moved out. done gets API_OK, API_DEFINITE
 * or API_AMBIGUOUS, with the failure of the last attempt; the settlement is
 * gone by then.
 */
struct settlement *settlement_send(struct bridge *, const struct fence *,
    struct buf *body, int64_t deadline,
    void (*done)(enum outcome, const struct failure *, void *), void *arg);

/* Brings the deadline forward; the attempt under way may end by itself. */
void settlement_cap(struct settlement *, int64_t deadline);

/* Ends *s without calling back and makes it NULL; NULL is fine. */
void settlement_cancel(struct settlement **);

#endif
