#ifndef EXECUTOR_PROTECT_H
#define EXECUTOR_PROTECT_H

#include "msg.h"

/*
 * Paths inside a root that commands and file tools cannot change because
 * somebody outside the sandbox would run what stands there: Git hooks, shell
 * start-up files, settings of editors and agent tools (native-sandbox 8.5).
 *
 * Only what exists when the sandbox is made is protected, by mounts in the
 * sandbox's own mount tree; nothing is ever created in the workspace. Where a
 * rule cannot be applied (the name is a symbolic link, say) it is left out
 * and the others hold. Names are compared without regard to case; parents are
 * pinned, so that renaming them fails with EBUSY.
 *
 * root is the root directory at its place in the sandbox's mount tree.
 * Returns the number of protected places.
 */
int protect(int root, enum protection);

#endif
