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
 * rule cannot be applied it is left out and the others hold. Names are
 * compared without regard to case.
 *
 * A protected place is mounted on itself, read-only. Every directory that
 * leads to it is pinned: the kernel refuses (EBUSY) to rename or remove what
 * is a mount point anywhere in the mount namespace, so the pins are made in a
 * second mount of the root that lies, unreachable, under the visible one.
 * There they stand in nobody's way: in the visible tree a rename or hard link
 * into or out of a pinned directory stays within one mount.
 *
 * root is the directory of the root, at its place in the sandbox's mount
 * tree; it is replaced by one of the mount that now covers it. path is the
 * absolute path of that place. Returns 0, or -1 with errno if the second
 * mount could not be made.
 */
int protect(int *root, const char *path, enum protection);

#endif
