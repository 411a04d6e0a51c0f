#ifndef COMMON_PROC_H
#define COMMON_PROC_H

#include <sys/types.h>

#include "imsg.h"

/*
 * Starting the helper processes and being one. A helper is its own program
 * in the package's libexec directory. It gets no argument but its name, an
 * empty environment, /dev/null as standard input and output, the monitor's
 * standard error for the log, and one socketpair end on this descriptor; all
 * else comes in its first message.
 */
#define PROC_CHANNEL 3

struct account {
	uid_t uid;
	gid_t gid;
	char *name;
	char *home;
};

/* Looks an account up by name or number: 0, or -1 with one line in *error. */
int account_by_name(const char *, struct account *, char **error);

/* By user id; an id without an entry gets its number as name and home "/". */
int account_by_uid(uid_t, struct account *, char **error);
void account_free(struct account *);

struct proc {
	const char *name;
	pid_t pid;
	struct imsgbuf ib; /* for start-up; then peer_adopt */
};

/*
 * Starts a helper ("librechat-code-bridge"). It is found beside the running
 * program: where that is ROOT/BINDIR/librechat-code the helper is
 * ROOT/PKGLIBEXECDIR/NAME, with the directories of configure. Nothing in the
 * environment has an influence. With as, the child gives up root for that
 * account (no supplementary groups) before it executes the helper. Returns 0,
 * or -1 with one line in *error. The helper is killed when its parent dies
 * (Linux: PR_SET_PDEATHSIG; everywhere: end of file on the channel).
 */
int proc_start(
    struct proc *, const char *name, const struct account *as, char **error);

/*
 * Called by a helper first of all: checks that the channel is there, ignores
 * SIGPIPE, SIGINT, SIGHUP and SIGTERM (a program that it executes must not
 * inherit that), and prepares ib for the blocking start-up exchange.
 */
void proc_helper_init(struct imsgbuf *ib, int take_fds);

/*
 * Gives up root for good: no supplementary groups, all ids. Verifies that
 * root cannot be taken back. Returns 0, or -1 with errno.
 */
int proc_become(uid_t, gid_t);

/* Closes every descriptor from lowest on. */
void proc_close_from(int lowest);

/* A pair of connected close-on-exec stream sockets: 0 or -1 with errno. */
int proc_socketpair(int sv[2]);

#endif
