#include "config.h"

#include <sys/types.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
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

#include "buf.h"
#include "json.h"
#include "log.h"
#include "nameserver.h"
#include "private.h"
#include "world.h"

/*
 * The Code API by a host name: name servers that are slow, dead or wrong, and
 * addresses of which some do not answer. Everything happens in a network and
 * a mount namespace of the test's own, with an /etc and a /run of its own.
 *
 * getaddrinfo(3) sorts addresses by how much they have in common with the
 * source 127.0.0.1 (RFC 6724 section 6, rule 9), so that SERVER comes last.
 */
#define PATIENCE 60000 /* ms */
#define SILENT   "127.0.0.1" /* takes no connection, refuses none */
#define REFUSED  "127.0.0.3" /* nobody listens */
#define SERVER   "127.0.0.9"
#define MOVED    "127.0.0.10"
#define FIRST    "127.0.0.53" /* name servers */
#define SECOND   "127.0.0.54"
#define RESOLVED "/run/systemd/resolve"

static char cannot[256]; /* why there are no namespaces, or "" */
static struct world w;
static struct nameserver ns;
static struct ns_script *first, *second;
static char *plain; /* URL for callers */

/* ---- a machine of its own ---- */

static int
put_file(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ssize_t n;

	if (fd == -1)
		return -1;
	n = len == 0 ? 0 : write(fd, data, len);
	(void)fchmod(fd, 0644);
	close(fd);
	return n == (ssize_t)len ? 0 : -1;
}

static int
put_text(const char *path, const char *text)
{
	return put_file(path, text, strlen(text));
}

/*
 * A copy, since a file that is replaced on the machine meanwhile could not be
 * bound into a sandbox. What this account cannot read is left out.
 */
static int
copy_file(int dir, const char *name, const char *to)
{
	struct buf b;
	ssize_t n;
	int fd, r;

	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd == -1)
		return 0;
	buf_init(&b);
	while ((n = read(fd, buf_reserve(&b, 65536), 65536)) > 0)
		b.len += (size_t)n;
	close(fd);
	r = put_file(to, b.data, b.len);
	buf_free(&b);
	return n == 0 ? r : -1;
}

/* An entry of the machine's /etc, which fd is, in the new one. */
static int
take_over(int fd, const char *name)
{
	char from[300], to[300], target[256];
	struct stat st;
	ssize_t n;

	snprintf(from, sizeof(from), "/proc/self/fd/%d/%s", fd, name);
	snprintf(to, sizeof(to), "/etc/%s", name);
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == -1)
		return 0;
	if (S_ISLNK(st.st_mode)) {
		n = readlinkat(fd, name, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		return symlink(target, to);
	}
	if (S_ISREG(st.st_mode)) {
		if (copy_file(fd, name, to) == -1)
			return -1;
		(void)chmod(to, st.st_mode & 07777);
		return 0;
	}
	if (!S_ISDIR(st.st_mode))
		return 0;
	if (mkdir(to, 0755) == -1)
		return -1;
	return mount(from, to, NULL, MS_BIND | MS_REC, NULL);
}

static int
own_etc(void)
{
	struct dirent *de;
	DIR *d;
	int fd;

	fd = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1 || (d = fdopendir(fd)) == NULL ||
	    mount("tmpfs", "/etc", "tmpfs", 0, "mode=0755") == -1)
		return -1;
	while ((de = readdir(d)) != NULL)
		if (strcmp(de->d_name, ".") != 0 &&
		    strcmp(de->d_name, "..") != 0 &&
		    strcmp(de->d_name, "resolv.conf") != 0 &&
		    strcmp(de->d_name, "nsswitch.conf") != 0 &&
		    take_over(fd, de->d_name) == -1)
			return -1;
	closedir(d);
	if (mount("tmpfs", "/run", "tmpfs", 0, "mode=0755") == -1 ||
	    mkdir("/run/systemd", 0755) == -1 || mkdir(RESOLVED, 0755) == -1)
		return -1;
	return put_text("/etc/nsswitch.conf",
	    "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n");
}

static int
own_network(void)
{
	struct ifreq ifr;
	int fd, r;

	if (unshare(CLONE_NEWNET) == -1)
		return -1;
	memset(&ifr, 0, sizeof(ifr));
	memcpy(ifr.ifr_name, "lo", 3);
	ifr.ifr_flags = IFF_UP;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	r = ioctl(fd, SIOCSIFFLAGS, &ifr);
	close(fd);
	return r;
}

static void
own_machine(void)
{
	private_mounts(cannot, sizeof(cannot));
	if (cannot[0] != '\0')
		return;
	if (own_network() == -1)
		snprintf(cannot, sizeof(cannot), "no network namespace: %s",
		    strerror(errno));
	else if (own_etc() == -1)
		snprintf(cannot, sizeof(cannot), "no /etc of its own: %s",
		    strerror(errno));
}

