#ifndef REGRESS_PRIVATE_H
#define REGRESS_PRIVATE_H

#include <stddef.h>

/*
 * Puts the calling process into a mount namespace of its own, so that a test
 * can mount file systems and leaves nothing behind. An ordinary user gets it
 * with the help of a user namespace, and with a root directory that is its
 * own and in which all but the top is the machine's: storage below
 * directories of unknown owners is refused by the worker. There PROGRAM is
 * changed to a copy of the installation. why is "" afterwards, or says why
 * it cannot be done.
 */
void private_mounts(char *why, size_t size);

/* A further one for a process that is in such a namespace already. */
void private_again(char *why, size_t size);

#endif
