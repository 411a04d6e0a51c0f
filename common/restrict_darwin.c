#include "config.h"

#include <sys/types.h>
#include <sys/ptrace.h>
#include <sys/resource.h>

#include <errno.h>
#include <string.h>

#include "buf.h"
#include "restrict.h"

/*
 * macOS has no seccomp and no Landlock; the helpers are confined by their
 * Seatbelt profiles and their account (launchd.plist(5)).
 */
const char *const restrict_common_calls[] = { NULL };

int
restrict_basic(char **error)
{
	struct rlimit none = { 0, 0 };

	if (setrlimit(RLIMIT_CORE, &none) == -1) {
		*error = xasprintf("core limit: %s", strerror(errno));
		return -1;
	}
	if (ptrace(PT_DENY_ATTACH, 0, NULL, 0) == -1) {
		*error = xasprintf("deny debuggers: %s", strerror(errno));
		return -1;
	}
	return 0;
}

int
restrict_landlock(
    const struct landlock_path *paths, size_t n, int flags, char **error)
{
	(void)paths;
	(void)n;
	(void)flags;
	(void)error;
	return 0;
}

int
restrict_seccomp(const char *const *names, size_t n, char **error)
{
	(void)names;
	(void)n;
	(void)error;
	return 0;
}

int
restrict_seccomp_with(const char *const *more, char **error)
{
	(void)more;
	(void)error;
	return 0;
}
