#ifndef EXECUTOR_MEMORY_H
#define EXECUTOR_MEMORY_H

#include <stdint.h>

/*
 * Whether a command was ended for its use of memory: the events of its
 * control group (memory.events, "Control Group v2" in the kernel's
 * documentation) before and after it.
 */
struct memory {
	int events; /* memory.events, open for reading, or -1 */
	uint64_t limit; /* bytes, for the message */
};

struct memory_events {
	uint64_t limit; /* oom: an allocation failed at the group's limit */
	uint64_t killed; /* oom_kill: processes ended for want of memory */
};

/*
 * Reads the open file memory.events from its start. Values that it lacks are
 * 0. 0, or -1 with errno; fd -1 (no group) gives zeros.
 */
int memory_read(int fd, struct memory_events *);

enum memory_end {
	MEMORY_FINE, /* nothing was killed */
	MEMORY_LIMIT, /* at the limit of the group */
	MEMORY_MACHINE /* the machine or the service had no more */
};
enum memory_end memory_compare(
    const struct memory_events *before, const struct memory_events *after);

/* The line that is added to standard error; limit in bytes. Allocated. */
char *memory_line(enum memory_end, uint64_t limit);

#endif
