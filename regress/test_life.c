#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../monitor/status.h"
#include "buf.h"
#include "json.h"
#include "log.h"
#include "world.h"

/*
 * The daemon's life among a service manager, proxies and networks, and what
 * it says about it.
 */

static void
expect_work(struct world *w)
{
	struct json *j;

	assert_int_equal(world_run(w, "echo works", &j), 200);
	assert_string_equal(json_get_str(j, "stdout"), "works\n");
	json_free(j);
}

static void
finish(struct world *w)
{
	world_signal(w, SIGTERM);
	assert_int_equal(world_worker_end(w, 10000), 0);
	world_free(w);
}

/* ---- the service manager ---- */

static int
manager_socket(const char *name)
{
	struct sockaddr_un sun;
	size_t n = strlen(name);
	int fd;

	memset(&sun, 0, sizeof(sun));
	sun.sun_family = AF_UNIX;
	memcpy(sun.sun_path, name, n);
	if (*name == '@')
		sun.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_not_equal(fd, -1);
	assert_int_equal(
	    bind(fd, (struct sockaddr *)&sun,
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)),
	    0);
	return fd;
}

/* Reads messages until one has the text; the number read, or 0. */
static int
await_message(int fd, const char *text)
{
	char message[512];
	struct pollfd p = { fd, POLLIN, 0 };
	ssize_t n;
	int count = 0;

	while (poll(&p, 1, 20000) == 1) {
		n = recv(fd, message, sizeof(message) - 1, 0);
		assert_true(n > 0);
		message[n] = '\0';
		count++;
		if (strstr(message, text) != NULL)
			return count;
	}
	return 0;
}

static void
notifies(const char *name)
{
	struct world w;
	int fd = manager_socket(name);

	world_init(&w, 0);
	world_server(&w, NULL);
	world_pair(&w);
	setenv("NOTIFY_SOCKET", name, 1);
	setenv("WATCHDOG_USEC", "200000", 1);
	/* A server that is down first: not ready before it registers. */
	json_free(world_control(&w, "faults",
	    "{\"rules\":[{\"route\":\"register\",\"action\":\"status\","
	    "\"count\":1}]}"));
	world_worker(&w, "--allow-workspace-commands", NULL);
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	assert_int_not_equal(await_message(fd, "WATCHDOG=1"), 0);
	assert_int_not_equal(
	    await_message(fd, "STATUS=reconnecting after register: HTTP 503"),
	    0);
	assert_int_not_equal(
	    await_message(fd, "READY=1\nSTATUS=registered as test-worker"), 0);
	assert_int_not_equal(await_message(fd, "WATCHDOG=1"), 0);
	assert_int_not_equal(await_message(fd, "WATCHDOG=1"), 0);
	/* Commands know nothing of it. */
	assert_true(world_wait(&w, "leasing", 20000));
	{
		struct json *j;

		assert_int_equal(
		    world_run(&w, "env | grep -cE 'NOTIFY|WATCHDOG'", &j), 200);
		assert_string_equal(json_get_str(j, "stdout"), "0\n");
		json_free(j);
	}
	world_signal(&w, SIGTERM);
	assert_int_not_equal(await_message(fd, "STOPPING=1"), 0);
	assert_int_equal(world_worker_end(&w, 10000), 0);
	close(fd);
	world_free(&w);
}

static void
service_manager_is_told_by_path(void **state)
{
	char dir[] = "/tmp/librechat-code-notify.XXXXXX";
	char *name;

	(void)state;
	assert_non_null(mkdtemp(dir));
	name = xasprintf("%s/notify", dir);
	notifies(name);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(rmdir(dir), 0);
	free(name);
}

static void
service_manager_is_told_by_an_abstract_name(void **state)
{
	char *name = xasprintf("@librechat-code-notify-%d", (int)getpid());

	(void)state;
	notifies(name);
	free(name);
}

