#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acl.h"
#include "buf.h"
#include "error.h"
#include "storage.h"

#define LINKS_MAX   40
#define PENDING_MAX 65536

#ifdef O_PATH
#define O_WALK (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#else
#define O_WALK (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#endif

static int
trusted_owner(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

static int
foreign(const char *at, uid_t uid, const char *path, char **error)
{
	return errorf(error,
	    "%s is owned by another account (uid %lu), which can replace %s. "
	    "Use a path below directories that you or root own.",
	    at, (unsigned long)uid, path);
}

/* Steps 3 and 5 of 6.2 for an open directory. */
static int
check_dir(int fd, const char *at, const char *path, char **error)
{
	struct stat st;

	if (fstat(fd, &st) == -1)
		return error_errno(error, "%s", at);
	if (!trusted_owner(st.st_uid))
		return foreign(at, st.st_uid, path, error);
	if (acl_ancestor(fd, at, error) == -1)
		return -1;
	if ((st.st_mode & 022) != 0 && (st.st_mode & S_ISVTX) == 0)
		return errorf(error,
		    "Directory %s is writable by other accounts (mode %o), so "
		    "%s can be replaced even while owner-only. Run: chmod "
		    "go-w %s",
		    at, (unsigned int)(st.st_mode & 07777), path, at);
	return 0;
}

struct walker {
	int fd;
	struct buf dir; /* canonical name of fd */
	char *pending;
	char *next; /* within pending */
	const char *path;
	int links;
};

/* Next component that is neither empty nor "."; NULL at the end. */
static char *
next_component(struct walker *w)
{
	char *c;

	for (;;) {
		while (*w->next == '/')
			w->next++;
		if (*w->next == '\0')
			return NULL;
		c = w->next;
		w->next += strcspn(w->next, "/");
		if (w->next - c == 1 && *c == '.')
			continue;
		return xstrndup(c, (size_t)(w->next - c));
	}
}

static int
enter(struct walker *w, const char *name, const struct stat *seen, char **error)
{
	struct stat st;
	int fd;

	if ((fd = openat(w->fd, name, O_WALK)) == -1)
		return error_errno(error, "%s/%s",
		    w->dir.len == 1 ? "" : buf_cstr(&w->dir), name);
	if (seen != NULL &&
	    (fstat(fd, &st) == -1 || st.st_dev != seen->st_dev ||
		st.st_ino != seen->st_ino)) {
		close(fd);
		return errorf(error,
		    "Storage directory changed during verification: %s/%s",
		    w->dir.len == 1 ? "" : buf_cstr(&w->dir), name);
	}
	close(w->fd);
	w->fd = fd;
	if (strcmp(name, "..") == 0) {
		while (w->dir.len > 1 && w->dir.data[w->dir.len - 1] != '/')
			w->dir.len--;
		if (w->dir.len > 1)
			w->dir.len--;
	} else {
		if (w->dir.len > 1)
			buf_addc(&w->dir, '/');
		buf_adds(&w->dir, name);
	}
	return check_dir(fd, buf_cstr(&w->dir), w->path, error);
}

static int
restart(struct walker *w, char **error)
{
	int fd;

	if ((fd = open("/", O_WALK)) == -1)
		return error_errno(error, "/");
	if (w->fd != -1)
		close(w->fd);
	w->fd = fd;
	buf_reset(&w->dir);
	buf_addc(&w->dir, '/');
	return check_dir(fd, "/", w->path, error);
}

static int
follow(struct walker *w, const char *name, char **error)
{
	char target[PATH_MAX], *joined;
	ssize_t n;

	if (++w->links > LINKS_MAX)
		return errorf(error, "Too many storage symlinks: %s", w->path);
	n = readlinkat(w->fd, name, target, sizeof(target));
	if (n <= 0 || (size_t)n >= sizeof(target))
		return error_errno(error, "link %s of %s", name, w->path);
	target[n] = '\0';
	if (strlen(w->next) + (size_t)n > PENDING_MAX)
		return errorf(error, "Too long storage path: %s", w->path);
	joined = xasprintf("%s/%s", target, w->next);
	/* A plain link keeps its trailing end: no "/" that was not there. */
	if (*w->next == '\0')
		joined[n] = '\0';
	free(w->pending);
	w->pending = w->next = joined;
	if (target[0] == '/')
		return restart(w, error);
	/* The directory part is examined again, as 6.2 step 4 says. */
	return check_dir(w->fd, buf_cstr(&w->dir), w->path, error);
}

static char *
entry_name(struct walker *w, const char *name)
{
	return xasprintf(
	    "%s/%s", w->dir.len == 1 ? "" : buf_cstr(&w->dir), name);
}

/* The entry is neither directory nor link: only "." may be left. */
static enum storage_result
at_file(struct walker *w, const char *name, char **error)
{
	char *rest, *at;

	if ((rest = next_component(w)) == NULL)
		return STORAGE_OK;
	free(rest);
	at = entry_name(w, name);
	errorf(error, "Storage ancestor must be a directory: %s", at);
	free(at);
	return STORAGE_ERROR;
}

static enum storage_result
walk_components(
    struct walker *w, int missing_ok, struct walk *out, char **error)
{
	struct stat st;
	char *name, *at;
	int r;

	while ((name = next_component(w)) != NULL) {
		if (strcmp(name, "..") == 0) {
			r = enter(w, name, NULL, error);
			free(name);
			if (r == -1)
				return STORAGE_ERROR;
			continue;
		}
		if (fstatat(w->fd, name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
			at = entry_name(w, name);
			if (errno == ENOENT && missing_ok) {
				out->missing = xasprintf("%s%s", name, w->next);
				free(name);
				free(at);
				return STORAGE_OK;
			}
			r = errno;
			error_errno(error, "%s", at);
			free(name);
			free(at);
			return r == ENOENT ? STORAGE_MISSING : STORAGE_ERROR;
		}
		if (!trusted_owner(st.st_uid)) {
			at = entry_name(w, name);
			foreign(at, st.st_uid, w->path, error);
			free(name);
			free(at);
			return STORAGE_ERROR;
		}
		if (S_ISLNK(st.st_mode))
			r = follow(w, name, error);
		else if (S_ISDIR(st.st_mode))
			r = enter(w, name, &st, error);
		else {
			out->leaf = name;
			return at_file(w, name, error);
		}
		free(name);
		if (r == -1)
			return STORAGE_ERROR;
	}
	return STORAGE_OK;
}

enum storage_result
storage_walk(const char *path, int missing_ok, struct walk *out, char **error)
{
	struct walker w;
	char cwd[PATH_MAX];
	enum storage_result r;

	memset(out, 0, sizeof(*out));
	memset(&w, 0, sizeof(w));
	out->fd = w.fd = -1;
	w.path = path;
	if (*path == '\0') {
		errorf(error, "an empty path names no storage");
		return STORAGE_ERROR;
	}
	if (*path == '/')
		w.pending = xstrdup(path);
	else if (getcwd(cwd, sizeof(cwd)) != NULL)
		w.pending = xasprintf("%s/%s", cwd, path);
	else {
		error_errno(error, "working directory");
		return STORAGE_ERROR;
	}
	w.next = w.pending;
	if (restart(&w, error) == -1)
		r = STORAGE_ERROR;
	else
		r = walk_components(&w, missing_ok, out, error);
	out->fd = w.fd;
	out->dir = buf_steal(&w.dir);
	free(w.pending);
	if (r != STORAGE_OK)
		walk_free(out);
	return r;
}

void
walk_free(struct walk *w)
{
	if (w->fd != -1)
		close(w->fd);
	w->fd = -1;
	free(w->dir);
	free(w->leaf);
	free(w->missing);
	w->dir = w->leaf = w->missing = NULL;
}
