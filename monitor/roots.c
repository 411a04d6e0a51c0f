#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "error.h"
#include "mountinfo.h"
#include "msg.h"
#include "names.h"
#include "path.h"
#include "roots.h"
#include "utf8.h"

#ifndef O_PATH
#define O_PATH O_RDONLY
#endif

#define OPS_READ \
	(OP_BIT(OP_READ_FILE) | OP_BIT(OP_SEARCH_TEXT) | OP_BIT(OP_LIST_FILES))
#define OPS_WRITE \
	(OP_BIT(OP_WRITE_FILE) | OP_BIT(OP_PREVIEW_EDIT) | OP_BIT(OP_EDIT_FILE))

int
path_contains(const char *dir, const char *path)
{
	size_t n = strlen(dir);

	if (strcmp(dir, "/") == 0)
		return 1;
	return strncmp(dir, path, n) == 0 &&
	    (path[n] == '\0' || path[n] == '/');
}

/* 1 if some existing ancestor of path, or path itself, is this object. */
static int
below_object(dev_t dev, ino_t ino, const char *path)
{
	struct stat st;
	char *p = xstrdup(path), *slash;
	int found = 0;

	for (;;) {
		if (stat(p, &st) == 0 && st.st_dev == dev && st.st_ino == ino) {
			found = 1;
			break;
		}
		if (strcmp(p, "/") == 0 || (slash = strrchr(p, '/')) == NULL)
			break;
		slash[slash == p ? 1 : 0] = '\0';
	}
	free(p);
	return found;
}

/*
 * Canonical form of a path whose tail may be missing; the tail is compared
 * as it stands.
 */
static char *
canonical_tail(const char *path)
{
	char *real, *dir, *slash, *out;

	if ((real = realpath(path, NULL)) != NULL)
		return real;
	dir = xstrdup(path);
	if ((slash = strrchr(dir, '/')) == NULL) {
		free(dir);
		real = realpath(".", NULL);
		out = xasprintf("%s/%s", real == NULL ? "" : real, path);
		free(real);
		return out;
	}
	*slash = '\0';
	real = *dir == '\0' ? xstrdup("/") : canonical_tail(dir);
	out = xasprintf("%s/%s", strcmp(real, "/") == 0 ? "" : real, slash + 1);
	free(real);
	free(dir);
	return out;
}

static int
contains_place(
    const struct root *r, const char *path, const char *what, char **error)
{
	char *real = canonical_tail(path);
	int in = path_contains(r->path, real) ||
	    below_object(r->dev, r->ino, real);

	free(real);
	if (in)
		return errorf(error,
		    "workspace %s: %s cannot contain %s (%s): choose a "
		    "directory below it",
		    r->id, r->path, what, path);
	return 0;
}

/* Native-sandbox chapter 4, row 5: kept for the error's sake. */
static int
inherited_writable(const struct root *r, const char *home, char **error)
{
	char *paths[4];
	size_t i;
	int bad = 0;

	paths[0] = xstrdup("/tmp/claude");
	paths[1] = xstrdup("/private/tmp/claude");
	paths[2] = xasprintf("%s/.npm/_logs", home);
	paths[3] = xasprintf("%s/.claude/debug", home);
	for (i = 0; i < 4; i++) {
		bad |= path_contains(paths[i], r->path);
		free(paths[i]);
	}
	if (bad)
		return errorf(error,
		    "workspace %s: %s is inside an inherited writable path",
		    r->id, r->path);
	return 0;
}

