#include "config.h"

#include <sys/types.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
#include "harness.h"
#include "log.h"

/*
 * No socket of the host is reachable from a sandbox, wherever its file is and
 * whenever it was made; sockets made inside work. The attempts are made by
 * attack.c.
 */
static struct harness H;
static char *place; /* a visible directory outside every root */
static char *outside_sock; /* the host's, in it */
static char *root_sock; /* the host's, in the root */
static char abstract_name[64];
static int listeners[3];
static pthread_t threads[3];

static void *
serve(void *arg)
{
	int fd = *(int *)arg, c;

	while ((c = accept(fd, NULL, NULL)) != -1) {
		/* The peer may be gone already. */
		(void)!write(c, "H", 1);
		close(c);
	}
	return NULL;
}

/* A listener of the host that anybody may connect to. */
static void
host_listener(int i, const char *path)
{
	struct sockaddr_un sun;
	socklen_t len = sizeof(sun);

	memset(&sun, 0, sizeof(sun));
	sun.sun_family = AF_UNIX;
	if (*path == '@') {
		(void)xsnprintf(
		    sun.sun_path + 1, sizeof(sun.sun_path) - 1, "%s", path + 1);
		len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
		    strlen(path));
	} else
		(void)xsnprintf(sun.sun_path, sizeof(sun.sun_path), "%s", path);
	listeners[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listeners[i], (struct sockaddr *)&sun, len) == -1 ||
	    listen(listeners[i], 64) == -1)
		fatal("%s", path);
	if (*path != '@' && chmod(path, 0777) == -1)
		fatal("%s", path);
	if (pthread_create(&threads[i], NULL, serve, &listeners[i]) != 0)
		fatalx("no thread");
}

static void
attack(struct harness *h, const char *arguments, const char *out)
{
	char *cmd = xasprintf("./attack %s", arguments);
	struct answer a;

	assert_int_equal(harness_run_with(h, 0, cmd, "", 50000, 4096, &a), 0);
	assert_true(a.ok);
	if (a.result.out.len != strlen(out) ||
	    memcmp(a.result.out.data, out, strlen(out)) != 0)
		fail_msg("%s: <%.*s>, errors <%.*s>, exit %d", cmd,
		    (int)a.result.out.len, (char *)a.result.out.data,
		    (int)a.result.err.len, (char *)a.result.err.data,
		    a.result.exit_code);
	answer_free(&a);
	free(cmd);
}

static void
attack_path(const char *prefix, const char *path, const char *out)
{
	char *arguments = xasprintf("%s%s", prefix, path);

	attack(&H, arguments, out);
	free(arguments);
}

