#include "config.h"

#include <sys/types.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "error.h"
#include "lock.h"
#include "storage.h"

/* For people who find the lock taken; the lock itself is what counts. */
static void
write_holder(int fd)
{
	char text[32];

	(void)xsnprintf(text, sizeof(text), "%ld\n", (long)getpid());
	if (ftruncate(fd, 0) == 0)
		(void)!pwrite(fd, text, strlen(text), 0);
}

/* " (process N)", or nothing; allocated. */
static char *
read_holder(int fd)
{
	char text[32], *end;
	ssize_t n;
	long pid;

	if ((n = pread(fd, text, sizeof(text) - 1, 0)) <= 0)
		return xstrdup("");
	text[n] = '\0';
	pid = strtol(text, &end, 10);
	if (pid <= 0 || *end != '\n')
		return xstrdup("");
	return xasprintf(" (process %ld)", pid);
}

enum lock_result
lock_worker(const char *state_dir, int *fd, char **error)
{
	struct place p;
	struct stat st;
	enum lock_result r = LOCK_ERROR;
	char *path, *holder;

	path = xasprintf("%s/lock", state_dir);
	*fd = -1;
	if (place_open(path, PLACE_CREATE | PLACE_DURABLE, &p, error) !=
	    STORAGE_OK) {
		free(path);
		return r;
	}
	*fd = openat(p.fd, p.leaf,
	    O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (*fd == -1 || fstat(*fd, &st) == -1)
		error_errno(error, "lock file %s", path);
	else if (!S_ISREG(st.st_mode))
		errorf(error, "lock file %s is not a regular file", path);
	else if (storage_owner_only(*fd, path, error) == -1)
		;
	else if (flock(*fd, LOCK_EX | LOCK_NB) == 0) {
		write_holder(*fd);
		r = LOCK_TAKEN;
	} else if (errno == EWOULDBLOCK) {
		holder = read_holder(*fd);
		errorf(error,
		    "another process of this worker is running%s: it holds %s",
		    holder, path);
		free(holder);
		r = LOCK_BUSY;
	} else
		error_errno(error, "lock %s", path);
	if (r != LOCK_TAKEN && *fd != -1) {
		close(*fd);
		*fd = -1;
	}
	free(path);
	place_close(&p);
	return r;
}
