#ifndef MONITOR_STORAGE_H
#define MONITOR_STORAGE_H

#include <sys/types.h>
#include <stddef.h>

/*
 * Trusted storage (cli-and-storage chapter 6): files are reached by a walk
 * from "/" that holds a descriptor of every directory on the way, and are
 * used only by name below the last descriptor. A component must belong to
 * this process's effective user or to root, and no directory may be writable
 * by others unless it is sticky.
 */
enum storage_result {
	STORAGE_ERROR = -1, /* *error is set */
	STORAGE_OK = 0,
	STORAGE_MISSING = 1 /* something on the way does not exist */
};

/* Where a walk ended. */
struct walk {
	int fd; /* last directory; O_PATH where that exists */
	char *dir; /* its name without links, "." and ".." */
	char *leaf; /* name in it of what is no directory, or NULL */
	char *missing; /* what is left of a path that is missing, or NULL */
};

/*
 * The ancestor check (6.2) of the whole path, leaf included. With missing_ok
 * a missing component ends the walk with STORAGE_OK and w->missing set.
 * Relative paths start at the working directory.
 */
enum storage_result storage_walk(
    const char *path, int missing_ok, struct walk *w, char **error);
void walk_free(struct walk *);

/* A directory held open, and the name of an entry in it. */
struct place {
	int fd; /* readable, so that it can be synced */
	char *dir; /* as in struct walk */
	char *leaf; /* last component as given; not resolved */
	char *path; /* as given, for messages */
	dev_t dev;
	ino_t ino;
};

#define PLACE_CREATE  1 /* make missing directories, mode 0700 (6.6) */
#define PLACE_DURABLE 2 /* and sync the parent of each new one (7.4) */

/*
 * Checks and opens the directory that holds path. The result is
 * STORAGE_MISSING only without PLACE_CREATE.
 */
enum storage_result place_open(
    const char *path, int flags, struct place *, char **error);
void place_close(struct place *);

/* The ancestor check again, and that it still leads to this directory. */
int place_recheck(const struct place *, char **error);

/* fsync(2) of the directory: 0 or -1 with *error. */
int place_sync(const struct place *, char **error);

/*
 * Makes an entry exclusively with mode 0600, removes its ACL and verifies
 * that it is owner-only, all before a byte is written. name is NULL for the
 * leaf of the place. Returns a write-only descriptor, or -1 with errno
 * (EEXIST: there is one) and *error set; a file that does not pass is
 * removed again.
 */
int place_create(const struct place *, const char *name, char **error);

/*
 * Opens the leaf for reading without following it: a regular file that is
 * owner-only and has no second name. what is the noun of the message about its
 * mode, advice its last sentence. Returns a descriptor, or -1 with *error set
 * and errno (ENOENT: there is none).
 */
int place_read(
    const struct place *, const char *what, const char *advice, char **error);

/* place_read of a whole path, resolved by the walk (4.9). */
enum storage_result storage_open(const char *path, const char *what,
    const char *advice, int *fd, char **error);

/* Owner-only file test on a descriptor (6.3); path is for the message. */
int storage_owner_only(int fd, const char *path, char **error);

/* Writes everything: 0 or -1 with errno. */
int storage_write(int fd, const void *, size_t);

/* Bytes in guarded memory (sodium_malloc(3)), with a NUL behind them. */
struct secret {
	char *data;
	size_t len;
};
void secret_set(struct secret *, const void *, size_t);
void secret_free(struct secret *);

/* Reads at most max bytes: 0, or -1 with errno (EFBIG if it is longer). */
int storage_read(int fd, size_t max, struct secret *);

/* NAME.<16 hex digits>SUFFIX, allocated. */
char *storage_sibling(const char *name, const char *suffix);

/*
 * Makes (on every start) the last directory of path owner-only; for the
 * default workspace (8.2). 0 or -1 with *error.
 */
int storage_private_dir(const char *path, char **error);

#endif
