#include "config.h"

#include <sys/types.h>
#include <sys/syscall.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "fence.h"

/* landlock(7); numbers for builds with older headers */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule       445
#define SYS_landlock_restrict_self  446
#endif
#define CREATE_VERSION 1U
#define RULE_PATH      1
#define FS_WRITE_FILE  (1ULL << 1)
#define FS_REFER       (1ULL << 13) /* ABI 2: denied unless it is granted */

struct ruleset_attr {
	uint64_t handled_access_fs;
};
struct path_attr {
	uint64_t allowed_access;
	int32_t parent_fd;
} __attribute__((__packed__));

static int
allow(int ruleset, const char *path, uint64_t access)
{
	struct path_attr attr;
	int r, save;

	attr.allowed_access = access;
	attr.parent_fd = open(path, O_PATH | O_CLOEXEC);
	if (attr.parent_fd == -1)
		return errno == ENOENT ? 0 : -1;
	r = (int)syscall(SYS_landlock_add_rule, ruleset, RULE_PATH, &attr, 0);
	save = errno;
	close(attr.parent_fd);
	errno = save;
	return r;
}

int
fence_available(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_VERSION) >=
	    2;
}

int
fence(const struct mount_plan *mp)
{
	static const char *const places[] = { "/tmp", "/var/tmp", "/dev",
		"/proc" };
	struct ruleset_attr attr = { FS_WRITE_FILE | FS_REFER };
	size_t i;
	int ruleset, r, save;

	if (!fence_available())
		return 0;
	ruleset = (int)syscall(
	    SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	if (ruleset == -1)
		return -1;
	r = allow(ruleset, "/", FS_REFER);
	for (i = 0; r == 0 && i < sizeof(places) / sizeof(places[0]); i++)
		r = allow(ruleset, places[i], FS_WRITE_FILE);
	if (r == 0)
		r = allow(ruleset, mp->root_path, FS_WRITE_FILE);
	if (r == 0)
		r = allow(ruleset, mp->home, FS_WRITE_FILE);
	if (r == 0)
		r = (int)syscall(SYS_landlock_restrict_self, ruleset, 0);
	save = errno;
	close(ruleset);
	errno = save;
	return r;
}
