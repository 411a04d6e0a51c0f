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
 * filter_compile makes the program once; the result is kept for the life of
 * the process. Returns 0, or -1 with one line in *error (allocated).
 */
int filter_compile(struct sock_fprog *, char **error);

/* Installs it for the calling process and its descendants: 0 or -1, errno. */
int filter_install(const struct sock_fprog *);

/* The table, for the tests and the manual. */
struct filter_row {
	const char *name; /* system call */
	int error; /* errno that it gets */
	int argument; /* compared, or -1: always denied */
	uint64_t mask; /* denied if (argument & mask) == value */
	uint64_t value;
	const char *reason;
};
extern const struct filter_row filter_rows[];
extern const size_t filter_nrows;

#endif
