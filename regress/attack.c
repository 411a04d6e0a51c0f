#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <netinet/in.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * Runs inside a sandbox and tries to reach what it must not reach, or to do
 * what it must be able to do, with Unix sockets and system calls. Prints one
 * word on how it went. test_unix.c copies it into a root.
 *
 * A listener of the host sends "H" to whoever connects, one of ours "O".
 */

static socklen_t
address(struct sockaddr_un *sun, const char *path)
{
	memset(sun, 0, sizeof(*sun));
	sun->sun_family = AF_UNIX;
	if (strlen(path) >= sizeof(sun->sun_path))
		exit(2);
	strcpy(sun->sun_path, path);
	/* "@name" stands for an abstract one */
	if (*path == '@') {
		sun->sun_path[0] = '\0';
		return (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
		    strlen(path));
	}
	return sizeof(*sun);
}

static int
stream(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd == -1) {
		printf("socket %s\n", strerrorname_np(errno));
		exit(1);
	}
	return fd;
}

/* Who answers on a connection: 'H', 'O', or 0 for nobody. */
static char
answerer(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	char c = 0;

	if (poll(&p, 1, 20000) != 1 || read(fd, &c, 1) != 1)
		return 0;
	return c;
}

static void
report(int fd, int r)
{
	char c;

	if (r == -1)
		printf("%s\n", strerrorname_np(errno));
	else if ((c = answerer(fd)) == 'H')
		printf("HOST\n");
	else
		printf("connected%s\n", c == 'O' ? " own" : "");
}

static int
listener(const char *path, int backlog)
{
	struct sockaddr_un sun;
	socklen_t len = address(&sun, path);
	int fd = stream();

	(void)unlink(path);
	if (bind(fd, (struct sockaddr *)&sun, len) == -1 ||
	    listen(fd, backlog) == -1) {
		perror(path);
		exit(1);
	}
	return fd;
}

static void *
serve(void *arg)
{
	int fd = *(int *)arg, c;

	while ((c = accept(fd, NULL, NULL)) != -1) {
		/* The peer may be gone already. */
		(void)!write(c, "O", 1);
		close(c);
	}
	return NULL;
}

static void
serve_in_thread(int *fd)
{
	pthread_t t;

	if (pthread_create(&t, NULL, serve, fd) != 0)
		exit(1);
}

/* Listens by a path and by an abstract name until it is killed. */
static void
serve_both(const char *path, const char *name)
{
	int fds[2];

	fds[0] = listener(path, 8);
	fds[1] = listener(name, 8);
	serve_in_thread(&fds[0]);
	printf("up\n");
	(void)serve(&fds[1]);
}

/* ---- races ---- */

static struct sockaddr_un flip;
static struct sockaddr_un choices[2];
static volatile int racing = 1;
static int race_fds[3]; /* used number, unix socket, inet socket */

static void *
flip_address(void *arg)
{
	unsigned int i = 0;

	(void)arg;
	while (racing)
		memcpy(&flip, &choices[i++ & 1], sizeof(flip));
	return NULL;
}

static void *
flip_descriptor(void *arg)
{
	unsigned int i = 0;

	(void)arg;
	while (racing)
		(void)dup2(race_fds[1 + (i++ & 1)], race_fds[0]);
	return NULL;
}

static double
seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* The address changes between the host's socket and an own one. */
static void
race_address(const char *host, double time)
{
	double end = seconds() + time;
	pthread_t t;
	int own, fd, reached = 0, connected = 0;

	own = listener("/tmp/race-own.sock", 64);
	serve_in_thread(&own);
	address(&choices[0], host);
	address(&choices[1], "/tmp/race-own.sock");
	if (pthread_create(&t, NULL, flip_address, NULL) != 0)
		exit(1);
	while (seconds() < end || connected == 0) {
		fd = stream();
		if (connect(fd, (struct sockaddr *)&flip, sizeof(flip)) == 0) {
			connected++;
			reached += answerer(fd) == 'H';
		}
		close(fd);
	}
	racing = 0;
	printf("%s %s\n", reached ? "HOST" : "never",
	    connected ? "tried" : "untried");
}

