#include "config.h"

#include <sys/types.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <seccomp.h>

#include "buf.h"
#include "filter.h"
#include "log.h"
#include "packet.h"
#include "restrict.h"
#include "sockets.h"
#include "supervisor.h"
#include "sys.h"
#include "times.h"

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

#define TYPE_MASK   0xfULL /* SOCK_TYPE_MASK */
#define RETRY_MS    10 /* a full backlog is tried again */
#define PENDING_MAX 4096
#define CONNECT_MS  20 /* the longest that one connect may hold us up */

/* A connection that is under way for a caller that waits for it. */
struct pending {
	TAILQ_ENTRY(pending) entry;
	uint64_t id; /* of the notification */
	int fd; /* duplicate of the caller's socket */
	int flags; /* its flags, to be restored */
	int retry; /* a full backlog, to be tried again */
	socklen_t len;
	struct sockaddr_storage address;
	int target; /* O_PATH of a socket file, or -1 */
};

struct supervisor {
	int listener;
	int epoll;
	int diag; /* sock_diag(7) of the sandbox's network namespace */
	const char *root_path;
	struct seccomp_notif_sizes sizes;
	struct seccomp_notif *request;
	struct seccomp_notif_resp *response;
	TAILQ_HEAD(, pending) pending;
	size_t npending;
};

int
supervisor_compile(struct sock_fprog *prog, char **error)
{
	struct scmp_arg_cmp cmp[2];
	scmp_filter_ctx ctx;
	int i, r;

	if ((ctx = seccomp_init(SCMP_ACT_ALLOW)) == NULL) {
		*error = xstrdup("seccomp: cannot make a filter");
		return -1;
	}
	(void)seccomp_attr_set(
	    ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	r = seccomp_rule_add(ctx, SCMP_ACT_NOTIFY, SCMP_SYS(connect), 0);
	for (i = 0; r >= 0 && i < 2; i++) {
		cmp[0] = SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffffULL, AF_UNIX);
		cmp[1] = SCMP_A1(SCMP_CMP_MASKED_EQ, TYPE_MASK,
		    i == 0 ? SOCK_DGRAM : SOCK_RAW);
		r = seccomp_rule_add_array(
		    ctx, SCMP_ACT_NOTIFY, SCMP_SYS(socketpair), 2, cmp);
	}
	if (r < 0)
		*error = xasprintf("seccomp notifications: %s; Linux 5.9 or "
				   "newer is needed",
		    strerror(-r));
	else if ((r = filter_export(ctx, prog)) == -1)
		*error = xstrdup("seccomp: cannot export the filter");
	seccomp_release(ctx);
	return r < 0 ? -1 : 0;
}

int
supervisor_install(const struct sock_fprog *prog)
{
	int fd;

	/* With the flag, only a fatal signal interrupts a waiting caller. */
	fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
	    SECCOMP_FILTER_FLAG_NEW_LISTENER |
		SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
	    prog);
	if (fd == -1 && errno == EINVAL)
		fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		    SECCOMP_FILTER_FLAG_NEW_LISTENER, prog);
	return fd;
}

