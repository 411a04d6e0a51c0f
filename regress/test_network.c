#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <arpa/inet.h>
#include <netinet/in.h>

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "harness.h"
#include "log.h"

/*
 * The network of a sandbox is its own loopback and nothing else: what leads
 * out fails at once, what stays inside works, and neither side of the wall
 * reaches the other's servers.
 */
static struct harness H;

struct row {
	const char *name;
	const char *command;
	int exit_code;
	const char *out; /* exact */
	const char *err; /* in it, or NULL */
};

static const struct row rows[] = {
	/* nothing leads out, and that is known at once */
	{ "TCP to an address of the Internet", "exec 3<>/dev/tcp/1.1.1.1/80", 1,
	    "", "Network is unreachable" },
	{ "TCP to a private address", "exec 3<>/dev/tcp/192.168.0.1/80", 1, "",
	    "Network is unreachable" },
	{ "TCP to a link-local address", "exec 3<>/dev/tcp/169.254.169.254/80",
	    1, "", "Network is unreachable" },
	{ "UDP, connected", "exec 3<>/dev/udp/8.8.8.8/53", 1, "",
	    "Network is unreachable" },
	{ "UDP with an address",
	    "perl -MErrno -MSocket -e 'socket(S, AF_INET, SOCK_DGRAM, 0); "
	    "send(S, 1, 0, pack_sockaddr_in(53, inet_aton(\"8.8.8.8\"))) and "
	    "die; print $!{ENETUNREACH} ? \"unreachable\\n\" : \"$!\\n\"'",
	    0, "unreachable\n", NULL },
	{ "names of the outside", "getent hosts name.example", 2, "", NULL },
	{ "localhost has an address",
	    "getent hosts localhost | grep -c localhost; "
	    "getent ahosts localhost >/dev/null && echo ok",
	    0, "1\nok\n", NULL },

	/* kinds of sockets */
	{ "families: Unix, Internet, netlink and no other",
	    "./attack families | sed 's/ 10 / /'", 0, "1 2 16 \n", NULL },
	{ "netlink: addresses and routes, no other kind", "./attack netlink", 0,
	    "0 \n", NULL },
	{ "raw sockets",
	    "./attack socket 2 3 1; ./attack socket 2 3 255; "
	    "./attack socket 2 10 768; ./attack socket 17 3 768",
	    0, "EPERM\nEPERM\nEPERM\nEAFNOSUPPORT\n", NULL },
	{ "the hypervisor's", "./attack socket 40 1 0", 0, "EAFNOSUPPORT\n",
	    NULL },
	{ "SCTP", "./attack socket 2 1 132", 0, "EPROTONOSUPPORT\n", NULL },
	{ "kernel crypto", "./attack socket 38 5 0", 0, "EAFNOSUPPORT\n",
	    NULL },

	/* descriptors */
	{ "a command inherits descriptors 0, 1 and 2",
	    "for i in {0..64}; do [ -e /proc/$$/fd/$i ] && echo $i; done; :", 0,
	    "0\n1\n2\n", NULL },
	{ "they are null and two pipes",
	    "for i in 0 1 2; do readlink /proc/$$/fd/$i | sed 's/:.*//'; done",
	    0, "/dev/null\npipe\npipe\n", NULL },
	{ "a program of the command inherits no others",
	    "perl -e 'opendir D, \"/proc/self/fd\"; print join(\" \", sort "
	    "grep { !/^\\./ } readdir D), \"\\n\"'",
	    0, "0 1 2 3\n", NULL },
	{ "process 1 shows none", "ls /proc/1/fd", 2, "", "Permission" },
};

static void
run_row(void **state)
{
	const struct row *r = *state;
	struct answer a;
	char *out, *err;

	assert_int_equal(harness_run(&H, 0, r->command, &a), 0);
	assert_true(a.ok);
	out = xstrndup((char *)a.result.out.data, a.result.out.len);
	err = xstrndup((char *)a.result.err.data, a.result.err.len);
	if (a.result.exit_code != r->exit_code || strcmp(out, r->out) != 0 ||
	    (r->err != NULL && strstr(err, r->err) == NULL))
		fail_msg("exit %d, output <%s>, errors <%s>",
		    a.result.exit_code, out, err);
	free(out);
	free(err);
	answer_free(&a);
}

