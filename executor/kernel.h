#ifndef EXECUTOR_KERNEL_H
#define EXECUTOR_KERNEL_H

#include "attach.h"

/*
 * The kernel's interfaces as files (proc(5), sysfs(5)). What changes or
 * triggers something is read-only, what tells of the machine's keys, memory
 * or firmware is not there. EMPTY_FILE and EMPTY_DIRECTORY must exist.
 */

/*
 * For a process in a new pid and mount namespace of a sandbox: a fresh /proc.
 * 0, or -1 with errno.
 */
int kernel_proc(void);

/* Covers parts of /sys. 0, or -1 with the failed step. */
int kernel_sys(struct step_error *);

#endif
