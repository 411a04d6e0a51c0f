#ifndef MONITOR_PRIMITIVES_H
#define MONITOR_PRIMITIVES_H

#include <stddef.h>

#include "proc.h"

/*
 * What the sandbox and the restricted processes need of the kernel and of the
 * machine, one probe each (field reports FS-7, FS-8, PS-7). A probe does what
 * the daemon will do, in a child process of its own, as the given account.
 */
struct primitive {
	const char *name;
	int needed; /* the worker does not start without it */
	/*
	 * Runs in the child: 0, with a remark in text or nothing, or -1 with
	 * what failed, the errno and the remedy.
	 */
	int (*probe)(char *text, size_t size);
};

extern const struct primitive primitives[];
extern const size_t nprimitives;

/*
 * Runs a probe in a child. as is the account to become, or NULL. Returns 0 or
 * -1, and the text; a child that dies or hangs is a failure.
 */
int primitive_run(const struct primitive *, const struct account *as,
    char *text, size_t size);

#endif
