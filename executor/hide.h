#ifndef EXECUTOR_HIDE_H
#define EXECUTOR_HIDE_H

#include "attach.h"
#include "mount.h"

/*
 * Hiding directories of the host under each of their names: as they are
 * called, through links, through bind mounts and second mounts of their file
 * system, in whole or in part (native-sandbox 8.4).
 *
 * What is found out beforehand is held as paths with the device and inode of
 * what must not be seen there.
 */
struct hidden_name;
struct hide {
	struct hidden_name *list;
	size_t n;
};

/* Looks at the host's tree, before it is left. 0, or -1 with the step. */
int hide_find(struct hide *, const struct mount_plan *, struct step_error *);

/*
 * Covers what is outside the root with directories that are empty and can be
 * written by us only until hide_seal, so that the root and the home get their
 * mount points. What an outer one covers already needs nothing.
 */
int hide_outside(struct hide *, struct step_error *);
/* After the root is there: what is mounted in it. */
int hide_inside(struct hide *, struct step_error *);
int hide_seal(struct hide *, struct step_error *);
void hide_free(struct hide *);

#endif
