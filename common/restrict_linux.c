#include "config.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <seccomp.h>

#include "buf.h"
#include "log.h"
#include "restrict.h"

int
restrict_basic(char **error)
{
	struct rlimit none = { 0, 0 };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1 ||
	    prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) {
		*error = xasprintf("no_new_privs: %s", strerror(errno));
		return -1;
	}
	if (setrlimit(RLIMIT_CORE, &none) == -1) {
		*error = xasprintf("core limit: %s", strerror(errno));
		return -1;
	}
	if (prctl(PR_SET_DUMPABLE, 0) == -1 || prctl(PR_GET_DUMPABLE) != 0) {
		*error = xasprintf("not dumpable: %s", strerror(errno));
		return -1;
	}
	return 0;
}

/*
 * landlock(7). The constants are spelt out because the build may have older
 * kernel headers than the machine that it runs on has a kernel.
 */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule       445
#define SYS_landlock_restrict_self  446
#endif
#define LL_CREATE_VERSION 1U
#define LL_RULE_PATH      1
#define LL_FS_EXECUTE     (1ULL << 0)
#define LL_FS_WRITE_FILE  (1ULL << 1)
#define LL_FS_READ_FILE   (1ULL << 2)
#define LL_FS_READ_DIR    (1ULL << 3)
#define LL_FS_ABI1        ((1ULL << 13) - 1)
#define LL_FS_REFER       (1ULL << 13) /* ABI 2 */
#define LL_FS_TRUNCATE    (1ULL << 14) /* ABI 3 */
#define LL_FS_IOCTL_DEV   (1ULL << 15) /* ABI 5 */
#define LL_NET_BIND       (1ULL << 0) /* ABI 4 */
#define LL_NET_CONNECT    (1ULL << 1)
#define LL_SCOPE_ABSTRACT (1ULL << 0) /* ABI 6 */
#define LL_SCOPE_SIGNAL   (1ULL << 1)

struct ll_ruleset_attr {
	uint64_t handled_access_fs;
	uint64_t handled_access_net;
	uint64_t scoped;
};

struct ll_path_attr {
	uint64_t allowed_access;
	int32_t parent_fd;
} __attribute__((__packed__));

static int
landlock_add(
    int ruleset, const struct landlock_path *lp, uint64_t handled, char **error)
{
	struct ll_path_attr attr;
	struct stat st;
	uint64_t rights = 0;
	int fd, r;

	if ((fd = open(lp->path, O_PATH | O_CLOEXEC)) == -1) {
		if (errno == ENOENT || errno == ENOTDIR || errno == EACCES)
			return 0;
		*error = xasprintf(
		    "Landlock: %s: %s", lp->path, strerror(errno));
		return -1;
	}
	if (lp->rights & LL_READ)
		rights |= LL_FS_READ_FILE | LL_FS_READ_DIR;
	if (lp->rights & LL_EXEC)
		rights |= LL_FS_EXECUTE;
	if (lp->rights & LL_WRITE)
		rights |= handled & ~LL_FS_EXECUTE & ~LL_FS_IOCTL_DEV;
	if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
		rights &= LL_FS_EXECUTE | LL_FS_WRITE_FILE | LL_FS_READ_FILE |
		    LL_FS_TRUNCATE;
	attr.allowed_access = rights & handled;
	attr.parent_fd = fd;
	r = (int)syscall(
	    SYS_landlock_add_rule, ruleset, LL_RULE_PATH, &attr, 0);
	if (r == -1)
		*error = xasprintf(
		    "Landlock: rule for %s: %s", lp->path, strerror(errno));
	close(fd);
	return r;
}

int
restrict_landlock(
    const struct landlock_path *paths, size_t n, int flags, char **error)
{
	struct ll_ruleset_attr attr;
	size_t i, size;
	long abi;
	int ruleset;

	abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LL_CREATE_VERSION);
	if (abi < 1) {
		*error = xasprintf("Landlock is not available (%s): it needs "
				   "Linux 5.13 or newer, started with "
				   "\"landlock\" in its lsm= list",
		    strerror(errno));
		return -1;
	}
	memset(&attr, 0, sizeof(attr));
	attr.handled_access_fs = LL_FS_ABI1;
	if (abi >= 2)
		attr.handled_access_fs |= LL_FS_REFER;
	if (abi >= 3)
		attr.handled_access_fs |= LL_FS_TRUNCATE;
	if (abi >= 5)
		attr.handled_access_fs |= LL_FS_IOCTL_DEV;
	size = sizeof(attr.handled_access_fs);
	if (abi >= 4) {
		if (flags & LL_NO_BIND)
			attr.handled_access_net |= LL_NET_BIND;
		if (flags & LL_NO_CONNECT)
			attr.handled_access_net |= LL_NET_CONNECT;
		size += sizeof(attr.handled_access_net);
	}
	if (abi >= 6) {
		if (flags & LL_SCOPED)
			attr.scoped = LL_SCOPE_ABSTRACT | LL_SCOPE_SIGNAL;
		size += sizeof(attr.scoped);
	}
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (ruleset == -1) {
		*error = xasprintf("Landlock: rule set: %s", strerror(errno));
		return -1;
	}
	for (i = 0; i < n; i++)
		if (landlock_add(ruleset, &paths[i], attr.handled_access_fs,
			error) == -1) {
			close(ruleset);
			return -1;
		}
	if (syscall(SYS_landlock_restrict_self, ruleset, 0) == -1) {
		*error = xasprintf("Landlock: %s", strerror(errno));
		close(ruleset);
		return -1;
	}
	close(ruleset);
	return 0;
}

