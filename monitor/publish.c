#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acl.h"
#include "buf.h"
#include "error.h"
#include "identity.h"
#include "mountinfo.h"

/* How an identity file is replaced, and how that is made sure beforehand. */

/* Destination test (4.7). */
static int
check_destination(const struct place *p, int mountinfo, char **error)
{
	struct stat st, dir;
	char *path;
	int exists, r;

	exists = fstatat(p->fd, p->leaf, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (!exists && errno != ENOENT)
		return error_errno(error, "%s", p->path);
	if (exists && S_ISDIR(st.st_mode))
		return errorf(error,
		    "Bridge identity path %s is a directory. Point --identity "
		    "at a file.",
		    p->path);
	path = xasprintf(
	    "%s/%s", strcmp(p->dir, "/") == 0 ? "" : p->dir, p->leaf);
	r = mount_preflight(mountinfo, path, error);
	free(path);
	if (r == -1 || !exists || geteuid() == 0 || st.st_uid == geteuid())
		return r;
	if (fstat(p->fd, &dir) == -1)
		return error_errno(error, "%s", p->dir);
	if ((dir.st_mode & S_ISVTX) && dir.st_uid != geteuid())
		return errorf(error,
		    "%s is owned by another account (uid %lu) inside the "
		    "sticky directory %s, so it cannot be replaced. Use "
		    "another path.",
		    p->path, (unsigned long)st.st_uid, p->dir);
	return 0;
}

static int
open_destination(const char *path, int mountinfo, struct place *p, char **error)
{
	if (place_open(path, PLACE_CREATE | PLACE_DURABLE, p, error) !=
	    STORAGE_OK)
		return -1;
	if (check_destination(p, mountinfo, error) == -1) {
		place_close(p);
		return -1;
	}
	return 0;
}

static int
write_and_rename(const struct place *p, const char *tmp,
    const struct secret *text, char **error)
{
	int fd;

	if ((fd = place_create(p, tmp, error)) == -1)
		return -1;
	if (storage_write(fd, text->data, text->len) == -1 || fsync(fd) == -1) {
		error_errno(error, "write %s", p->path);
		close(fd);
		(void)unlinkat(p->fd, tmp, 0);
		return -1;
	}
	if (close(fd) == -1 || renameat(p->fd, tmp, p->fd, p->leaf) == -1) {
		error_errno(error, "replace %s", p->path);
		(void)unlinkat(p->fd, tmp, 0);
		return -1;
	}
	return place_sync(p, error);
}

int
identity_save(
    const char *path, const struct secret *text, int mountinfo, char **error)
{
	struct place p;
	char *tmp;
	int r;

	if (open_destination(path, mountinfo, &p, error) == -1)
		return -1;
	tmp = storage_sibling(p.leaf, ".tmp");
	r = write_and_rename(&p, tmp, text, error);
	free(tmp);
	place_close(&p);
	return r;
}

static int
probe_failed(const struct place *p, int e, char **error)
{
	return errorf(error,
	    "Cannot create a temporary file beside %s (%s), so the identity "
	    "could not be published there. Make %s %s%s.",
	    p->path, strerror(e),
	    e == ENOSPC || e == EDQUOT ? "room on the file system of"
				       : "the directory",
	    p->dir,
	    e == ENOSPC || e == EDQUOT ? "" : " writable for this account");
}

/* Room for an identity, so that a full disk is found before the code goes. */
#define PROBE_BYTES 16384

/* Writes that much durably, and takes it back. */
static int
try_space(int fd)
{
	char block[PROBE_BYTES];

	memset(block, ' ', sizeof(block));
	if (storage_write(fd, block, sizeof(block)) == -1 || fsync(fd) == -1)
		return -1;
	return ftruncate(fd, 0);
}

/*
 * Sibling probe (4.8) that also tries the space, and a rename as the save will
 * do it: over the reserved file if this call made it, else to a second name.
 */
static int
probe(struct reservation *rv, char **error)
{
	const struct place *p = &rv->place;
	struct stat st;
	char *name, *to, *why = NULL;
	int fd, r = -1;

	name = storage_sibling(p->leaf, ".probe");
	to = rv->created ? xstrdup(p->leaf)
			 : storage_sibling(p->leaf, ".probe");
	if ((fd = place_create(p, name, &why)) == -1) {
		probe_failed(p, errno, error);
		goto done;
	}
	if (try_space(fd) == -1 || fstat(fd, &st) == -1 ||
	    renameat(p->fd, name, p->fd, to) == -1) {
		probe_failed(p, errno, error);
		(void)unlinkat(p->fd, name, 0);
	} else if (rv->created) {
		rv->dev = st.st_dev;
		rv->ino = st.st_ino;
		r = 0;
	} else if (unlinkat(p->fd, to, 0) == -1)
		probe_failed(p, errno, error);
	else
		r = 0;
	close(fd);
done:
	free(why);
	free(name);
	free(to);
	return r;
}

/* The name exists: what it leads to must be ours and owner-only. */
static int
check_existing(const struct place *p, char **error)
{
	char *path;
	int fd;

	path = xasprintf(
	    "%s/%s", strcmp(p->dir, "/") == 0 ? "" : p->dir, p->leaf);
	fd = -1;
	if (storage_open(path, "Bridge identity",
		"Revoke that worker, remove the file and pair again.", &fd,
		error) == STORAGE_OK)
		close(fd);
	free(path);
	return fd == -1 ? -1 : 0;
}

int
identity_reserve(
    const char *path, int mountinfo, struct reservation *rv, char **error)
{
	struct stat st;
	char *why = NULL;
	int fd, e;

	memset(rv, 0, sizeof(*rv));
	if (open_destination(path, mountinfo, &rv->place, error) == -1)
		return -1;
	fd = place_create(&rv->place, NULL, &why);
	e = errno;
	if (fd != -1) {
		rv->created = 1;
		if (fstat(fd, &st) == 0) {
			rv->dev = st.st_dev;
			rv->ino = st.st_ino;
		}
		close(fd);
	} else if (e != EEXIST) {
		errorf(error, "%s", why);
		free(why);
		place_close(&rv->place);
		return -1;
	}
	free(why);
	if ((!rv->created && check_existing(&rv->place, error) == -1) ||
	    probe(rv, error) == -1 || place_recheck(&rv->place, error) == -1) {
		identity_release(rv);
		return -1;
	}
	return 0;
}

void
identity_release(struct reservation *rv)
{
	struct stat st;

	if (rv->created &&
	    fstatat(rv->place.fd, rv->place.leaf, &st, AT_SYMLINK_NOFOLLOW) ==
		0 &&
	    st.st_dev == rv->dev && st.st_ino == rv->ino && st.st_size == 0)
		(void)unlinkat(rv->place.fd, rv->place.leaf, 0);
	identity_reservation_done(rv);
}

void
identity_reservation_done(struct reservation *rv)
{
	rv->created = 0;
	place_close(&rv->place);
}
