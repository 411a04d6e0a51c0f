#include "config.h"

#include <sys/prctl.h>

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <seccomp.h>

/*
 * Runs a program on a machine that lacks something:
 *	without CALL=ERRNO ... -- PROGRAM [ARGUMENT ...]
 * Each system call named fails with that error (EPERM, EINVAL, ENOSYS or
 * EOPNOTSUPP), for the program and all that it starts; clone and unshare only
 * if they make a user namespace.
 */

static int
error_number(const char *name)
{
	static const struct {
		const char *name;
		int number;
	} t[] = { { "EPERM", EPERM }, { "EINVAL", EINVAL },
		{ "ENOSYS", ENOSYS }, { "EOPNOTSUPP", EOPNOTSUPP } };
	size_t i;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if (strcmp(name, t[i].name) == 0)
			return t[i].number;
	fprintf(stderr, "without: %s: unknown error\n", name);
	exit(2);
}

static void
refuse(scmp_filter_ctx ctx, char *rule)
{
	char *eq = strchr(rule, '=');
	int nr, flags;

	if (eq == NULL) {
		fprintf(stderr, "without: CALL=ERRNO is needed\n");
		exit(2);
	}
	*eq++ = '\0';
	/* Since Linux 5.1 numbers are the same everywhere. */
	nr = strcmp(rule, "mount_setattr") == 0
	    ? 442
	    : seccomp_syscall_resolve_name(rule);
	flags = strcmp(rule, "clone") == 0 || strcmp(rule, "unshare") == 0;
	if (nr == __NR_SCMP_ERROR ||
	    seccomp_rule_add(ctx,
		SCMP_ACT_ERRNO((unsigned int)error_number(eq)), nr,
		flags ? 1 : 0,
		SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER)) <
		0) {
		fprintf(stderr, "without: %s\n", rule);
		exit(2);
	}
}

int
main(int argc, char *argv[])
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int i;

	if (ctx == NULL)
		return 2;
	for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		refuse(ctx, argv[i]);
	if (i + 1 >= argc)
		return 2;
	/* Root can do without no_new_privs, as the daemon expects to. */
	if (geteuid() == 0)
		(void)seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 0);
	if (seccomp_load(ctx) < 0) {
		fprintf(stderr, "without: the filter is refused\n");
		return 2;
	}
	seccomp_release(ctx);
	(void)execv(argv[i + 1], argv + i + 1);
	perror(argv[i + 1]);
	return 127;
}
