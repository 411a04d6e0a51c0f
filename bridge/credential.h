#ifndef BRIDGE_CREDENTIAL_H
#define BRIDGE_CREDENTIAL_H

#include <stdint.h>

#include "bridge.h"

struct credentials;
struct imsg;
struct json;
struct waiter;

/*
 * The bearer credential, its rotation (protocol 3.3) and the estimate of the
 * server's clock that decides when it is due (10.4). The value lives in
 * guarded memory.
 */
#define CREDENTIAL_WINDOW 60000 /* refresh so long before the end */
#define CREDENTIAL_LIMIT  10000 /* of one rotation */

struct credentials *credentials_new(struct bridge *);
void credentials_free(struct credentials *);

/* As it goes into the Authorization header; valid until the next rotation. */
const char *credential_value(const struct credentials *);

/* Server clock minus local clock in ms; starts pessimistic at +60 s. */
void credential_set_offset(struct credentials *, int64_t offset);

/* The local clock was set by so many ms: the estimate changes with it. */
void credential_clock_set(struct credentials *, int64_t step);

/* 1 if a refresh is due; never in static mode. */
int credential_due(const struct credentials *);

/* ms until a refresh is due, 0 if it is; -1 in static mode. */
int64_t credential_due_in(const struct credentials *);

/* ms until the credential is worthless by our estimate; may be negative. */
int64_t credential_life(const struct credentials *);

/*
 * Refreshes the credential, or joins the refresh that is under way; to be
 * called when it is due. limit as for flight_join.
 */
struct waiter *credential_refresh(struct credentials *, int64_t limit,
    void (*done)(const struct failure *, void *), void *arg);

/* MSG_CREDENTIAL_STORED */
int credential_stored(struct peer *, struct imsg *, void *bridge);

/*
 * Checks a credential response (protocol 3.2): NULL and *c (freed by the
 * caller), or what is wrong with it.
 */
const char *credential_response(
    const struct json *, const char *worker_id, struct credential *c);

/* The pairing role: redeems the code and ends the process. */
void pair_start(struct bridge *);

#endif
