#ifndef MONITOR_MOUNTINFO_H
#define MONITOR_MOUNTINFO_H

#include <stddef.h>

/*
 * Mount preflight (cli-and-storage chapter 5): a file that is itself a mount
 * point cannot be replaced by rename(2), and that must be known before a
 * one-time code is spent.
 */

enum mount_result {
	MOUNT_NONE, /* the path is no mount point */
	MOUNT_POINT,
	MOUNT_MALFORMED
};

#define MOUNTINFO_MAX 4194304

/* Searches a mountinfo table (proc_pid_mountinfo(5)) for the exact path. */
enum mount_result mountinfo_find(const void *, size_t, const char *path);

/*
 * Where a path lies within its file system: appends "MAJOR:MINOR" and the
 * path below the root of that file system, as the line with this mount id
 * says. Two names of one object, by bind mounts, get the same text. 0, or -1
 * if there is no such line or the path is not below its mount point.
 */
struct buf;
int mountinfo_location(const void *, size_t, unsigned long long id,
    const char *path, struct buf *);

/*
 * The same for an open directory of this process; path is its name. Fails
 * without a message where the system cannot tell.
 */
int mount_location(int fd, const char *path, struct buf *);

/*
 * Opens what mount_preflight reads, so that it works after the process has
 * restricted itself. Returns a descriptor (Linux), or -1 (elsewhere, or when
 * it cannot be opened: mount_preflight then reports that).
 */
int mountinfo_open(void);

/*
 * path is canonical but for its last component, which is not followed.
 * Returns 0, or -1 with *error set if it is a mount point or that cannot be
 * found out.
 */
int mount_preflight(int mountinfo, const char *path, char **error);

#endif
