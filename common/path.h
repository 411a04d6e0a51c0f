#ifndef COMMON_PATH_H
#define COMMON_PATH_H

#include <stddef.h>

struct buf;

/* Identifier rule of worker and workspace ids (protocol 1): 1 if it holds. */
int id_valid(const void *, size_t);

/*
 * Portable relative path (workspace-tools 1.5): well-formed UTF-8, 1 to 4096
 * UTF-16 units, no NUL, no backslash, no leading slash or drive letter, no
 * ".." segment. 1 if it holds.
 */
int path_portable(const void *, size_t);

/* Appends the normal form (1.7): no empty and "." segments; "." if none. */
void path_normalise(struct buf *, const void *, size_t);

/* 1 if the candidate is at or below the requested path (1.7); an empty
 * requested path stands for the root. */
int path_within(const void *candidate, size_t, const void *requested, size_t);

/* Path order (1.8): segment by segment, bytes unsigned. <0, 0, >0. */
int path_compare(const void *, size_t, const void *, size_t);

#endif
