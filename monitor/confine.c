#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "buf.h"
#include "confine.h"
#include "error.h"
#include "restrict.h"
#include "storage.h"

#define DIRS_MAX 8

static const char *const calls[] = {
	/* trusted storage: walk, read, create, replace, remove, sync */
	"open",
	"openat",
	"stat",
	"stat64",
	"lstat",
	"lstat64",
	"newfstatat",
	"fstatat64",
	"statx",
	"readlinkat",
	"mkdirat",
	"unlinkat",
	"renameat",
	"renameat2",
	"fchmod",
	"fsync",
	"getcwd",
	"flock",
	/* guarded memory */
	"mlock",
	"mlock2",
	"munlock",
	/* watching the helpers */
	"kill",
	"wait4",
	"waitid",
	NULL,
};

/* An attempt that must fail. */
static int
must_fail(int fd, const char *what, char **error)
{
	if (fd == -1)
		return 0;
	close(fd);
	return errorf(error,
	    "the monitor could still %s after restricting itself: refusing to "
	    "run without that protection",
	    what);
}

static int
verify(const char *const *dirs, size_t n, char **error)
{
	struct place p;
	char *path, *name;
	size_t i;
	int fd;

	if (must_fail(open("/etc/passwd", O_RDONLY | O_CLOEXEC),
		"read other files", error) == -1 ||
	    must_fail(open("/dev/null", O_WRONLY | O_CLOEXEC),
		"write other files", error) == -1 ||
	    must_fail(
		socket(AF_INET, SOCK_STREAM, 0), "make a socket", error) == -1)
		return -1;
	for (i = 0; i < n; i++) {
		path = xasprintf("%s/restricted", dirs[i]);
		name = storage_sibling("restricted", ".probe");
		fd = -1;
		if (place_open(path, 0, &p, error) == STORAGE_OK) {
			if ((fd = place_create(&p, name, error)) != -1) {
				close(fd);
				(void)unlinkat(p.fd, name, 0);
			}
			place_close(&p);
		}
		free(path);
		free(name);
		if (fd == -1)
			return -1;
	}
	return 0;
}

int
confine(const char *const *dirs, size_t n, const char *group, char **error)
{
	struct landlock_path paths[DIRS_MAX + 1];
	size_t i;

	if (n > DIRS_MAX)
		return errorf(error, "too many state directories");
	for (i = 0; i < n; i++) {
		paths[i].path = dirs[i];
		paths[i].rights = LL_READ | LL_WRITE;
	}
	if (group != NULL) {
		paths[i].path = group;
		paths[i++].rights = LL_READ | LL_WRITE;
	}
	/*
	 * Not LL_SCOPED: the helpers are outside the domain and the monitor
	 * has to be able to end them.
	 */
	if (restrict_basic(error) == -1 ||
	    restrict_landlock(paths, i, LL_NO_BIND | LL_NO_CONNECT, error) ==
		-1 ||
	    restrict_seccomp_with(calls, error) == -1)
		return -1;
	return verify(dirs, n, error);
}
