#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
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
#include "log.h"
#include "observe.h"
#include "world.h"

/*
 * The crash matrix: SIGKILL of each process, and of the whole tree, at each
 * step of a mutation. The steps are reached by stopping (SIGSTOP) the process
 * that would do the next one, or by a server that is slow on one route. What
 * must hold afterwards is protocol 9.4 with 12.2:
 *	- a mutation ran at most once;
 *	- without an accepted settlement an armed marker is still there;
 *	- a marker is gone only if the mutation was never armed or its
 *	  settlement was accepted;
 *	- the next start refuses over a marker, and works without one.
 */

enum victim { MONITOR, BRIDGE, EXECUTOR, TREE, VICTIMS };
static const char *const victim_names[VICTIMS] = { "monitor", "bridge",
	"executor", "whole tree" };

enum step {
	BEFORE_ARM,
	AFTER_ARM,
	DURING_EXECUTION,
	AFTER_EXECUTION,
	DURING_SETTLE,
	AFTER_ACCEPTED,
	DURING_CLEAR,
	AFTER_CLEAR,
	STEPS
};

/* Permitted numbers, as bits: 1 = none, 2 = one. */
#define NONE   1
#define ONE    2
#define EITHER 3

struct row {
	const char *name;
	int ran;
	int marker;
	int accepted;
};

static const struct row steps[STEPS] = {
	{ "before arm", NONE, NONE, NONE },
	{ "after arm", NONE, ONE, NONE },
	{ "during execution", ONE, ONE, NONE },
	{ "after execution", ONE, ONE, NONE },
	{ "during settle", ONE, ONE, NONE },
	{ "after accepted", ONE, ONE, ONE },
	{ "during clear", ONE, ONE, ONE },
	{ "after clear", ONE, NONE, ONE },
};

/* The row, and what a survivor may still bring to an end. */
static struct row
expected(enum step step, enum victim v)
{
	struct row r = steps[step];

	/* The bridge has the result and may settle it before it is told. */
	if (step == AFTER_EXECUTION && v == EXECUTOR)
		r.marker = r.accepted = EITHER;
	/* The request to clear may be there already, and is carried out. */
	if (step == DURING_CLEAR && (v == BRIDGE || v == EXECUTOR))
		r.marker = EITHER;
	return r;
}

struct crash {
	struct world w;
	struct pending caller;
	pid_t helpers[VICTIMS]; /* MONITOR, BRIDGE, EXECUTOR */
	char *ran; /* gets one line each time the command runs */
	char *begun; /* exists after that */
	char *done; /* exists when it has ended */
	char *go; /* lets it end */
};

static pid_t
find_helper(struct world *w, const char *name)
{
	pid_t list[16];
	char path[64], text[256];
	size_t n, i;
	ssize_t len;
	int fd;

	n = world_children(w->worker, list, 16);
	for (i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/proc/%d/cmdline", list[i]);
		if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
			continue;
		len = read(fd, text, sizeof(text) - 1);
		close(fd);
		if (len <= 0)
			continue;
		text[len] = '\0';
		if (strcmp(text, name) == 0)
			return list[i];
	}
	fail_msg("no %s", name);
	return 0;
}

static void
pause_briefly(void)
{
	struct timespec ts = { 0, 1000000 };

	nanosleep(&ts, NULL);
}

/* The character after the name in /proc/PID/stat, 0 if it is gone. */
static char
process_state(pid_t pid)
{
	char path[64], text[512], *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		return '\0';
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return '\0';
	text[n] = '\0';
	p = strrchr(text, ')');
	return p == NULL ? '\0' : p[2];
}

/* Stops a process and waits until it is stopped. */
static void
halt(pid_t pid)
{
	double end = world_now() + 10000;

	assert_int_equal(kill(pid, SIGSTOP), 0);
	while (process_state(pid) != 'T') {
		assert_true(world_now() < end);
		pause_briefly();
	}
}

static void
wait_requests(struct world *w, const char *route, int answered)
{
	double end = world_now() + 20000;

	while (count_requests(w, route, answered) == 0) {
		if (world_now() > end)
			fail_msg("no %s", route);
		pause_briefly();
	}
}

