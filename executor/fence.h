#ifndef EXECUTOR_FENCE_H
#define EXECUTOR_FENCE_H

#include "keeper.h"

/*
 * Read-only mounts keep a command from changing the host's files, but not
 * from writing into a FIFO of the host, behind which a process may read. So
 * commands may open files for writing only where they may change them
 * (landlock(7)): in the root, the home, /tmp, /var/tmp, /dev and /proc. A
 * FIFO in the root is part of the workspace and shared like its files.
 *
 * Linux before 5.19 cannot do this without refusing every rename and link
 * between directories; nothing is restricted there.
 */

/* For the calling process and its descendants: 0, or -1 with errno. */
int fence(const struct mount_plan *);

/* 1 if this kernel can do it. */
int fence_available(void);

#endif
