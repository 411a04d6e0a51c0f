#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"
#include "install.h"
#include "leftover.h"
#include "sys.h"

#define BAD_PATH    "invalid workspace path"
#define CHANGED     "file changed during the operation"
#define EXISTS      "file already exists"

#define STAGE_TRIES 8
#define OPEN_FLAGS  (O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

int
path_errno(int e)
{
	return e == ENOENT || e == ENOTDIR || e == ELOOP || e == EXDEV;
}

static int
same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

int
unavailable(struct failure *f, int e)
{
	const char *text = "workspace storage is unavailable";

	switch (e) {
	case EACCES:
	case EPERM:
		text = "workspace storage denies access to the file";
		break;
	case EBUSY:
		text = "file is a mount point and cannot be replaced";
		break;
	case EDQUOT:
	case ENOSPC:
		text = "workspace storage is full";
		break;
	case ENAMETOOLONG:
		text = "file name is too long";
		break;
	case EROFS:
		text = "workspace storage is read-only";
		break;
	}
	return failure(f, EC_WRITE_UNAVAILABLE, NOT_COMMITTED, text);
}

/* The same for an error that may be about the path. */
static int
unreachable(struct failure *f, int e)
{
	if (path_errno(e))
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED, BAD_PATH);
	return unavailable(f, e);
}

static int
conflict(struct failure *f, const char *text)
{
	return failure(f, EC_EDIT_CONFLICT, NOT_COMMITTED, text);
}

/* Every component a real directory: no symbolic link at all. */
static int
open_parent(struct tool *t, const struct install *in)
{
	return sys_openat2(t->root,
	    in->place.parent == NULL ? "." : in->place.parent,
	    O_RDONLY | O_DIRECTORY, 0,
	    SYS_RESOLVE_BENEATH | SYS_RESOLVE_NO_SYMLINKS |
		SYS_RESOLVE_NO_MAGICLINKS);
}

static int
is_mount_point(int dir, const char *name)
{
	struct statx sx;

	if (statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE,
		&sx) == -1)
		return 0;
	return (sx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* What may not be replaced whoever asks. */
static int
check_target(struct install *in, struct failure *f)
{
	if (!S_ISREG(in->old.st_mode))
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED, BAD_PATH);
	if (in->create_only)
		return conflict(f, EXISTS);
	if (in->base_st != NULL && !same_file(&in->old, in->base_st))
		return conflict(f, CHANGED);
	if (in->old.st_nlink > 1)
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED,
		    "file has more than one hard link; write a copy instead");
	if (is_mount_point(in->dir, in->place.leaf))
		return unavailable(f, EBUSY);
	return 0;
}

/* The descriptor is for its attributes; row 8.4/6 has no read permission. */
static int
open_target(struct install *in, struct failure *f)
{
	struct stat st;

	in->old_fd = openat(in->dir, in->place.leaf, O_RDONLY | OPEN_FLAGS);
	if (in->old_fd == -1 && errno == EACCES)
		in->old_fd = openat(
		    in->dir, in->place.leaf, O_WRONLY | OPEN_FLAGS);
	if (in->old_fd == -1) {
		if (path_errno(errno))
			return conflict(f, CHANGED);
		return unavailable(f, errno);
	}
	if (fstat(in->old_fd, &st) == -1)
		return unavailable(f, errno);
	if (!same_file(&st, &in->old))
		return conflict(f, CHANGED);
	return 0;
}

static int
find_target(struct tool *t, struct install *in, struct failure *f)
{
	if (in->place.leaf == NULL)
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED, BAD_PATH);
	if ((in->dir = open_parent(t, in)) == -1)
		return unreachable(f, errno);
	if (fstat(in->dir, &in->dir_st) == -1)
		return unavailable(f, errno);
	leftover_directory(in->dir);
	if (fstatat(in->dir, in->place.leaf, &in->old, AT_SYMLINK_NOFOLLOW) ==
	    -1) {
		if (errno != ENOENT)
			return unreachable(f, errno);
		if (in->base_st != NULL)
			return conflict(f, CHANGED);
		in->created = 1;
		return 0;
	}
	if (check_target(in, f) == -1)
		return -1;
	return open_target(in, f);
}

