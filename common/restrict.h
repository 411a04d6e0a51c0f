#ifndef COMMON_RESTRICT_H
#define COMMON_RESTRICT_H

#include <stddef.h>

/*
 * What a process gives up for itself. Every function returns 0, or -1 with
 * one line in *error (allocated) that names the layer, the reason and the
 * remedy; the caller then refuses to start.
 */

/* no_new_privs, not dumpable, no core file. */
int restrict_basic(char **error);

/*
 * Landlock (landlock(7)): afterwards only the listed paths can be used, each
 * with the given rights; missing paths are skipped. Needs kernel 5.13 and
 * Landlock enabled at boot.
 */
#define LL_READ  1 /* read files and list directories */
#define LL_EXEC  2 /* execute files */
#define LL_WRITE 4 /* write, create, remove, rename below it */
struct landlock_path {
	const char *path;
	int rights;
};
#define LL_NO_BIND    1 /* no TCP bind (ABI 4) */
#define LL_NO_CONNECT 2 /* no TCP connect (ABI 4) */
#define LL_SCOPED     4 /* no signals or abstract sockets out (ABI 6) */
int restrict_landlock(
    const struct landlock_path *, size_t n, int flags, char **error);

/*
 * seccomp: allow-list of system call names; anything else fails with ENOSYS,
 * the short list of calls that no process of the daemon ever makes (ptrace,
 * modules, mounts, ...) kills it. Names that this kernel or library does not
 * know are skipped. Calls of another architecture kill.
 */
int restrict_seccomp(const char *const *names, size_t n, char **error);

/* The calls that every process of the daemon needs: NULL-terminated. */
extern const char *const restrict_common_calls[];

/*
 * As restrict_seccomp with restrict_common_calls and a NULL-terminated list
 * of further names.
 */
int restrict_seccomp_with(const char *const *more, char **error);

#endif