const char *const restrict_common_calls[] = {
	/* memory and threads of the C library */
	"brk",
	"mmap",
	"mmap2",
	"mprotect",
	"mremap",
	"munmap",
	"madvise",
	"futex",
	"futex_time64",
	"set_robust_list",
	"rseq",
	"membarrier",
	"sched_yield",
	"sched_getaffinity",
	"getcpu",
	/* descriptors */
	"read",
	"readv",
	"pread64",
	"write",
	"writev",
	"pwrite64",
	"close",
	"close_range",
	"dup",
	"dup2",
	"dup3",
	"fcntl",
	"fcntl64",
	"fstat",
	"fstat64",
	"lseek",
	"_llseek",
	"ioctl",
	"pipe2",
	/* sockets that are already there */
	"sendmsg",
	"recvmsg",
	"sendto",
	"recvfrom",
	"send",
	"recv",
	"getsockopt",
	"setsockopt",
	"getsockname",
	"getpeername",
	"shutdown",
	"socketpair",
	/* event loop and clocks */
	"epoll_create1",
	"epoll_ctl",
	"epoll_wait",
	"epoll_pwait",
	"epoll_pwait2",
	"poll",
	"ppoll",
	"ppoll_time64",
	"select",
	"pselect6",
	"eventfd2",
	"timerfd_create",
	"timerfd_settime",
	"clock_gettime",
	"clock_gettime64",
	"clock_nanosleep",
	"clock_nanosleep_time64",
	"clock_getres",
	"gettimeofday",
	"nanosleep",
	"time",
	/* signals and ends */
	"rt_sigaction",
	"rt_sigprocmask",
	"rt_sigreturn",
	"sigaltstack",
	"restart_syscall",
	"exit",
	"exit_group",
	"tgkill",
	"getpid",
	"gettid",
	"getppid",
	/* own state */
	"getrandom",
	"getuid",
	"geteuid",
	"getgid",
	"getegid",
	"getrlimit",
	"prlimit64",
	"getrusage",
	"uname",
	"sysinfo",
	"prctl",
#ifdef SANITIZERS
	"readlink",
	"readlinkat",
	"openat",
	"open",
	"stat",
	"newfstatat",
	"sched_getparam",
	"sched_getscheduler",
	"personality",
	"getcwd",
#endif
	NULL,
};

/* No process of the daemon has a reason to try one of these. */
static const char *const killing_calls[] = {
	"ptrace",
	"process_vm_readv",
	"process_vm_writev",
	"kexec_load",
	"init_module",
	"finit_module",
	"delete_module",
	"bpf",
	"keyctl",
	"add_key",
	"request_key",
	"perf_event_open",
	"userfaultfd",
	"reboot",
	"swapon",
	"swapoff",
	"iopl",
	"ioperm",
	"acct",
	"quotactl",
	"open_by_handle_at",
	"io_uring_setup",
	NULL,
};

static int
add_rule(scmp_filter_ctx ctx, uint32_t action, const char *name, char **error)
{
	int nr, r;

	if ((nr = seccomp_syscall_resolve_name(name)) == __NR_SCMP_ERROR)
		return 0;
	/* The call does not exist on this architecture. */
	if (nr < 0)
		return 0;
	if ((r = seccomp_rule_add(ctx, action, nr, 0)) < 0) {
		*error = xasprintf(
		    "seccomp: rule for %s: %s", name, strerror(-r));
		return -1;
	}
	return 0;
}

int
restrict_seccomp(const char *const *names, size_t n, char **error)
{
	scmp_filter_ctx ctx;
	const char *const *kp;
	size_t i;
	int r;

	if ((ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS))) == NULL) {
		*error = xstrdup("seccomp: cannot make a filter");
		return -1;
	}
	(void)seccomp_attr_set(
	    ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	(void)seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	for (i = 0; i < n; i++)
		if (add_rule(ctx, SCMP_ACT_ALLOW, names[i], error) == -1)
			goto fail;
	for (kp = killing_calls; *kp != NULL; kp++) {
		/* The supervisor of a sandbox has a reason for two of them. */
		for (i = 0; i < n; i++)
			if (strcmp(names[i], *kp) == 0)
				break;
		if (i == n &&
		    add_rule(ctx, SCMP_ACT_KILL_PROCESS, *kp, error) == -1)
			goto fail;
	}
	if ((r = seccomp_load(ctx)) < 0) {
		*error = xasprintf("seccomp: %s; the kernel needs "
				   "CONFIG_SECCOMP_FILTER",
		    strerror(-r));
		goto fail;
	}
	seccomp_release(ctx);
	return 0;
fail:
	seccomp_release(ctx);
	return -1;
}

int
restrict_seccomp_with(const char *const *more, char **error)
{
	const char *names[512];
	const char *const *p;
	size_t n = 0;

	for (p = restrict_common_calls; *p != NULL; p++)
		names[n++] = *p;
	for (p = more; *p != NULL; p++) {
		if (n == sizeof(names) / sizeof(names[0]))
			fatalx("seccomp: too many names");
		names[n++] = *p;
	}
	return restrict_seccomp(names, n, error);
}
