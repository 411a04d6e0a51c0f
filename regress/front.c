#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <netinet/in.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "front.h"
#include "log.h"
#include "world.h"

#define START_MS 60000

static int
shell(const char *command)
{
	return system(command);
}

const char *
front_missing(void)
{
	if (shell("openssl version >/dev/null 2>&1") != 0)
		return "openssl";
	if (shell("socat -V >/dev/null 2>&1") != 0)
		return "socat";
	if (shell("nghttpx --version >/dev/null 2>&1") != 0)
		return "nghttpx";
	return NULL;
}

static void
loopback(struct sockaddr_in *sin, int port)
{
	memset(sin, 0, sizeof(*sin));
	sin->sin_family = AF_INET;
	sin->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sin->sin_port = htons((uint16_t)port);
}

/* Two sockets may be bound to a port while not both listen. */
static int
reserve_port(int *port)
{
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	int fd, on = 1;

	loopback(&sin, 0);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd == -1 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == -1 ||
	    bind(fd, (struct sockaddr *)&sin, sizeof(sin)) == -1 ||
	    getsockname(fd, (struct sockaddr *)&sin, &len) == -1)
		fatal("no port");
	*port = ntohs(sin.sin_port);
	return fd;
}

static int
listens(int port)
{
	struct sockaddr_in sin;
	int fd, r;

	loopback(&sin, port);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	r = connect(fd, (struct sockaddr *)&sin, sizeof(sin));
	close(fd);
	return r == 0;
}

/* Waits until somebody listens, or nobody any more. */
static void
await_port(int port, int wanted)
{
	double end = world_now() + START_MS;
	int is;

	while ((is = listens(port)) != wanted && world_now() < end)
		usleep(5000);
	if (is != wanted)
		fatalx("port %d: %s", port,
		    wanted ? "nobody listens" : "somebody still listens");
}

void
front_init(struct front *f, const char *dir, int server_port)
{
	char *command;

	memset(f, 0, sizeof(*f));
	f->dir = xstrdup(dir);
	f->server = server_port;
	command = xasprintf(
	    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
	    "-nodes -days 2 -subj /CN=test "
	    "-addext subjectAltName=IP:127.0.0.1 "
	    "-keyout %s/key.pem -out %s/ca.pem 2>/dev/null",
	    dir, dir);
	if (shell(command) != 0)
		fatalx("no certificate");
	free(command);
	f->reserve = reserve_port(&f->port);
}

void
front_free(struct front *f)
{
	close(f->reserve);
	free(f->dir);
	memset(f, 0, sizeof(*f));
}

static void __attribute__((__noreturn__))
run(const struct front *f, const char *alpn, const char *option)
{
	char *argv[20], *file;
	int fd, n = 0;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setpgid(0, 0);
	file = xasprintf("%s/front.log", f->dir);
	fd = open(file, O_WRONLY | O_CREAT | O_APPEND, 0644);
	if (fd == -1 || dup2(fd, STDOUT_FILENO) == -1 ||
	    dup2(fd, STDERR_FILENO) == -1)
		fatal("%s", file);
	argv[n++] = xstrdup("nghttpx");
	argv[n++] = xstrdup("--conf=/dev/null");
	argv[n++] = xasprintf("--frontend=127.0.0.1,%d", f->port);
	argv[n++] = xasprintf("--backend=127.0.0.1,%d", f->server);
	argv[n++] = xasprintf("--errorlog-file=%s", file);
	argv[n++] = xasprintf("--accesslog-file=%s/access.log", f->dir);
	argv[n++] = xstrdup("--accesslog-format=$alpn $status $request");
	argv[n++] = xasprintf("--npn-list=%s", alpn);
	argv[n++] = xstrdup("--workers=1");
	argv[n++] = xstrdup("--no-ocsp");
	if (option != NULL)
		argv[n++] = xstrdup(option);
	argv[n++] = xasprintf("%s/key.pem", f->dir);
	argv[n++] = xasprintf("%s/ca.pem", f->dir);
	argv[n] = NULL;
	(void)execvp("nghttpx", argv);
	fatal("nghttpx");
}

pid_t
front_start(const struct front *f, const char *alpn, const char *option)
{
	pid_t pid;

	/* One that has been told to end can hold the port for a while. */
	await_port(f->port, 0);
	if ((pid = fork()) == -1)
		fatal("fork");
	if (pid == 0)
		run(f, alpn, option);
	(void)setpgid(pid, pid);
	await_port(f->port, 1);
	return pid;
}

pid_t
front_relay(const struct front *f, int *port, int *reserve)
{
	char *from, *to;
	pid_t pid;

	*reserve = reserve_port(port);
	from = xasprintf("TCP4-LISTEN:%d,bind=127.0.0.1,reuseaddr,fork", *port);
	to = xasprintf("TCP4:127.0.0.1:%d", f->port);
	if ((pid = fork()) == -1)
		fatal("fork");
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)setpgid(0, 0);
		(void)execlp(
		    "socat", "socat", "-lf/dev/null", from, to, (char *)NULL);
		fatal("socat");
	}
	(void)setpgid(pid, pid);
	await_port(*port, 1);
	free(from);
	free(to);
	return pid;
}

size_t
front_relay_freeze(pid_t relay)
{
	pid_t list[64];
	size_t n, i;

	n = world_children(relay, list, 64);
	for (i = 0; i < n; i++)
		(void)kill(list[i], SIGSTOP);
	return n;
}

void
front_relay_kill(pid_t relay)
{
	front_kill(relay);
}

void
front_kill(pid_t pid)
{
	(void)kill(-pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

int
front_answers(const struct front *f, const char *protocol)
{
	char *path = xasprintf("%s/access.log", f->dir), line[4096];
	size_t len = strlen(protocol);
	FILE *log;
	int n = 0;

	if ((log = fopen(path, "re")) == NULL)
		fatal("%s", path);
	while (fgets(line, sizeof(line), log) != NULL)
		n += strncmp(line, protocol, len) == 0 && line[len] == ' ';
	fclose(log);
	free(path);
	return n;
}
