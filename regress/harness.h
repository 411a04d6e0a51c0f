#ifndef REGRESS_HARNESS_H
#define REGRESS_HARNESS_H

#include <sys/types.h>

#include "imsg.h"
#include "msg.h"

/*
 * A stand-in for monitor and bridge that drives one executor process, for
 * tests and benchmarks of the sandbox. The program is the one named by the
 * variable EXECUTOR. Started as root, it runs as the account 65534 unless
 * TEST_UID says otherwise, as the monitor would do it.
 */
struct harness {
	pid_t pid;
	struct imsgbuf monitor; /* our end of the monitor's channel */
	struct imsgbuf bridge; /* our end of the bridge's channel */
	uint32_t next_id;
	uid_t uid;
	gid_t gid;
	char *dir; /* scratch on the host */
	char *home; /* stands for the account's home */
	char *roots[ROOTS_MAX];
	uint32_t without[ROOTS_MAX]; /* operations that a root lacks */
	int detached[ROOTS_MAX]; /* give it as a detached mount (root only) */
	size_t nroots;
	char *hidden[16];
	size_t nhidden;
	char *env[16];
	size_t nenv;
	uint64_t tmp_bytes;
	uint64_t home_bytes;
	enum protection protection; /* none unless set */
	uint32_t processes; /* no limit unless set */
	uint8_t slots; /* idle sandboxes to keep: 8 unless set */
	int group; /* of the commands of every root, or 0 for none */
	uint64_t memory_bytes; /* its limit */
	const char *enter; /* cgroup.procs for the executor, or NULL */
	char *failed; /* text of MSG_FAILED, if it came */
	enum certainty outcome; /* of the last mutation */
	char *outcome_of; /* the assignment of that mutation */
	char *allowed; /* the assignment last allowed, or NULL */
	struct imsg stash[8]; /* answers nobody waited for yet */
	size_t nstash;
};

/*
 * Makes a scratch directory with a home and nroots registered directories,
 * owned by the account. Roots may be added or changed before harness_start.
 */
void harness_init(struct harness *, size_t nroots);

/* Starts the executor; 0 when it is ready, -1 with failed set. */
int harness_start(struct harness *);

/* Stops it, waits for its end, and removes the scratch directory. */
void harness_stop(struct harness *);

/* Kills the executor's process and waits; the directory stays. */
void harness_kill(struct harness *);
void harness_remove(struct harness *);

/* One answer of the executor to a request. */
struct answer {
	int ok;
	struct result result; /* if ok */
	struct tool_error error; /* else */
	double ms; /* from request to answer */
};
void answer_free(struct answer *);

/*
 * Sends a request (allowing it first if it is a mutation) and waits for the
 * answer. Returns 0, or -1 if the executor ended instead.
 */
int harness_request(struct harness *, struct request *, struct answer *);

/* The same in two parts; the id is returned. */
uint32_t harness_send(struct harness *, struct request *);
int harness_wait(struct harness *, uint32_t id, struct answer *);
void harness_cancel(struct harness *, uint32_t id);

/* execute_command with defaults for cwd "" , 30 s and 64 KiB. */
int harness_run(
    struct harness *, uint32_t root, const char *command, struct answer *);
int harness_run_with(struct harness *, uint32_t root, const char *command,
    const char *cwd, uint32_t timeout_ms, uint32_t max_output, struct answer *);

/* Writes a file below a directory on the host, owned by the account. */
void put_file(struct harness *, const char *dir, const char *name,
    const void *data, size_t len, mode_t mode);

/* Copies the program that a variable names into a directory, 0755. */
void copy_program(
    struct harness *, const char *variable, const char *dir, const char *name);

/*
 * Makes a directory that a sandbox sees unless something hides it: not below
 * /tmp or another private place. Owned by the account; the caller frees the
 * name and removes the directory.
 */
char *visible_scratch(struct harness *);

/*
 * A number for sleep that no other test on this machine uses, and a command
 * with it as $M; both to find out whether a process still exists.
 */
const char *new_mark(void); /* kept until the next call */
char *with_mark(const char *mark, const char *command);

/*
 * A process with this name that descends from pid in at most depth steps, or
 * 0 if there is none.
 */
pid_t find_below(pid_t pid, const char *name, int depth);

/* 1 if a process of the host has this text in its arguments. */
int process_exists(const char *mark);

/* Removes a tree without following links; for what tests made. */
void remove_tree(const char *);

#endif
