#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "acl.h"
#include "buf.h"
#include "error.h"
#include "storage.h"

static char *
join(const char *dir, const char *name)
{
	return xasprintf("%s/%s", strcmp(dir, "/") == 0 ? "" : dir, name);
}

/* Splits at the last component, ignoring slashes at the end. */
static int
split(const char *path, char **dir, char **leaf, char **error)
{
	size_t end = strlen(path), start;

	while (end > 0 && path[end - 1] == '/')
		end--;
	for (start = end; start > 0 && path[start - 1] != '/'; start--)
		;
	*leaf = xstrndup(path + start, end - start);
	if (end == start || strcmp(*leaf, ".") == 0 ||
	    strcmp(*leaf, "..") == 0) {
		free(*leaf);
		return errorf(error, "\"%s\" does not name a file", path);
	}
	*dir = start == 0 ? xstrdup(".") : xstrndup(path, start);
	return 0;
}

/* Makes the first missing level; the walk is then done again. */
static int
make_level(const struct walk *w, int durable, char **error)
{
	char *name, *path;
	int fd, r;

	name = xstrndup(w->missing, strcspn(w->missing, "/"));
	path = join(w->dir, name);
	r = mkdirat(w->fd, name, 0700);
	if (r == -1 && errno == EEXIST)
		r = 0;
	if (r == -1)
		error_errno(error, "make directory %s", path);
	else if (durable) {
		fd = openat(w->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd == -1 || (r = fsync(fd)) == -1)
			r = error_errno(error, "sync directory %s", w->dir);
		if (fd != -1)
			close(fd);
	}
	free(name);
	free(path);
	return r;
}

/* Walks to a directory, making it if it is missing and create is set. */
static enum storage_result
walk_dir(const char *dir, int flags, struct walk *w, char **error)
{
	enum storage_result r;
	int levels;

	for (levels = 0; levels < 256; levels++) {
		r = storage_walk(dir, (flags & PLACE_CREATE) != 0, w, error);
		if (r != STORAGE_OK)
			return r;
		if (w->leaf != NULL) {
			errorf(error,
			    "Storage ancestor must be a directory: %s/%s",
			    w->dir, w->leaf);
			break;
		}
		if (w->missing == NULL)
			return STORAGE_OK;
		if (strstr(w->missing, "..") != NULL) {
			errorf(error,
			    "%s: .. below a directory that does not exist",
			    dir);
			break;
		}
		if (make_level(w, flags & PLACE_DURABLE, error) == -1)
			break;
		walk_free(w);
	}
	errorf(error, "%s: too many levels are missing", dir);
	walk_free(w);
	return STORAGE_ERROR;
}

enum storage_result
place_open(const char *path, int flags, struct place *p, char **error)
{
	struct walk w;
	struct stat st;
	enum storage_result r;
	char *dir = NULL, *leaf = NULL;

	memset(p, 0, sizeof(*p));
	p->fd = -1;
	if (split(path, &dir, &leaf, error) == -1)
		return STORAGE_ERROR;
	r = walk_dir(dir, flags, &w, error);
	free(dir);
	if (r != STORAGE_OK) {
		free(leaf);
		return r;
	}
	p->fd = openat(w.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->fd == -1 || fstat(p->fd, &st) == -1) {
		error_errno(error, "directory %s", w.dir);
		if (p->fd != -1)
			close(p->fd);
		p->fd = -1;
		free(leaf);
		walk_free(&w);
		return STORAGE_ERROR;
	}
	p->dev = st.st_dev;
	p->ino = st.st_ino;
	p->dir = w.dir;
	w.dir = NULL;
	walk_free(&w);
	p->leaf = leaf;
	p->path = xstrdup(path);
	return STORAGE_OK;
}

void
place_close(struct place *p)
{
	if (p->fd != -1)
		close(p->fd);
	p->fd = -1;
	free(p->dir);
	free(p->leaf);
	free(p->path);
	p->dir = p->leaf = p->path = NULL;
}

int
place_recheck(const struct place *p, char **error)
{
	struct walk w;
	struct stat st;
	int r = 0;

	if (storage_walk(p->dir, 0, &w, error) != STORAGE_OK)
		return -1;
	if (w.leaf != NULL || fstat(w.fd, &st) == -1 || st.st_dev != p->dev ||
	    st.st_ino != p->ino)
		r = errorf(error,
		    "Storage directory %s was replaced; restart the worker",
		    p->dir);
	walk_free(&w);
	return r;
}

int
place_sync(const struct place *p, char **error)
{
	if (fsync(p->fd) == -1)
		return error_errno(error, "sync directory %s", p->dir);
	return 0;
}

int
storage_owner_only(int fd, const char *path, char **error)
{
	struct stat st;

	if (fstat(fd, &st) == -1)
		return error_errno(error, "%s", path);
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return errorf(error,
		    "%s is owned by another account (uid %lu), which can "
		    "rewrite it. Remove it, or use another path.",
		    path, (unsigned long)st.st_uid);
	if ((st.st_mode & 077) != 0)
		return errorf(error,
		    "Cannot restrict %s to owner-only access (mode %o). The "
		    "filesystem ignores permissions, as a Windows drive does: "
		    "use a native Linux or macOS filesystem.",
		    path, (unsigned int)(st.st_mode & 0777));
	return acl_owner_only(fd, path, error);
}

int
place_create(const struct place *p, const char *name, char **error)
{
	const char *n = name == NULL ? p->leaf : name;
	int fd, save;

	fd = openat(p->fd, n,
	    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd == -1)
		return error_errno(error, "create %s/%s", p->dir, n);
	if (acl_remove(fd, p->path, error) == 0) {
		if (fchmod(fd, 0600) == -1)
			error_errno(error, "mode of %s", p->path);
		else if (storage_owner_only(fd, p->path, error) == 0)
			return fd;
	}
	save = errno == EEXIST ? EIO : errno;
	(void)unlinkat(p->fd, n, 0);
	close(fd);
	errno = save;
	return -1;
}