/* ---- the world ---- */

static const char usual[] = "nameserver " FIRST "\n";

static void
begin(void)
{
	static const char *const addresses[] = { FIRST, SECOND };

	if (cannot[0] != '\0') {
		print_message("%s\n", cannot);
		skip();
	}
	(void)unlink("/etc/resolv.conf");
	assert_int_equal(put_text("/etc/resolv.conf", usual), 0);
	nameserver_start(&ns, addresses, 2);
	first = &ns.scripts[0];
	second = &ns.scripts[1];
	nameserver_gives(first, SERVER, NULL);
	nameserver_gives(second, SERVER, NULL);
	world_init(&w, 0);
	world_server(&w, "--listen", SERVER ":0", NULL);
}

static int
server_port(void)
{
	return (int)strtol(strrchr(plain, ':') + 1, NULL, 10);
}

static void
pair(void)
{
	plain = w.url;
	w.url = xasprintf("http://code.test:%d/v1", server_port());
	world_pair(&w);
	free(w.url);
	w.url = plain;
}

static void
start(void)
{
	world_worker(
	    &w, "--allow-workspace-writes", "--allow-workspace-commands", NULL);
}

static void
expect_work(void)
{
	struct json *j;

	assert_true(world_wait(&w, "leasing", PATIENCE));
	assert_int_equal(world_run(&w, "echo works", &j), 200);
	assert_string_equal(json_get_str(j, "stdout"), "works\n");
	json_free(j);
	assert_true(world_wait(&w, "leasing", PATIENCE));
	assert_int_equal(world_markers(&w), 0);
}

static void
finish(void)
{
	world_signal(&w, SIGTERM);
	assert_int_equal(world_worker_end(&w, 30000), 0);
	world_free(&w);
	nameserver_stop(&ns);
}

/* The server closes all connections; the next needs its address. */
static void
lose_connections(void)
{
	struct json *j;

	j = world_control(&w, "restart", "{\"memory\":true}");
	assert_non_null(j);
	json_free(j);
}

/* ---- name servers ---- */

static void
a_slow_name_server(void **state)
{
	(void)state;
	begin();
	pair();
	first->delay_ms = 1500; /* twice: one of the two queries is for IPv6 */
	start();
	expect_work();
	assert_true(first->queries > 0);
	finish();
}

/* It costs the resolver 5 s, half of what a registration may take. */
static void
a_dead_name_server_before_a_good_one(void **state)
{
	(void)state;
	begin();
	pair();
	first->mode = NS_SILENT;
	assert_int_equal(put_text("/etc/resolv.conf",
			     "nameserver " FIRST "\nnameserver " SECOND "\n"),
	    0);
	start();
	assert_true(world_wait(&w, "leasing", PATIENCE));
	assert_false(world_log_has(&w, "reconnecting"));
	expect_work();
	finish();
}

static void
no_name_server_for_a_while(void **state)
{
	(void)state;
	begin();
	pair();
	first->mode = NS_SILENT;
	start();
	assert_true(world_log_wait(&w, "reconnecting after", PATIENCE));
	first->mode = NS_ANSWER;
	expect_work();
	finish();
}

/* A lookup that hangs is not waited for. */
static void
a_stop_while_a_name_is_looked_up(void **state)
{
	(void)state;
	begin();
	pair();
	first->mode = NS_SILENT;
	first->queries = 0;
	start();
	while (first->queries == 0 && world_worker_end(&w, 0) == -1)
		usleep(2000);
	finish();
}

static void
unknown(enum ns_mode mode)
{
	begin();
	pair();
	first->mode = (int)mode;
	start();
	assert_true(world_log_wait(&w, "reconnecting after", PATIENCE));
	assert_true(world_log_has(&w, "code.test"));
	first->mode = NS_ANSWER;
	expect_work();
	finish();
}

static void
a_name_that_does_not_exist_yet(void **state)
{
	(void)state;
	unknown(NS_NO_NAME);
}

static void
a_name_server_that_fails(void **state)
{
	(void)state;
	unknown(NS_FAILURE);
}

/* ---- addresses ---- */

/* The relay between an address and the server; a process. */
static pid_t
relay(const char *address)
{
	char *from, *to;
	pid_t pid;

	from = xasprintf(
	    "TCP4-LISTEN:%d,bind=%s,reuseaddr,fork", server_port(), address);
	to = xasprintf("TCP4:" SERVER ":%d", server_port());
	if ((pid = fork()) == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)setpgid(0, 0);
		(void)execlp(
		    "socat", "socat", "-lf/dev/null", from, to, (char *)NULL);
		_exit(127);
	}
	(void)setpgid(pid, pid);
	free(from);
	free(to);
	return pid;
}

