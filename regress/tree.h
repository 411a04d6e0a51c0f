#ifndef REGRESS_TREE_H
#define REGRESS_TREE_H

#include <sys/types.h>

#include "harness.h"

/*
 * What tests of search_text and list_files put into a root: names are
 * relative to it, missing directories are made, all belongs to the account.
 */
void tree_file(struct harness *, size_t root, const char *name,
    const void *data, size_t len);
void tree_text(
    struct harness *, size_t root, const char *name, const char *text);
void tree_dir(struct harness *, size_t root, const char *name);
void tree_link(
    struct harness *, size_t root, const char *target, const char *name);
void tree_fifo(struct harness *, size_t root, const char *name);
char *tree_path(struct harness *, size_t root, const char *name);

/* One empty or small file each: prefix, number with width digits. */
void tree_many(struct harness *, size_t root, const char *prefix, int width,
    int from, int to);

/*
 * A fresh directory on the host's file system outside everything that a
 * sandbox replaces, owned by the account; NULL if there is no such place.
 */
char *tree_outside(struct harness *);

/* The file processes of the harness's executor; returns their number. */
size_t tree_file_processes(struct harness *, pid_t *, size_t max);

/*
 * Hides every rg from the calling process and its children by mounts of its
 * own; 1, or 0 if that cannot be arranged here. For a child process.
 */
int tree_hide_rg(void);

#endif
