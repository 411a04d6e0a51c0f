#ifndef EXECUTOR_MOUNT_H
#define EXECUTOR_MOUNT_H

#include <sys/types.h>
#include <stddef.h>
#include <stdint.h>

#include "attach.h"
#include "msg.h"

/* Stays closed (native-sandbox 5.2); mounted over what must not be seen. */
#define EMPTY_DIRECTORY "/tmp/claude"

/*
 * What the file system of a sandbox looks like (native-sandbox 8): the host
 * read-only, without set-id programs and devices; hidden directories empty;
 * a private home, /tmp, /var/tmp, /dev, /dev/shm, /dev/pts, /proc; and the
 * root, writable, at its host path.
 */
struct mount_plan {
	const char *root_path; /* canonical host path of the root */
	int root_fd; /* O_PATH; also the current directory */
	uid_t uid;
	gid_t gid;
	const char *user; /* name of the account inside */
	const char *home; /* absolute, not "/" */
	char *const *hidden; /* absolute directories */
	size_t nhidden;
	const char *const *others; /* paths of the other roots */
	size_t nothers;
	char *const *dead; /* mount points that do not answer (dead.h) */
	size_t ndead;
	uint64_t tmp_bytes; /* each of /tmp, /var/tmp, /dev/shm */
	uint64_t home_bytes;
	enum protection protection;
};

/*
 * Builds it and makes it the root directory of the calling process, which
 * must be alone in new user, mount, pid, network and ipc namespaces. Returns
 * the root directory opened with O_PATH, or -1 with the failed step.
 */
int mount_build(const struct mount_plan *, struct step_error *);

#endif
