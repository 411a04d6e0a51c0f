#ifndef EXECUTOR_POOL_H
#define EXECUTOR_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "sandbox.h"

/*
 * Which sandboxes there are (native-sandbox 3.7 and 15). One is made when its
 * root is wanted and kept when it is idle, as long as there are not more than
 * the capacity; then an idle one is destroyed: one of a root without commands
 * first, then the one that was not used for the longest time. One that is in
 * use is never destroyed, and none in use is a reason to refuse a root: the
 * capacity bounds what is kept, not what runs.
 *
 * What was destroyed for a new sandbox is dead, and its scratch gone, before
 * the new one is used. Both happen at the same time; when the kernel has very
 * much to give back (100,000 files in /tmp), it goes on with that alone.
 */
struct pool_handlers {
	/* Set up: the owner takes files_fd as a peer (even if not busy). */
	void (*ready)(struct sandbox *);
	/* After ready, if somebody waits for it. */
	void (*up)(struct sandbox *);
	/* The wait is over: it cannot be had. One line, already logged. */
	void (*failed)(struct sandbox *, const char *);
	/* It died in use and is being destroyed. */
	void (*lost)(struct sandbox *);
	/* A packet of its keeper can be read from control. */
	void (*answered)(struct sandbox *);
	/* The spawner died: no sandbox can be made any more. */
	void (*no_spawner)(void *);
};

struct pool {
	const struct pool_handlers *handlers;
	void *arg; /* of no_spawner */
	struct sandbox *sandboxes;
	size_t n;
	size_t capacity;
	int spawner; /* channel */
	struct event *spawner_ev;
	const char *remedy; /* for a refused namespace or mount */
	uint64_t clock;
};

/*
 * Starts with no sandbox. spawner is the channel of spawner_start; the roots
 * are in place. Must be called before the executor restricts itself. 0 or -1.
 */
int pool_init(struct pool *, struct event_base *, struct sandbox *, size_t n,
    size_t capacity, int spawner, const struct pool_handlers *, void *arg);

/*
 * Somebody wants to use the sandbox of a root that nobody uses now: POOL_UP
 * when it is there, POOL_LATER when up or failed will be called, or
 * POOL_UNAVAILABLE. Except in the last case it is busy until pool_release.
 */
enum pool_answer { POOL_UP, POOL_LATER, POOL_UNAVAILABLE };
enum pool_answer pool_want(struct sandbox *);

/* The use, or the wait for it, is over. */
void pool_release(struct sandbox *);

/* What became of it (sandbox.c). */
void pool_set_up(struct sandbox *);
void pool_failed(struct sandbox *, const char *step);
void pool_died(struct sandbox *, const char *what);
void pool_gone(struct sandbox *);
void pool_unhold(struct sandbox *);
void pool_stuck(struct sandbox *);

#endif
