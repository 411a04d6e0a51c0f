#ifndef MONITOR_CGROUP_H
#define MONITOR_CGROUP_H

#include <sys/types.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Control groups (cgroups(7), version 2; "Control Group v2" in the kernel's
 * documentation). Where the daemon was given a group of its own, as by
 * Delegate=yes of systemd.resource-control(5), it divides that one:
 *
 *   daemon        the processes of the daemon and of the sandboxes' set-up
 *   workspace-N   the commands of root N: memory.max, memory.swap.max 0,
 *                 memory.oom.group 1, pids.max, cpu.weight
 *
 * A process is never moved after its start: the executor makes each command
 * in its group (CLONE_INTO_CGROUP of clone(2)), for which its account gets
 * cgroup.procs of the group and of the one above.
 */
struct cgroup_host {
	const char *membership; /* proc_pid_cgroup(5) of this process */
	const char *top; /* mount point of the hierarchy; NULL: look for it */
	/* mkdir, rmdir and a write of a whole text: 0, or -1 with errno */
	int (*make)(int dir, const char *name);
	int (*remove)(int dir, const char *name);
	int (*write)(int dir, const char *name, const char *text);
};
extern const struct cgroup_host cgroup_here;

struct cgroup_limits {
	uint64_t memory; /* bytes; 0 = no limit */
	uint32_t processes; /* and threads; 0 = no limit */
};

struct cgroups {
	const struct cgroup_host *host;
	char *path; /* of the delegated group; NULL = not in force */
	int fd; /* its directory */
	int moved; /* this process is in "daemon" */
	int *groups; /* directories of the workspace groups */
	size_t n;
};

/*
 * Whether cgroup_start would work, without changing anything: 0, or -1 with
 * one line in *why.
 */
int cgroup_check(const struct cgroup_host *, char **why);

/*
 * Makes the groups for n roots and moves this process, which must not have
 * started another yet. Groups that an earlier daemon left are ended first.
 * owner and group are those of the executor, if it is another account than
 * this process's, else -1. Returns 0, or -1 with one line in *why; then all
 * is as it was, and path is NULL.
 */
int cgroup_start(struct cgroups *, const struct cgroup_host *,
    const struct cgroup_limits *, size_t n, uid_t owner, gid_t group,
    char **why);

/*
 * Kills what is left in the groups of commands, waits a moment for its end,
 * and removes the groups, if there are any. What cannot be removed, the next
 * start removes.
 */
void cgroup_stop(struct cgroups *);

#endif