static int
still_waiting(const struct supervisor *s, uint64_t id)
{
	return ioctl(s->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

static void
answer(struct supervisor *s, uint64_t id, int error)
{
	memset(s->response, 0, s->sizes.seccomp_notif_resp);
	s->response->id = id;
	s->response->error = -error;
	/* ENOENT: the caller was killed meanwhile. */
	if (ioctl(s->listener, SECCOMP_IOCTL_NOTIF_SEND, s->response) == -1 &&
	    errno != ENOENT)
		log_warn("supervisor: answer");
}

/* ---- the caller ---- */

/* Thread group of a thread, from its status file. */
static pid_t
thread_group(pid_t tid)
{
	char path[64], text[1024], *p;
	ssize_t n;
	int fd;

	(void)xsnprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	if ((p = strstr(text, "\nTgid:")) == NULL)
		return -1;
	return (pid_t)strtol(p + 6, NULL, 10);
}

/* A duplicate of a descriptor of the caller; -1 with errno. */
static int
take_socket(pid_t tid, int fd)
{
	int pidfd, dup;

	pidfd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD);
	if (pidfd == -1 && errno == EINVAL)
		pidfd = sys_pidfd_open(thread_group(tid));
	if (pidfd == -1)
		return -1;
	dup = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	close(pidfd);
	return dup;
}

static int
copy_address(
    pid_t tid, uint64_t from, struct sockaddr_storage *to, socklen_t len)
{
	struct iovec local = { to, len };
	struct iovec remote = { (void *)(uintptr_t)from, len };

	memset(to, 0, sizeof(*to));
	if (len == 0)
		return 0;
	if (process_vm_readv(tid, &local, 1, &remote, 1, 0) != (ssize_t)len) {
		errno = EFAULT;
		return -1;
	}
	return 0;
}

/*
 * Opens the file that a path names for the caller, in its mount tree and
 * from its working directory, without following it anywhere else.
 */
static int
open_target(pid_t tid, const char *path)
{
	char name[64], full[PATH_MAX];
	ssize_t n = 0;
	size_t len = strlen(path);
	int root, fd, save;

	if (*path != '/') {
		(void)xsnprintf(name, sizeof(name), "/proc/%d/cwd", (int)tid);
		n = readlink(name, full, sizeof(full) - 1);
		if (n <= 0 || full[0] != '/') {
			errno = ENOENT;
			return -1;
		}
		full[n++] = '/';
	}
	if ((size_t)n + len >= sizeof(full)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(full + n, path, len + 1);
	(void)xsnprintf(name, sizeof(name), "/proc/%d/root", (int)tid);
	if ((root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC)) == -1)
		return -1;
	fd = sys_openat2(root, full, O_PATH, 0, SYS_RESOLVE_IN_ROOT);
	save = errno;
	close(root);
	errno = save;
	return fd;
}

/* ---- connections ---- */

static void
pending_free(struct supervisor *s, struct pending *p)
{
	TAILQ_REMOVE(&s->pending, p, entry);
	s->npending--;
	(void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, p->fd, NULL);
	(void)fcntl(p->fd, F_SETFL, p->flags);
	close(p->fd);
	if (p->target != -1)
		close(p->target);
	free(p);
}

/*
 * 0 or an errno; does not wait. The flags belong to the caller as much as to
 * us: should somebody there clear O_NONBLOCK meanwhile, or set a time-out on
 * the socket, the timer interrupts the call again and again until it returns,
 * and the caller is told so.
 */
static int
try_connect(const struct pending *p)
{
	static const struct itimerval on = { { 0, CONNECT_MS * 1000 },
		{ 0, CONNECT_MS * 1000 } };
	static const struct itimerval off = { { 0, 0 }, { 0, 0 } };
	struct sockaddr_un un;
	const struct sockaddr *sa = (const struct sockaddr *)&p->address;
	socklen_t len = p->len;
	int error;

	if (p->target != -1) {
		/* The very inode that was looked at. */
		memset(&un, 0, sizeof(un));
		un.sun_family = AF_UNIX;
		(void)xsnprintf(un.sun_path, sizeof(un.sun_path),
		    "/proc/self/fd/%d", p->target);
		sa = (const struct sockaddr *)&un;
		len = sizeof(un);
	}
	(void)fcntl(p->fd, F_SETFL, p->flags | O_NONBLOCK);
	(void)setitimer(ITIMER_REAL, &on, NULL);
	error = connect(p->fd, sa, len) == -1 ? errno : 0;
	(void)setitimer(ITIMER_REAL, &off, NULL);
	return error;
}

/*
 * Makes the connection without ever waiting in the call: a caller that is
 * ready to wait gets its answer when the connection is there.
 */
static void
start_connect(struct supervisor *s, uint64_t id, int fd,
    const struct sockaddr_storage *address, socklen_t len, int target)
{
	struct epoll_event ev;
	struct pending *p;
	int error;

	p = xcalloc(1, sizeof(*p));
	p->id = id;
	p->fd = fd;
	p->target = target;
	p->address = *address;
	p->len = len;
	p->flags = fcntl(fd, F_GETFL);
	TAILQ_INSERT_TAIL(&s->pending, p, entry);
	s->npending++;
	error = try_connect(p);
	if (!(p->flags & O_NONBLOCK) && s->npending < PENDING_MAX) {
		if (error == EINPROGRESS) {
			ev.events = EPOLLOUT;
			ev.data.ptr = p;
			if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &ev) == 0)
				return;
			error = errno;
		} else if (error == EAGAIN) {
			p->retry = 1;
			return;
		}
	}
	pending_free(s, p);
	answer(s, id, error);
}

