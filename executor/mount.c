#include "config.h"

#include <sys/types.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accounts.h"
#include "attach.h"
#include "buf.h"
#include "dead.h"
#include "devices.h"
#include "hide.h"
#include "kernel.h"
#include "mount.h"
#include "protect.h"
#include "sys.h"

/* Detached mounts that must be taken before the host's tree is left. */
struct pieces {
	int tree; /* the host, recursively */
	int root; /* the registered root */
	int proc;
	int sys; /* or -1: the host's stays, read-only */
	int device[NDEVICES];
};

static int
take_root(const struct mount_plan *mp, struct step_error *se)
{
	struct stat want, got;
	int fd;

	/*
	 * The descriptor names a mount of the namespace that was left behind
	 * and cannot be cloned, but the current directory, set before the
	 * clone, was carried over.
	 */
	if (fstat(mp->root_fd, &want) == -1 || stat(".", &got) == -1 ||
	    want.st_dev != got.st_dev || want.st_ino != got.st_ino) {
		errno = ESTALE;
		return step_failed(se, "root %s", mp->root_path);
	}
	if ((fd = sys_open_tree_clone(AT_FDCWD, ".", 1)) == -1)
		return step_failed(se, "root %s: open_tree", mp->root_path);
	return fd;
}

static int
take_pieces(
    const struct mount_plan *mp, struct pieces *pc, struct step_error *se)
{
	static const char *const no_options[] = { NULL };

	if ((pc->root = take_root(mp, se)) == -1)
		return -1;
	if (sys_mount_setattr(
		pc->root, 1, SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV, 0) == -1)
		return step_failed(se, "root %s: mount_setattr", mp->root_path);
	if (devices_take(pc->device, se) == -1)
		return -1;
	pc->proc = sys_mount_new("proc", no_options,
	    SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV | SYS_MOUNT_NOEXEC);
	if (pc->proc == -1)
		return step_failed(se,
		    "mount /proc (in a container it must "
		    "not be masked)");
	/* A sysfs of the own network namespace, if the host's is complete. */
	pc->sys = sys_mount_new("sysfs", no_options,
	    SYS_MOUNT_RDONLY | SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV |
		SYS_MOUNT_NOEXEC);
	if ((pc->tree = sys_open_tree_clone(AT_FDCWD, "/", 1)) == -1)
		return step_failed(se, "mount /: open_tree");
	if (sys_mount_setattr(pc->tree, 1,
		SYS_MOUNT_RDONLY | SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV, 0) == -1)
		return step_failed(se,
		    "mount /: mount_setattr read-only (Linux "
		    "5.12 or newer is needed)");
	return 0;
}

/* Leaves the host's tree; the detached one becomes "/". */
static int
enter_tree(int tree, struct step_error *se)
{
	int old;

	/* Any directory will do as the place where it is attached. */
	if (attach(tree, "/proc", "tree", se) == -1)
		return -1;
	if ((old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)) == -1)
		return step_failed(se, "open old /");
	if (chdir("/proc") == -1)
		return step_failed(se, "chdir to the new /");
	if (sys_pivot_root(".", ".") == -1)
		return step_failed(se, "pivot_root");
	if (fchdir(old) == -1)
		return step_failed(se, "chdir to the old /");
	close(old);
	if (umount2(".", MNT_DETACH) == -1)
		return step_failed(se, "unmount the old /");
	if (chdir("/") == -1)
		return step_failed(se, "chdir /");
	return 0;
}

/* /tmp and /var/tmp; /tmp/claude stays closed (native-sandbox 5.2). */
static int
build_tmp(const struct mount_plan *mp, struct step_error *se)
{
	if (attach_tmpfs("/tmp", mp->tmp_bytes, "1777", se) == -1)
		return -1;
	if (is_directory("/var/tmp") &&
	    attach_tmpfs("/var/tmp", mp->tmp_bytes, "1777", se) == -1)
		return -1;
	if (mkdir(EMPTY_DIRECTORY, 0555) == -1)
		return step_failed(se, "mkdir %s", EMPTY_DIRECTORY);
	return attach(tmpfs_new(4096, "0000", SYS_MOUNT_RDONLY),
	    EMPTY_DIRECTORY, "empty tmpfs", se);
}

/* What every sandbox has, whatever the host has there. */
static int
build_common(
    const struct mount_plan *mp, const struct pieces *pc, struct step_error *se)
{
	if (attach(pc->proc, "/proc", "proc", se) == -1)
		return -1;
	if (pc->sys != -1 && attach(pc->sys, "/sys", "sysfs", se) == -1)
		return -1;
	if (devices_build(pc->device, mp->tmp_bytes, se) == -1 ||
	    accounts_build(mp, se) == -1 || devices_seal(se) == -1 ||
	    build_tmp(mp, se) == -1)
		return -1;
	return kernel_sys(se);
}

static int
build_root_and_home(
    const struct mount_plan *mp, const struct pieces *pc, struct step_error *se)
{
	size_t i;

	if (make_directories(mp->home, 0755, se) == -1)
		return -1;
	if (attach_tmpfs(mp->home, mp->home_bytes, "0700", se) == -1)
		return -1;
	if (make_directories(mp->root_path, 0755, se) == -1)
		return -1;
	if (attach(pc->root, mp->root_path, "root", se) == -1)
		return -1;
	/* If it lay elsewhere, the dead ones in it are not covered yet. */
	for (i = 0; i < mp->ndead; i++)
		if (path_below(mp->dead[i], mp->root_path))
			dead_cover(&mp->dead[i], 1);
	return 0;
}

static int
build(const struct mount_plan *mp, struct hide *h, struct step_error *se)
{
	struct pieces pc;

	memset(&pc, 0xff, sizeof(pc)); /* every descriptor is -1 */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == -1)
		return step_failed(se, "mount /: make private");
	dead_cover(mp->dead, mp->ndead);
	if (hide_find(h, mp, se) == -1 || take_pieces(mp, &pc, se) == -1 ||
	    enter_tree(pc.tree, se) == -1 || build_common(mp, &pc, se) == -1 ||
	    hide_outside(h, se) == -1 ||
	    build_root_and_home(mp, &pc, se) == -1 || hide_inside(h, se) == -1)
		return -1;
	return hide_seal(h, se);
}

int
mount_build(const struct mount_plan *mp, struct step_error *se)
{
	struct hide h;
	int fd, r;

	memset(&h, 0, sizeof(h));
	r = build(mp, &h, se);
	hide_free(&h);
	if (r == -1)
		return -1;
	fd = open(mp->root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		return step_failed(se, "root %s: open", mp->root_path);
	if (protect(&fd, mp->root_path, mp->protection) == -1) {
		(void)step_failed(
		    se, "root %s: protected paths", mp->root_path);
		close(fd);
		return -1;
	}
	return fd;
}
