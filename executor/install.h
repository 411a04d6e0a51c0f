#ifndef EXECUTOR_INSTALL_H
#define EXECUTOR_INSTALL_H

#include <sys/types.h>
#include <sys/stat.h>

#include "files.h"

/*
 * Atomic installation of a whole file (workspace-tools 8.2): the new content
 * is staged beside the target, made durable, and put in place by one rename
 * or link; then it is read back. A reader sees the old file or the new one.
 */
struct install {
	/* what is asked for */
	const struct text *path;
	const uint8_t *data;
	size_t len; /* at most FILE_MAX */
	int create_only;
	/* an edit: the file that it was made from must still be there */
	const struct stat *base_st; /* NULL for a plain write */
	const struct buf *base;
	/* what was found out */
	int created; /* the target did not exist before */
	/* private */
	struct place place;
	int dir; /* parent directory */
	struct stat dir_st;
	struct stat old;
	int old_fd; /* the file to be replaced, or -1 */
	char stage[64]; /* name of the staging file */
	int staged; /* that name exists */
	int fd; /* staging file */
	struct stat new;
};

/*
 * 0 when the file is in place, durable and confirmed. -1 with *f otherwise:
 * NOT_COMMITTED is a proof that the target is as it was, UNCERTAIN everything
 * from the commit on that could not be confirmed. No staging file is left
 * unless it cannot be removed or the process dies (leftover.h).
 */
int install(struct tool *, struct install *, struct failure *);

/* EC_WRITE_UNAVAILABLE, NOT_COMMITTED, with a phrase for the error. */
int unavailable(struct failure *, int);

/* ENOENT and the like: what says something about the path (8.2 step 3). */
int path_errno(int);

/*
 * Gives the staging file owner, group, permission bits, access list and
 * extended attributes of the file that it replaces. The set-id and sticky
 * bits are dropped. All that is kept or it fails, -1 with errno (ENOTSUP: an
 * access list that cannot be expressed in the sandbox). Of other attributes
 * user.* are treated the same; an SELinux label is kept where that is
 * permitted, else the new file has the one that the policy gives it.
 * An owner or group from outside the sandbox's user namespace is not told
 * from another such: the group of a set-group-id directory stays as it is.
 */
int attributes_keep(int old_fd, const struct stat *old, int fd);

#endif