static void
finish_connect(struct supervisor *s, struct pending *p)
{
	uint64_t id = p->id;
	socklen_t len = sizeof(int);
	int error = 0;

	if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &len) == -1)
		error = errno;
	pending_free(s, p);
	answer(s, id, error);
}

/* Full backlogs again; callers that were killed are forgotten. */
static void
retry_pending(struct supervisor *s)
{
	struct pending *p, *next;
	uint64_t id;
	int error;

	for (p = TAILQ_FIRST(&s->pending); p != NULL; p = next) {
		next = TAILQ_NEXT(p, entry);
		if (!still_waiting(s, p->id)) {
			pending_free(s, p);
			continue;
		}
		if (!p->retry || (error = try_connect(p)) == EAGAIN)
			continue;
		id = p->id;
		pending_free(s, p);
		answer(s, id, error);
	}
}

/* ---- decisions ---- */

/*
 * What connecting to the opened file would be: 0 if its socket was bound in
 * this sandbox, else the errno to answer. A socket file that nobody of this
 * sandbox has bound may be left from an earlier command, which programs want
 * to be told as ECONNREFUSED, or be the host's, which is refused either way.
 */
static int
judge(struct supervisor *s, pid_t tid, int target)
{
	struct stat st;

	if (fstat(target, &st) == -1)
		return errno;
	if (!S_ISSOCK(st.st_mode))
		return ECONNREFUSED;
	switch (sockets_listening_here(s->diag, tid, target, &st)) {
	case 1:
		return 0;
	case 0:
		break;
	default:
		log_warn("supervisor: sock_diag");
		return EACCES;
	}
	return ECONNREFUSED;
}

static void
decide_unix(struct supervisor *s, uint64_t id, pid_t tid, int fd,
    const struct sockaddr_storage *address, socklen_t len)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)address;
	char path[sizeof(un->sun_path) + 1];
	size_t n = len - offsetof(struct sockaddr_un, sun_path);
	int target, error;

	if (len > sizeof(struct sockaddr_un)) {
		close(fd);
		answer(s, id, EINVAL);
		return;
	}
	/* Abstract names belong to the network namespace. */
	if (n == 0 || un->sun_path[0] == '\0') {
		start_connect(s, id, fd, address, len, -1);
		return;
	}
	memcpy(path, un->sun_path, n);
	path[n] = '\0';
	if ((target = open_target(tid, path)) == -1)
		error = errno;
	else
		error = judge(s, tid, target);
	/* Was all that about the process that still waits for it? */
	if (error == 0 && !still_waiting(s, id))
		error = ESRCH;
	if (error != 0) {
		if (target != -1)
			close(target);
		close(fd);
		answer(s, id, error);
		return;
	}
	start_connect(s, id, fd, address, len, target);
}

