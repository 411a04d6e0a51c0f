#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bounds.h"
#include "buf.h"
#include "files.h"
#include "keeper.h"
#include "net.h"
#include "packet.h"
#include "proc.h"
#include "supervisor.h"
#include "sys.h"

#define PACKET_MAX (64 * 1024)

/* Supervisor and file process, for the signal handler. */
static pid_t needed[2];

static int
write_file(const char *path, const char *text)
{
	ssize_t n;
	int fd, save;

	if ((fd = open(path, O_WRONLY | O_CLOEXEC)) == -1)
		return -1;
	n = write(fd, text, strlen(text));
	save = errno;
	close(fd);
	errno = save;
	return n == (ssize_t)strlen(text) ? 0 : -1;
}

int
keeper_map_account(uid_t uid, gid_t gid, struct step_error *se)
{
	char map[64];

	/* The files below belong to root in a process that is not dumpable. */
	if (prctl(PR_SET_DUMPABLE, 1) == -1)
		return step_failed(se, "user namespace: dumpable");
	if (write_file("/proc/self/setgroups", "deny") == -1)
		return step_failed(se, "user namespace: setgroups");
	(void)xsnprintf(map, sizeof(map), "%lu %lu 1", (unsigned long)uid,
	    (unsigned long)uid);
	if (write_file("/proc/self/uid_map", map) == -1)
		return step_failed(se, "user namespace: uid_map");
	(void)xsnprintf(map, sizeof(map), "%lu %lu 1", (unsigned long)gid,
	    (unsigned long)gid);
	if (write_file("/proc/self/gid_map", map) == -1)
		return step_failed(se, "user namespace: gid_map");
	if (prctl(PR_SET_DUMPABLE, 0) == -1)
		return step_failed(se, "user namespace: not dumpable");
	return 0;
}

/*
 * The bounding set is emptied, so no program can gain anything; the keeper
 * itself keeps what cloning with namespaces and mounting /proc needs.
 */
