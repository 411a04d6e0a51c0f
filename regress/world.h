#ifndef REGRESS_WORLD_H
#define REGRESS_WORLD_H

#include <sys/types.h>

#include "buf.h"
#include "json.h"

/*
 * A whole small world for tests: an embedded Code API, a paired worker as it
 * is installed, a project directory, and a caller. The programs are named by
 * the variables PROGRAM (installed librechat-code) and CODEAPI. Everything
 * lives in one scratch directory.
 */
struct world {
	char *dir;
	char *home; /* HOME of the worker */
	char *project; /* its primary root */
	char *url; /* base URL of the server, ends in /v1 */
	char *control; /* base of its control routes */
	pid_t server;
	pid_t worker;
	int status; /* wait status of the last worker */
	uid_t owner; /* of the project */
};

/* owner 0 keeps the project with the account that runs the test. */
void world_init(struct world *, uid_t owner);
void world_free(struct world *); /* ends and removes everything */

/* Starts the server with further arguments (NULL-terminated list). */
void world_server(struct world *, ...);
void world_server_stop(struct world *);

/* librechat-code with arguments in the worker's environment: exit status;
 * standard output and error are appended to the file command.log. */
int world_command(struct world *, const char *input, ...);
void world_pair(struct world *);

/* Starts "librechat-code run --worker-dir PROJECT" with more arguments. */
void world_worker(struct world *, ...);

/* The usual start: paired, writes and commands allowed, leasing. */
void world_start(struct world *);

/* Signals the worker / waits for its end; the wait status. -1: time-out. */
void world_signal(struct world *, int sig);
int world_worker_end(struct world *, int timeout_ms);

/* Server says that the event holds: registered, ready, leasing, idle. */
int world_wait(struct world *, const char *event, int timeout_ms);

/* POST to the control routes; the answer, to be freed, or NULL. */
struct json *world_control(struct world *, const char *path, const char *body);
struct json *world_state(struct world *);

/* One caller request. Returns the HTTP status and the parsed body. */
long world_call(struct world *, const char *body, struct json **);

/* The same in the background. */
struct pending {
	pid_t pid;
	char *file;
};
void world_call_start(struct world *, const char *body, struct pending *);
long world_call_end(struct pending *, struct json **);
/* Closes the caller's connection before the answer. */
void world_call_abort(struct pending *);

/* execute_command in the primary root; status, and the body. */
long world_run(struct world *, const char *command, struct json **);
/* JSON of such a request; the caller frees it. */
char *world_command_body(const char *command, int timeout_ms);

/* Text of the worker's log. */
char *world_log(struct world *);
int world_log_has(struct world *, const char *);
/* Waits until the log has it: 1, or 0 after the time. */
int world_log_wait(struct world *, const char *, int timeout_ms);

/* Number of marker files below the state directory. */
int world_markers(struct world *);

/* Waits until the file exists. */
int world_file_wait(const char *path, int timeout_ms);

/* Processes whose parent is pid: up to n, the number found. */
size_t world_children(pid_t, pid_t *, size_t n);

/* The worker's helper process of that name; the test ends without it. */
pid_t world_helper(struct world *, const char *name);
double world_now(void); /* monotonic, ms */

#endif
