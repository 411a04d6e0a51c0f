#include "config.h"

#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "keeper.h"
#include "sys.h"

#define LEVELS_MAX 4096

static int
same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/*
 * Walks up from a directory until the root is met. The walk starts at the
 * opened object, so what is decided is about that object and not about a
 * name; "/" ends it.
 */
static int
inside(int root, int dir)
{
	struct stat want, here, up;
	int fd, next, level, r = -1;

	if (fstat(root, &want) == -1 || fstat(dir, &here) == -1)
		return -1;
	if ((fd = fcntl(dir, F_DUPFD_CLOEXEC, 3)) == -1)
		return -1;
	for (level = 0; level < LEVELS_MAX; level++) {
		if (same(&here, &want)) {
			r = 0;
			break;
		}
		next = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (next == -1 || fstat(next, &up) == -1) {
			if (next != -1)
				close(next);
			break;
		}
		close(fd);
		fd = next;
		if (same(&here, &up)) {
			errno = EXDEV;
			break;
		}
		here = up;
	}
	if (level == LEVELS_MAX)
		errno = EXDEV;
	{
		int save = errno;

		close(fd);
		errno = save;
	}
	return r;
}

/*
 * RESOLVE_BENEATH refuses a link with an absolute target even if it points
 * back into the root. Such a path is resolved freely, in the sandbox's own
 * mount tree, and then proved to lie inside.
 */
int
beneath_open(int root, const char *path, int how)
{
	int fd, save;

	fd = sys_openat2(root, path, how, 0,
	    SYS_RESOLVE_BENEATH | SYS_RESOLVE_NO_MAGICLINKS);
	if (fd != -1 || errno != EXDEV)
		return fd;
	if ((how & O_DIRECTORY) == 0) {
		errno = EXDEV;
		return -1;
	}
	fd = sys_openat2(root, path, how, 0, SYS_RESOLVE_NO_MAGICLINKS);
	if (fd == -1)
		return -1;
	if (inside(root, fd) == -1) {
		save = errno;
		close(fd);
		errno = save;
		return -1;
	}
	return fd;
}
