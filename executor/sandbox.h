#ifndef EXECUTOR_SANDBOX_H
#define EXECUTOR_SANDBOX_H

#include <sys/types.h>

#include "imsg.h"
#include "memory.h"
#include "msg.h"
#include "spawner.h"

struct command;
struct event;
struct event_base;
struct peer;
struct pool;

/* The life of one sandbox, again and again. */
enum sandbox_state {
	SANDBOX_NONE,
	SANDBOX_ASKED, /* the spawner is to make its keeper */
	SANDBOX_SET_UP, /* the keeper sets it up */
	SANDBOX_UP,
	SANDBOX_DYING, /* killed; its end is awaited */
	SANDBOX_STUCK /* did not end when killed: unavailable until it does */
};

/*
 * One registered root and its sandbox as the executor sees it. At most one
 * request is active on a root at any time.
 */
struct sandbox {
	struct root_config root;
	struct memory memory; /* control group of its commands */
	struct pool *pool;
	enum sandbox_state state;
	uint32_t serial; /* of the last making */
	int control; /* packets to the keeper, or -1 */
	int files_fd; /* until it is a peer */
	int pidfd; /* of the keeper, or -1 */
	struct event *control_ev;
	struct event *pid_ev;
	struct event *timer; /* of the present state */
	struct peer *files;
	int busy; /* somebody uses it or waits for it */
	uint64_t used; /* order of use */
	struct sandbox *after; /* was destroyed for this one, still dying */
	int held; /* set up; its use waits for that */
	char *allowed; /* assignment that the monitor
			  lets mutate, or NULL */
	/* the active request */
	int active;
	int waiting; /* for the sandbox; then later is the request */
	struct imsg later;
	uint32_t request_id;
	uint8_t operation;
	char *assignment;
	struct command *command;
	void *owner;
};

/*
 * The steps of its life; each is taken once in the state that it needs. What
 * happens to it is told to the pool (pool.h).
 */
int sandbox_init(struct sandbox *, struct event_base *);

/* NONE -> ASKED. 0, or -1 if the spawner is dead. */
int sandbox_ask(struct sandbox *, int spawner);

/*
 * ASKED -> SET_UP, or -> NONE if it could not be made. Takes the descriptors
 * of the answer; one that nobody waits for any more is destroyed.
 */
void sandbox_answer(
    struct sandbox *, const struct spawn_answer *, int fds[SPAWN_FDS]);

/*
 * Anything -> DYING: kills every process and forgets every descriptor but the
 * pidfd. Memory, mounts and namespaces are given back by the kernel in the
 * dying processes.
 */
void sandbox_kill(struct sandbox *);

/* Calls pool_unhold after a moment, if it is still up. */
void sandbox_hold(struct sandbox *);

/* 1 if its keeper holds the control channel; that is, it has not died. */
int sandbox_alive(const struct sandbox *);

#endif