/* The descriptor changes between a Unix and an Internet socket. */
static void
race_descriptor(const char *host, double time)
{
	double end = seconds() + time;
	struct sockaddr_un sun;
	socklen_t len = address(&sun, host);
	pthread_t t;
	int reached = 0;

	race_fds[0] = dup(0);
	race_fds[1] = stream();
	race_fds[2] = socket(AF_INET, SOCK_STREAM, 0);
	if (pthread_create(&t, NULL, flip_descriptor, NULL) != 0)
		exit(1);
	while (seconds() < end && !reached)
		if (connect(race_fds[0], (struct sockaddr *)&sun, len) == 0)
			reached = answerer(race_fds[1]) == 'H';
	racing = 0;
	printf("%s\n", reached ? "HOST" : "never");
}

static void *
flip_link(void *arg)
{
	const char *host = arg;
	unsigned int i = 0;

	while (racing) {
		(void)unlink("/tmp/flip.new");
		if (symlink(i++ & 1 ? host : "/tmp/race-own.sock",
			"/tmp/flip.new") == -1 ||
		    rename("/tmp/flip.new", "/tmp/flip.sock") == -1)
			break;
	}
	return NULL;
}

/* The path changes between the host's socket and an own one. */
static void
race_path(const char *host, double time)
{
	double end = seconds() + time;
	struct sockaddr_un sun;
	socklen_t len = address(&sun, "/tmp/flip.sock");
	pthread_t t;
	int own, fd, reached = 0, connected = 0;

	own = listener("/tmp/race-own.sock", 64);
	serve_in_thread(&own);
	if (pthread_create(&t, NULL, flip_link, (void *)(uintptr_t)host) != 0)
		exit(1);
	while (seconds() < end || connected == 0) {
		fd = stream();
		if (connect(fd, (struct sockaddr *)&sun, len) == 0) {
			connected++;
			reached += answerer(fd) == 'H';
		}
		close(fd);
	}
	racing = 0;
	printf("%s %s\n", reached ? "HOST" : "never",
	    connected ? "tried" : "untried");
}

/* ---- single attempts ---- */

static void
try_path(const char *path)
{
	struct sockaddr_un sun;
	socklen_t len = address(&sun, path);
	int fd = stream();

	report(fd, connect(fd, (struct sockaddr *)&sun, len));
}

/* An address as long as given, filled to the end without a NUL. */
static void
try_length(long len)
{
	char raw[512];
	int fd = stream();

	memset(raw, '/', sizeof(raw));
	((struct sockaddr *)(void *)raw)->sa_family = AF_UNIX;
	report(fd, (int)syscall(SYS_connect, fd, raw, len));
}

/* A path of exactly 108 bytes that has no NUL behind it. */
static void
try_unterminated(void)
{
	struct sockaddr_un sun;
	char path[sizeof(sun.sun_path) + 1];
	int own, fd;

	memset(path, 'x', sizeof(path));
	memcpy(path, "/tmp/", 5);
	path[sizeof(sun.sun_path)] = '\0';
	memset(&sun, 0, sizeof(sun));
	sun.sun_family = AF_UNIX;
	memcpy(sun.sun_path, path, sizeof(sun.sun_path));
	own = stream();
	if (bind(own, (struct sockaddr *)&sun, sizeof(sun)) == -1 ||
	    listen(own, 1) == -1)
		perror("bind");
	serve_in_thread(&own);
	fd = stream();
	report(fd, connect(fd, (struct sockaddr *)&sun, sizeof(sun)));
	(void)unlink(path);
}

static void
try_null(void)
{
	int fd = stream();

	report(fd, (int)syscall(SYS_connect, fd, NULL, 110));
}

