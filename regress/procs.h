#ifndef REGRESS_PROCS_H
#define REGRESS_PROCS_H

#include <sys/types.h>

/* What tests look for among the processes of the machine. */

/* Process with this name (comm) among the descendants of pid, or 0. */
pid_t process_below(pid_t pid, const char *name);

/*
 * A pid namespace, given as the target of the link /proc/PID/ns/pid, held
 * open: its number is not used for another one before the descriptor is
 * closed. -1 if no process is in it.
 */
int namespace_pin(const char *link);

/*
 * How many processes are alive in a namespace that is held open. Whatever
 * name, session or parent a process has, and if it is stopped, it is in
 * there. One that is dead and waits to be removed from the table does not
 * count, nor do those that the caller may not look at.
 */
int namespace_members(const char *link);

/* Waits for that to be 0; what is left after 20 s. */
int namespace_emptied(const char *link);

#endif
