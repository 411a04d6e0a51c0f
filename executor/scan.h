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
 * are read changes no result.
 */
enum scan_outcome {
	SCAN_MISS, /* no match, or a file that is skipped */
	SCAN_LARGE, /* above FILE_MAX: no candidate at all (6.3) */
	SCAN_HIT /* has to be decoded and matched */
};

struct scan_item {
	char *name; /* relative to the root */
	enum scan_outcome outcome;
};

struct scan;
struct scan *scan_new(int root, const struct text *query);
void scan_free(struct scan *);

/*
 * Fills the outcomes. The calling thread asks stop(arg) before and after each
 * file that it reads; if that is not 0 the outcomes are worthless and it is
 * returned.
 */
int scan_items(struct scan *, struct scan_item *, size_t n, int (*stop)(void *),
    void *arg);

/*
 * Reads a candidate whole, as long as it was when it was opened, through the
 * cached directory. SCAN_MISS if it is no readable regular file with content.
 */
enum scan_outcome scan_read(struct parent *, const char *name, struct buf *);

#endif
