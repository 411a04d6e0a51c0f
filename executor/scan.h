#ifndef EXECUTOR_SCAN_H
#define EXECUTOR_SCAN_H

#include <sys/types.h>
#include <stddef.h>

#include "buf.h"
#include "msg.h"
#include "target.h"

/*
 * Looks for files that may contain a query, in several threads: what is
 * decided about one file depends on nothing else, so the order in which they
 * are read changes no result. Names go in while others are being looked at,
 * and come out in the order in which they went in.
 */
enum scan_outcome {
	SCAN_MISS, /* no match, or a file that is skipped */
	SCAN_LARGE, /* above FILE_MAX: no candidate at all (6.3) */
	SCAN_HIT /* has to be decoded and matched */
};

struct scan;
struct scan *scan_new(int root, const struct text *query);

/* Stops the threads in the middle of what they do. */
void scan_free(struct scan *);

/* Starts threads beside the calling one, which does without if it must. */
void scan_start(struct scan *);

/* 1 if a further name may be added. */
int scan_room(const struct scan *);
/* Adds a name, relative to the root; seen from the next call of others on. */
void scan_add(struct scan *, const char *, size_t);

/* The next name that was looked at, valid until the next call, or NULL. */
const char *scan_next(struct scan *, enum scan_outcome *);

/* 1 if names were added that scan_next did not return. */
int scan_pending(const struct scan *);

/*
 * Looks at some that nobody looks at yet, in the calling thread, unless
 * stop(arg) says otherwise before one. 0 if there were none.
 */
int scan_help(struct scan *, int (*stop)(void *), void *arg);

/* Waits until scan_next has one. Only when scan_help has nothing to do. */
void scan_wait(struct scan *);

/*
 * Reads a candidate whole, as long as it was when it was opened, through the
 * cached directory. SCAN_MISS if it is no readable regular file with content.
 */
enum scan_outcome scan_read(struct parent *, const char *name, struct buf *);

#endif
