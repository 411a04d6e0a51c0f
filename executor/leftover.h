#ifndef EXECUTOR_LEFTOVER_H
#define EXECUTOR_LEFTOVER_H

#include <stddef.h>

/*
 * Staging files that a crash left behind (field report FT-6). One is removed
 * when all of this holds: its name is exactly that of a staging file; it is a
 * regular file of this account; it was last changed before this process
 * started (times of files are coarse, so the next point has the last word); and
 * nobody holds the lock that a writer keeps on it until it is consumed. No link
 * is followed and no other file system is entered.
 *
 * After the start the whole root is walked once, breadth first, in small
 * steps while no request waits, within limits of time and entries. A
 * directory that a write touches is looked at before that, once.
 */

/* The root directory, opened with O_PATH. Call once, before anything else. */
void leftover_init(int root);

/* A small step of the walk; 0 when there is nothing more to do. */
int leftover_step(void);

/* Before a write in this directory; dir is open for reading. */
void leftover_directory(int dir);

/* A fresh name of size STAGE_SIZE; -1 with errno. */
#define STAGE_PREFIX ".librechat-code-"
#define STAGE_SUFFIX ".tmp"
#define STAGE_DIGITS 36
#define STAGE_SIZE   (sizeof(STAGE_PREFIX) + STAGE_DIGITS + sizeof(STAGE_SUFFIX))
int stage_name(char *, size_t);

/*
 * Marks a staging file that was just made as being in use, as long as fd is
 * open. -1: another process was faster and removes it.
 */
int stage_hold(int fd);

#endif
