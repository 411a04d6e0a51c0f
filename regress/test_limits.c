#include "config.h"

#include <sys/types.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "harness.h"
#include "hogtool.h"
#include "log.h"
#include "proc.h"

/*
 * A command that takes all it can get: what it gets is bounded, another
 * root's commands and the account outside notice nothing, and nothing is left
 * when it has ended. The program "hog" does the taking.
 */
static unsigned long
number_in(const char *path)
{
	char text[64];
	ssize_t n;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd != -1);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_true(n > 0);
	text[n] = '\0';
	return strtoul(text, NULL, 10);
}

/* ---- processes ---- */

/* The account outside can start processes as before. */
static void
account_can_fork(const struct harness *h)
{
	pid_t pid;
	int i, status;

	if ((pid = fork()) == 0) {
		if (getuid() == 0 && proc_become(h->uid, h->gid) == -1)
			_exit(1);
		for (i = 0; i < 50; i++) {
			if ((pid = fork()) == -1)
				_exit(2);
			if (pid == 0)
				_exit(0);
			while (waitpid(pid, NULL, 0) == -1 && errno == EINTR)
				;
		}
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void
processes_of_a_root_are_bounded(void **state)
{
	struct harness h;
	unsigned long n;
	uint32_t id;
	char *text, *command;

	(void)state;
	hog_begin(&h, 2, 100);
	hog_start(&h);
	/* The sandbox itself and the shell are a few of them. */
	text = hog_output(&h, 0, "./hog processes");
	n = hog_number(text, "EAGAIN");
	free(text);
	if (n < 90 || n >= 100)
		fail_msg("%lu processes", n);
	hog_expect(&h, 0, "ulimit -u", "100\n");
	hog_expect(&h, 0, "ulimit -u 200 2>/dev/null || echo no", "no\n");

	command = hog_command(&h, "processes begun");
	id = hog_hold(&h, command);
	free(command);
	/* All is taken; another root has its own, and so has the account. */
	text = hog_output(&h, 1, "./hog processes");
	n = hog_number(text, "EAGAIN");
	free(text);
	if (n < 90 || n >= 100)
		fail_msg("%lu processes of the other root", n);
	account_can_fork(&h);
	hog_release(&h, id);
	harness_stop(&h);
}

static void
no_process_limit_is_none(void **state)
{
	struct harness h;
	struct rlimit rl;
	char *text;

	(void)state;
	hog_begin(&h, 1, 0);
	hog_start(&h);
	assert_int_equal(getrlimit(RLIMIT_NPROC, &rl), 0);
	text = rl.rlim_cur == RLIM_INFINITY
	    ? xstrdup("unlimited\n")
	    : xasprintf("%llu\n", (unsigned long long)rl.rlim_cur);
	hog_expect(&h, 0, "ulimit -u", text);
	free(text);
	harness_stop(&h);
}

static void
fork_bomb_does_not_reach_another_root(void **state)
{
	struct harness h;
	char *command;
	uint32_t id;

	(void)state;
	hog_begin(&h, 2, 60);
	hog_start(&h);
	command = hog_command(&h, "bomb begun");
	id = hog_hold(&h, command);
	free(command);
	hog_expect(
	    &h, 1, "for i in {1..30}; do (true); done; echo fine", "fine\n");
	account_can_fork(&h);
	hog_release(&h, id);
	harness_stop(&h);
}

static void
thousands_of_orphans_die_with_their_command(void **state)
{
	struct harness h;
	char *mark;

	(void)state;
	hog_begin(&h, 1, 4096);
	hog_start(&h);
	mark = xasprintf("%s/hog", h.roots[0]);
	hog_expect(&h, 0, "exec $PWD/hog orphans 3000", "3000 0\n");
	assert_false(process_exists(mark));
	hog_expect(&h, 0, "exec $PWD/hog orphans 3000", "3000 0\n");
	assert_false(process_exists(mark));
	free(mark);
	harness_stop(&h);
}

/* ---- inotify ---- */

#define INSTANCES "/proc/sys/fs/inotify/max_user_instances"
#define WATCHES   "/proc/sys/fs/inotify/max_user_watches"

static void
a_root_gets_half_of_the_inotify_instances(void **state)
{
	unsigned long half = number_in(INSTANCES) / 2, n;
	struct harness h;
	uint32_t id;
	char *text, *command;

	(void)state;
	hog_begin(&h, 2, 0);
	hog_start(&h);
	text = xasprintf("%lu\n", half);
	hog_expect(&h, 0, "cat /proc/sys/user/max_inotify_instances", text);
	free(text);
	hog_expect(&h, 0,
	    "echo 1000000 >/proc/sys/user/max_inotify_instances || echo no",
	    "no\n");
	text = hog_output(&h, 0, "ulimit -n 1000; ./hog instances");
	n = hog_number(text, "EMFILE");
	free(text);
	assert_true(n <= half);
	/* The account is this test's own only if it is run by root. */
	if (half < 900 && getuid() == 0)
		assert_int_equal(n, half);

	command = xasprintf(
	    "ulimit -n 1000; exec %s/hog instances begun", h.roots[0]);
	id = hog_hold(&h, command);
	free(command);
	text = hog_output(&h, 1, "ulimit -n 1000; ./hog instances");
	assert_true(hog_number(text, "EMFILE") > 0);
	free(text);
	hog_release(&h, id);
	harness_stop(&h);
}

static void
a_root_gets_half_of_the_inotify_watches(void **state)
{
	unsigned long half = number_in(WATCHES) / 2, n;
	struct harness h;
	char *text;

	(void)state;
	hog_begin(&h, 1, 0);
	hog_start(&h);
	text = xasprintf("%lu\n", half);
	hog_expect(&h, 0, "cat /proc/sys/user/max_inotify_watches", text);
	free(text);
	/* More files than the sandbox's /tmp has room for prove nothing. */
	if (half < 190000) {
		text = hog_output(
		    &h, 0, "mkdir /tmp/w; ./hog watches /tmp/w 195000");
		n = hog_number(text, "ENOSPC");
		free(text);
		assert_true(n <= half);
		if (getuid() == 0)
			assert_int_equal(n, half);
	}
	harness_stop(&h);
}

/* ---- descriptors, memory of the machine ---- */

static void
descriptors_are_each_process_s_own(void **state)
{
	struct harness h;
	struct rlimit rl;
	unsigned long n;
	uint32_t id;
	char *text, *command;

	(void)state;
	hog_begin(&h, 2, 0);
	hog_start(&h);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &rl), 0);
	if (rl.rlim_max == RLIM_INFINITY || rl.rlim_max > 1000000000)
		rl.rlim_max = 1000000000;
	text = xasprintf("%llu\n", (unsigned long long)rl.rlim_max);
	hog_expect(&h, 0, "ulimit -Hn", text);
	free(text);
	text = xasprintf("%llu\n",
	    (unsigned long long)(rl.rlim_cur < 65536 ? rl.rlim_cur : 65536));
	hog_expect(&h, 0, "ulimit -Sn", text);
	free(text);

	text = hog_output(&h, 0, "./hog descriptors");
	n = strtoul(text, NULL, 10);
	free(text);
	if (n < 100000 && n + 8 < rl.rlim_max)
		fail_msg("only %lu descriptors", n);
	command = hog_command(&h, "descriptors begun");
	id = hog_hold(&h, command);
	free(command);
	hog_expect(&h, 1, "cat <(echo fine)", "fine\n");
	hog_release(&h, id);
	harness_stop(&h);
}

