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
#include "devices.h"
#include "hide.h"
#include "log.h"
#include "mtab.h"
#include "sys.h"

struct hidden_name {
	char *path; /* canonical */
	int known; /* dev and ino are */
	dev_t dev;
	ino_t ino;
	int inside; /* below the root */
	int fd; /* what covers it, until it is sealed, or -1 */
};

/* A directory that must not be seen, as a place in a file system. */
struct target {
	char *path; /* its first name, canonical */
	char *device;
	char *place;
	int known;
	dev_t dev;
	ino_t ino;
};

struct finder {
	struct hide *hide;
	const struct mount_plan *plan;
	struct mtab mounts;
	struct target *list;
	size_t n;
	size_t nlisted; /* so many come from the plan */
	char *root_device;
	char *root_place;
};

/* Directories of the host that a sandbox replaces by its own or empties. */
static const char *const always[] = { "/tmp", "/var/tmp", "/dev/shm", "/run",
	"/var/run" };

/* Never covered: no command runs without them. */
static const char *const needed[] = { "/", "/bin", "/dev", "/etc", "/lib",
	"/lib32", "/lib64", "/libx32", "/nix/store", "/proc", "/sbin", "/sys",
	"/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/sbin", "/usr/share",
	"/var", "/var/cache", "/var/lib" };
/* A file system that is mounted here is not one of a home directory. */
static const char *const ordinary[] = { "/boot", "/media", "/mnt", "/nix",
	"/opt", "/snap", "/srv", "/var/log", "/var/spool" };
#define COUNT(t) (sizeof(t) / sizeof((t)[0]))

static int
is_needed(const char *path)
{
	size_t i;

	for (i = 0; i < COUNT(needed); i++)
		if (path_below(needed[i], path))
			return 1;
	return 0;
}

/* 1 if one of these directories lies on the file system. */
static int
holds(
    const struct mtab *t, const char *device, const char *const *dirs, size_t n)
{
	const struct mtab_mount *m;
	size_t i;

	for (i = 0; i < n; i++) {
		m = mtab_find(t, -1, dirs[i]);
		if (m != NULL && strcmp(m->device, device) == 0)
			return 1;
	}
	return 0;
}

/* These are made anew, whatever the host has there. */
static int
is_kernels(const char *path)
{
	return path_below(path, "/proc") || path_below(path, "/sys") ||
	    path_below(path, "/dev");
}

/* The canonical name of a descriptor; allocated, or NULL. */
static char *
name_of(int fd)
{
	char link[64], path[PATH_MAX];
	ssize_t n;

	(void)xsnprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path));
	if (n <= 0 || (size_t)n >= sizeof(path) || path[0] != '/')
		return NULL;
	return xstrndup(path, (size_t)n);
}

static void
add_name(struct finder *f, const char *path, const struct stat *st)
{
	struct hidden_name *h;
	size_t i;

	for (i = 0; i < f->hide->n; i++)
		if (strcmp(f->hide->list[i].path, path) == 0)
			return;
	f->hide->list = xreallocarray(
	    f->hide->list, f->hide->n + 1, sizeof(*f->hide->list));
	h = &f->hide->list[f->hide->n++];
	memset(h, 0, sizeof(*h));
	h->path = xstrdup(path);
	h->fd = -1;
	h->inside = path_below(path, f->plan->root_path);
	if (st != NULL) {
		h->known = 1;
		h->dev = st->st_dev;
		h->ino = st->st_ino;
	}
}

static struct target *
add_target(struct finder *f, const char *path, const char *device, char *place)
{
	struct target *t;

	f->list = xreallocarray(f->list, f->n + 1, sizeof(*f->list));
	t = &f->list[f->n++];
	memset(t, 0, sizeof(*t));
	t->path = xstrdup(path);
	t->device = xstrdup(device);
	t->place = place;
	return t;
}