/* ---- both sides of the wall ---- */

/* A stream socket and a loopback address with this port. */
static int
loopback(int family, int port, struct sockaddr_storage *ss, socklen_t *len)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
	struct sockaddr_in *in = (struct sockaddr_in *)ss;

	memset(ss, 0, sizeof(*ss));
	ss->ss_family = (sa_family_t)family;
	if (family == AF_INET) {
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		in->sin_port = htons((uint16_t)port);
		*len = sizeof(*in);
	} else {
		in6->sin6_addr = in6addr_loopback;
		in6->sin6_port = htons((uint16_t)port);
		*len = sizeof(*in6);
	}
	return socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* A listener of the host; -1 if it has no such addresses. */
static int
host_listener(int family, int *port)
{
	struct sockaddr_storage ss;
	socklen_t len;
	int fd;

	if ((fd = loopback(family, 0, &ss, &len)) == -1)
		return -1;
	if (bind(fd, (struct sockaddr *)&ss, len) == -1 ||
	    listen(fd, 8) == -1 ||
	    getsockname(fd, (struct sockaddr *)&ss, &len) == -1) {
		close(fd);
		return -1;
	}
	*port = family == AF_INET
	    ? ntohs(((struct sockaddr_in *)&ss)->sin_port)
	    : ntohs(((struct sockaddr_in6 *)&ss)->sin6_port);
	return fd;
}

static void
servers_of_the_host_are_not_reached(void **state)
{
	static const int families[] = { AF_INET, AF_INET6 };
	struct pollfd p;
	struct answer a;
	char *cmd;
	size_t i;
	int fd, port;

	(void)state;
	for (i = 0; i < 2; i++) {
		if ((fd = host_listener(families[i], &port)) == -1)
			continue;
		cmd = xasprintf("exec 3<>/dev/tcp/%s/%d",
		    families[i] == AF_INET ? "127.0.0.1" : "::1", port);
		assert_int_equal(harness_run(&H, 0, cmd, &a), 0);
		assert_true(a.ok);
		assert_int_equal(a.result.exit_code, 1);
		answer_free(&a);
		free(cmd);
		p.fd = fd;
		p.events = POLLIN;
		assert_int_equal(poll(&p, 1, 0), 0);
		close(fd);
	}
}

/*
 * A server on a loopback address that answers its own client, tells the port
 * in a file and waits until it may end.
 */
static const char server[] =
    "use Socket; my $six = shift eq 'inet6'; "
    "my $f = $six ? AF_INET6 : AF_INET; my ($l, $s, $c, $got);\n"
    "my $any = $six ? pack_sockaddr_in6(0, Socket::IN6ADDR_LOOPBACK) "
    ": pack_sockaddr_in(0, INADDR_LOOPBACK);\n"
    "socket($l, $f, SOCK_STREAM, 0) && bind($l, $any) or exit 3;\n"
    "listen($l, 8) or die; my $n = getsockname($l);\n"
    "my ($port) = $six ? unpack_sockaddr_in6($n) : unpack_sockaddr_in($n);\n"
    "my $pid = fork; if (!$pid) { while (accept($c, $l)) {\n"
    "syswrite($c, 'inside'); close $c } exit }\n"
    "socket($s, $f, SOCK_STREAM, 0); connect($s, $n) or die $!;\n"
    "sysread($s, $got, 6); open(my $o, '>', 'port.new') or die;\n"
    "print $o $port; close $o; rename('port.new', 'port') or die;\n"
    "select(undef, undef, undef, 0.01) until -e 'end';\n"
    "kill 9, $pid; print \"$got\\n\";\n";

/* The port, or 0 if the server could not have one. */
static int
read_port(const char *path)
{
	char text[16];
	ssize_t n;
	int fd;

	while ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		usleep(10000);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return (int)strtol(text, NULL, 10);
}

