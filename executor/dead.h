#ifndef EXECUTOR_DEAD_H
#define EXECUTOR_DEAD_H

#include <stddef.h>

#include "attach.h"

/*
 * Mounts of network and FUSE file systems whose server does not answer. Any
 * look at one may hang for good, so a sandbox covers them before it looks at
 * anything (field report FS-6).
 */

/*
 * Mount points that did not answer within a second; allocated. Each is asked
 * by a process of its own, all at once. Must be called outside the sandbox:
 * a process that hangs in the kernel would keep its namespace alive. A table
 * that cannot be read counts as one without such mounts.
 */
void dead_find(char ***points, size_t *n);

/*
 * Covers them with empty directories, in the caller's mount namespace; one
 * that cannot be covered in time is left as it is.
 */
void dead_cover(char *const *points, size_t n);

#endif
