#ifndef EXECUTOR_SANDBOX_H
#define EXECUTOR_SANDBOX_H

#include <sys/types.h>
#include <linux/filter.h>

#include "memory.h"
#include "msg.h"

struct command;
struct peer;
struct event;

/*
 * One registered root and its sandbox as the executor sees it. At most one
 * request is active on a root at any time.
 */
struct sandbox {
	struct root_config root;
	int root_fd; /* until the keeper has it */
	int group; /* control group of commands until the
		      keeper has it, or -1 */
	struct memory memory; /* of that group */
	char **env; /* of its commands */
	pid_t pid; /* of the keeper */
	int control; /* packets to the keeper */
	int files_fd; /* until it is a peer */
	struct event *control_ev;
	struct peer *files;
	char *allowed; /* assignment that the monitor
			  lets mutate, or NULL */
	/* the active request */
	int active;
	uint32_t request_id;
	uint8_t operation;
	char *assignment;
	struct command *command;
	void *owner;
};

/*
 * Starts the keeper and the file process of sandboxes[i], in new namespaces,
 * and waits until they are set up. Must be called before the executor
 * restricts itself. Returns 0, or -1 with one line in *error that names the
 * failed step and the remedy.
 */
int sandbox_start(struct sandbox *sandboxes, size_t n, size_t i,
    const struct executor_config *, const struct sock_fprog *filter,
    const struct sock_fprog *notify, char **error);

#endif
