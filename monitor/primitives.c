#include "config.h"

#include <sys/types.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "primitives.h"
#include "times.h"

#define PROBE_MS 15000

#ifndef SECCOMP_FILTER_FLAG_NEW_LISTENER
#define SECCOMP_FILTER_FLAG_NEW_LISTENER (1UL << 3)
#endif
#ifndef SECCOMP_RET_USER_NOTIF
#define SECCOMP_RET_USER_NOTIF 0x7fc00000U
#endif
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

static int __attribute__((__format__(__printf__, 3, 4)))
failed(char *text, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, size, fmt, ap);
	va_end(ap);
	return -1;
}

/* The first character of a kernel setting, or 0. */
static char
setting(const char *path)
{
	char c = '\0';
	int fd, save = errno;

	/* The caller has an error to report. */
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) != -1) {
		if (read(fd, &c, 1) != 1)
			c = '\0';
		close(fd);
	}
	errno = save;
	return c;
}

/* Why namespaces or mounts are refused, and what to do about it. */
static const char *
remedy(void)
{
	if (setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") ==
	    '1')
		return "AppArmor restricts user namespaces "
		       "(kernel.apparmor_restrict_unprivileged_userns): load "
		       "the profile librechat-code.apparmor of this package";
	if (setting("/proc/sys/kernel/unprivileged_userns_clone") == '0')
		return "set the sysctl kernel.unprivileged_userns_clone to 1";
	if (setting("/proc/sys/user/max_user_namespaces") == '0')
		return "set the sysctl user.max_user_namespaces to 10000";
	return "in a container, allow user namespaces and mounts: for Docker "
	       "--security-opt seccomp=unconfined --security-opt "
	       "apparmor=unconfined --security-opt systempaths=unconfined";
}

static int
write_file(const char *path, const char *data)
{
	ssize_t n;
	int fd, save;

	if ((fd = open(path, O_WRONLY | O_CLOEXEC)) == -1)
		return -1;
	n = write(fd, data, strlen(data));
	save = errno;
	close(fd);
	errno = save;
	return n == (ssize_t)strlen(data) ? 0 : -1;
}

/* An own user namespace with the account in it, and more namespaces. */
static int
enter(int more, char *text, size_t size)
{
	unsigned long uid = geteuid(), gid = getegid();
	char map[64];

	(void)prctl(PR_SET_DUMPABLE, 1);
	if (unshare(CLONE_NEWUSER | more) == -1)
		return failed(
		    text, size, "unshare: %s; %s", strerror(errno), remedy());
	if (write_file("/proc/self/setgroups", "deny") == -1)
		return failed(
		    text, size, "setgroups: %s; %s", strerror(errno), remedy());
	(void)xsnprintf(map, sizeof(map), "%lu %lu 1", uid, uid);
	if (write_file("/proc/self/uid_map", map) == -1)
		return failed(
		    text, size, "uid_map: %s; %s", strerror(errno), remedy());
	(void)xsnprintf(map, sizeof(map), "%lu %lu 1", gid, gid);
	if (write_file("/proc/self/gid_map", map) == -1)
		return failed(
		    text, size, "gid_map: %s; %s", strerror(errno), remedy());
	return 0;
}

static int
probe_user(char *text, size_t size)
{
	return enter(0, text, size);
}

static int
probe_mount(char *text, size_t size)
{
	if (enter(CLONE_NEWNS, text, size) == -1)
		return -1;
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == -1 ||
	    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV,
		"mode=0700,size=64k") == -1)
		return failed(
		    text, size, "tmpfs: %s; %s", strerror(errno), remedy());
	if (syscall(SYS_mount_setattr, -1, "", 0, NULL, 0) == -1 &&
	    errno == ENOSYS)
		return failed(
		    text, size, "mount_setattr: Linux 5.12 or newer is needed");
	return 0;
}

static int
probe_proc(char *text, size_t size)
{
	pid_t pid;
	int status;

	if (enter(CLONE_NEWNS | CLONE_NEWPID, text, size) == -1)
		return -1;
	if ((pid = fork()) == -1)
		return failed(text, size, "fork: %s", strerror(errno));
	if (pid == 0) {
		if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == -1 ||
		    mount("proc", "/proc", "proc",
			MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == -1)
			_exit(errno & 255);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) == -1 || !WIFEXITED(status))
		return failed(text, size, "no answer");
	if (WEXITSTATUS(status) != 0)
		return failed(text, size, "mount: %s; %s",
		    strerror(WEXITSTATUS(status)), remedy());
	return 0;
}

static int
probe_net(char *text, size_t size)
{
	struct ifreq ifr;
	int fd;

	if (enter(CLONE_NEWNET, text, size) == -1)
		return -1;
	memset(&ifr, 0, sizeof(ifr));
	(void)xsnprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "lo");
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd == -1 || ioctl(fd, SIOCGIFFLAGS, &ifr) == -1)
		return failed(text, size, "loopback: %s", strerror(errno));
	ifr.ifr_flags = (short)(ifr.ifr_flags | IFF_UP | IFF_RUNNING);
	if (ioctl(fd, SIOCSIFFLAGS, &ifr) == -1)
		return failed(
		    text, size, "loopback: %s; %s", strerror(errno), remedy());
	return 0;
}

/* Installs a filter that does action to getppid(2); the descriptor, or -1. */
static long
install(unsigned int action, unsigned long flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
		    offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1)
		return -1;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