static int
check_place(const struct root *r, const struct settings *s, char **error)
{
	static const char *const scratch[] = { "/tmp", "/var/tmp", "/dev/shm" };
	static const char *const kernel[] = { "/proc", "/sys", "/dev" };
	static const char control[] = "worker control files";
	char exe[PATH_MAX];
	ssize_t n;
	size_t i;

	if (contains_place(r, s->home, "the worker home directory", error) ==
	    -1)
		return -1;
	if (s->identity_path != NULL &&
	    contains_place(r, s->identity_path, control, error) == -1)
		return -1;
	if (contains_place(r, s->state_dir, control, error) == -1)
		return -1;
	if (s->marker_file != NULL &&
	    contains_place(r, s->marker_file, control, error) == -1)
		return -1;
	if ((n = readlink("/proc/self/exe", exe, sizeof(exe) - 1)) > 0) {
		exe[n] = '\0';
		if (contains_place(r, exe, "the worker program", error) == -1)
			return -1;
	}
	if (inherited_writable(r, s->home, error) == -1)
		return -1;
	for (i = 0; i < 3; i++)
		if (contains_place(
			r, scratch[i], "worker scratch storage", error) == -1)
			return -1;
	for (i = 0; i < 3; i++)
		if (path_contains(kernel[i], r->path))
			return errorf(error,
			    "workspace %s: %s belongs to the kernel", r->id,
			    r->path);
	return 0;
}

