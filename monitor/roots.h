#ifndef MONITOR_ROOTS_H
#define MONITOR_ROOTS_H

#include <sys/types.h>
#include <stddef.h>
#include <stdint.h>

#include "marker.h"
#include "options.h"
#include "proc.h"
#include "settings.h"

/* A registered workspace directory; index = root number everywhere. */
struct root {
	char *id;
	char *name; /* or NULL */
	char *path; /* canonical */
	char *location; /* within its file system (mountinfo.h), or NULL */
	int fd; /* the directory, or a detached mount of it */
	enum root_mount mount; /* what fd is (msg.h) */
	dev_t dev;
	ino_t ino;
	uid_t uid; /* owner */
	uint32_t operations; /* mask of OP_BIT */
	char *marker_path;
	struct marker marker;
	int quarantined; /* a marker is there; with lease slots only */
};

struct roots {
	struct root *list;
	size_t n;
};

/*
 * Resolves and checks the roots of the command line and the environment
 * (cli-and-storage chapters 8, 9; native-sandbox chapter 4 rows 2 to 5, 9).
 * Makes the default workspace. 0 or -1 with *error.
 */
int roots_make(struct roots *, const struct settings *, const struct options *,
    char **error);
void roots_free(struct roots *);

/* The canonical primary directory alone, for clear-workspace-quarantine;
 * allocated, or NULL with *error. */
char *roots_primary(const struct settings *, int create, char **error);

/* 1 if path is dir or lies below it; both canonical, compared by component. */
int path_contains(const char *dir, const char *path);

/*
 * The account that runs commands, and with it the descriptors that the
 * executor gets: as root, detached mounts of the roots, id-mapped where the
 * root belongs to uid 0. 0 or -1 with *error.
 */
int roots_account(
    struct roots *, const struct settings *, struct account *, char **error);

/* The account of the bridge when started as root: 0 or -1 with *error. */
int account_privsep(struct account *, char **error);

/*
 * The directories that the sandbox hides (absolute paths); refuses a place
 * for the identity or the markers that cannot be hidden. The list and its
 * strings are allocated.
 */
int roots_hidden(const struct roots *, const struct settings *,
    const struct account *, char ***list, size_t *n, char **error);

#endif
