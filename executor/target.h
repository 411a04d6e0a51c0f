#ifndef EXECUTOR_TARGET_H
#define EXECUTOR_TARGET_H

#include <sys/types.h>
#include <sys/stat.h>
#include <stddef.h>

#include "files.h"

/*
 * Where search_text and list_files look (workspace-tools 6.2). Names that rg
 * finds are canonical; what is reported lies below the requested path, which
 * may lead there through links.
 */
struct target {
	char *canonical; /* relative to the root; NULL: the root itself */
	char *requested; /* normal form; NULL: absent or "." */
	struct stat st;
};

/* Resolves the path; -1 unless it exists inside the root. */
int target_locate(struct target *, const struct tool *, const struct text *);
void target_free(struct target *);

/* 1 if the directory cannot be read at all. */
int target_unreadable(const struct target *, const struct tool *);

/*
 * The name to report for an enumerated one: 1 and *b filled, or 0 if it does
 * not lie in the target or cannot be named on the wire (1.5: not UTF-8, with
 * a backslash, too long); such names are left out.
 */
int target_name(const struct target *, const char *, size_t, struct buf *b);

/*
 * The directory of the last name, kept open because names come sorted.
 */
struct parent {
	int root;
	int fd; /* -1: there was none yet, or it cannot be opened */
	char *name; /* without the last component; NULL: nothing yet */
};
void parent_init(struct parent *, int root);
void parent_free(struct parent *);

/*
 * Opens the directory of a name, O_PATH and inside the root, and points at
 * the name's last component. The descriptor stays the cache's. -1 with errno.
 */
int parent_open(struct parent *, const char *name, const char **leaf);

#endif