static void
try_not_dumpable(void)
{
	int own = listener("/tmp/agent.sock", 4);

	serve_in_thread(&own);
	if (prctl(PR_SET_DUMPABLE, 0) == -1)
		exit(1);
	try_path("/tmp/agent.sock");
}

static void
try_own(const char *path)
{
	int own = listener(path, 4);

	serve_in_thread(&own);
	try_path(path);
	(void)unlink(path);
}

/* A caller that waits for room in the backlog gets it. */
static void
try_full_backlog(void)
{
	struct sockaddr_un sun;
	socklen_t len = address(&sun, "/tmp/full.sock");
	int own = listener("/tmp/full.sock", 0), fds[3], i;

	for (i = 0; i < 2; i++) {
		fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		if (connect(fds[i], (struct sockaddr *)&sun, len) == -1)
			printf("%s ", strerrorname_np(errno));
	}
	serve_in_thread(&own);
	fds[2] = stream();
	report(fds[2], connect(fds[2], (struct sockaddr *)&sun, len));
	if (fcntl(fds[2], F_GETFL) & O_NONBLOCK)
		printf("flags changed\n");
}

static void
try_datagram(const char *host)
{
	struct sockaddr_un sun;
	socklen_t len = address(&sun, host);
	int sv[2], type = 0;
	socklen_t tlen = sizeof(type);
	char c = 0;

	if (socket(AF_UNIX, SOCK_DGRAM, 0) != -1 ||
	    socket(AF_UNIX, SOCK_RAW, 0) != -1)
		printf("datagram socket ");
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sv) == -1) {
		printf("no pair: %s\n", strerrorname_np(errno));
		return;
	}
	if (!(fcntl(sv[0], F_GETFD) & FD_CLOEXEC))
		printf("not close-on-exec ");
	(void)getsockopt(sv[0], SOL_SOCKET, SO_TYPE, &type, &tlen);
	(void)sendto(sv[0], "x", 1, 0, (struct sockaddr *)&sun, len);
	if (recv(sv[1], &c, 1, MSG_DONTWAIT) != 1 || c != 'x')
		printf("lost ");
	printf("pair %d\n", type == SOCK_SEQPACKET);
}

static void
try_load(long count)
{
	struct sockaddr_un sun;
	socklen_t len = address(&sun, "/tmp/load.sock");
	int own = listener("/tmp/load.sock", 128), fd;
	double start = seconds();
	long i, failed = 0;

	serve_in_thread(&own);
	for (i = 0; i < count; i++) {
		fd = stream();
		if (connect(fd, (struct sockaddr *)&sun, len) == -1)
			failed++;
		close(fd);
	}
	printf("%ld failed\n", failed);
	fprintf(stderr, "%.0f connects a second\n",
	    (double)count / (seconds() - start));
}

static void *
connect_to_full(void *arg)
{
	struct sockaddr_un sun;
	socklen_t len = address(&sun, "/tmp/stall-full.sock");

	(void)connect(*(int *)arg, (struct sockaddr *)&sun, len);
	return NULL;
}

/* Waits for room in a backlog, and says so by a file "waiting". */
static void
try_waiting(void)
{
	struct sockaddr_un sun;
	socklen_t len = address(&sun, "/tmp/wait-full.sock");
	int fd;

	(void)listener("/tmp/wait-full.sock", 0);
	while (fd = stream(), fcntl(fd, F_SETFL, O_NONBLOCK),
	    connect(fd, (struct sockaddr *)&sun, len) == 0)
		;
	if (open("waiting", O_WRONLY | O_CREAT, 0600) == -1)
		exit(1);
	fd = stream();
	report(fd, connect(fd, (struct sockaddr *)&sun, len));
}

/*
 * While a thread waits in connect(2) for a full backlog, another makes the
 * socket a blocking one again and again; others must be served meanwhile.
 */
