#ifndef MONITOR_LEFTOVER_H
#define MONITOR_LEFTOVER_H

#include "storage.h"

/*
 * Removes what a crash left in the directory of the place (cli-and-storage
 * 4.6, 13): regular files NAME.<16 hex digits>.tmp and .probe of this account
 * with a single link, NAME being the leaf or the name that a start verifies
 * its restriction with. To be called with the lock of the worker held, since
 * a pairing or rotation of the same worker uses such files. Returns how many
 * were removed; what cannot be looked at is left.
 */
unsigned int leftovers_remove(const struct place *);

/* 1 if the name is one of those for leaf. */
int leftover_name(const char *name, const char *leaf);

#endif