static int
write_all(int fd, const uint8_t *p, size_t n)
{
	ssize_t w;

	while (n > 0) {
		if ((w = write(fd, p, n)) == -1) {
			if (errno == EINTR)
				continue;
			return -1;
		}
		if (w == 0) {
			errno = EIO;
			return -1;
		}
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

/* Makes the staging file; -1 with errno. */
static int
make_stage(struct install *in)
{
	if (stage_name(in->stage, sizeof(in->stage)) == -1 ||
	    fault("write.open") == -1)
		return -1;
	/* A new file honours the umask; what is secret stays so. */
	in->fd = openat(in->dir, in->stage,
	    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
	    in->created ? 0666 : 0600);
	if (in->fd == -1)
		return -1;
	in->staged = 1;
	return 0;
}

/* Again if somebody took it for a leftover before it was held. */
static int
open_stage(struct install *in)
{
	int i;

	for (i = 0; i < STAGE_TRIES; i++) {
		if (make_stage(in) == -1)
			return -1;
		if (stage_hold(in->fd) == 0)
			return fault("write.opened");
		close(in->fd);
		in->fd = -1;
		(void)unlinkat(in->dir, in->stage, 0);
		in->staged = 0;
	}
	errno = EAGAIN;
	return -1;
}

static int
stage(struct install *in, struct failure *f)
{
	if (open_stage(in) == -1)
		return unavailable(f, errno);
	if (!in->created &&
	    (fault("write.attributes") == -1 ||
		attributes_keep(in->old_fd, &in->old, in->fd) == -1)) {
		if (errno != ENOTSUP)
			return unavailable(f, errno);
		return failure(f, EC_WRITE_UNAVAILABLE, NOT_COMMITTED,
		    "the access list of the file cannot be kept");
	}
	if (fault("write.write") == -1 ||
	    write_all(in->fd, in->data, in->len) == -1 ||
	    fault("write.fsync") == -1 || fsync(in->fd) == -1 ||
	    fstat(in->fd, &in->new) == -1)
		return unavailable(f, errno);
	return 0;
}

/* An edit: the file still has the content that was edited. */
static int
check_base(struct install *in, struct failure *f)
{
	struct stat st;
	struct buf b;
	int fd, r;

	fd = openat(in->dir, in->place.leaf, O_RDONLY | OPEN_FLAGS);
	if (fd == -1) {
		if (path_errno(errno))
			return conflict(f, CHANGED);
		return unavailable(f, errno);
	}
	buf_init(&b);
	if (fault("edit.reread") == -1 || fstat(fd, &st) == -1)
		r = unavailable(f, errno);
	else if (!S_ISREG(st.st_mode) || !same_file(&st, &in->old))
		r = conflict(f, CHANGED);
	else if (read_whole(fd, &b) == -1)
		r = unavailable(f, errno);
	else if (b.len > FILE_MAX)
		r = failure(f, EC_WRITE_LIMIT_EXCEEDED, NOT_COMMITTED,
		    "file exceeds write limit");
	else if (b.len != in->base->len ||
	    (b.len > 0 && memcmp(b.data, in->base->data, b.len) != 0))
		r = conflict(f, CHANGED);
	else
		r = 0;
	close(fd);
	buf_free(&b);
	return r;
}

/* The target and its directory must still be what they were. */
static int
check_unchanged(struct tool *t, struct install *in, struct failure *f)
{
	struct stat st;
	int dir, same;

	if (fstatat(in->dir, in->place.leaf, &st, AT_SYMLINK_NOFOLLOW) == -1) {
		if (errno != ENOENT)
			return unavailable(f, errno);
		if (!in->created)
			return conflict(f, CHANGED);
	} else if (in->created || !same_file(&st, &in->old))
		return conflict(f, in->create_only ? EXISTS : CHANGED);
	if ((dir = open_parent(t, in)) == -1)
		return unreachable(f, errno);
	same = fstat(dir, &st) == 0 && same_file(&st, &in->dir_st);
	close(dir);
	if (!same)
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED, BAD_PATH);
	return in->base_st == NULL ? 0 : check_base(in, f);
}

/* Puts a new file in place without replacing anything. */
static int
put_new(struct install *in)
{
	int r;

	r = fault("write.noreplace");
	if (r == 0)
		r = sys_rename_noreplace(in->dir, in->stage, in->place.leaf);
	if (r == 0) {
		in->staged = 0;
		return 0;
	}
	/* Overlay and network file systems may not have it. */
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	if (fault("write.link") == -1)
		return -1;
	return linkat(in->dir, in->stage, in->dir, in->place.leaf, 0);
}

static int
put_over(struct install *in)
{
	if (fault("write.rename") == -1 ||
	    renameat(in->dir, in->stage, in->dir, in->place.leaf) == -1)
		return -1;
	in->staged = 0;
	return fault("write.renamed");
}

/*
 * A rename or link that failed has normally changed nothing, but a network
 * file system may have done it and lost the answer. The names decide: 1 if
 * the file is in place, 0 if it is not, -1 if that cannot be told.
 */
static int
is_in_place(struct install *in)
{
	struct stat st;

	if (fstatat(in->dir, in->place.leaf, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (same_file(&st, &in->new))
			return 1;
	} else if (errno != ENOENT)
		return -1;
	if (fstatat(in->dir, in->stage, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    same_file(&st, &in->new))
		return 0;
	/* Somebody took the staging file away; it has no other name. */
	if (fstat(in->fd, &st) == 0 && st.st_nlink == 0)
		return 0;
	return -1;
}

static int
commit(struct install *in, struct failure *f)
{
	int e = 0, r;

	r = in->created ? put_new(in) : put_over(in);
	/* No hard links here either: the checks before have to do. */
	if (r == -1 && in->created && !in->create_only &&
	    (errno == EPERM || errno == ENOTSUP || errno == ENOSYS ||
		errno == EMLINK || errno == EINVAL))
		r = put_over(in);
	if (r == -1) {
		e = errno;
		if ((r = is_in_place(in)) == -1)
			return failure(f, EC_WRITE_UNAVAILABLE, UNCERTAIN,
			    "it is not known whether the file was written");
		if (r == 0 && e == EEXIST)
			return conflict(f, in->create_only ? EXISTS : CHANGED);
		if (r == 0)
			return unavailable(f, e);
	}
	if (in->staged &&
	    (fault("write.unlink") == -1 ||
		(unlinkat(in->dir, in->stage, 0) == -1 && errno != ENOENT)))
		return failure(f, EC_WRITE_UNAVAILABLE, UNCERTAIN,
		    "file was written but its staging name remains");
	in->staged = 0;
	return 0;
}

/* The installed file has the wanted bytes, found through the whole path. */
static int
is_installed(struct tool *t, struct install *in)
{
	struct stat st;
	struct buf b;
	int dir, fd = -1, ok = 0;

	if ((dir = open_parent(t, in)) == -1)
		return 0;
	buf_init(&b);
	if (fstat(dir, &st) == 0 && same_file(&st, &in->dir_st))
		fd = openat(dir, in->place.leaf, O_RDONLY | OPEN_FLAGS);
	if (fd != -1) {
		ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
		    same_file(&st, &in->new) && fault("write.confirm") == 0 &&
		    read_whole(fd, &b) == 0 && b.len == in->len &&
		    (b.len == 0 || memcmp(b.data, in->data, b.len) == 0);
		close(fd);
	}
	close(dir);
	buf_free(&b);
	return ok;
}

/* Durable, and really what was asked for; any doubt is UNCERTAIN. */
static int
confirm(struct tool *t, struct install *in, struct failure *f)
{
	if (fault("write.dirsync") == -1 || fsync(in->dir) == -1)
		return failure(f, EC_WRITE_UNAVAILABLE, UNCERTAIN,
		    "file was written but may not be durable");
	if (!is_installed(t, in))
		return failure(f, EC_WRITE_UNAVAILABLE, UNCERTAIN,
		    "file was written but could not be confirmed");
	return 0;
}

static int
run(struct tool *t, struct install *in, struct failure *f)
{
	if (find_target(t, in, f) == -1)
		return -1;
	if (tool_cancelled(t))
		return tool_aborted(f);
	if (stage(in, f) == -1)
		return -1;
	(void)fault("write.staged");
	if (check_unchanged(t, in, f) == -1)
		return -1;
	if (tool_cancelled(t))
		return tool_aborted(f);
	(void)fault("write.commit");
	if (commit(in, f) == -1)
		return -1;
	(void)fault("write.committed");
	if (confirm(t, in, f) == -1)
		return -1;
	(void)fault("write.confirmed");
	return 0;
}

int
install(struct tool *t, struct install *in, struct failure *f)
{
	int r;

	in->dir = in->fd = in->old_fd = -1;
	in->staged = in->created = 0;
	place_split(&in->place, in->path);
	r = run(t, in, f);
	if (in->staged)
		(void)unlinkat(in->dir, in->stage, 0);
	if (in->fd != -1)
		close(in->fd);
	if (in->old_fd != -1)
		close(in->old_fd);
	if (in->dir != -1)
		close(in->dir);
	place_free(&in->place);
	return r;
}
