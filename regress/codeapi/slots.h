#ifndef CODEAPI_SLOTS_H
#define CODEAPI_SLOTS_H

#include "server.h"

/*
 * The worker's lock: the serial lock of 13.3, and the slot reservations of
 * 14.3, which hold the same lock. An owner is the number of a dispatch.
 * Expired holders count as none.
 */
int lock_held(const struct worker *);

/* 1 if another incarnation holds the lock. */
int lock_held_by_other(const struct worker *, const char *incarnation);

/* Takes the serial lock for a dispatch; 0 if it is held. */
int lock_take(struct worker *, uint64_t owner, int64_t expires);

/* 1 if some slot is reserved. */
int slots_reserved(const struct worker *);

/* 1 if the root has a reservation. */
int slot_root_taken(const struct worker *, const char *root);

/*
 * Reserves the lowest free slot for the current incarnation; -1 if there is
 * none, the root is taken, or the serial lock is held.
 */
int slot_reserve(
    struct worker *, uint64_t owner, const char *root, int64_t expires);

/* Releases what the owner holds: the lock, or a slot. */
void lock_release(struct worker *, uint64_t owner);

/* 1 if the owner holds the lock or a slot. */
int lock_is_owner(const struct worker *, uint64_t owner);

#endif
