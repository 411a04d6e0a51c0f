#ifndef MONITOR_MARKER_H
#define MONITOR_MARKER_H

#include <sys/types.h>

#include "storage.h"

/*
 * Quarantine markers (cli-and-storage chapter 7): a file that exists while
 * the outcome of a mutation of one root is not confirmed. The directory is
 * made once, durably, and held open, so that arming costs one exclusive
 * create, one write and two fsync(2).
 */
struct marker {
	struct place place;
	char *owner; /* while armed by us */
	dev_t dev;
	ino_t ino;
};

struct marker_info {
	char *workspace;
	char *owner; /* or NULL: made by an older version */
	char *since; /* quarantinedAt */
	char *reason;
};

/* Opens the directory; with create also makes it. */
enum storage_result marker_open(
    struct marker *, const char *path, int create, char **error);
void marker_close(struct marker *);

/*
 * Looks for the marker: STORAGE_MISSING if there is none, STORAGE_OK and
 * *info, or STORAGE_ERROR (unreadable, malformed, foreign: it blocks like one
 * that is there).
 */
enum storage_result marker_load(
    const struct marker *, struct marker_info *, char **error);
void marker_info_free(struct marker_info *);

/*
 * Arms it durably before a mutation: 0, or -1 with *error and nothing to be
 * mutated. reason must not quote the request.
 */
int marker_arm(struct marker *, const char *worker, const char *workspace,
    const char *owner, const char *reason, char **error);

/* Removes the marker that we armed, after the settlement was accepted. */
int marker_clear(struct marker *, char **error);

/*
 * Operator command: removes the marker whatever its content. 1 if there was
 * one, 0 if not, -1 with *error.
 */
int marker_remove(struct marker *, char **error);

#endif