/* A directory by a name that need not be canonical, if it is there. */
static void
find_target(struct finder *f, const char *name)
{
	const struct mtab_mount *m;
	struct target *t;
	struct stat st;
	char *path = NULL, *place;
	int fd;

	fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1 && errno != EACCES)
		return;
	if (fd != -1 &&
	    (fstat(fd, &st) == -1 || (path = name_of(fd)) == NULL)) {
		close(fd);
		return;
	}
	/* The account may not go there by this name; another may let it. */
	if (path == NULL)
		path = xstrdup(name);
	if (!path_below(path, f->plan->root_path) && !is_needed(path) &&
	    (m = mtab_find(&f->mounts, fd, path)) != NULL &&
	    (place = mtab_place(m, path)) != NULL) {
		t = add_target(f, path, m->device, place);
		if (fd != -1) {
			t->known = 1;
			t->dev = st.st_dev;
			t->ino = st.st_ino;
			add_name(f, path, &st);
		}
	}
	if (fd != -1)
		close(fd);
	free(path);
}

/* A file system of its own below a hidden directory is hidden as well. */
static void
find_parts(struct finder *f)
{
	const struct mtab_mount *m;
	size_t i, k;

	for (i = 0; i < f->mounts.n; i++) {
		m = &f->mounts.list[i];
		if (strcmp(m->root, "/") != 0 ||
		    path_below(m->point, f->plan->root_path) ||
		    holds(&f->mounts, m->device, needed, COUNT(needed)) ||
		    holds(&f->mounts, m->device, ordinary, COUNT(ordinary)) ||
		    (f->root_device != NULL &&
			strcmp(f->root_device, m->device) == 0))
			continue;
		for (k = 0; k < f->nlisted; k++)
			if (path_below(m->point, f->list[k].path)) {
				(void)add_target(
				    f, m->point, m->device, xstrdup("/"));
				break;
			}
	}
}

/* The mount shows the whole target at a place of its own. */
static void
found_whole(struct finder *f, const struct target *t, const char *path)
{
	struct stat st;
	int fd;

	if (is_needed(path) || is_kernels(path))
		return;
	fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd == -1)
		return;
	/* Another mount may lie on top. */
	if (fstat(fd, &st) == 0 &&
	    (!t->known || (st.st_dev == t->dev && st.st_ino == t->ino)))
		add_name(f, path, &st);
	close(fd);
}

/* All of the mount is a part of a target. */
static void
found_part(struct finder *f, const struct mtab_mount *m)
{
	struct stat st;
	int fd;

	if (is_needed(m->point) || is_kernels(m->point) ||
	    strcmp(m->point, f->plan->root_path) == 0)
		return;
	/* Of the root itself nothing is hidden. */
	if (f->root_device != NULL && f->root_place != NULL &&
	    strcmp(f->root_device, m->device) == 0 &&
	    path_below(m->root, f->root_place))
		return;
	if ((fd = open(m->point, O_PATH | O_NOFOLLOW | O_CLOEXEC)) == -1)
		return;
	if (fstat(fd, &st) == 0 && mtab_find(&f->mounts, fd, m->point) == m)
		add_name(f, m->point, &st);
	close(fd);
}

static void
find_names(struct finder *f)
{
	const struct mtab_mount *m;
	const struct target *t;
	size_t i, k;
	char *path;

	for (k = 0; k < f->n; k++) {
		t = &f->list[k];
		for (i = 0; i < f->mounts.n; i++) {
			m = &f->mounts.list[i];
			if (strcmp(m->device, t->device) != 0)
				continue;
			if ((path = mtab_name(m, t->place)) != NULL) {
				found_whole(f, t, path);
				free(path);
			} else if (path_below(m->root, t->place))
				found_part(f, m);
		}
	}
}

static int
compare(const void *a, const void *b)
{
	const struct hidden_name *x = a, *y = b;

	/* An outer directory is a prefix and comes first. */
	return strcmp(x->path, y->path);
}