static void
commands_are_ended_first_without_memory(void **state)
{
	struct harness h;

	(void)state;
	if (number_in("/proc/self/oom_score_adj") > 500) {
		print_message("needs an oom_score_adj of at most 500\n");
		skip();
	}
	hog_begin(&h, 1, 0);
	hog_start(&h);
	hog_expect(&h, 0, "cat /proc/self/oom_score_adj", "500\n");
	harness_stop(&h);
}

/* ---- output ---- */

/* A line of proc_pid_status(5), in KiB. */
static unsigned long
status_kib(pid_t pid, const char *name)
{
	char path[64], text[8192], *p;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd != -1);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_true(n > 0);
	text[n] = '\0';
	p = strstr(text, name);
	assert_non_null(p);
	return strtoul(p + strlen(name), NULL, 10);
}

static void
a_flood_takes_no_memory_and_the_timer_fires(void **state)
{
	struct harness h;
	struct answer a;
	unsigned long before, after;
	int i;

	(void)state;
	hog_begin(&h, 2, 0);
	hog_start(&h);
	hog_expect(&h, 0, "yes | head -c 1000000 | wc -c", "1000000\n");
	before = status_kib(h.pid, "VmHWM:");
	for (i = 0; i < 2; i++) {
		assert_int_equal(harness_run_with(&h, 0,
				     "yes flood >&2 & yes flood & yes flood",
				     "", 1500, 65536, &a),
		    0);
		assert_true(a.ok);
		assert_true(a.result.timed_out);
		assert_true(a.result.truncated);
		assert_true(a.result.out.len > 0);
		assert_true(a.result.err.len > 0);
		assert_true(a.result.out.len + a.result.err.len <= 65536);
		answer_free(&a);
	}
	after = status_kib(h.pid, "VmHWM:");
	if (after > before + 32 * 1024)
		fail_msg("from %lu to %lu KiB", before, after);
	hog_expect(&h, 1, "echo fine", "fine\n");
	harness_stop(&h);
}