static void
end_relay(pid_t pid)
{
	(void)kill(-pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void
an_address_that_moves(void **state)
{
	pid_t old, new;

	(void)state;
	if (system("socat -V >/dev/null 2>&1") != 0) {
		print_message("there is no socat\n");
		skip();
	}
	begin();
	pair();
	old = relay(REFUSED);
	nameserver_gives(first, REFUSED, NULL);
	start();
	expect_work();
	new = relay(MOVED);
	nameserver_gives(first, MOVED, NULL);
	end_relay(old);
	expect_work();
	finish();
	end_relay(new);
}

static void
an_address_that_refuses_before_a_good_one(void **state)
{
	(void)state;
	begin();
	nameserver_gives(first, REFUSED, SERVER, NULL);
	pair();
	start();
	assert_true(world_wait(&w, "leasing", PATIENCE));
	assert_false(world_log_has(&w, "reconnecting"));
	expect_work();
	finish();
}

/* A port whose queue is full: the kernel answers no further SYN. */
static void
make_silent(int fds[4])
{
	struct sockaddr_in sin;
	int i;

	memset(&sin, 0, sizeof(sin));
	sin.sin_family = AF_INET;
	sin.sin_port = htons((uint16_t)server_port());
	assert_int_equal(inet_pton(AF_INET, SILENT, &sin.sin_addr), 1);
	for (i = 0; i < 4; i++) {
		fds[i] = socket(AF_INET,
		    SOCK_STREAM | SOCK_CLOEXEC | (i > 0 ? SOCK_NONBLOCK : 0),
		    0);
		assert_int_not_equal(fds[i], -1);
	}
	assert_int_equal(bind(fds[0], (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(listen(fds[0], 0), 0);
	for (i = 1; i < 4; i++)
		(void)connect(fds[i], (struct sockaddr *)&sin, sizeof(sin));
}

/* It must not use up what a request may take. */
static void
a_silent_address_before_a_good_one(void **state)
{
	int fds[4], i;

	(void)state;
	begin();
	plain = w.url;
	make_silent(fds);
	nameserver_gives(first, SILENT, SERVER, NULL);
	pair();
	start();
	assert_true(world_wait(&w, "leasing", PATIENCE));
	assert_false(world_log_has(&w, "reconnecting"));
	expect_work();
	finish();
	for (i = 0; i < 4; i++)
		close(fds[i]);
}

/* ---- resolv.conf ---- */

/* As systemd-resolved and NetworkManager do it. */
static void
a_linked_resolv_conf_that_is_replaced(void **state)
{
	(void)state;
	begin();
	assert_int_equal(put_text(RESOLVED "/stub-resolv.conf", usual), 0);
	assert_int_equal(unlink("/etc/resolv.conf"), 0);
	assert_int_equal(symlink("../run/systemd/resolve/stub-resolv.conf",
			     "/etc/resolv.conf"),
	    0);
	pair();
	start();
	expect_work();
	first->mode = NS_SILENT;
	second->queries = 0;
	assert_int_equal(
	    put_text(RESOLVED "/new", "nameserver " SECOND "\n"), 0);
	assert_int_equal(
	    rename(RESOLVED "/new", RESOLVED "/stub-resolv.conf"), 0);
	lose_connections();
	assert_true(world_log_wait(&w, "reconnecting", PATIENCE));
	expect_work();
	assert_true(second->queries > 0);
	finish();
}

/* The restricted process cannot read the new file; a new one can. */
static void
a_plain_resolv_conf_that_is_replaced(void **state)
{
	int status;

	(void)state;
	begin();
	pair();
	start();
	expect_work();
	assert_int_equal(
	    put_text("/etc/resolv.new", "nameserver " SECOND "\n"), 0);
	assert_int_equal(rename("/etc/resolv.new", "/etc/resolv.conf"), 0);
	first->mode = NS_SILENT;
	lose_connections();
	status = world_worker_end(&w, PATIENCE);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_true(world_log_has(&w, "/etc/resolv.conf was replaced"));
	start();
	expect_work();
	finish();
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slow_name_server),
		cmocka_unit_test(a_dead_name_server_before_a_good_one),
		cmocka_unit_test(no_name_server_for_a_while),
		cmocka_unit_test(a_stop_while_a_name_is_looked_up),
		cmocka_unit_test(a_name_that_does_not_exist_yet),
		cmocka_unit_test(a_name_server_that_fails),
		cmocka_unit_test(an_address_that_moves),
		cmocka_unit_test(an_address_that_refuses_before_a_good_one),
		cmocka_unit_test(a_silent_address_before_a_good_one),
		cmocka_unit_test(a_linked_resolv_conf_that_is_replaced),
		cmocka_unit_test(a_plain_resolv_conf_that_is_replaced),
	};

	log_init("test", 0);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) == -1)
		fatal("subreaper");
	own_machine();
	return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
