#ifndef EXECUTOR_MTAB_H
#define EXECUTOR_MTAB_H

#include <stddef.h>
#include <stdint.h>

/*
 * The mount table of the calling process (proc_pid_mountinfo(5)). One object
 * can have several names, by bind mounts or by a second mount of the same
 * file system; it has one place: a file system and a path in that.
 */
struct mtab_mount {
	uint64_t id; /* as STATX_MNT_ID gives it */
	char *device; /* "MAJOR:MINOR" of the file system */
	char *root; /* path in it that is mounted, "/" for all */
	char *point; /* where, as this process sees it */
	char *type;
};
struct mtab {
	struct mtab_mount *list; /* in the order they were mounted */
	size_t n;
};

/* 0, or -1 with errno (EPROTO: a malformed table). */
int mtab_read(struct mtab *);
void mtab_free(struct mtab *);

/*
 * The mount that a path leads to, which must be canonical: by the mount of a
 * descriptor of it, or without one (-1) by name. NULL if there is none.
 */
const struct mtab_mount *mtab_find(
    const struct mtab *, int fd, const char *path);

/*
 * Where the path lies in the file system of its mount; allocated, or NULL if
 * it does not lie below the mount point.
 */
char *mtab_place(const struct mtab_mount *, const char *path);

/*
 * The name under which a mount shows a place of its file system; allocated,
 * or NULL if it does not.
 */
char *mtab_name(const struct mtab_mount *, const char *place);

#endif