static void
wait_markers(struct world *w, int n)
{
	double end = world_now() + 20000;

	while (world_markers(w) != n) {
		if (world_now() > end)
			fail_msg("%d markers", world_markers(w));
		pause_briefly();
	}
}

static void
touch(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

	assert_int_not_equal(fd, -1);
	close(fd);
}

static void
begin(struct crash *c)
{
	memset(c, 0, sizeof(*c));
	world_init(&c->w, 0);
	world_server(&c->w, NULL);
	world_start(&c->w);
	c->helpers[MONITOR] = c->w.worker;
	c->helpers[BRIDGE] = find_helper(&c->w, "librechat-code-bridge");
	c->helpers[EXECUTOR] = find_helper(&c->w, "librechat-code-executor");
	c->ran = xasprintf("%s/ran", c->w.project);
	c->begun = xasprintf("%s/begun", c->w.project);
	c->done = xasprintf("%s/done", c->w.project);
	c->go = xasprintf("%s/go", c->w.project);
}

static void
call(struct crash *c)
{
	char *body;

	body = world_command_body(
	    "echo x >>ran; touch begun; until [ -e go ]; do sleep "
	    "0.01; done; touch done",
	    60000);
	world_call_start(&c->w, body, &c->caller);
	free(body);
}

/* Brings the mutation to the step and no further. */
static void
reach(struct crash *c, enum step step)
{
	struct world *w = &c->w;

	switch (step) {
	case BEFORE_ARM:
		set_faults(w, "{\"route\":\"ack\",\"action\":\"stall\"}");
		call(c);
		wait_requests(w, "ack", 0);
		break;
	case AFTER_ARM:
		halt(c->helpers[EXECUTOR]);
		call(c);
		wait_markers(w, 1);
		break;
	case DURING_EXECUTION:
		call(c);
		assert_true(world_file_wait(c->begun, 20000));
		break;
	case AFTER_EXECUTION:
		call(c);
		assert_true(world_file_wait(c->begun, 20000));
		halt(c->helpers[BRIDGE]);
		touch(c->go);
		assert_true(world_file_wait(c->done, 20000));
		break;
	case DURING_SETTLE:
		set_faults(w,
		    "{\"route\":\"settle\",\"action\":\"status\","
		    "\"status\":503}");
		touch(c->go);
		call(c);
		wait_requests(w, "settle", 0);
		break;
	case AFTER_ACCEPTED:
		/* The server has accepted; its answer does not arrive. */
		set_faults(w, "{\"route\":\"settle\",\"action\":\"stall\"}");
		touch(c->go);
		call(c);
		wait_requests(w, "settle", 1);
		break;
	case DURING_CLEAR:
		set_faults(w,
		    "{\"route\":\"settle\",\"action\":\"delay\","
		    "\"ms\":1000}");
		touch(c->go);
		call(c);
		wait_requests(w, "settle", 0);
		halt(c->helpers[MONITOR]);
		wait_requests(w, "settle", 1);
		break;
	case AFTER_CLEAR:
		touch(c->go);
		call(c);
		wait_requests(w, "settle", 1);
		wait_markers(w, 0);
		break;
	case STEPS:
		break;
	}
}

static void
strike(struct crash *c, enum victim v)
{
	int i;

	if (v != TREE)
		assert_int_equal(kill(c->helpers[v], SIGKILL), 0);
	else
		for (i = 0; i < TREE; i++)
			(void)kill(c->helpers[i], SIGKILL);
	/* Who was stopped only to reach the step goes on. */
	for (i = 0; i < TREE; i++)
		(void)kill(c->helpers[i], SIGCONT);
}

/* Every process of the worker is gone; the time that took. */
static void
wait_gone(struct crash *c)
{
	double end = world_now() + 10000;
	int i, left;

	assert_int_not_equal(world_worker_end(&c->w, 10000), -1);
	do {
		/* Orphans come to us (main is a subreaper). */
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		for (i = left = 0; i < TREE; i++)
			left += kill(c->helpers[i], 0) == 0;
		if (left > 0 && world_now() > end)
			fail_msg("something of the worker lives");
		if (left > 0)
			pause_briefly();
	} while (left > 0);
}

static int
times_run(const struct crash *c)
{
	struct stat st;

	return stat(c->ran, &st) == -1 ? 0 : (int)(st.st_size / 2);
}

