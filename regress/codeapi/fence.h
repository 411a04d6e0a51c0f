#ifndef CODEAPI_FENCE_H
#define CODEAPI_FENCE_H

#include "server.h"

/* Fences of a worker's roots and sessions by name (chapter 15). */
#define FENCE_ROOT_PREFIX "native-workspace:"

/* The fence's value, or NULL if the name is not fenced. */
const char *fence_value(const struct worker *, const char *name);
void fence_set(struct worker *, const char *name, const char *value);
void fence_clear(struct worker *, const char *name);

/* 1 if the fence is set and names exactly that owner. */
int fence_is(const struct worker *, const char *name, const char *owner);

/* Clears the fence and raises the epoch (chapter 16). */
void fence_reset(struct worker *, const char *name);

/* The number of resets of that name so far (15.2). */
uint64_t fence_epoch(const struct worker *, const char *name);
void fences_free(struct worker *);

#endif
