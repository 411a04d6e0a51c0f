#ifndef EXECUTOR_ACCOUNTS_H
#define EXECUTOR_ACCOUNTS_H

#include "mount.h"

/*
 * Covers /etc/passwd and /etc/group with copies that know the account of the
 * sandbox (passwd(5)). /dev must still be writable. 0, or -1 with the failed
 * step.
 */
int accounts_build(const struct mount_plan *, struct step_error *);

#endif