static void
try_stall(void)
{
	struct sockaddr_un sun;
	socklen_t len = address(&sun, "/tmp/stall-full.sock");
	double end;
	pthread_t t;
	int own, fd, waiting;

	own = listener("/tmp/stall-full.sock", 0);
	while (fd = stream(), fcntl(fd, F_SETFL, O_NONBLOCK),
	    connect(fd, (struct sockaddr *)&sun, len) == 0)
		;
	waiting = stream();
	if (pthread_create(&t, NULL, connect_to_full, &waiting) != 0)
		exit(1);
	end = seconds() + 0.5;
	while (seconds() < end)
		(void)fcntl(waiting, F_SETFL, 0);
	(void)alarm(20);
	own = listener("/tmp/stall-own.sock", 8);
	serve_in_thread(&own);
	len = address(&sun, "/tmp/stall-own.sock");
	fd = stream();
	report(fd, connect(fd, (struct sockaddr *)&sun, len));
}

static int
compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Prints the median time of a connect in microseconds. */
static void
time_connect(void)
{
	static double t[2000];
	struct sockaddr_un sun;
	char path[64];
	socklen_t len;
	size_t i, n = sizeof(t) / sizeof(t[0]);
	int own, fd;

	(void)snprintf(path, sizeof(path), "/tmp/t%d.sock", (int)getpid());
	len = address(&sun, path);
	own = listener(path, 128);
	serve_in_thread(&own);
	for (i = 0; i < n; i++) {
		fd = stream();
		t[i] = seconds();
		if (connect(fd, (struct sockaddr *)&sun, len) == -1)
			exit(1);
		t[i] = seconds() - t[i];
		close(fd);
	}
	unlink(path);
	qsort(t, n, sizeof(t[0]), compare);
	printf("%.2f\n", t[n / 2] * 1e6);
}

static void
try_inet(void)
{
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	struct pollfd p;
	int own = socket(AF_INET, SOCK_STREAM, 0), a, b, error = -1;
	socklen_t elen = sizeof(error);

	memset(&sin, 0, sizeof(sin));
	sin.sin_family = AF_INET;
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(own, (struct sockaddr *)&sin, len) == -1 ||
	    listen(own, 4) == -1 ||
	    getsockname(own, (struct sockaddr *)&sin, &len) == -1)
		exit(1);
	a = socket(AF_INET, SOCK_STREAM, 0);
	printf("%d ", connect(a, (struct sockaddr *)&sin, len));
	b = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (connect(b, (struct sockaddr *)&sin, len) == -1)
		printf("%s ", strerrorname_np(errno));
	p.fd = b;
	p.events = POLLOUT;
	(void)poll(&p, 1, 20000);
	(void)getsockopt(b, SOL_SOCKET, SO_ERROR, &error, &elen);
	printf("%d\n", error);
}

/* Domain, type and protocol as numbers. */
static void
try_socket(char *n[])
{
	printf("%s\n",
	    socket(atoi(n[0]), atoi(n[1]), atoi(n[2])) == -1
		? strerrorname_np(errno)
		: "made");
}

/* Prints every family that is known here, or refused in another way. */
static void
try_families(void)
{
	int i;

	for (i = 1; i < 128; i++)
		if (socket(i, SOCK_STREAM, 0) != -1 || errno != EAFNOSUPPORT)
			printf("%d ", i);
	printf("\n");
}

static void
try_netlink(void)
{
	int i;

	for (i = 0; i < 32; i++)
		if (socket(AF_NETLINK, SOCK_RAW, i) != -1 ||
		    errno != EPROTONOSUPPORT)
			printf("%d ", i);
	printf("\n");
}

/* Makes each call with no arguments; "number errno" for each. */
static void
try_calls(char *numbers[])
{
	for (; *numbers != NULL; numbers++)
		printf("%s %s\n", *numbers,
		    syscall(strtol(*numbers, NULL, 10), 0, 0, 0, 0, 0, 0) == -1
			? strerrorname_np(errno)
			: "done");
}

/* ---- processes that try to outlive the command ---- */

