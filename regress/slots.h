#ifndef REGRESS_SLOTS_H
#define REGRESS_SLOTS_H

#include "json.h"
#include "world.h"

/*
 * A world with several roots and lease slots, for tests and benchmarks. The
 * first root is the project, with the id "primary"; the others are "r1" and
 * so on.
 */
#define PLACE_ROOTS 8

struct place {
	struct world w;
	size_t n; /* roots */
	unsigned int slots;
	char *dirs[PLACE_ROOTS];
	char *ids[PLACE_ROOTS];
	char *args[PLACE_ROOTS]; /* [i - 1]: --workspace=... of root i */
};

/* Makes the world, pairs, starts the worker, waits until all lanes lease. */
void place_init(struct place *, size_t roots, unsigned int slots);
void place_free(struct place *);

/* Makes the world and the roots only. */
void place_make(struct place *, size_t roots, unsigned int slots);

/* Starts the worker (again) with all its options, with a new log. */
void place_start(struct place *);
void place_launch(struct place *); /* does not wait for its lanes */

/* Waits until so many lanes lease: 1, or 0 after the time. */
int place_lanes(struct place *, unsigned int lanes, int timeout_ms);

/* The worker command with these options and more: its exit status. */
int place_reset(struct place *, size_t root);

/* SIGTERM; the exit status. */
int place_stop(struct place *);

/* JSON of a command or a read in that root; the caller frees it. */
char *place_command(const struct place *, size_t root, const char *command);
char *place_read(const struct place *, size_t root, const char *path);

/* One such command; the HTTP status, and the code of a refusal if wanted. */
long place_run(struct place *, size_t root, const char *command, char code[64]);

/* Makes an empty file in a root, or waits for one. */
void place_put(const struct place *, size_t root, const char *name);
int place_wait(const struct place *, size_t root, const char *name);
int place_has(const struct place *, size_t root, const char *name);

/* The server's fence of a root, or NULL; to be freed. */
char *place_fence(struct place *, size_t root);

/* The marker of a root; to be freed. */
char *place_marker(const struct place *, size_t root);

/*
 * The first process of the sandbox in which "sleep MARK" runs, once it does
 * (harness.h has the marks).
 */
pid_t place_sandbox(struct place *, const char *mark);

#endif
