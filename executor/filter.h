#ifndef EXECUTOR_FILTER_H
#define EXECUTOR_FILTER_H

#include <stddef.h>
#include <stdint.h>

struct sock_fprog;

/*
 * The seccomp filter of sandboxed commands: everything is allowed except the
 * rows of a table (filter.c) with a reason each. Unknown or new calls keep
 * working, so that an update of the C library does not break every tool.
 *
 * In an id-mapped root (mapped) every file that a command makes belongs to
 * root on the disk of the host. There the set-id bits are refused as well: a
 * set-id program left behind would run as root for whoever starts it on the
 * host.
 *
 * filter_compile makes the program once; the result is kept for the life of
 * the process. arch is 0, or a token of libseccomp's for another architecture.
 * Returns 0, or -1 with one line in *error (allocated).
 */
int filter_compile(
    struct sock_fprog *, uint32_t arch, int mapped, char **error);

/*
 * The filter of the spawner, which every process of a sandbox inherits: rows
 * of the same table that even setting up a sandbox has no use for.
 */
int filter_compile_spawner(struct sock_fprog *, char **error);

/* The program of a libseccomp context (scmp_filter_ctx): 0 or -1. */
int filter_export(void *ctx, struct sock_fprog *);

/* Installs it for the calling process and its descendants: 0 or -1, errno. */
int filter_install(const struct sock_fprog *);

/* The table, for the tests and the manual. */
struct filter_condition {
	int argument; /* -1: no condition */
	uint64_t mask; /* holds if (argument & mask) == value, or with mask 0 */
	uint64_t value; /* if the lower 32 bits are at least the value; with */
	/* both 0 if the argument is not 0 */
};
struct filter_row {
	const char *name; /* system call */
	int error; /* errno that it gets; 0: succeeds without effect */
	int mapped; /* only in id-mapped roots */
	struct filter_condition if1; /* denied if both hold */
	struct filter_condition if2;
	const char *reason;
};
extern const struct filter_row filter_rows[];
extern const size_t filter_nrows;

#endif
