#include "config.h"

#include <sys/types.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "buf.h"
#include "error.h"
#include "lock.h"
#include "storage.h"

enum lock_result
lock_worker(const char *state_dir, int *fd, char **error)
{
	struct place p;
	struct stat st;
	enum lock_result r = LOCK_ERROR;
	char *path;

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
	else if (flock(*fd, LOCK_EX | LOCK_NB) == 0)
		r = LOCK_TAKEN;
	else if (errno == EWOULDBLOCK) {
		errorf(error,
		    "another process of this worker is running: it holds %s",
		    path);
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
