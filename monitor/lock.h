#ifndef MONITOR_LOCK_H
#define MONITOR_LOCK_H

enum lock_result {
	LOCK_ERROR = -1, /* *error is set */
	LOCK_TAKEN = 0,
	LOCK_BUSY = 1 /* another process holds it; *error says so */
};

/*
 * Takes the lock of a worker: flock(2) on the file "lock" in its state
 * directory (names.h), held as long as *fd is open. It contains
 * the number of the process that took it last, for people. The file is never
 * removed; the kernel frees the lock when the process dies.
 */
enum lock_result lock_worker(const char *state_dir, int *fd, char **error);

#endif
