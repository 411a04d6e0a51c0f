#include "config.h"

#include <sys/prctl.h>
#include <sys/syscall.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "sys.h"

/* Numbers are the same on every architecture since Linux 5.1. */
#ifndef SYS_open_tree
#define SYS_open_tree  428
#define SYS_move_mount 429
#define SYS_fsopen     430
#define SYS_fsconfig   431
#define SYS_fsmount    432
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#define X_OPEN_TREE_CLONE         1U
#define X_OPEN_TREE_CLOEXEC       O_CLOEXEC
#define X_MOVE_MOUNT_F_EMPTY_PATH 0x00000004U
#define X_MOVE_MOUNT_T_EMPTY_PATH 0x00000040U
#define X_FSOPEN_CLOEXEC          0x00000001U
#define X_FSMOUNT_CLOEXEC         0x00000001U
#define X_FSCONFIG_SET_FLAG       0U
#define X_FSCONFIG_SET_STRING     1U
#define X_FSCONFIG_CMD_CREATE     6U
#define X_RENAME_NOREPLACE        1U
#define X_CLONE_PIDFD             0x00001000ULL

struct x_mount_attr {
	uint64_t attr_set;
	uint64_t attr_clr;
	uint64_t propagation;
	uint64_t userns_fd;
};

struct x_open_how {
	uint64_t flags;
	uint64_t mode;
	uint64_t resolve;
};

struct x_clone_args {
	uint64_t flags;
	uint64_t pidfd;
	uint64_t child_tid;
	uint64_t parent_tid;
	uint64_t exit_signal;
	uint64_t stack;
	uint64_t stack_size;
	uint64_t tls;
	uint64_t set_tid; /* from here on since 5.5 and 5.7 */
	uint64_t set_tid_size;
	uint64_t cgroup;
};
#define CLONE_ARGS_SIZE_VER0 64
#define X_CLONE_INTO_CGROUP  0x200000000ULL

int
sys_open_tree_clone(int dirfd, const char *path, int recursive)
{
	unsigned int flags = X_OPEN_TREE_CLONE | X_OPEN_TREE_CLOEXEC;

	if (recursive)
		flags |= AT_RECURSIVE;
	if (*path == '\0')
		flags |= AT_EMPTY_PATH;
	return (int)syscall(SYS_open_tree, dirfd, path, flags);
}

int
sys_move_mount(int mountfd, int dirfd, const char *path)
{
	return (int)syscall(SYS_move_mount, mountfd, "", dirfd, path,
	    X_MOVE_MOUNT_F_EMPTY_PATH);
}

int
sys_move_mount_to(int mountfd, int fd)
{
	return (int)syscall(SYS_move_mount, mountfd, "", fd, "",
	    X_MOVE_MOUNT_F_EMPTY_PATH | X_MOVE_MOUNT_T_EMPTY_PATH);
}

int
sys_mount_setattr(int fd, int recursive, uint64_t set, uint64_t clear)
{
	struct x_mount_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.attr_set = set;
	attr.attr_clr = clear;
	return (int)syscall(SYS_mount_setattr, fd, "",
	    AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0), &attr,
	    sizeof(attr));
}

static int
set_option(int fs, const char *option)
{
	char name[64];
	const char *eq;
	size_t len;

	if ((eq = strchr(option, '=')) == NULL)
		return (int)syscall(
		    SYS_fsconfig, fs, X_FSCONFIG_SET_FLAG, option, NULL, 0);
	len = (size_t)(eq - option);
	if (len >= sizeof(name)) {
		errno = EINVAL;
		return -1;
	}
	memcpy(name, option, len);
	name[len] = '\0';
	return (int)syscall(
	    SYS_fsconfig, fs, X_FSCONFIG_SET_STRING, name, eq + 1, 0);
}

int
sys_mount_new(const char *type, const char *const *options, uint64_t attr)
{
	const char *const *op;
	int fs, mnt = -1, save;

	fs = (int)syscall(SYS_fsopen, type, X_FSOPEN_CLOEXEC);
	if (fs == -1)
		return -1;
	for (op = options; *op != NULL; op++)
		if (set_option(fs, *op) == -1)
			goto done;
	if (syscall(SYS_fsconfig, fs, X_FSCONFIG_CMD_CREATE, NULL, NULL, 0) ==
	    -1)
		goto done;
	mnt = (int)syscall(SYS_fsmount, fs, X_FSMOUNT_CLOEXEC, attr);
done:
	save = errno;
	close(fs);
	errno = save;
	return mnt;
}

int
sys_pivot_root(const char *new_root, const char *put_old)
{
	return (int)syscall(SYS_pivot_root, new_root, put_old);
}

int
sys_openat2(
    int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve)
{
	struct x_open_how how;
	long fd;

	memset(&how, 0, sizeof(how));
	how.flags = (uint64_t)(flags | O_CLOEXEC);
	how.mode = (flags & O_CREAT) ? mode : 0;
	how.resolve = resolve;
	/* EAGAIN: a rename during the walk; the kernel asks to try again. */
	do {
		fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
	} while (fd == -1 && (errno == EINTR || errno == EAGAIN));
	return (int)fd;
}

int
sys_rename_noreplace(int dirfd, const char *from, const char *to)
{
	return (int)syscall(
	    SYS_renameat2, dirfd, from, dirfd, to, X_RENAME_NOREPLACE);
}

pid_t
sys_clone(uint64_t flags, int *pidfd, int cgroup)
{
	struct x_clone_args args;
	size_t size = CLONE_ARGS_SIZE_VER0;
	int fd = -1;
	long pid;

	memset(&args, 0, sizeof(args));
	args.flags = flags;
	/* A sibling gets the caller's own exit signal. */
	args.exit_signal = (flags & CLONE_PARENT) ? 0 : SIGCHLD;
	if (pidfd != NULL) {
		args.flags |= X_CLONE_PIDFD;
		args.pidfd = (uint64_t)(uintptr_t)&fd;
	}
	if (cgroup != -1) {
		args.flags |= X_CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)cgroup;
		size = sizeof(args);
	}
	pid = syscall(SYS_clone3, &args, size);
	/*
	 * The filters of containers cannot see its flags and refuse it; the
	 * older call stores the descriptor where the parent's pid would be.
	 */
	if (pid == -1 && errno == ENOSYS && cgroup == -1)
		pid = syscall(SYS_clone,
		    (unsigned long)(args.flags | args.exit_signal), 0UL, &fd,
		    0UL, 0UL);
	if (pid > 0 && pidfd != NULL)
		*pidfd = fd;
	return (pid_t)pid;
}

int
sys_drop_capabilities(void)
{
	struct __user_cap_header_struct hdr;
	struct __user_cap_data_struct data[2];

	memset(&hdr, 0, sizeof(hdr));
	memset(data, 0, sizeof(data));
	hdr.version = _LINUX_CAPABILITY_VERSION_3;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == -1)
		return -1;
	return (int)syscall(SYS_capset, &hdr, data);
}

int
sys_pidfd_open(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

int
sys_pidfd_kill(int pidfd, int sig)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}