int
hide_find(struct hide *h, const struct mount_plan *mp, struct step_error *se)
{
	const struct mtab_mount *m;
	struct finder f;
	size_t i;

	memset(h, 0, sizeof(*h));
	memset(&f, 0, sizeof(f));
	f.hide = h;
	f.plan = mp;
	if (mtab_read(&f.mounts) == -1)
		return step_failed(se, "/proc/self/mountinfo");
	if ((m = mtab_find(&f.mounts, -1, mp->root_path)) != NULL) {
		f.root_device = xstrdup(m->device);
		f.root_place = mtab_place(m, mp->root_path);
	}
	for (i = 0; i < mp->nhidden; i++)
		find_target(&f, mp->hidden[i]);
	for (i = 0; i < mp->nothers; i++)
		find_target(&f, mp->others[i]);
	f.nlisted = f.n;
	for (i = 0; i < COUNT(always); i++)
		find_target(&f, always[i]);
	find_parts(&f);
	find_names(&f);
	if (h->n > 0)
		qsort(h->list, h->n, sizeof(*h->list), compare);
	for (i = 0; i < f.n; i++) {
		free(f.list[i].path);
		free(f.list[i].device);
		free(f.list[i].place);
	}
	free(f.list);
	free(f.root_device);
	free(f.root_place);
	mtab_free(&f.mounts);
	return 0;
}

/* What is at the name now: 1 if that is what must not be seen. */
static int
still_there(const struct hidden_name *h, int fd, struct stat *st)
{
	return fstat(fd, st) == 0 &&
	    (!h->known || (st->st_dev == h->dev && st->st_ino == h->ino));
}

static int
new_cover(const struct stat *st, uint64_t attr)
{
	int mnt;

	if (S_ISDIR(st->st_mode))
		return tmpfs_new(1U << 20, "0755", attr);
	mnt = sys_open_tree_clone(AT_FDCWD, EMPTY_FILE, 0);
	if (mnt != -1 && sys_mount_setattr(mnt, 0, SYS_MOUNT_RDONLY, 0) == -1) {
		close(mnt);
		return -1;
	}
	return mnt;
}

static int
cover(struct hidden_name *h, uint64_t attr, struct step_error *se)
{
	struct stat st;
	int fd, mnt, r;

	fd = open(h->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd == -1)
		return 0;
	if (!still_there(h, fd, &st)) {
		close(fd);
		return 0;
	}
	if ((mnt = new_cover(&st, attr)) == -1) {
		close(fd);
		return step_failed(se, "mount %s: empty", h->path);
	}
	r = sys_move_mount_to(mnt, fd);
	close(fd);
	if (r == -1) {
		(void)step_failed(se, "mount %s: attach empty", h->path);
		close(mnt);
		/* Removed meanwhile, and nothing in its place. */
		return errno == ENOENT && access(h->path, F_OK) == -1 ? 0 : -1;
	}
	/* The descriptor names the mount, wherever that is. */
	h->fd = mnt;
	fd = open(h->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd != -1 && h->known && still_there(h, fd, &st)) {
		close(fd);
		errno = EEXIST;
		return step_failed(se, "mount %s: still seen", h->path);
	}
	if (fd != -1)
		close(fd);
	return 0;
}

int
hide_outside(struct hide *h, struct step_error *se)
{
	size_t i;

	for (i = 0; i < h->n; i++)
		if (!h->list[i].inside && cover(&h->list[i], 0, se) == -1)
			return -1;
	return 0;
}

int
hide_inside(struct hide *h, struct step_error *se)
{
	size_t i;

	for (i = 0; i < h->n; i++) {
		if (!h->list[i].inside)
			continue;
		if (cover(&h->list[i], SYS_MOUNT_RDONLY, se) == -1)
			return -1;
		if (h->list[i].fd != -1)
			log_warnx("%s: shows a directory that commands must "
				  "not see and is empty for them",
			    h->list[i].path);
	}
	return 0;
}

int
hide_seal(struct hide *h, struct step_error *se)
{
	size_t i;

	for (i = 0; i < h->n; i++)
		if (h->list[i].fd != -1 &&
		    sys_mount_setattr(h->list[i].fd, 0, SYS_MOUNT_RDONLY, 0) ==
			-1)
			return step_failed(
			    se, "mount %s: read-only", h->list[i].path);
	return 0;
}

void
hide_free(struct hide *h)
{
	size_t i;

	for (i = 0; i < h->n; i++) {
		if (h->list[i].fd != -1)
			close(h->list[i].fd);
		free(h->list[i].path);
	}
	free(h->list);
	memset(h, 0, sizeof(*h));
}
