#include "config.h"

#include <sys/types.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "sys.h"

#define BAD_PATH    "invalid workspace path"
#define UNAVAILABLE "workspace storage is unavailable"
#define CHANGED     "file changed during the operation"
#define STAGE_SIZE  (sizeof(".librechat-code-") + 36 + sizeof(".tmp"))

struct install {
	int root;
	struct place place;
	int dir; /* parent directory */
	struct stat dir_st;
	int existed;
	struct stat old;
	char stage[STAGE_SIZE];
	int staged; /* the staging name exists */
	int fd; /* staging file */
	struct stat new;
};

static int
same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Which errors say something about the path (workspace-tools 8.2 step 3). */
static int
path_errno(int e)
{
	return e == ENOENT || e == ENOTDIR || e == ELOOP || e == EXDEV;
}

/* Every component a real directory: no symbolic link at all. */
static int
open_parent(struct install *in)
{
	return sys_openat2(in->root,
	    in->place.parent == NULL ? "." : in->place.parent,
	    O_RDONLY | O_DIRECTORY, 0,
	    SYS_RESOLVE_BENEATH | SYS_RESOLVE_NO_SYMLINKS |
		SYS_RESOLVE_NO_MAGICLINKS);
}

static int
find_target(struct install *in, int create_only, struct failure *f)
{
	if (in->place.leaf == NULL)
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED, BAD_PATH);
	if ((in->dir = open_parent(in)) == -1)
		return failure(f,
		    path_errno(errno) ? EC_INVALID_PATH : EC_WRITE_UNAVAILABLE,
		    NOT_COMMITTED, path_errno(errno) ? BAD_PATH : UNAVAILABLE);
	if (fstat(in->dir, &in->dir_st) == -1)
		return failure(
		    f, EC_WRITE_UNAVAILABLE, NOT_COMMITTED, UNAVAILABLE);
	if (fstatat(in->dir, in->place.leaf, &in->old, AT_SYMLINK_NOFOLLOW) ==
	    -1) {
		if (errno == ENOENT)
			return 0;
		return failure(f,
		    path_errno(errno) ? EC_INVALID_PATH : EC_WRITE_UNAVAILABLE,
		    NOT_COMMITTED, path_errno(errno) ? BAD_PATH : UNAVAILABLE);
	}
	in->existed = 1;
	if (!S_ISREG(in->old.st_mode))
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED, BAD_PATH);
	if (create_only)
		return failure(
		    f, EC_EDIT_CONFLICT, NOT_COMMITTED, "file already exists");
	if (in->old.st_nlink > 1)
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED,
		    "file has more than one hard link; write a copy instead");
	return 0;
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

static int
make_stage_name(struct install *in)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char raw[18];
	char *p;
	size_t i;

	if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
		return -1;
	p = stpcpy(in->stage, ".librechat-code-");
	for (i = 0; i < sizeof(raw); i++) {
		*p++ = hex[raw[i] >> 4];
		*p++ = hex[raw[i] & 15];
	}
	memcpy(p, ".tmp", 5);
	return 0;
}

/* A replaced file keeps owner, group and permission bits. */
static int
keep_attributes(struct install *in)
{
	if (!in->existed)
		return 0;
	if ((in->old.st_uid != in->new.st_uid ||
		in->old.st_gid != in->new.st_gid) &&
	    fchown(in->fd, in->old.st_uid, in->old.st_gid) == -1)
		return -1;
	return fchmod(in->fd, in->old.st_mode & 0777);
}

static int
stage(struct install *in, const uint8_t *p, size_t n, struct failure *f)
{
	if (make_stage_name(in) == -1)
		goto fail;
	/* A new file honours the umask; secrets in a replaced one stay. */
	in->fd = openat(in->dir, in->stage,
	    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
	    in->existed ? 0600 : 0666);
	if (in->fd == -1)
		goto fail;
	in->staged = 1;
	if (fstat(in->fd, &in->new) == -1 || write_all(in->fd, p, n) == -1 ||
	    keep_attributes(in) == -1 || fsync(in->fd) == -1 ||
	    fstat(in->fd, &in->new) == -1)
		goto fail;
	return 0;
fail:
	return failure(f, EC_WRITE_UNAVAILABLE, NOT_COMMITTED, UNAVAILABLE);
}