static int
check_readable(int fd, const char *path, const char *what, const char *advice,
    char **error)
{
	struct stat st;

	if (fstat(fd, &st) == -1)
		return error_errno(error, "%s", path);
	if (!S_ISREG(st.st_mode))
		return errorf(error, "%s %s is not a regular file", what, path);
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return errorf(error,
		    "%s is owned by another account (uid %lu), which can "
		    "rewrite it. %s",
		    path, (unsigned long)st.st_uid, advice);
	if (st.st_nlink > 1)
		return errorf(error,
		    "%s %s has %lu names (hard links), so it can be reached "
		    "by a path that is not checked. %s",
		    what, path, (unsigned long)st.st_nlink, advice);
	if ((st.st_mode & 077) != 0)
		return errorf(error,
		    "%s %s is accessible beyond its owner (mode %o). %s", what,
		    path, (unsigned int)(st.st_mode & 0777), advice);
	return acl_owner_only(fd, path, error);
}

static int
open_leaf(int dir, const char *leaf, const char *path, const char *what,
    const char *advice, char **error)
{
	int fd;

	fd = openat(dir, leaf,
	    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd == -1)
		return error_errno(error, "%s", path);
	if (check_readable(fd, path, what, advice, error) == -1) {
		close(fd);
		errno = EPERM;
		return -1;
	}
	return fd;
}

int
place_read(
    const struct place *p, const char *what, const char *advice, char **error)
{
	return open_leaf(p->fd, p->leaf, p->path, what, advice, error);
}

enum storage_result
storage_open(const char *path, const char *what, const char *advice, int *fd,
    char **error)
{
	enum storage_result r;
	struct walk w;

	if ((r = storage_walk(path, 0, &w, error)) != STORAGE_OK)
		return r;
	if (w.leaf == NULL) {
		errorf(error, "%s %s is a directory", what, path);
		walk_free(&w);
		return STORAGE_ERROR;
	}
	*fd = open_leaf(w.fd, w.leaf, path, what, advice, error);
	r = *fd != -1         ? STORAGE_OK
	    : errno == ENOENT ? STORAGE_MISSING
			      : STORAGE_ERROR;
	walk_free(&w);
	return r;
}

int
storage_write(int fd, const void *data, size_t len)
{
	const char *p = data;
	ssize_t n;

	while (len > 0) {
		if ((n = write(fd, p, len)) == -1) {
			if (errno == EINTR)
				continue;
			return -1;
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

void
secret_set(struct secret *s, const void *data, size_t len)
{
	if ((s->data = sodium_malloc(len + 1)) == NULL) {
		/* No guarded page is left; there is no weaker substitute. */
		abort();
	}
	if (len > 0)
		memcpy(s->data, data, len);
	s->data[len] = '\0';
	s->len = len;
}

void
secret_free(struct secret *s)
{
	sodium_free(s->data);
	s->data = NULL;
	s->len = 0;
}

int
storage_read(int fd, size_t max, struct secret *s)
{
	struct stat st;
	size_t want, got = 0;
	ssize_t n;

	if (fstat(fd, &st) == -1)
		return -1;
	if (st.st_size < 0 || (uintmax_t)st.st_size > max) {
		errno = EFBIG;
		return -1;
	}
	/* One byte more, to see whether it grew. */
	want = (size_t)st.st_size + 1;
	if ((s->data = sodium_malloc(want + 1)) == NULL)
		return -1;
	while (got < want) {
		n = read(fd, s->data + got, want - got);
		if (n == -1 && errno == EINTR)
			continue;
		if (n == -1) {
			secret_free(s);
			return -1;
		}
		if (n == 0)
			break;
		got += (size_t)n;
	}
	if (got == want) {
		secret_free(s);
		errno = EFBIG;
		return -1;
	}
	s->len = got;
	s->data[got] = '\0';
	return 0;
}

char *
storage_sibling(const char *name, const char *suffix)
{
	unsigned char r[8];
	char hex[17];

	randombytes_buf(r, sizeof(r));
	sodium_bin2hex(hex, sizeof(hex), r, sizeof(r));
	return xasprintf("%s.%s%s", name, hex, suffix);
}

int
storage_private_dir(const char *path, char **error)
{
	struct place p;
	struct stat st;
	int fd, r = -1;

	if (place_open(path, PLACE_CREATE, &p, error) != STORAGE_OK)
		return -1;
	if (mkdirat(p.fd, p.leaf, 0700) == -1 && errno != EEXIST) {
		error_errno(error, "make directory %s", path);
		place_close(&p);
		return -1;
	}
	fd = openat(
	    p.fd, p.leaf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd == -1) {
		if (errno == ENOTDIR || errno == ELOOP)
			errorf(error,
			    "Default workspace path must be a directory: %s",
			    path);
		else
			error_errno(error, "%s", path);
	} else if (fstat(fd, &st) == -1)
		error_errno(error, "%s", path);
	else if (st.st_uid != 0 && st.st_uid != geteuid())
		errorf(error,
		    "%s is owned by another account (uid %lu), which can "
		    "rewrite it.",
		    path, (unsigned long)st.st_uid);
	else if (acl_remove(fd, path, error) == 0) {
		if (fchmod(fd, 0700) == -1)
			error_errno(error, "mode of %s", path);
		else
			r = storage_owner_only(fd, path, error);
	}
	if (fd != -1)
		close(fd);
	place_close(&p);
	return r;
}