static int
probe_seccomp(char *text, size_t size)
{
	if (install(SECCOMP_RET_ERRNO | EDOM, 0) == -1)
		return failed(text, size,
		    "%s; the kernel needs CONFIG_SECCOMP_FILTER",
		    strerror(errno));
	if (syscall(SYS_getppid) != -1 || errno != EDOM)
		return failed(text, size, "a filter has no effect");
	return 0;
}

static int
probe_notify(char *text, size_t size)
{
	if (install(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER) ==
	    -1)
		return failed(text, size,
		    "%s; Linux 5.9 or newer is needed, and a container whose "
		    "own filter permits seccomp(2)",
		    strerror(errno));
	return 0;
}

static int
probe_landlock(char *text, size_t size)
{
	long abi;

	abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1U);
	if (abi < 1)
		return failed(text, size,
		    "%s; Linux 5.13 or newer is needed, started with "
		    "\"landlock\" in its lsm= list",
		    strerror(errno));
	(void)xsnprintf(text, size, "ABI %ld%s", abi,
	    abi < 4 ? ", without TCP rules (Linux 6.7)" : "");
	return 0;
}

/* A namespace's own limits (user_namespaces(7)); see executor/bounds.h. */
static int
probe_inotify(char *text, size_t size)
{
	if (enter(0, text, size) == -1)
		return -1;
	if (write_file("/proc/sys/user/max_inotify_instances", "64") == -1 ||
	    write_file("/proc/sys/user/max_inotify_watches", "1024") == -1)
		return failed(text, size,
		    "%s; commands of one workspace can use up what the account "
		    "has",
		    strerror(errno));
	return 0;
}

/* Runs a program from the path that commands get; its output is dropped. */
static int
probe_program(const char *name, const char *arg, const char *package,
    char *text, size_t size)
{
	pid_t pid;
	int fd, status;

	if ((pid = fork()) == -1)
		return failed(text, size, "fork: %s", strerror(errno));
	if (pid == 0) {
		if ((fd = open("/dev/null", O_RDWR)) == -1 ||
		    dup2(fd, STDIN_FILENO) == -1 ||
		    dup2(fd, STDOUT_FILENO) == -1 ||
		    dup2(fd, STDERR_FILENO) == -1)
			_exit(126);
		(void)execlp(name, name, arg, (char *)NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) == -1 || !WIFEXITED(status) ||
	    WEXITSTATUS(status) != 0)
		return failed(text, size,
		    "%s cannot be run; install the package %s", name, package);
	return 0;
}

static int
probe_bash(char *text, size_t size)
{
	return probe_program("/bin/bash", "--version", "bash", text, size);
}

static int
probe_rg(char *text, size_t size)
{
	return probe_program("rg", "--version", "ripgrep", text, size);
}

static int
probe_git(char *text, size_t size)
{
	return probe_program("git", "--version", "git", text, size);
}

const struct primitive primitives[] = {
	{ "user namespace", 1, probe_user },
	{ "mount", 1, probe_mount },
	{ "/proc", 1, probe_proc },
	{ "network namespace", 1, probe_net },
	{ "seccomp", 1, probe_seccomp },
	{ "seccomp notifications", 1, probe_notify },
	{ "Landlock", 1, probe_landlock },
	{ "inotify limits", 0, probe_inotify },
	{ "bash", 1, probe_bash },
	{ "rg", 1, probe_rg },
	{ "git", 0, probe_git },
};
const size_t nprimitives = sizeof(primitives) / sizeof(primitives[0]);

static void __attribute__((__noreturn__))
child(const struct primitive *p, const struct account *as, int fd)
{
	char text[512] = "";
	int r;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (as != NULL && proc_become(as->uid, as->gid) == -1)
		r = failed(text, sizeof(text), "become %s: %s", as->name,
		    strerror(errno));
	else
		r = p->probe(text, sizeof(text));
	(void)!write(fd, text, strlen(text));
	_exit(r == 0 ? 0 : 1);
}

/* Reads until the end or the time is over; terminates the text. */
static void
read_text(int fd, char *text, size_t size)
{
	int64_t end = time_mono_ms() + PROBE_MS, left;
	struct pollfd pfd = { fd, POLLIN, 0 };
	size_t got = 0;
	ssize_t n;

	while (got < size - 1 && (left = end - time_mono_ms()) > 0) {
		if (poll(&pfd, 1, (int)left) <= 0)
			continue;
		n = read(fd, text + got, size - 1 - got);
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	text[got] = '\0';
}

/* It closed its end, so it ends now or hangs: the wait status. */
static int
wait_or_kill(pid_t pid)
{
	int64_t end = time_mono_ms() + 1000;
	int status = 0;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (time_mono_ms() >= end)
			(void)kill(pid, SIGKILL);
		(void)poll(NULL, 0, 1);
	}
	return status;
}

int
primitive_run(const struct primitive *p, const struct account *as, char *text,
    size_t size)
{
	int fds[2], status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) == -1 || (pid = fork()) == -1)
		return failed(text, size, "%s", strerror(errno));
	if (pid == 0) {
		close(fds[0]);
		child(p, as, fds[1]);
	}
	close(fds[1]);
	read_text(fds[0], text, size);
	close(fds[0]);
	status = wait_or_kill(pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (text[0] == '\0')
		return failed(text, size, "the probe died or did not end");
	return -1;
}