/* 1 if it is the sandbox's server that answers the host on the port. */
static int
host_reaches(int family, int port)
{
	struct sockaddr_storage ss;
	struct pollfd p;
	socklen_t len;
	char got[6];
	int r = 0;

	if ((p.fd = loopback(family, port, &ss, &len)) == -1)
		return 0;
	p.events = POLLIN;
	if (connect(p.fd, (struct sockaddr *)&ss, len) == 0)
		r = poll(&p, 1, 2000) == 1 &&
		    recv(p.fd, got, sizeof(got), MSG_DONTWAIT) == sizeof(got) &&
		    memcmp(got, "inside", sizeof(got)) == 0;
	close(p.fd);
	return r;
}

static void
server_is_reached_inside_only(int family)
{
	struct request q;
	struct answer a;
	char *cmd, *path;
	uint32_t id;
	int port, reached;

	put_file(&H, H.roots[0], "server.pl", server, sizeof(server) - 1, 0644);
	/* The file appears in any case, so that nobody waits for ever. */
	cmd = xasprintf("perl server.pl %s; r=$?; touch port; rm -f end; "
			"exit $r",
	    family == AF_INET ? "inet" : "inet6");
	path = xasprintf("%s/port", H.roots[0]);
	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	text_set(&q.command, cmd, strlen(cmd));
	text_set(&q.cwd, "", 0);
	q.timeout_ms = 50000;
	q.max_output = 4096;
	id = harness_send(&H, &q);
	port = read_port(path);
	reached = port > 0 && host_reaches(family, port);
	put_file(&H, H.roots[0], "end", "", 0, 0644);
	assert_int_equal(harness_wait(&H, id, &a), 0);
	assert_true(a.ok);
	assert_int_equal(unlink(path), 0);
	request_free(&q);
	free(cmd);
	free(path);
	if (a.result.exit_code == 3 && family == AF_INET6) {
		answer_free(&a);
		print_message("no IPv6 here\n");
		skip();
	}
	if (a.result.exit_code != 0 || a.result.out.len != 7 ||
	    memcmp(a.result.out.data, "inside\n", 7) != 0)
		fail_msg("exit %d, %.*s", a.result.exit_code,
		    (int)a.result.err.len, (char *)a.result.err.data);
	answer_free(&a);
	assert_true(port > 0);
	assert_false(reached);
}

static void
server_on_127_0_0_1_is_reached_inside_only(void **state)
{
	(void)state;
	server_is_reached_inside_only(AF_INET);
}

static void
server_on_the_ipv6_loopback_is_reached_inside_only(void **state)
{
	(void)state;
	server_is_reached_inside_only(AF_INET6);
}

static int
start(void **state)
{
	(void)state;
	harness_init(&H, 1);
	copy_program(&H, "ATTACK", H.roots[0], "attack");
	if (harness_start(&H) == -1) {
		fprintf(stderr, "%s\n", H.failed);
		return -1;
	}
	return 0;
}

static int
stop(void **state)
{
	(void)state;
	harness_stop(&H);
	return 0;
}

#define NROWS (sizeof(rows) / sizeof(rows[0]))

int
main(void)
{
	static const struct CMUnitTest others[] = {
		cmocka_unit_test(servers_of_the_host_are_not_reached),
		cmocka_unit_test(server_on_127_0_0_1_is_reached_inside_only),
		cmocka_unit_test(
		    server_on_the_ipv6_loopback_is_reached_inside_only),
	};
	struct CMUnitTest tests[NROWS + sizeof(others) / sizeof(others[0])];
	size_t i;

	log_init("test", 0);
	memset(tests, 0, sizeof(tests));
	for (i = 0; i < NROWS; i++) {
		tests[i].name = rows[i].name;
		tests[i].test_func = run_row;
		tests[i].initial_state = (void *)(uintptr_t)&rows[i];
	}
	memcpy(&tests[NROWS], others, sizeof(others));
	return cmocka_run_group_tests_name("network", tests, start, stop);
}