/* The listeners are alive, or every refusal below would prove nothing. */
static void
host_sockets_answer_on_the_host(void **state)
{
	struct sockaddr_un sun;
	const char *const paths[] = { outside_sock, root_sock };
	char c;
	size_t i;
	int fd;

	(void)state;
	for (i = 0; i < 2; i++) {
		memset(&sun, 0, sizeof(sun));
		sun.sun_family = AF_UNIX;
		(void)xsnprintf(
		    sun.sun_path, sizeof(sun.sun_path), "%s", paths[i]);
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		assert_int_equal(
		    connect(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
		assert_int_equal(read(fd, &c, 1), 1);
		assert_int_equal(c, 'H');
		close(fd);
	}
}

static void
host_socket_in_a_visible_directory_is_refused(void **state)
{
	(void)state;
	attack_path("connect ", outside_sock, "ECONNREFUSED\n");
}

static void
host_socket_in_the_root_is_refused(void **state)
{
	char *relative;

	(void)state;
	attack_path("connect ", root_sock, "ECONNREFUSED\n");
	attack(&H, "connect host.sock", "ECONNREFUSED\n");
	attack(&H, "connect ./sub/../host.sock", "ENOENT\n");
	relative = xasprintf(
	    "connect ../%s/host.sock", strrchr(H.roots[0], '/') + 1);
	attack(&H, relative, "ECONNREFUSED\n");
	free(relative);
}

static void
host_socket_behind_links_is_refused(void **state)
{
	char *cmd, *hard;
	struct answer a;

	(void)state;
	cmd = xasprintf(
	    "ln -s %s link.sock; ln -s %s dir", outside_sock, place);
	assert_int_equal(harness_run(&H, 0, cmd, &a), 0);
	answer_free(&a);
	free(cmd);
	hard = xasprintf("%s/hard.sock", H.roots[0]);
	assert_int_equal(link(root_sock, hard), 0);
	free(hard);
	attack(&H, "connect link.sock", "ECONNREFUSED\n");
	attack(&H, "connect dir/outside.sock", "ECONNREFUSED\n");
	attack(&H, "connect hard.sock", "ECONNREFUSED\n");
}

static void
paths_through_proc_lead_nowhere(void **state)
{
	char *path;

	(void)state;
	path = xasprintf("connect /proc/self/root%s", outside_sock);
	attack(&H, path, "ENOENT\n");
	free(path);
	attack(&H, "connect /proc/self/cwd/host.sock", "ENOENT\n");
	attack(&H, "connect /proc/1/root/tmp/x", "EACCES\n");
}

static void
abstract_socket_of_the_host_is_refused(void **state)
{
	(void)state;
	attack_path("connect ", abstract_name, "ECONNREFUSED\n");
}

static void
socket_made_after_the_start_is_refused(void **state)
{
	char *path = xasprintf("%s/late.sock", H.roots[0]);

	(void)state;
	host_listener(2, path);
	attack(&H, "connect late.sock", "ECONNREFUSED\n");
	shutdown(listeners[2], SHUT_RDWR);
	pthread_join(threads[2], NULL);
	close(listeners[2]);
	assert_int_equal(unlink(path), 0);
	free(path);
}

static void
changing_the_address_meanwhile_does_not_help(void **state)
{
	(void)state;
	attack_path("race-address ", outside_sock, "never tried\n");
	attack_path("race-address ", root_sock, "never tried\n");
}

static void
changing_the_path_meanwhile_does_not_help(void **state)
{
	(void)state;
	attack_path("race-path ", outside_sock, "never tried\n");
}

static void
changing_the_descriptor_meanwhile_does_not_help(void **state)
{
	(void)state;
	attack_path("race-descriptor ", outside_sock, "never\n");
}

static void
odd_addresses_get_clear_errors(void **state)
{
	(void)state;
	attack(&H, "length 0", "EINVAL\n");
	attack(&H, "length 2", "EINVAL\n");
	attack(&H, "length 110", "ECONNREFUSED\n"); /* "/": no socket */
	attack(&H, "length 111", "EINVAL\n");
	attack(&H, "length 128", "EINVAL\n");
	attack(&H, "length 129", "EINVAL\n");
	attack(&H, "length -1", "EINVAL\n");
	attack(&H, "length 4294967295", "EINVAL\n");
	attack(&H, "null", "EFAULT\n");
	attack(&H, "unterminated", "connected own\n");
}

static void
datagrams_cannot_leave(void **state)
{
	(void)state;
	attack_path("datagram ", outside_sock, "pair 1\n");
}

static void
io_uring_is_not_there(void **state)
{
	(void)state;
	attack(&H, "io_uring", "ENOSYS\n");
}

static void
processes_that_are_not_dumpable_can_connect(void **state)
{
	(void)state;
	attack(&H, "not-dumpable", "connected own\n");
}

static void
waiting_for_the_backlog_works(void **state)
{
	(void)state;
	attack(&H, "full", "EAGAIN connected own\n");
}

static void
a_caller_cannot_hold_the_supervisor_up(void **state)
{
	(void)state;
	attack(&H, "stall", "connected own\n");
}

static void
internet_sockets_of_the_sandbox_work(void **state)
{
	(void)state;
	attack(&H, "inet", "0 EINPROGRESS 0\n");
}

static void
ten_thousand_connects_work(void **state)
{
	(void)state;
	attack(&H, "load 10000", "0 failed\n");
}

static void
stale_socket_of_an_earlier_command_is_refused(void **state)
{
	struct answer a;

	(void)state;
	assert_int_equal(harness_run(&H, 0,
			     "rm -f /tmp/stale.sock stale.sock; python3 - 2>"
			     "/dev/null <<'E' || perl -MIO::Socket::UNIX -e "
			     "'IO::Socket::UNIX->new(Local=>$_,Listen=>1) "
			     "for qw(/tmp/stale.sock stale.sock)'\n"
			     "import socket\n"
			     "for p in ('/tmp/stale.sock', 'stale.sock'):\n"
			     " socket.socket(socket.AF_UNIX).bind(p)\n"
			     "E\n",
			     &a),
	    0);
	answer_free(&a);
	attack(&H, "connect /tmp/stale.sock", "ECONNREFUSED\n");
	attack(&H, "connect stale.sock", "ECONNREFUSED\n");
}

static void
sandbox_does_not_outlive_its_supervisor(void **state)
{
	struct harness h;
	pid_t pid, keeper;

	(void)state;
	harness_init(&h, 1);
	assert_int_equal(harness_start(&h), 0);
	{
		char *from = xasprintf(
		    "cp %s/attack %s/attack", H.roots[0], h.roots[0]);

		assert_int_equal(system(from), 0);
		free(from);
	}
	attack(&h, "not-dumpable", "connected own\n");
	keeper = find_below(h.pid, "sandbox", 1);
	pid = find_below(keeper, "supervisor", 1);
	assert_true(keeper > 0 && pid > 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	while (kill(keeper, 0) == 0)
		usleep(1000);
	/* The next one has a supervisor of its own. */
	attack(&h, "not-dumpable", "connected own\n");
	harness_stop(&h);
}

/* A caller that waits for its answer is not left hanging. */
static void
waiting_callers_end_with_their_supervisor(void **state)
{
	static const char command[] =
	    "[ $(./attack waiting) = ENOSYS ] && sleep 1000";
	struct harness h;
	struct request q;
	struct answer a;
	char *path;
	uint32_t id;
	pid_t pid;

	(void)state;
	harness_init(&h, 1);
	copy_program(&h, "ATTACK", h.roots[0], "attack");
	assert_int_equal(harness_start(&h), 0);
	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	/* It gets its ENOSYS, or dies before; the rest dies in any case. */
	text_set(&q.command, command, sizeof(command) - 1);
	text_set(&q.cwd, "", 0);
	q.timeout_ms = 50000;
	q.max_output = 4096;
	id = harness_send(&h, &q);
	request_free(&q);
	path = xasprintf("%s/waiting", h.roots[0]);
	while (access(path, F_OK) == -1)
		usleep(1000);
	free(path);
	pid = find_below(find_below(h.pid, "sandbox", 1), "supervisor", 1);
	assert_true(pid > 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(harness_wait(&h, id, &a), 0);
	assert_false(a.ok);
	assert_int_equal(a.error.certainty, UNCERTAIN);
	answer_free(&a);
	harness_stop(&h);
}

/*
 * A file system whose stat(2) shows another device than its own, as overlays
 * of two file systems and Btrfs subvolumes do.
 */
static void
sockets_on_an_overlay_are_told_apart(void **state)
{
	struct harness h;
	char *upper, *options, *sock;

	(void)state;
	if (getuid() != 0) {
		print_message("mounting needs root\n");
		skip();
	}
	if (unshare(CLONE_NEWNS) == -1 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == -1) {
		print_message("no mount namespace\n");
		skip();
	}
	harness_init(&h, 1);
	copy_program(&h, "ATTACK", h.roots[0], "attack");
	upper = xasprintf("%s/upper", h.dir);
	options = xasprintf("mkdir %s && mount -t tmpfs none %s && mkdir %s/u "
			    "%s/w && chown %lu %s/u && mount -t overlay -o "
			    "lowerdir=%s,upperdir=%s/u,workdir=%s/w,xino=off "
			    "none %s",
	    upper, upper, upper, upper, (unsigned long)h.uid, upper, h.roots[0],
	    upper, upper, h.roots[0]);
	if (system(options) != 0) {
		print_message("no overlay file system\n");
		harness_remove(&h);
		skip();
	}
	sock = xasprintf("%s/host.sock", h.roots[0]);
	host_listener(2, sock);
	if (harness_start(&h) == -1)
		fail_msg("%s", h.failed);
	attack(&h, "own own.sock", "connected own\n");
	attack(&h, "own /tmp/own.sock", "connected own\n");
	attack(&h, "connect host.sock", "ECONNREFUSED\n");
	shutdown(listeners[2], SHUT_RDWR);
	pthread_join(threads[2], NULL);
	close(listeners[2]);
	harness_kill(&h);
	assert_int_equal(umount2(h.roots[0], MNT_DETACH), 0);
	assert_int_equal(umount2(upper, MNT_DETACH), 0);
	harness_remove(&h);
	free(upper);
	free(options);
	free(sock);
}

static int
start(void **state)
{
	(void)state;
	harness_init(&H, 1);
	copy_program(&H, "ATTACK", H.roots[0], "attack");
	place = visible_scratch(&H);
	outside_sock = xasprintf("%s/outside.sock", place);
	root_sock = xasprintf("%s/host.sock", H.roots[0]);
	(void)xsnprintf(abstract_name, sizeof(abstract_name),
	    "@librechat-code-test-%d", (int)getpid());
	host_listener(0, outside_sock);
	host_listener(1, root_sock);
	host_listener(2, abstract_name);
	/* Only what is tested hides anything here. */
	while (H.nhidden > 0)
		free(H.hidden[--H.nhidden]);
	if (harness_start(&H) == -1) {
		fprintf(stderr, "%s\n", H.failed);
		return -1;
	}
	return 0;
}

static int
stop(void **state)
{
	size_t i;

	(void)state;
	harness_stop(&H);
	for (i = 0; i < 2; i++) {
		shutdown(listeners[i], SHUT_RDWR);
		pthread_join(threads[i], NULL);
		close(listeners[i]);
	}
	remove_tree(place);
	free(place);
	free(outside_sock);
	free(root_sock);
	return 0;
}

static void
end_abstract_listener(void **state)
{
	abstract_socket_of_the_host_is_refused(state);
	shutdown(listeners[2], SHUT_RDWR);
	pthread_join(threads[2], NULL);
	close(listeners[2]);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_sockets_answer_on_the_host),
		cmocka_unit_test(host_socket_in_a_visible_directory_is_refused),
		cmocka_unit_test(host_socket_in_the_root_is_refused),
		cmocka_unit_test(host_socket_behind_links_is_refused),
		cmocka_unit_test(paths_through_proc_lead_nowhere),
		{ "abstract_socket_of_the_host_is_refused",
		    end_abstract_listener, NULL, NULL, NULL },
		cmocka_unit_test(socket_made_after_the_start_is_refused),
		cmocka_unit_test(changing_the_address_meanwhile_does_not_help),
		cmocka_unit_test(changing_the_path_meanwhile_does_not_help),
		cmocka_unit_test(
		    changing_the_descriptor_meanwhile_does_not_help),
		cmocka_unit_test(odd_addresses_get_clear_errors),
		cmocka_unit_test(datagrams_cannot_leave),
		cmocka_unit_test(io_uring_is_not_there),
		cmocka_unit_test(processes_that_are_not_dumpable_can_connect),
		cmocka_unit_test(waiting_for_the_backlog_works),
		cmocka_unit_test(a_caller_cannot_hold_the_supervisor_up),
		cmocka_unit_test(internet_sockets_of_the_sandbox_work),
		cmocka_unit_test(ten_thousand_connects_work),
		cmocka_unit_test(stale_socket_of_an_earlier_command_is_refused),
		cmocka_unit_test(sandbox_does_not_outlive_its_supervisor),
		cmocka_unit_test(waiting_callers_end_with_their_supervisor),
		cmocka_unit_test(sockets_on_an_overlay_are_told_apart),
	};

	log_init("test", 0);
	(void)signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("unix", tests, start, stop);
}