static void __attribute__((__noreturn__)) stay(void)
{
	for (;;)
		(void)pause();
}

/* Orphans in sessions of their own that ignore what can be ignored. */
static void
leave_orphans(long count)
{
	pid_t pid;
	long i;
	int s, st;

	for (i = 0; i < count; i++) {
		if ((pid = fork()) == 0) {
			for (s = 1; s < NSIG; s++)
				(void)signal(s, SIG_IGN);
			if (fork() != 0)
				_exit(0);
			(void)setsid();
			stay();
		}
		if (pid == -1 || waitpid(pid, &st, 0) != pid) {
			perror("fork");
			exit(1);
		}
	}
}

/* A parent that the kernel keeps waiting for its child. */
static void
leave_vfork(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)setsid();
		if (vfork() == 0)
			stay();
		stay();
	}
}

/* Looks like a thread of the kernel. */
static void
leave_renamed(char *argv[])
{
	if (fork() != 0)
		return;
	(void)setsid();
	(void)prctl(PR_SET_NAME, "kworker/0:1");
	for (; *argv != NULL; argv++)
		memset(*argv, 0, strlen(*argv));
	if (fork() != 0)
		_exit(0);
	stay();
}

int
main(int argc, char *argv[])
{
	const char *what = argc > 1 ? argv[1] : "";
	const char *arg = argc > 2 ? argv[2] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	(void)signal(SIGPIPE, SIG_IGN);
	if (strcmp(what, "connect") == 0)
		try_path(arg);
	else if (strcmp(what, "serve") == 0)
		serve_both(arg, argc > 3 ? argv[3] : "");
	else if (strcmp(what, "exchange") == 0 && argc > 3)
		printf("%s\n",
		    syscall(SYS_renameat2, AT_FDCWD, arg, AT_FDCWD, argv[3],
			2U /* RENAME_EXCHANGE */) == -1
			? strerrorname_np(errno)
			: "0");
	else if (strcmp(what, "calls") == 0)
		try_calls(argv + 2);
	else if (strcmp(what, "length") == 0)
		try_length(strtol(arg, NULL, 10));
	else if (strcmp(what, "unterminated") == 0)
		try_unterminated();
	else if (strcmp(what, "null") == 0)
		try_null();
	else if (strcmp(what, "not-dumpable") == 0)
		try_not_dumpable();
	else if (strcmp(what, "full") == 0)
		try_full_backlog();
	else if (strcmp(what, "socket") == 0 && argc > 4)
		try_socket(argv + 2);
	else if (strcmp(what, "families") == 0)
		try_families();
	else if (strcmp(what, "netlink") == 0)
		try_netlink();
	else if (strcmp(what, "own") == 0)
		try_own(arg);
	else if (strcmp(what, "waiting") == 0)
		try_waiting();
	else if (strcmp(what, "stall") == 0)
		try_stall();
	else if (strcmp(what, "datagram") == 0)
		try_datagram(arg);
	else if (strcmp(what, "load") == 0)
		try_load(strtol(arg, NULL, 10));
	else if (strcmp(what, "time") == 0)
		time_connect();
	else if (strcmp(what, "inet") == 0)
		try_inet();
	else if (strcmp(what, "race-address") == 0)
		race_address(arg, 1.0);
	else if (strcmp(what, "race-path") == 0)
		race_path(arg, 1.0);
	else if (strcmp(what, "race-descriptor") == 0)
		race_descriptor(arg, 1.0);
	else if (strcmp(what, "orphans") == 0)
		leave_orphans(strtol(arg, NULL, 10));
	else if (strcmp(what, "vfork") == 0)
		leave_vfork();
	else if (strcmp(what, "renamed") == 0)
		leave_renamed(argv);
	else if (strcmp(what, "io_uring") == 0)
		printf("%s\n",
		    syscall(425, 8, NULL) == -1 ? strerrorname_np(errno)
						: "made");
	else
		return 2;
	return 0;
}