/* The target and its directory must still be what they were. */
static int
check_unchanged(struct install *in, struct failure *f)
{
	struct stat st;
	int dir, same;

	if (fstatat(in->dir, in->place.leaf, &st, AT_SYMLINK_NOFOLLOW) == -1) {
		if (errno != ENOENT)
			return failure(f, EC_WRITE_UNAVAILABLE, NOT_COMMITTED,
			    UNAVAILABLE);
		if (in->existed)
			return failure(
			    f, EC_EDIT_CONFLICT, NOT_COMMITTED, CHANGED);
	} else if (!in->existed || !same_file(&st, &in->old))
		return failure(f, EC_EDIT_CONFLICT, NOT_COMMITTED, CHANGED);
	if ((dir = open_parent(in)) == -1)
		return failure(f,
		    path_errno(errno) ? EC_INVALID_PATH : EC_WRITE_UNAVAILABLE,
		    NOT_COMMITTED, path_errno(errno) ? BAD_PATH : UNAVAILABLE);
	same = fstat(dir, &st) == 0 && same_file(&st, &in->dir_st);
	close(dir);
	if (!same)
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED, BAD_PATH);
	return 0;
}

static int
commit(struct install *in, int create_only, struct failure *f)
{
	if (!create_only) {
		if (renameat(in->dir, in->stage, in->dir, in->place.leaf) == -1)
			return failure(f, EC_WRITE_UNAVAILABLE, NOT_COMMITTED,
			    UNAVAILABLE);
		in->staged = 0;
		return 0;
	}
	if (linkat(in->dir, in->stage, in->dir, in->place.leaf, 0) == -1) {
		if (errno == EEXIST)
			return failure(f, EC_EDIT_CONFLICT, NOT_COMMITTED,
			    "file already exists");
		return failure(
		    f, EC_WRITE_UNAVAILABLE, NOT_COMMITTED, UNAVAILABLE);
	}
	if (unlinkat(in->dir, in->stage, 0) == -1)
		return failure(f, EC_WRITE_UNAVAILABLE, UNCERTAIN,
		    "file was written but its staging name remains");
	in->staged = 0;
	return 0;
}

/* Durable, and really what was asked for; any doubt is UNCERTAIN. */
static int
confirm(struct install *in, const uint8_t *p, size_t n, struct failure *f)
{
	struct stat st;
	struct buf b;
	int fd, ok = 0;

	buf_init(&b);
	if (fsync(in->dir) == 0) {
		fd = openat(in->dir, in->place.leaf,
		    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd != -1) {
			ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
			    same_file(&st, &in->new) &&
			    read_whole(fd, &b) == 0 && b.len == n &&
			    (n == 0 || memcmp(b.data, p, n) == 0);
			close(fd);
		}
	}
	buf_free(&b);
	if (!ok)
		return failure(f, EC_WRITE_UNAVAILABLE, UNCERTAIN,
		    "file was written but could not be confirmed");
	return 0;
}

int
tool_write_file(struct tool *t, const struct request *q, struct result *res,
    struct failure *f)
{
	struct install in;
	const struct text *c = &q->content;
	int r = -1;

	memset(&in, 0, sizeof(in));
	in.root = t->root;
	in.dir = in.fd = -1;
	if (tool_cancelled(t))
		return tool_aborted(f);
	if (c->len > FILE_MAX)
		return failure(f, EC_WRITE_LIMIT_EXCEEDED, NOT_COMMITTED,
		    "content exceeds write limit");
	place_split(&in.place, &q->path);
	if (find_target(&in, q->create_only, f) == 0 &&
	    stage(&in, c->data, c->len, f) == 0 &&
	    check_unchanged(&in, f) == 0 && commit(&in, q->create_only, f) == 0)
		r = confirm(&in, c->data, c->len, f);
	if (in.staged)
		(void)unlinkat(in.dir, in.stage, 0);
	if (in.fd != -1)
		close(in.fd);
	if (in.dir != -1)
		close(in.dir);
	res->created = !in.existed;
	res->bytes_written = (int64_t)c->len;
	place_free(&in.place);
	return r;
}
