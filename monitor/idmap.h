#ifndef MONITOR_IDMAP_H
#define MONITOR_IDMAP_H

#include "proc.h"

/*
 * A detached recursive clone of the mount below a directory (open_tree(2));
 * with as, id-mapped so that what belongs to uid and gid 0 on disk belongs to
 * that account in it, and what the account makes belongs to 0 on disk
 * (mount_setattr(2)). Needs root. Returns a descriptor, or -1 with *error.
 */
int idmap_clone(
    int dir, const char *path, const struct account *as, char **error);

#endif