static void
the_service_file_is_valid(void **state)
{
	const char *unit = getenv("UNIT"), *program = getenv("PROGRAM");
	char dir[] = "/tmp/librechat-code-unit.XXXXXX", text[8192], *copy;
	char *start, *end;
	ssize_t n;
	pid_t pid;
	int fd, status;

	(void)state;
	if (access("/usr/bin/systemd-analyze", X_OK) == -1) {
		print_message("there is no systemd-analyze\n");
		skip();
	}
	assert_true(unit != NULL && program != NULL);
	assert_int_not_equal(fd = open(unit, O_RDONLY | O_CLOEXEC), -1);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_true(n > 0);
	text[n] = '\0';
	/* The program is where it is staged. */
	assert_non_null(start = strstr(text, "\nExecStart="));
	start += strlen("\nExecStart=");
	assert_non_null(end = strchr(start, ' '));
	assert_non_null(mkdtemp(dir));
	copy = xasprintf("%s/librechat-code.service", dir);
	fd = open(copy, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_int_not_equal(fd, -1);
	assert_true(dprintf(fd, "%.*s%s%s", (int)(start - text), text, program,
			end) > 0);
	close(fd);
	if ((pid = fork()) == 0) {
		(void)execl("/usr/bin/systemd-analyze", "systemd-analyze",
		    "verify", "--man=no", copy, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(unlink(copy), 0);
	assert_int_equal(rmdir(dir), 0);
	free(copy);
	assert_int_equal(status, 0);
}

/* ---- the log ---- */

static int
lines_of(int fd)
{
	static char text[1 << 20];
	ssize_t n = pread(fd, text, sizeof(text), 0);
	ssize_t i;
	int lines = 0;

	for (i = 0; i < n; i++)
		lines += text[i] == '\n';
	return lines;
}

/*
 * A server that is dead for an hour is one line; one that comes and goes all
 * the time costs ten lines and then one a minute: 70 in the first hour.
 */
static void
a_dead_server_fills_no_log(void **state)
{
	char file[] = "/tmp/librechat-code-log.XXXXXX";
	struct status *s;
	int fd, saved, i, dead, flapping, warned;

	(void)state;
	fd = mkstemp(file);
	assert_int_not_equal(fd, -1);
	assert_int_equal(unlink(file), 0);
	saved = dup(STDERR_FILENO);
	fflush(stderr);
	assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	s = status_new(1);
	for (i = 0; i < 3600; i++)
		status_tell(s, "reconnecting after register: refused", 0);
	dead = lines_of(fd);
	for (i = 0; i < 3600; i++)
		status_tell(s, i % 2 == 0 ? "registered" : "reconnecting", 0);
	flapping = lines_of(fd) - dead;
	for (i = 0; i < 3600; i++)
		log_warnx("the same trouble, number %d", i);
	warned = lines_of(fd) - dead - flapping;
	status_free(s);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fd);
	assert_int_equal(dead, 1);
	assert_true(dead + flapping <= STATUS_BURST + 1);
	assert_int_equal(warned, 10);
}

static void
priorities_are_told_to_the_journal_only(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 0);
	world_server(&w, NULL);
	world_start(&w);
	expect_work(&w);
	assert_true(world_log_has(&w, "librechat-code: registered as"));
	assert_false(world_log_has(&w, "<6>"));
	finish(&w);
}

/* ---- networks ---- */

static void
loopback_of_ip_6(void **state)
{
	struct sockaddr_in6 sin6;
	struct world w;
	int fd, r;

	(void)state;
	memset(&sin6, 0, sizeof(sin6));
	sin6.sin6_family = AF_INET6;
	sin6.sin6_addr = in6addr_loopback;
	fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	r = fd == -1 ? -1 : bind(fd, (struct sockaddr *)&sin6, sizeof(sin6));
	if (fd != -1)
		close(fd);
	if (r == -1) {
		print_message("there is no IPv6 loopback\n");
		skip();
	}
	world_init(&w, 0);
	world_server(&w, "--listen", "[::1]:0", NULL);
	assert_non_null(strstr(w.url, "//[::1]:"));
	world_start(&w);
	expect_work(&w);
	finish(&w);
}

/*
 * A forward proxy: CONNECT makes a tunnel, a request with an absolute URL is
 * passed on. It counts into the pipe what it was asked for ("C" or "P").
 */
static void __attribute__((__noreturn__)) proxy_connection(int c, int count)
{
	static char head[65536];
	struct sockaddr_in sin;
	struct pollfd p[2];
	char *port, *path, *end, *start;
	size_t n = 0, skip;
	ssize_t got;
	int s, tunnel, i;

	do {
		got = read(c, head + n, sizeof(head) - 1 - n);
		if (got <= 0)
			_exit(0);
		n += (size_t)got;
		head[n] = '\0';
	} while ((end = strstr(head, "\r\n\r\n")) == NULL);
	tunnel = strncmp(head, "CONNECT ", 8) == 0;
	(void)!write(count, tunnel ? "C" : "P", 1);
	start = tunnel ? head + 8 : strstr(head, "://") + 3;
	port = strchr(start, ':') + 1;
	memset(&sin, 0, sizeof(sin));
	sin.sin_family = AF_INET;
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sin.sin_port = htons((uint16_t)strtol(port, &path, 10));
	s = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(s, (struct sockaddr *)&sin, sizeof(sin)) == -1)
		_exit(1);
	if (tunnel) {
		if (write(c, "HTTP/1.1 200 OK\r\n\r\n", 19) != 19)
			_exit(1);
		skip = (size_t)(end + 4 - head);
	} else {
		/*
		 * "POST http://host:port/path ..." becomes "POST /path"; the
		 * server closes after one answer.
		 */
		start = strstr(path, "\r\n") + 2;
		if (write(s, "POST ", 5) != 5 ||
		    write(s, path, (size_t)(start - path)) != start - path ||
		    write(s, "Connection: close\r\n", 19) != 19)
			_exit(1);
		skip = (size_t)(start - head);
	}
	if (n > skip && write(s, head + skip, n - skip) == -1)
		_exit(1);
	p[0].fd = c;
	p[1].fd = s;
	p[0].events = p[1].events = POLLIN;
	while (poll(p, 2, -1) > 0)
		for (i = 0; i < 2; i++) {
			if ((p[i].revents & (POLLIN | POLLHUP)) == 0)
				continue;
			got = read(p[i].fd, head, sizeof(head));
			if (got <= 0 ||
			    write(p[1 - i].fd, head, (size_t)got) != got)
				_exit(0);
		}
	_exit(0);
}

