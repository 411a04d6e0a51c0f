#include "config.h"

#ifdef __APPLE__
#include <sys/types.h>
#include <sys/acl.h>

#include <errno.h>
#endif

#include "acl.h"
#include "error.h"

#ifdef __APPLE__

/* list, search, read attributes, extended attributes and security */
#define ANCESTOR_MASK                                           \
	((acl_permset_mask_t)(ACL_LIST_DIRECTORY | ACL_SEARCH | \
	    ACL_READ_ATTRIBUTES | ACL_READ_EXTATTRIBUTES | ACL_READ_SECURITY))

static int
cannot_verify(char **error)
{
	return errorf(error,
	    "Cannot verify macOS storage ACLs on the opened object; use a "
	    "local filesystem with ACL support.");
}

static int
inherits(acl_entry_t entry, int *yes)
{
	acl_flagset_t flags;
	int file, dir;

	if (acl_get_flagset_np(entry, &flags) == -1 ||
	    (file = acl_get_flag_np(flags, ACL_ENTRY_FILE_INHERIT)) == -1 ||
	    (dir = acl_get_flag_np(flags, ACL_ENTRY_DIRECTORY_INHERIT)) == -1)
		return -1;
	*yes = file || dir;
	return 0;
}

/* 1 if some allow entry has a bit outside mask or is inheritable. */
static int
grants_beyond(acl_t acl, acl_permset_mask_t mask)
{
	acl_entry_t entry;
	acl_tag_t tag;
	acl_permset_mask_t bits;
	int id = ACL_FIRST_ENTRY, inherit;

	for (;;) {
		errno = 0;
		if (acl_get_entry(acl, id, &entry) == -1)
			return errno == EINVAL ? 0 : -1;
		id = ACL_NEXT_ENTRY;
		if (acl_get_tag_type(entry, &tag) == -1)
			return -1;
		if (tag == ACL_EXTENDED_DENY)
			continue;
		if (tag != ACL_EXTENDED_ALLOW ||
		    acl_get_permset_mask_np(entry, &bits) == -1 ||
		    inherits(entry, &inherit) == -1)
			return -1;
		if ((bits & ~mask) != 0 || mask == 0 || inherit)
			return 1;
	}
}

static int
check(int fd, const char *path, acl_permset_mask_t mask, char **error)
{
	acl_t acl;
	int r;

	errno = 0;
	if ((acl = acl_get_fd_np(fd, ACL_TYPE_EXTENDED)) == NULL)
		return errno == ENOENT ? 0 : cannot_verify(error);
	r = grants_beyond(acl, mask);
	acl_free(acl);
	if (r == -1)
		return cannot_verify(error);
	if (r == 1)
		return errorf(error,
		    "macOS ACL grants access beyond owner-only storage at %s. "
		    "Remove it with: chmod -N %s",
		    path, path);
	return 0;
}

int
acl_owner_only(int fd, const char *path, char **error)
{
	return check(fd, path, 0, error);
}

int
acl_ancestor(int fd, const char *path, char **error)
{
	return check(fd, path, ANCESTOR_MASK, error);
}

int
acl_remove(int fd, const char *path, char **error)
{
	acl_t acl;
	acl_entry_t entry;
	int r;

	errno = 0;
	if ((acl = acl_get_fd_np(fd, ACL_TYPE_EXTENDED)) == NULL)
		return errno == ENOENT ? 0 : cannot_verify(error);
	acl_free(acl);
	if ((acl = acl_init(0)) == NULL)
		return cannot_verify(error);
	r = acl_set_fd_np(fd, acl, ACL_TYPE_EXTENDED);
	acl_free(acl);
	if (r == -1)
		return error_errno(error, "remove the ACL of %s", path);
	errno = 0;
	if ((acl = acl_get_fd_np(fd, ACL_TYPE_EXTENDED)) == NULL)
		return errno == ENOENT ? 0 : cannot_verify(error);
	errno = 0;
	r = acl_get_entry(acl, ACL_FIRST_ENTRY, &entry);
	if (r == -1 && errno != EINVAL) {
		acl_free(acl);
		return cannot_verify(error);
	}
	acl_free(acl);
	if (r == 0)
		return errorf(error, "the ACL of %s cannot be removed", path);
	return 0;
}

#else

int
acl_owner_only(int fd, const char *path, char **error)
{
	(void)fd;
	(void)path;
	(void)error;
	return 0;
}

int
acl_ancestor(int fd, const char *path, char **error)
{
	(void)fd;
	(void)path;
	(void)error;
	return 0;
}

int
acl_remove(int fd, const char *path, char **error)
{
	(void)fd;
	(void)path;
	(void)error;
	return 0;
}

#endif
