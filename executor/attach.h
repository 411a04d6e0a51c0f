#ifndef EXECUTOR_ATTACH_H
#define EXECUTOR_ATTACH_H

#include <sys/types.h>
#include <stdint.h>

/* First failing step, for the operator: "mount /tmp: tmpfs: ENOSPC text". */
struct step_error {
	char text[512];
};

/* Records the step and strerror(errno); returns -1. */
int step_failed(struct step_error *, const char *, ...)
    __attribute__((__format__(__printf__, 2, 3)));

/*
 * Mounts while a sandbox is built (mount_namespaces(7), move_mount(2)). Each
 * returns 0, or -1 with the failed step.
 */

/* A new detached tmpfs without set-id programs and devices; -1 with errno. */
int tmpfs_new(uint64_t bytes, const char *mode, uint64_t attr);

/* Attaches a detached mount, closing its descriptor in any case. */
int attach(int mnt, const char *path, const char *what, struct step_error *);
int attach_tmpfs(
    const char *path, uint64_t bytes, const char *mode, struct step_error *);

/* Creates the missing directories of an absolute path. */
int make_directories(const char *path, mode_t, struct step_error *);

/* 1 if path is a directory, not a link to one. */
int is_directory(const char *path);

/* 1 if path is dir or below it, by components. */
int path_below(const char *path, const char *dir);

#endif