struct proxy {
	pid_t pid;
	int port;
	int count; /* read end of the pipe */
};

static void
proxy_start(struct proxy *x)
{
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	int fd, c, fds[2];

	memset(&sin, 0, sizeof(sin));
	sin.sin_family = AF_INET;
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(listen(fd, 16), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
	assert_int_equal(pipe(fds), 0);
	x->port = ntohs(sin.sin_port);
	x->count = fds[0];
	(void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
	if ((x->pid = fork()) == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)signal(SIGCHLD, SIG_IGN);
		(void)signal(SIGPIPE, SIG_IGN);
		for (;;) {
			if ((c = accept(fd, NULL, NULL)) == -1)
				_exit(1);
			if (fork() == 0) {
				(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
				proxy_connection(c, fds[1]);
			}
			close(c);
		}
	}
	close(fds[1]);
	close(fd);
}

/* Requests and tunnels of such a kind so far; ends the proxy. */
static int
proxy_end(struct proxy *x, char kind)
{
	char seen[4096];
	ssize_t n, i;
	int count = 0;

	(void)kill(x->pid, SIGKILL);
	(void)waitpid(x->pid, NULL, 0);
	n = read(x->count, seen, sizeof(seen));
	for (i = 0; i < n; i++)
		count += seen[i] == kind;
	close(x->count);
	return count;
}

static int
through_proxy(const char *variable, const char *no_proxy)
{
	struct proxy x;
	struct world w;
	char *url;

	proxy_start(&x);
	url = xasprintf("http://127.0.0.1:%d", x.port);
	world_init(&w, 0);
	world_server(&w, NULL);
	setenv(variable, url, 1);
	if (no_proxy != NULL)
		setenv("NO_PROXY", no_proxy, 1);
	world_start(&w);
	unsetenv(variable);
	unsetenv("NO_PROXY");
	expect_work(&w);
	finish(&w);
	free(url);
	return proxy_end(&x, 'P');
}

static void
a_proxy_is_used(void **state)
{
	(void)state;
	assert_true(through_proxy("http_proxy", NULL) > 0);
	assert_true(through_proxy("ALL_PROXY", NULL) > 0);
}

static void
a_proxy_is_passed_by(void **state)
{
	(void)state;
	assert_int_equal(through_proxy("http_proxy", "127.0.0.1"), 0);
	assert_int_equal(through_proxy("http_proxy", "*"), 0);
	/* That one is for https only. */
	assert_int_equal(through_proxy("HTTPS_PROXY", NULL), 0);
}

/* ---- TLS ---- */

static int __attribute__((__format__(__printf__, 1, 2)))
shell(const char *fmt, ...)
{
	char *command = NULL;
	va_list ap;
	int status;

	va_start(ap, fmt);
	if (vasprintf(&command, fmt, ap) == -1)
		fatalx("out of memory");
	va_end(ap);
	status = system(command);
	free(command);
	return status;
}

static int
free_port(void)
{
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	int fd;

	memset(&sin, 0, sizeof(sin));
	sin.sin_family = AF_INET;
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
	close(fd);
	return ntohs(sin.sin_port);
}

static void
await_port(int port)
{
	double end = world_now() + 20000;
	struct sockaddr_in sin;
	int fd, r;

	memset(&sin, 0, sizeof(sin));
	sin.sin_family = AF_INET;
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sin.sin_port = htons((uint16_t)port);
	do {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		r = connect(fd, (struct sockaddr *)&sin, sizeof(sin));
		close(fd);
		if (r == -1)
			usleep(5000);
	} while (r == -1 && world_now() < end);
	assert_int_equal(r, 0);
}

/* Puts TLS in front of the server; the process. */
static pid_t
terminate_tls(struct world *w, int *port)
{
	char *listen, *forward;
	pid_t pid;

	assert_int_equal(
	    shell("openssl req -x509 -newkey ec -pkeyopt "
		  "ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test "
		  "-addext subjectAltName=IP:127.0.0.1 -keyout %s/key.pem "
		  "-out %s/ca.pem 2>/dev/null",
		w->dir, w->dir),
	    0);
	*port = free_port();
	listen = xasprintf("OPENSSL-LISTEN:%d,bind=127.0.0.1,reuseaddr,fork,"
			   "verify=0,cert=%s/ca.pem,key=%s/key.pem",
	    *port, w->dir, w->dir);
	forward = xasprintf("TCP:127.0.0.1:%d",
	    (int)strtol(strrchr(w->url, ':') + 1, NULL, 10));
	if ((pid = fork()) == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)setpgid(0, 0);
		(void)execlp("socat", "socat", "-lf/dev/null", listen, forward,
		    (char *)NULL);
		_exit(127);
	}
	await_port(*port);
	free(listen);
	free(forward);
	return pid;
}

static void
a_private_authority_and_a_tunnel(void **state)
{
	struct proxy x;
	struct world w;
	char *file, *proxy, *plain;
	pid_t tls;
	int port, status;

	(void)state;
	if (shell(
		"openssl version >/dev/null 2>&1 && "
		"socat -V 2>/dev/null | grep -q 'define WITH_OPENSSL'") != 0) {
		print_message("needs openssl, and socat with TLS\n");
		skip();
	}
	proxy_start(&x);
	world_init(&w, 0);
	world_server(&w, NULL);
	tls = terminate_tls(&w, &port);
	plain = w.url;
	w.url = xasprintf("https://127.0.0.1:%d/v1", port);
	file = xasprintf("%s/ca.pem", w.dir);
	proxy = xasprintf("http://127.0.0.1:%d", x.port);
	setenv("HTTPS_PROXY", proxy, 1);
	setenv("LIBRECHAT_CODE_CA_FILE", file, 1);
	world_start(&w);
	/* Without its authority the server is not trusted. */
	world_signal(&w, SIGTERM);
	assert_int_equal(world_worker_end(&w, 10000), 0);
	unsetenv("LIBRECHAT_CODE_CA_FILE");
	world_worker(&w, "--allow-workspace-commands", NULL);
	assert_true(world_log_wait(&w, "certificate", 20000));
	world_signal(&w, SIGTERM);
	assert_int_equal(world_worker_end(&w, 10000), 0);
	setenv("LIBRECHAT_CODE_CA_FILE", file, 1);
	world_worker(&w, "--allow-workspace-commands", NULL);
	assert_true(world_wait(&w, "leasing", 20000));
	unsetenv("LIBRECHAT_CODE_CA_FILE");
	unsetenv("HTTPS_PROXY");
	free(w.url);
	w.url = plain;
	expect_work(&w);
	/* The answer to the settlement has to get through as well. */
	assert_true(world_wait(&w, "leasing", 20000));
	(void)kill(-tls, SIGKILL);
	assert_int_equal(waitpid(tls, &status, 0), tls);
	finish(&w);
	assert_true(proxy_end(&x, 'C') > 0);
	free(file);
	free(proxy);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(service_manager_is_told_by_path),
		cmocka_unit_test(service_manager_is_told_by_an_abstract_name),
		cmocka_unit_test(the_service_file_is_valid),
		cmocka_unit_test(a_dead_server_fills_no_log),
		cmocka_unit_test(priorities_are_told_to_the_journal_only),
		cmocka_unit_test(loopback_of_ip_6),
		cmocka_unit_test(a_proxy_is_used),
		cmocka_unit_test(a_proxy_is_passed_by),
		cmocka_unit_test(a_private_authority_and_a_tunnel),
	};

	log_init("test", 0);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) == -1)
		fatal("subreaper");
	return cmocka_run_group_tests_name("life", tests, NULL, NULL);
}
