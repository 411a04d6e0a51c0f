#ifndef BRIDGE_RECEIPT_H
#define BRIDGE_RECEIPT_H

#include <stdint.h>

#include "api.h"
#include "bridge.h"
#include "settlement.h"

/*
 * Ownership receipts of an assignment with a lease slot (protocol 11.4): the
 * root may be reused, or the slot may but the root must not.
 */
struct receipt;

enum receipt_kind { RECEIPT_CLEANUP, RECEIPT_QUARANTINE };

/* The body; it holds nothing of the request. */
void receipt_body(struct buf *, const struct bridge *, const struct fence *,
    enum receipt_kind);

/*
 * Delivers one: three attempts with 100 and 200 ms in between, none after a
 * definite refusal, none begun after the deadline (monotonic ms) but the
 * first. done gets the outcome and the failure of the last attempt; the
 * receipt is gone by then.
 */
struct receipt *receipt_send(struct bridge *, const struct fence *,
    enum receipt_kind, int64_t deadline,
    void (*done)(enum outcome, const struct failure *, void *), void *arg);

/* Brings the deadline forward; the attempt under way may end by itself. */
void receipt_cap(struct receipt *, int64_t deadline);

/* Ends *r without calling back and makes it NULL; NULL is fine. */
void receipt_cancel(struct receipt **);

#endif