/*
 * It registers, or the server is busy with the lost work for a while yet and
 * says so; it does not refuse by itself.
 */
static void
wait_registered(struct world *w)
{
	double end = world_now() + 20000;

	while (!world_log_has(w, "registered as") &&
	    !world_log_has(w, "WORKER_BUSY")) {
		if (world_now() > end)
			fail_msg("%s", world_log(w));
		pause_briefly();
	}
}

/* What the next start does: 1 if it works, 0 if it refuses as documented. */
static int
next_start(struct crash *c)
{
	char *log;
	int r;

	set_faults(&c->w, "");
	log = xasprintf("%s/worker.log", c->w.dir);
	assert_int_equal(truncate(log, 0), 0);
	free(log);
	world_worker(&c->w, "--allow-workspace-writes",
	    "--allow-workspace-commands", NULL);
	if (world_markers(&c->w) == 0) {
		wait_registered(&c->w);
		world_signal(&c->w, SIGTERM);
		assert_int_not_equal(world_worker_end(&c->w, 20000), -1);
		return 1;
	}
	r = world_worker_end(&c->w, 20000);
	assert_true(r != -1 && WIFEXITED(r) && WEXITSTATUS(r) == 78);
	assert_true(world_log_has(&c->w, "clear-workspace-quarantine"));
	assert_int_equal(
	    world_command(&c->w, NULL, "clear-workspace-quarantine",
		"--worker-dir", c->w.project, NULL),
	    0);
	assert_int_equal(world_markers(&c->w), 0);
	return 0;
}

static int
permitted(int mask, int n)
{
	return n >= 0 && n <= 1 && (mask & (1 << n)) != 0;
}

static void
one_run(enum step step, enum victim v)
{
	struct crash c;
	struct row want = expected(step, v);
	int ran, marker, accepted, works;

	begin(&c);
	reach(&c, step);
	strike(&c, v);
	wait_gone(&c);
	ran = times_run(&c);
	marker = world_markers(&c.w);
	accepted = count_requests(&c.w, "settle", 1) > 0;
	print_message("# %-16s  %-10s  ran %d  accepted %d  marker %d\n",
	    steps[step].name, victim_names[v], ran, accepted, marker);
	assert_true(permitted(want.ran, ran));
	assert_true(permitted(want.accepted, accepted));
	assert_true(permitted(want.marker, marker));
	assert_true(marker || !ran || accepted);
	works = next_start(&c);
	assert_int_equal(works, !marker);
	/* Nothing was repeated, neither by the server nor by the worker. */
	assert_int_equal(times_run(&c), ran);
	world_call_abort(&c.caller);
	free(c.ran);
	free(c.begun);
	free(c.done);
	free(c.go);
	world_free(&c.w);
}

static void
all_victims(enum step step)
{
	int v;

	for (v = 0; v < VICTIMS; v++)
		one_run(step, (enum victim)v);
}

static void
killed_before_arm(void **state)
{
	(void)state;
	all_victims(BEFORE_ARM);
}

static void
killed_after_arm(void **state)
{
	(void)state;
	all_victims(AFTER_ARM);
}

static void
killed_during_execution(void **state)
{
	(void)state;
	all_victims(DURING_EXECUTION);
}

static void
killed_after_execution(void **state)
{
	(void)state;
	all_victims(AFTER_EXECUTION);
}

static void
killed_during_settle(void **state)
{
	(void)state;
	all_victims(DURING_SETTLE);
}

static void
killed_after_accepted(void **state)
{
	(void)state;
	all_victims(AFTER_ACCEPTED);
}

static void
killed_during_clear(void **state)
{
	(void)state;
	all_victims(DURING_CLEAR);
}

static void
killed_after_clear(void **state)
{
	(void)state;
	all_victims(AFTER_CLEAR);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_before_arm),
		cmocka_unit_test(killed_after_arm),
		cmocka_unit_test(killed_during_execution),
		cmocka_unit_test(killed_after_execution),
		cmocka_unit_test(killed_during_settle),
		cmocka_unit_test(killed_after_accepted),
		cmocka_unit_test(killed_during_clear),
		cmocka_unit_test(killed_after_clear),
	};

	log_init("test", 0);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) == -1)
		fatal("subreaper");
	return cmocka_run_group_tests_name("crash", tests, NULL, NULL);
}
