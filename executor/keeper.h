#ifndef EXECUTOR_KEEPER_H
#define EXECUTOR_KEEPER_H

#include <sys/types.h>
#include <linux/filter.h>
#include <stdint.h>

#include "mount.h"

/*
 * The keeper is process 1 of a sandbox: it holds the namespaces and starts
 * the first process of each command. It is a fork of the spawner and never
 * executes anything. It ends, and the sandbox with it, when its channel to
 * the executor ends or when its supervisor or file process has died.
 *
 * Executor -> keeper, one packet on a SOCK_SEQPACKET pair: struct run_packet,
 * then cwd bytes, command bytes; three descriptors: standard output, standard
 * error, status. Keeper -> executor: struct run_answer and, when error is 0,
 * a pidfd of the command's process 1. That process writes struct run_status
 * records to the status pipe.
 */
struct run_packet {
	uint32_t cwd_len; /* 0: the root */
	uint32_t command_len;
};
struct run_answer {
	int32_t error; /* errno of clone, or 0 */
};

enum run_event {
	RUN_FAILED = 1, /* before the shell ran; value is a run_step */
	RUN_STARTED, /* set up; the shell is started next */
	RUN_ENDED /* the shell ended; value is its wait status */
};
enum run_step {
	RUN_STEP_PROC,
	RUN_STEP_DESCRIPTORS,
	RUN_STEP_PRIVILEGES,
	RUN_STEP_CWD,
	RUN_STEP_FENCE,
	RUN_STEP_FILTER,
	RUN_STEP_FORK,
	RUN_STEP_SHELL,
	RUN_STEP_MAX
};
struct run_status {
	int32_t event;
	int32_t value;
	int32_t error; /* errno of a failed step */
};

/* First packet of the keeper: set up, or the step that failed. */
struct keeper_ready {
	int32_t ok;
	struct step_error error;
};

struct keeper {
	const struct mount_plan *plan;
	const char *id; /* workspace id, for messages */
	char *const *env; /* of commands, without PWD */
	const struct sock_fprog *filter; /* of commands */
	const struct sock_fprog *notify; /* supervisor.h */
	uint32_t processes; /* limit of commands; 0 = none */
	int group; /* control group of commands, or -1 */
	int control; /* packets from the executor */
	int files; /* channel of the file process */
	int root; /* set up by the keeper */
	int null;
};

/*
 * In a new user namespace: the account keeps its numbers, nothing else is
 * mapped. 0, or -1 with the failed step.
 */
int keeper_map_account(uid_t, gid_t, struct step_error *);

/* Runs in the new namespaces; never returns. */
void keeper_main(struct keeper *) __attribute__((__noreturn__));

/* Process 1 of a command: ends with it. */
void init_main(const struct keeper *, const char *cwd, const char *command,
    int out, int err, int status) __attribute__((__noreturn__));

/*
 * Opens a directory or file below the root, following links as long as the
 * end lies inside. how are open(2) flags. -1 with errno (EXDEV: outside).
 */
int beneath_open(int root, const char *path, int how);

#endif
