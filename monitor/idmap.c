#include "config.h"

#include "error.h"
#include "idmap.h"

#ifdef __linux__

#include <sys/syscall.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"

/* Spelt out: the build may have older headers than the running kernel. */
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#define TREE_CLONE   1U
#define TREE_CLOEXEC ((unsigned int)O_CLOEXEC)
#define AT_ALL       0x8000U /* AT_RECURSIVE */
#define ATTR_IDMAP   0x00100000U

struct mount_attributes {
	uint64_t set;
	uint64_t clear;
	uint64_t propagation;
	uint64_t userns_fd;
};

static int
write_map(pid_t pid, const char *name, const char *text)
{
	char path[64];
	size_t n = strlen(text);
	ssize_t w;
	int fd;

	xsnprintf(path, sizeof(path), "/proc/%ld/%s", (long)pid, name);
	if ((fd = open(path, O_WRONLY | O_CLOEXEC)) == -1)
		return -1;
	w = write(fd, text, n);
	close(fd);
	return w == (ssize_t)n ? 0 : -1;
}

/*
 * "inside outside count": inside is the id on disk, outside the one that the
 * mount shows. 0 becomes the account, the account's own id on disk stays
 * unmapped, all others keep theirs.
 */
static char *
map_text(unsigned long id)
{
	struct buf b;

	buf_init(&b);
	buf_addf(&b, "0 %lu 1\n", id);
	if (id > 1)
		buf_addf(&b, "1 1 %lu\n", id - 1);
	buf_addf(&b, "%lu %lu %lu\n", id + 1, id + 1, 0xfffffffeUL - id);
	return buf_steal(&b);
}

/* A child that stays in a new user namespace until it is killed. */
static pid_t
namespace_child(int *ready)
{
	pid_t pid;
	int p[2];
	char c = 0;

	if (pipe2(p, O_CLOEXEC) == -1)
		return -1;
	if ((pid = fork()) == 0) {
		if (unshare(CLONE_NEWUSER) == -1)
			c = (char)errno;
		if (write(p[1], &c, 1) == 1 && c == 0)
			for (;;)
				pause();
		_exit(1);
	}
	close(p[1]);
	if (pid != -1 && (read(p[0], &c, 1) != 1 || c != 0)) {
		errno = c != 0 ? c : EIO;
		*ready = 0;
	} else
		*ready = pid != -1;
	close(p[0]);
	return pid;
}

static int
make_namespace(const struct account *as, char **error)
{
	char path[64], *uids, *gids;
	pid_t pid;
	int fd = -1, ready = 0;

	pid = namespace_child(&ready);
	if (!ready) {
		error_errno(error, "user namespace for the id-mapped mount");
		if (pid > 0)
			(void)waitpid(pid, NULL, 0);
		return -1;
	}
	uids = map_text(as->uid);
	gids = map_text(as->gid);
	xsnprintf(path, sizeof(path), "/proc/%ld/ns/user", (long)pid);
	if (write_map(pid, "uid_map", uids) == -1 ||
	    write_map(pid, "gid_map", gids) == -1 ||
	    (fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		error_errno(error, "id map for the account %s", as->name);
	free(uids);
	free(gids);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return fd;
}

int
idmap_clone(int dir, const char *path, const struct account *as, char **error)
{
	struct mount_attributes attr;
	int tree, ns;
	long r;

	tree = (int)syscall(SYS_open_tree, dir, "",
	    TREE_CLONE | TREE_CLOEXEC | AT_EMPTY_PATH | AT_ALL);
	if (tree == -1)
		return error_errno(
		    error, "workspace %s: detached mount (open_tree)", path);
	if (as == NULL)
		return tree;
	if ((ns = make_namespace(as, error)) == -1) {
		close(tree);
		return -1;
	}
	memset(&attr, 0, sizeof(attr));
	attr.set = ATTR_IDMAP;
	attr.userns_fd = (uint64_t)ns;
	r = syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_ALL, &attr,
	    sizeof(attr));
	if (r == -1)
		error_errno(error,
		    "workspace %s belongs to root and its file system cannot "
		    "be id-mapped for %s: give the directory to an account, or "
		    "choose one with --user",
		    path, as->name);
	close(ns);
	if (r == -1) {
		close(tree);
		return -1;
	}
	return tree;
}

#else

int
idmap_clone(int dir, const char *path, const struct account *as, char **error)
{
	(void)dir;
	(void)as;
	return errorf(error,
	    "workspace %s: a start as root is not supported on this system: "
	    "start the worker as the account that owns the workspace",
	    path);
}

#endif