static int
open_root(struct root *r, const char *id, const char *path, char **error)
{
	struct stat st;
	struct buf b;

	memset(r, 0, sizeof(*r));
	r->fd = -1;
	r->marker.place.fd = -1;
	r->id = xstrdup(id);
	if (!id_valid(id, strlen(id)))
		return errorf(error,
		    "Invalid workspace registration: \"%s\" is no workspace "
		    "id",
		    id);
	if ((r->path = realpath(path, NULL)) == NULL)
		return error_errno(error,
		    "Invalid workspace registration: workspace %s: %s", id,
		    path);
	if (strlen(r->path) >= PATH_MAX)
		return errorf(error,
		    "Invalid workspace registration: workspace %s: the path "
		    "is too long",
		    id);
	r->fd = open(r->path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (r->fd == -1 || fstat(r->fd, &st) == -1)
		return error_errno(error,
		    "Invalid workspace registration: workspace %s: %s", id,
		    r->path);
	r->dev = st.st_dev;
	r->ino = st.st_ino;
	r->uid = st.st_uid;
	buf_init(&b);
	if (mount_location(r->fd, r->path, &b) == 0)
		r->location = buf_steal(&b);
	return 0;
}

/* By place in the file system: sees through bind mounts. */
static int
same_place(const struct root *a, const struct root *b)
{
	return a->location != NULL && b->location != NULL &&
	    (path_contains(a->location, b->location) ||
		path_contains(b->location, a->location));
}

/* Two roots overlap by object, by name or by place (9.3). */
static int
overlap(const struct root *a, const struct root *b)
{
	return path_contains(a->path, b->path) ||
	    path_contains(b->path, a->path) ||
	    below_object(a->dev, a->ino, b->path) ||
	    below_object(b->dev, b->ino, a->path) || same_place(a, b);
}

static int
check_pairs(const struct roots *rs, char **error)
{
	const struct root *a, *b;
	size_t i, j;

	for (i = 0; i < rs->n; i++) {
		for (j = i + 1; j < rs->n; j++) {
			a = &rs->list[i];
			b = &rs->list[j];
			if (strcmp(a->id, b->id) == 0)
				return errorf(error,
				    "Invalid workspace registration: the id "
				    "%s is given twice",
				    a->id);
			if (overlap(a, b))
				return errorf(error,
				    "Workspace roots must not overlap or "
				    "alias one another: %s (%s) and %s (%s)",
				    a->id, a->path, b->id, b->path);
		}
	}
	return 0;
}

static char *
default_workspace(const struct settings *s)
{
	return default_workspace_path(s->home, s->url_text,
	    s->paired ? s->identity.public_key : s->token.data, s->worker,
	    s->workspace_id);
}

char *
roots_primary(const struct settings *s, int create, char **error)
{
	char *path, *real;

	if (s->worker_dir != NULL)
		path = xstrdup(s->worker_dir);
	else if (s->default_workspace) {
		path = default_workspace(s);
		if (create && storage_private_dir(path, error) == -1) {
			free(path);
			return NULL;
		}
	} else {
		errorf(error,
		    "workspace directory is required: use --worker-dir DIR or "
		    "--default-workspace");
		return NULL;
	}
	if ((real = realpath(path, NULL)) == NULL)
		error_errno(error,
		    "Invalid workspace registration: workspace %s: %s",
		    s->workspace_id, path);
	free(path);
	return real;
}

/* Last component of the directory as given, or the id (3.6). */
static char *
display_name(const struct settings *s)
{
	const char *base;
	char *dir, *name = NULL;
	size_t n;

	if (s->workspace_name != NULL)
		return xstrdup(s->workspace_name);
	if (s->default_workspace)
		return xstrdup(s->workspace_id);
	dir = s->worker_dir[0] == '/' ? xstrdup(s->worker_dir)
				      : canonical_tail(s->worker_dir);
	for (n = strlen(dir); n > 1 && dir[n - 1] == '/'; n--)
		dir[n - 1] = '\0';
	base = strrchr(dir, '/');
	base = base == NULL ? dir : base + 1;
	n = strlen(base);
	if (n > 0 && strcmp(base, ".") != 0 && strcmp(base, "..") != 0 &&
	    utf8_valid(base, n) && utf8_units(base, n) <= 128 &&
	    !utf8_blank(base, n))
		name = xstrdup(base);
	free(dir);
	return name != NULL ? name : xstrdup(s->workspace_id);
}

static int
add_roots(struct roots *rs, const struct settings *s, const struct options *o,
    char **error)
{
	char *primary;
	size_t i;
	int r;

	if (s->worker_dir == NULL && !s->default_workspace) {
		if (o->nroots > 0)
			return errorf(error,
			    "Additional --workspace id=path roots require a "
			    "primary workspace and native-srt");
		if (s->allow_commands)
			return errorf(error,
			    "Workspace commands require a registered "
			    "directory: use --worker-dir DIR or "
			    "--default-workspace");
		return errorf(error,
		    "this version serves workspaces only: use --worker-dir "
		    "DIR or --default-workspace");
	}
	if ((primary = roots_primary(s, 1, error)) == NULL)
		return -1;
	rs->list = xcalloc(1 + o->nroots, sizeof(*rs->list));
	rs->n = 1;
	r = open_root(&rs->list[0], s->workspace_id, primary, error);
	free(primary);
	if (r == -1)
		return -1;
	rs->list[0].name = display_name(s);
	if (o->nroots >= ROOTS_MAX)
		return errorf(
		    error, "At most 32 workspace roots may be registered");
	for (i = 0; i < o->nroots; i++) {
		rs->n++;
		if (open_root(&rs->list[i + 1], o->roots[i].id,
			o->roots[i].path, error) == -1)
			return -1;
	}
	return 0;
}

int
roots_make(struct roots *rs, const struct settings *s, const struct options *o,
    char **error)
{
	struct root *r;
	char *name;
	size_t i;

	memset(rs, 0, sizeof(*rs));
	if (add_roots(rs, s, o, error) == -1 || check_pairs(rs, error) == -1)
		return -1;
	for (i = 0; i < rs->n; i++) {
		r = &rs->list[i];
		if (check_place(r, s, error) == -1)
			return -1;
		r->operations = OPS_READ;
		if (s->allow_writes)
			r->operations |= OPS_WRITE;
		if (s->allow_commands)
			r->operations |= OP_BIT(OP_EXECUTE_COMMAND);
		if (s->marker_file != NULL)
			r->marker_path = xstrdup(s->marker_file);
		else {
			name = marker_name(r->path);
			r->marker_path = xasprintf("%s/%s", s->state_dir, name);
			free(name);
		}
	}
	return 0;
}

void
roots_free(struct roots *rs)
{
	struct root *r;
	size_t i;

	for (i = 0; i < rs->n; i++) {
		r = &rs->list[i];
		free(r->id);
		free(r->name);
		free(r->path);
		free(r->location);
		if (r->fd != -1)
			close(r->fd);
		free(r->marker_path);
		marker_close(&r->marker);
	}
	free(rs->list);
	rs->list = NULL;
	rs->n = 0;
}