static void
decide(struct supervisor *s)
{
	struct sockaddr_storage address;
	const struct seccomp_notif *n = s->request;
	uint64_t id = n->id;
	pid_t tid = (pid_t)n->pid;
	int64_t len = (int32_t)n->data.args[2];
	socklen_t slen;
	int fd, domain = -1;

	if (len < 0 || len > (int64_t)sizeof(address)) {
		answer(s, id, EINVAL);
		return;
	}
	slen = (socklen_t)len;
	if (copy_address(tid, n->data.args[1], &address, slen) == -1 ||
	    (fd = take_socket(tid, (int)n->data.args[0])) == -1) {
		answer(s, id, errno);
		return;
	}
	/* The number might have gone to another process meanwhile. */
	if (!still_waiting(s, id)) {
		close(fd);
		return;
	}
	slen = sizeof(domain);
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &slen) == -1) {
		int error = errno;

		close(fd);
		answer(s, id, error);
		return;
	}
	slen = (socklen_t)len;
	if (domain == AF_UNIX &&
	    slen > offsetof(struct sockaddr_un, sun_path) &&
	    address.ss_family == AF_UNIX)
		decide_unix(s, id, tid, fd, &address, slen);
	else
		start_connect(s, id, fd, &address, slen, -1);
}

/* Puts a descriptor into the caller's table; its number there, or -1. */
static int
give_descriptor(struct supervisor *s, uint64_t id, int fd, int cloexec)
{
	struct seccomp_notif_addfd add;

	memset(&add, 0, sizeof(add));
	add.id = id;
	add.srcfd = (uint32_t)fd;
	add.newfd_flags = cloexec ? O_CLOEXEC : 0;
	return ioctl(s->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
}

static int
write_pair(pid_t tid, uint64_t to, const int pair[2])
{
	struct iovec local = { (void *)(uintptr_t)pair, 2 * sizeof(int) };
	struct iovec remote = { (void *)(uintptr_t)to, 2 * sizeof(int) };

	return process_vm_writev(tid, &local, 1, &remote, 1, 0) ==
		(ssize_t)(2 * sizeof(int))
	    ? 0
	    : -1;
}

static void
make_pair(struct supervisor *s)
{
	const struct seccomp_notif *n = s->request;
	int type = (int)n->data.args[1], cloexec = type & SOCK_CLOEXEC;
	int sv[2], there[2] = { -1, -1 };
	uint64_t id = n->id;
	int error = 0;

	if (n->data.args[2] != 0) {
		answer(s, id, EPROTONOSUPPORT);
		return;
	}
	if (socketpair(AF_UNIX,
		SOCK_SEQPACKET | SOCK_CLOEXEC | (type & SOCK_NONBLOCK), 0,
		sv) == -1) {
		answer(s, id, errno);
		return;
	}
	/* The place for the numbers first: nothing is given for nothing. */
	if (write_pair((pid_t)n->pid, n->data.args[3], there) == -1)
		error = EFAULT;
	else if (!still_waiting(s, id))
		error = ESRCH;
	else if ((there[0] = give_descriptor(s, id, sv[0], cloexec)) == -1 ||
	    (there[1] = give_descriptor(s, id, sv[1], cloexec)) == -1)
		error = errno;
	else if (write_pair((pid_t)n->pid, n->data.args[3], there) == -1)
		error = EFAULT;
	close(sv[0]);
	close(sv[1]);
	answer(s, id, error);
}

/* ---- life ---- */

static int
receive_listener(int channel)
{
	size_t got;
	char c;
	int fd;

	if (packet_receive(channel, &c, 1, &fd, 1, &got, 0) != 1)
		_exit(1);
	return got == 1 ? fd : -1;
}

static const char *const more_calls[] = { "openat", "openat2", "readlink",
	"readlinkat", "newfstatat", "statx", "connect", "pidfd_open",
	"pidfd_getfd", "process_vm_readv", "process_vm_writev", "setitimer",
	NULL };

static void
interrupted(int sig)
{
	(void)sig;
}

/*
 * Keeps CAP_SYS_PTRACE over the sandbox's processes, without which those
 * that are not dumpable (ssh-agent, gpg-agent) could not connect.
 */
static void
restrict_supervisor(void)
{
	struct __user_cap_header_struct hdr;
	struct __user_cap_data_struct data[2];
	struct sigaction sa;
	char *error = NULL;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1)
		fatal("supervisor: parent death signal");
	/* A call that it interrupts is not restarted. */
	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = interrupted;
	if (sigaction(SIGALRM, &sa, NULL) == -1)
		fatal("supervisor: timer");
	memset(&hdr, 0, sizeof(hdr));
	memset(data, 0, sizeof(data));
	hdr.version = _LINUX_CAPABILITY_VERSION_3;
	data[0].permitted = data[0].effective = 1U << CAP_SYS_PTRACE;
	if (syscall(SYS_capset, &hdr, data) == -1)
		fatal("supervisor: capabilities");
	if (restrict_basic(&error) == -1 ||
	    restrict_seccomp_with(more_calls, &error) == -1)
		fatalx("supervisor: %s", error);
	if (syscall(SYS_socket, AF_INET, SOCK_STREAM, 0) != -1)
		fatalx("supervisor: seccomp does not hold");
}

