#ifndef BRIDGE_ROOTS_H
#define BRIDGE_ROOTS_H

#include <sys/queue.h>
#include <stdint.h>

#include "bridge.h"

/*
 * What this process does with each registered root (protocol 8.2 step 1,
 * 11.3, 11.5): one assignment at a time, in the order of arrival, and none
 * any more once its state is in doubt. A fence lasts as long as the process;
 * the fence of the server is another one.
 */
struct roots;

/* A place in the line of one root; part of what stands there. */
struct root_turn {
	TAILQ_ENTRY(root_turn) entry;
	int waiting; /* it stands in the line or holds the root */
	uint32_t root;
	void (*granted)(void *);
	void *arg;
};

/* Roots that the configuration says are in doubt are fenced at once. */
struct roots *roots_new(const struct bridge_config *);
void roots_free(struct roots *);

/*
 * Joins the line of a root, with granted and arg set. 1: it holds the root
 * now; 0: granted is called when it does, out of roots_leave of another.
 */
int roots_enter(struct roots *, struct root_turn *, uint32_t root);

/* Gives the root or the place in the line back; does nothing without. */
void roots_leave(struct roots *, struct root_turn *);

/* The first reason counts. */
void roots_fence(struct roots *, uint32_t root, const char *why);

/* Why the root is not to be used, or NULL. */
const char *roots_fenced(const struct roots *, uint32_t root);

/* 1 if any root is fenced. */
int roots_any_fenced(const struct roots *);

#endif
