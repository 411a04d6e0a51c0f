#include "config.h"

#include <sys/stat.h>
#include <sys/xattr.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "install.h"

#define ACL       "system.posix_acl_access"
#define LIST_MAX  65536 /* XATTR_LIST_MAX of the kernel */
#define VALUE_MAX 65536 /* XATTR_SIZE_MAX */

/* Reads one attribute into *b; 1, 0 if the file has none, -1 with errno. */
static int
get(int fd, const char *name, struct buf *b)
{
	ssize_t n;

	buf_reset(b);
	n = fgetxattr(fd, name, NULL, 0);
	if (n > 0)
		n = fgetxattr(fd, name, buf_reserve(b, VALUE_MAX), VALUE_MAX);
	if (n == -1)
		return errno == ENODATA || errno == ENOTSUP ? 0 : -1;
	b->len = (size_t)n;
	return 1;
}

/*
 * The account is mapped to itself in the sandbox and everybody else to one
 * number, which may be the account's, so numbers do not prove who owns a
 * file. This flag is granted to the owner only (fcntl(2)).
 */
static int
check_owner(int fd)
{
	int flags;

	if ((flags = fcntl(fd, F_GETFL)) == -1)
		return -1;
	return fcntl(fd, F_SETFL, flags | O_NOATIME);
}

static int
keep_owner(const struct stat *old, int old_fd, int fd)
{
	struct stat st;

	if (check_owner(old_fd) == -1 || fstat(fd, &st) == -1)
		return -1;
	if (old->st_uid != st.st_uid) {
		errno = EPERM;
		return -1;
	}
	if (old->st_gid == st.st_gid)
		return 0;
	return fchown(fd, (uid_t)-1, old->st_gid);
}

/*
 * Access lists. An entry for somebody else cannot be written from inside the
 * sandbox, but it is often there already: both files have it from the default
 * list of the directory. Replacing such a file without its list would give
 * the group what the mask stands for, so that is refused.
 */
static int
keep_acl(int old_fd, int fd)
{
	struct buf want, have;
	int w, h, r = -1;

	buf_init(&want);
	buf_init(&have);
	if ((w = get(old_fd, ACL, &want)) == -1 ||
	    (h = get(fd, ACL, &have)) == -1)
		goto done;
	if (w == 0 && h == 0)
		r = 0;
	else if (w == 0)
		r = fremovexattr(fd, ACL);
	else if (h == 1 && want.len == have.len &&
	    memcmp(want.data, have.data, want.len) == 0)
		r = 0;
	else if ((r = fsetxattr(fd, ACL, want.data, want.len, 0)) == -1)
		errno = ENOTSUP;
done:
	buf_free(&want);
	buf_free(&have);
	return r;
}

static int
keep_attribute(int old_fd, int fd, const char *name, struct buf *value)
{
	int r;

	if (strcmp(name, "security.selinux") == 0) {
		if (get(old_fd, name, value) == 1)
			(void)fsetxattr(fd, name, value->data, value->len, 0);
		return 0;
	}
	if (strncmp(name, "user.", 5) != 0)
		return 0;
	if ((r = get(old_fd, name, value)) != 1)
		return r;
	return fsetxattr(fd, name, value->data, value->len, 0);
}

static int
keep_attributes(int old_fd, int fd)
{
	struct buf list, value;
	const char *name;
	ssize_t n;
	size_t i;
	int r = 0;

	n = flistxattr(old_fd, NULL, 0);
	if (n == 0 || (n == -1 && errno == ENOTSUP))
		return 0;
	if (n == -1)
		return -1;
	buf_init(&list);
	buf_init(&value);
	n = flistxattr(old_fd, (char *)buf_reserve(&list, LIST_MAX), LIST_MAX);
	if (n == -1)
		r = -1;
	else
		list.len = (size_t)n;
	/* Each name ends with a NUL. */
	for (i = 0; r == 0 && i < list.len; i += strlen(name) + 1) {
		name = (const char *)list.data + i;
		r = keep_attribute(old_fd, fd, name, &value);
	}
	buf_free(&list);
	buf_free(&value);
	return r;
}

int
attributes_keep(int old_fd, const struct stat *old, int fd)
{
	/* The mode first: it is also the mask of an inherited list. */
	if (keep_owner(old, old_fd, fd) == -1 ||
	    fchmod(fd, old->st_mode & 0777) == -1 ||
	    keep_acl(old_fd, fd) == -1 || keep_attributes(old_fd, fd) == -1)
		return -1;
	/* Removing a list takes its mask from the mode. */
	return fchmod(fd, old->st_mode & 0777);
}