static void
prepare(struct supervisor *s, int channel, const char *root_path)
{
	struct epoll_event ev;

	memset(s, 0, sizeof(*s));
	TAILQ_INIT(&s->pending);
	s->root_path = root_path;
	if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &s->sizes) == -1)
		fatal("supervisor: seccomp notifications");
	if (s->sizes.seccomp_notif < sizeof(*s->request))
		s->sizes.seccomp_notif = sizeof(*s->request);
	if (s->sizes.seccomp_notif_resp < sizeof(*s->response))
		s->sizes.seccomp_notif_resp = sizeof(*s->response);
	s->request = xcalloc(1, s->sizes.seccomp_notif);
	s->response = xcalloc(1, s->sizes.seccomp_notif_resp);
	if ((s->diag = sockets_open()) == -1)
		fatal("supervisor: sock_diag (the kernel needs "
		      "CONFIG_UNIX_DIAG)");
	if ((s->epoll = epoll_create1(EPOLL_CLOEXEC)) == -1)
		fatal("supervisor: epoll");
	restrict_supervisor();
	if ((s->listener = receive_listener(channel)) == -1)
		fatalx("supervisor: no listener");
	ev.events = EPOLLIN;
	ev.data.ptr = NULL;
	if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->listener, &ev) == -1)
		fatal("supervisor: epoll");
}

static void
take_request(struct supervisor *s)
{
	memset(s->request, 0, s->sizes.seccomp_notif);
	if (ioctl(s->listener, SECCOMP_IOCTL_NOTIF_RECV, s->request) == -1) {
		/* ENOENT: the caller was killed before. */
		if (errno != ENOENT && errno != EINTR && errno != EAGAIN)
			fatal("supervisor: notification");
		return;
	}
	if (s->request->data.nr == SYS_socketpair)
		make_pair(s);
	else
		decide(s);
}

void
supervisor_main(int channel, const char *root_path)
{
	struct supervisor s;
	struct epoll_event evs[32];
	int64_t last = time_mono_ms();
	int i, n;

	(void)prctl(PR_SET_NAME, "supervisor", 0, 0, 0);
	log_init("supervisor", log_verbose());
	prepare(&s, channel, root_path);
	/* The keeper waits for this word. */
	if (write(channel, "r", 1) != 1)
		_exit(1);
	for (;;) {
		n = epoll_wait(
		    s.epoll, evs, 32, s.npending > 0 ? RETRY_MS : -1);
		if (n == -1 && errno != EINTR)
			fatal("supervisor: epoll");
		for (i = 0; i < n; i++) {
			if (evs[i].data.ptr != NULL)
				finish_connect(&s, evs[i].data.ptr);
			else if (evs[i].events & EPOLLIN)
				take_request(&s);
			else
				_exit(0); /* no process has the filter */
		}
		if (s.npending > 0 && time_mono_ms() - last >= RETRY_MS) {
			retry_pending(&s);
			last = time_mono_ms();
		}
	}
}
