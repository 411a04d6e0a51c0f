#ifndef EXECUTOR_DEVICES_H
#define EXECUTOR_DEVICES_H

#include <stdint.h>

#include "attach.h"

/*
 * The private /dev of a sandbox: a few devices of the host, terminals and
 * shared memory of its own. An empty file that nobody may open lies in it,
 * to be mounted over files that must not be seen.
 */
#define NDEVICES   6
#define EMPTY_FILE "/dev/.empty"

/* Detached mounts of the host's nodes, taken before its tree is left. */
int devices_take(int fds[NDEVICES], struct step_error *);
/* Builds /dev from them; it can still be written until it is sealed. */
int devices_build(
    const int fds[NDEVICES], uint64_t shm_bytes, struct step_error *);
int devices_seal(struct step_error *);

#endif