/* ---- what was in /tmp ---- */

struct watched {
	int dir; /* keeps the file system alive */
	int events;
};

static void
watch_tmp(struct watched *w, pid_t keeper)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/root/tmp", (int)keeper);
	w->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(w->dir != -1);
	w->events = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	assert_true(w->events != -1);
	assert_true(inotify_add_watch(w->events, path, IN_DELETE_SELF) != -1);
}

/* inotify(7) says when a file system is gone, its content with it. */
static int
is_gone(const struct watched *w)
{
	union {
		struct inotify_event align;
		char bytes[4096];
	} u;
	struct inotify_event e;
	ssize_t n, at;

	n = read(w->events, u.bytes, sizeof(u));
	for (at = 0; at < n; at += (ssize_t)(sizeof(e) + e.len)) {
		memcpy(&e, u.bytes + at, sizeof(e));
		if (e.mask & IN_UNMOUNT)
			return 1;
	}
	return 0;
}

#define FILL                                            \
	"mkdir /tmp/f && ./hog files /tmp/f 100000 && " \
	"head -c 200M /dev/zero >/tmp/big && ls /tmp/f | wc -l"

/*
 * A file system that somebody else keeps alive cannot be freed: whoever goes
 * on before it is let go did not wait for that. Then it goes.
 */
static void
nobody_waits_until_100000_files_are_gone(void **state)
{
	struct harness h;
	struct watched w;
	pid_t keeper;
	int status;

	(void)state;
	if (getuid() != 0) {
		print_message("needs root to look into a sandbox\n");
		skip();
	}
	hog_begin(&h, 2, 0);
	h.slots = 1;
	hog_start(&h);
	/* Another root evicts it; then it is made anew. */
	hog_expect(&h, 0, FILL, "100000 0\n100000\n");
	keeper = find_below(h.pid, "sandbox", 1);
	assert_true(keeper > 0);
	watch_tmp(&w, keeper);
	hog_expect(&h, 1, "echo fine", "fine\n");
	hog_expect(
	    &h, 0, "[ -e /tmp/f ] || [ -e /tmp/big ] || echo empty", "empty\n");
	assert_false(is_gone(&w));
	close(w.dir);
	WAIT_UNTIL(is_gone(&w));
	close(w.events);

	/* The executor ends. */
	hog_expect(&h, 0, FILL, "100000 0\n100000\n");
	keeper = find_below(h.pid, "sandbox", 1);
	assert_true(keeper > 0);
	watch_tmp(&w, keeper);
	imsg_compose(&h.monitor, MSG_STOP, 0, -1, NULL, 0);
	assert_int_equal(imsg_flush_blocking(&h.monitor), 0);
	assert_int_equal(waitpid(h.pid, &status, 0), h.pid);
	assert_int_equal(status, 0);
	h.pid = 0;
	assert_false(is_gone(&w));
	close(w.dir);
	WAIT_UNTIL(is_gone(&w));
	close(w.events);
	harness_stop(&h);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(processes_of_a_root_are_bounded),
		cmocka_unit_test(no_process_limit_is_none),
		cmocka_unit_test(fork_bomb_does_not_reach_another_root),
		cmocka_unit_test(thousands_of_orphans_die_with_their_command),
		cmocka_unit_test(a_root_gets_half_of_the_inotify_instances),
		cmocka_unit_test(a_root_gets_half_of_the_inotify_watches),
		cmocka_unit_test(descriptors_are_each_process_s_own),
		cmocka_unit_test(commands_are_ended_first_without_memory),
		cmocka_unit_test(a_flood_takes_no_memory_and_the_timer_fires),
		cmocka_unit_test(nobody_waits_until_100000_files_are_gone),
	};
	char uid[32];

	log_init("test", 0);
	/* An account that no other test uses at the same time. */
	(void)snprintf(uid, sizeof(uid), "%ld", 1000000 + (long)getpid());
	(void)setenv("TEST_UID", uid, 0);
	return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
