#ifndef REGRESS_PROCS_H
#define REGRESS_PROCS_H

#include <sys/types.h>

/* What tests look for among the processes of the machine. */

/* Process with this name (comm) among the descendants of pid, or 0. */
pid_t process_below(pid_t pid, const char *name);

/*
 * How many processes are in a pid namespace, given as the target of the link
 * /proc/PID/ns/pid. Whatever name, session or parent a process has, and
 * whether it is stopped or a zombie, it is in there. Processes that the
 * caller may not look at are not counted.
 */
int namespace_members(const char *link);

/* Waits for that to be 0; what is left after 20 s. */
int namespace_emptied(const char *link);

#endif