static int
limit_capabilities(struct step_error *se)
{
	struct __user_cap_header_struct hdr;
	struct __user_cap_data_struct data[2];
	int cap;

	for (cap = 0; cap < 64; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == -1 &&
		    errno != EINVAL)
			return step_failed(se, "capability bounding set");
	memset(&hdr, 0, sizeof(hdr));
	memset(data, 0, sizeof(data));
	hdr.version = _LINUX_CAPABILITY_VERSION_3;
	data[CAP_SYS_ADMIN >> 5].permitted = 1U << (CAP_SYS_ADMIN & 31);
	data[CAP_SYS_ADMIN >> 5].effective = 1U << (CAP_SYS_ADMIN & 31);
	if (syscall(SYS_capset, &hdr, data) == -1)
		return step_failed(se, "capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1)
		return step_failed(se, "no_new_privs");
	return 0;
}

/* The promise "nothing but the root is writable", by a real attempt. */
static int
verify(const struct keeper *k, struct step_error *se)
{
	static const char *const places[] = { "/.librechat-code-probe",
		"/usr/.librechat-code-probe", "/etc/.librechat-code-probe",
		"/dev/.librechat-code-probe", "/proc/sys/kernel/hostname" };
	size_t i;
	int fd;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		fd = open(places[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (fd == -1)
			continue;
		close(fd);
		/* /proc/sys becomes read-only with the /proc of a command. */
		if (strncmp(places[i], "/proc/", 6) == 0)
			continue;
		(void)unlink(places[i]);
		errno = EEXIST;
		return step_failed(se, "%s could be written", places[i]);
	}
	if (access("/proc/self/status", R_OK) == -1)
		return step_failed(se, "/proc/self");
	if (faccessat(k->root, ".", X_OK, 0) == -1)
		return step_failed(se, "root %s: the account may not enter it",
		    k->plan->root_path);
	if (access("/bin/bash", X_OK) == -1)
		return step_failed(se, "/bin/bash");
	return 0;
}

static int
set_up(struct keeper *k, struct step_error *se)
{
	if (keeper_map_account(k->plan->uid, k->plan->gid, se) == -1)
		return -1;
	bounds_sandbox();
	if (net_loopback_up() == -1)
		return step_failed(se, "loopback interface");
	if ((k->root = mount_build(k->plan, se)) == -1)
		return -1;
	/* In a new mount namespace the working directory is what moves along.
	 */
	if (fchdir(k->root) == -1)
		return step_failed(se, "root %s", k->plan->root_path);
	if ((k->null = open("/dev/null", O_RDONLY | O_CLOEXEC)) == -1)
		return step_failed(se, "/dev/null");
	return verify(k, se);
}

/*
 * Forks the supervisor and then takes its filter, which every later child
 * inherits. The listener exists only in the supervisor, so that its death is
 * noticed by whoever connects.
 */
static int
start_supervisor(struct keeper *k, struct step_error *se)
{
	char c = 'l';
	struct iovec iov = { &c, 1 };
	int sv[2], listener;
	pid_t pid;

	if (proc_socketpair(sv) == -1)
		return step_failed(se, "supervisor: socketpair");
	if ((pid = fork()) == -1)
		return step_failed(se, "supervisor: fork");
	if (pid == 0) {
		close(sv[0]);
		close(k->control);
		close(k->files);
		if (k->group != -1)
			close(k->group);
		supervisor_main(sv[1], k->plan->root_path);
	}
	close(sv[1]);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1)
		return step_failed(se, "no_new_privs");
	if ((listener = supervisor_install(k->notify)) == -1)
		return step_failed(se, "supervisor: seccomp notifications");
	if (packet_send(sv[0], &iov, 1, &listener, 1) == -1)
		return step_failed(se, "supervisor: listener");
	close(listener);
	if (read(sv[0], &c, 1) != 1) {
		errno = ECHILD;
		return step_failed(se, "supervisor: did not start");
	}
	close(sv[0]);
	needed[0] = pid;
	return 0;
}

/* The file process: same mount tree, no capability, its own filter. */
static int
start_files(struct keeper *k, struct step_error *se)
{
	pid_t pid;

	if ((pid = fork()) == -1)
		return step_failed(se, "file process: fork");
	if (pid == 0) {
		/* Process 1 of the namespace cannot die before it. */
		close(k->control);
		if (k->group != -1)
			close(k->group);
		files_main(k->files, k->root, k->plan->root_path);
	}
	close(k->files);
	needed[1] = pid;
	return 0;
}

/*
 * Reaps commands, whose pidfds the executor has. A sandbox without its
 * supervisor or its file process is of no more use: it ends, and the end of
 * the control channel tells the executor.
 */
static void
on_child(int sig)
{
	int save = errno;
	pid_t pid;

	(void)sig;
	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		if (pid == needed[0] || pid == needed[1])
			_exit(1);
	errno = save;
}

static int
watch_children(struct step_error *se)
{
	struct sigaction sa;

	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = on_child;
	sa.sa_flags = SA_RESTART | SA_NOCLDSTOP;
	sigemptyset(&sa.sa_mask);
	if (sigaction(SIGCHLD, &sa, NULL) == -1)
		return step_failed(se, "children");
	/* One of them may have ended before. */
	on_child(SIGCHLD);
	return 0;
}

static int
answer(int sock, int error, int pidfd)
{
	struct run_answer ra = { error };
	struct iovec iov = { &ra, sizeof(ra) };

	return packet_send(sock, &iov, 1, &pidfd, pidfd == -1 ? 0 : 1);
}

/* Starts one command; -1 only if the executor cannot be answered. */
static int
run(struct keeper *k, uint8_t *p, size_t n, int *fds)
{
	struct run_packet rp;
	char *cwd, *command;
	pid_t pid;
	int pidfd = -1, r;

	if (n < sizeof(rp))
		_exit(1);
	memcpy(&rp, p, sizeof(rp));
	if (rp.cwd_len > n || rp.command_len > n ||
	    sizeof(rp) + rp.cwd_len + rp.command_len != n)
		_exit(1);
	cwd = xstrndup((char *)p + sizeof(rp), rp.cwd_len);
	command = xstrndup((char *)p + sizeof(rp) + rp.cwd_len, rp.command_len);
	pid = sys_clone(CLONE_NEWPID | CLONE_NEWNS, &pidfd, k->group);
	if (pid == 0)
		init_main(k, cwd, command, fds[0], fds[1], fds[2]);
	r = answer(k->control, pid == -1 ? errno : 0, pidfd);
	if (pidfd != -1)
		close(pidfd);
	free(cwd);
	free(command);
	return r;
}

void
keeper_main(struct keeper *k)
{
	struct keeper_ready ready;
	uint8_t *packet;
	size_t got;
	ssize_t n;
	int fds[3];

	(void)signal(SIGCHLD, SIG_DFL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1)
		_exit(1);
	(void)prctl(PR_SET_NAME, "sandbox", 0, 0, 0);
	memset(&ready, 0, sizeof(ready));
	if (set_up(k, &ready.error) == 0 &&
	    start_supervisor(k, &ready.error) == 0 &&
	    limit_capabilities(&ready.error) == 0 &&
	    start_files(k, &ready.error) == 0 &&
	    watch_children(&ready.error) == 0)
		ready.ok = 1;
	if (send(k->control, &ready, sizeof(ready), MSG_NOSIGNAL) == -1 ||
	    !ready.ok)
		_exit(1);
	packet = xmalloc(PACKET_MAX);
	for (;;) {
		n = packet_receive(
		    k->control, packet, PACKET_MAX, fds, 3, &got, 0);
		if (n <= 0)
			_exit(0);
		if (got != 3 || run(k, packet, (size_t)n, fds) == -1)
			_exit(1);
		packet_close(fds, 3);
	}
}
