#ifndef EXECUTOR_SPAWNER_H
#define EXECUTOR_SPAWNER_H

#include <sys/types.h>
#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

#include "mount.h"
#include "msg.h"

/*
 * The spawner makes sandboxes for the executor, which has given up what that
 * needs. It is a fork of the executor, made before the executor restricts
 * itself; it keeps the configuration and a descriptor of every root, and
 * listens to nobody but the executor. It dies with the executor.
 *
 * Executor -> spawner, a packet on a SOCK_SEQPACKET pair: struct
 * spawn_request. Spawner -> executor: struct spawn_answer and, if ok, three
 * descriptors: packets to the keeper (keeper.h), channel of the file process,
 * pidfd of the keeper. The answer comes before the sandbox is set up: the
 * keeper tells that itself with a struct keeper_ready. Roots do not wait for
 * each other: each request is a process of its own.
 *
 * The keeper is a child of the executor, not of the spawner.
 */
struct spawn_request {
	uint32_t root; /* index */
	uint32_t serial; /* comes back in the answer */
};
struct spawn_answer {
	uint32_t root;
	uint32_t serial;
	int32_t ok;
	struct step_error error; /* the failed step */
};
enum spawn_fd { SPAWN_CONTROL, SPAWN_FILES, SPAWN_PIDFD, SPAWN_FDS };

/* What the sandboxes of one root are made from; -1 where there is none. */
struct root_fds {
	int root; /* see root_config.mount */
	int group; /* control group of commands */
};

struct spawner {
	const struct executor_config *config;
	const struct root_config *roots[ROOTS_MAX];
	struct root_fds fds[ROOTS_MAX];
	size_t nroots;
	const struct sock_fprog
	    *filters; /* of commands; [1]: id-mapped roots */
	const struct sock_fprog *notify; /* supervisor.h */
	const struct sock_fprog *own; /* filter_compile_spawner */
	int channel; /* of the spawner; its only other end is the executor's */
	int user_ns; /* of the roots that came as detached mounts, or -1 */
	int mount_ns;
	struct step_error broken; /* no sandbox can be made */
};

/*
 * Forks it. The descriptors of the roots are closed in the executor. Returns
 * the executor's end of the channel (end of file: the spawner is dead), or -1
 * with one line in *error.
 */
int spawner_start(struct spawner *, char **error);

#endif
