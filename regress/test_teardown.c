#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
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
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "harness.h"
#include "log.h"
#include "procs.h"
#include "times.h"
#include "world.h"

/*
 * Whatever a command leaves running, and however it ends, nothing of it is
 * there afterwards: each kind of process by each kind of end. Processes are
 * found by their pid namespace, which none of them can leave, in the host's
 * /proc (native-sandbox chapter 20, rows 26 to 33).
 */

static const struct {
	const char *name;
	const char *command; /* returns at once */
} kinds[] = {
	{ "background", "sleep 1000 &" },
	{ "double fork", "(sleep 1000 >/dev/null 2>&1 &) &" },
	{ "own session", "setsid sleep 1000 >/dev/null 2>&1 </dev/null &" },
	{ "ignores signals",
	    "(trap '' TERM INT HUP QUIT PIPE; setsid bash -c \"trap '' TERM "
	    "HUP; while :; do sleep 100; done\" &) >/dev/null 2>&1" },
	{ "stopped", "sleep 1000 & kill -STOP $!" },
	{ "holds the pipes", "(exec 3>&1 4>&2; sleep 1000 >&3 2>&4 &)" },
	{ "fork bomb",
	    "(ulimit -u 150; b() { b | b & }; b) >/dev/null 2>&1 &" },
	{ "two thousand orphans", "./attack orphans 2000" },
	{ "vfork", "./attack vfork >/dev/null 2>&1" },
	{ "other name", "./attack renamed >/dev/null 2>&1" },
	{ "reads a FIFO", "mkfifo /tmp/f$$; cat /tmp/f$$ &" },
};
#define NKINDS (sizeof(kinds) / sizeof(kinds[0]))

enum end { EXIT, TIME_OUT, CANCEL, EXECUTOR_KILLED, NENDS };
static const char *const end_names[NENDS] = { "exit", "time-out", "cancel",
	"executor killed" };

struct combination {
	size_t kind;
	enum end end;
};

/*
 * First the command says which namespace it is in and waits until we hold
 * that, then it leaves its processes, then it says so, and ends or not.
 */
static char *
command_of(size_t kind, int ends)
{
	return xasprintf("readlink /proc/self/ns/pid >ns.new; mv ns.new ns; "
			 "until [ -e pinned ]; do sleep 0.01; done\n"
			 "%s\ntouch begun; %s",
	    kinds[kind].command, ends ? "exit 0" : "sleep 1000");
}

/* Waits for a file of the root; 0 if it does not come. */
static int
wait_file(const char *root, const char *name, uint32_t ms)
{
	char *path = xasprintf("%s/%s", root, name);
	int64_t end = time_mono_ms() + ms;
	int there;

	while (!(there = access(path, F_OK) == 0) && time_mono_ms() <= end)
		(void)poll(NULL, 0, 2);
	free(path);
	return there;
}

static void
remove_file(const char *root, const char *name)
{
	char *path = xasprintf("%s/%s", root, name);

	(void)unlink(path);
	free(path);
}

static void
new_root_files(const char *root)
{
	remove_file(root, "ns");
	remove_file(root, "pinned");
	remove_file(root, "begun");
}

/*
 * Holds the namespace that the command is in and lets it go on: a descriptor,
 * or -1 if the command did not come so far in time.
 */
static int
pin(const char *root, char *link, size_t size, uint32_t ms)
{
	char *path = xasprintf("%s/ns", root);
	ssize_t n = -1;
	int fd, held;

	if (!wait_file(root, "ns", ms)) {
		free(path);
		return -1;
	}
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) != -1) {
		n = read(fd, link, size - 1);
		close(fd);
	}
	free(path);
	assert_true(n > 6);
	link[n] = '\0';
	link[strcspn(link, "\n")] = '\0';
	if ((held = namespace_pin(link)) == -1)
		return -1;
	path = xasprintf("%s/pinned", root);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_int_not_equal(fd, -1);
	close(fd);
	free(path);
	return held;
}

static uint32_t
send_command(struct harness *h, const char *command, uint32_t timeout_ms)
{
	struct request q;
	uint32_t id;

	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	text_set(&q.command, command, strlen(command));
	q.timeout_ms = timeout_ms;
	q.max_output = 1000;
	id = harness_send(h, &q);
	request_free(&q);
	return id;
}

static void
must_be_empty(const char *link, int left, const struct combination *c)
{
	if (left != 0)
		fail_msg("%s, %s: %d processes are left in %s",
		    kinds[c->kind].name, end_names[c->end], left, link);
}

static void
check_answer(const struct answer *a, enum end end)
{
	if (end == CANCEL) {
		assert_false(a->ok);
		assert_int_equal(a->error.code, EC_EXECUTION_ABORTED);
		assert_int_equal(a->error.certainty, NOT_COMMITTED);
		return;
	}
	assert_true(a->ok);
	assert_int_equal(a->result.timed_out, end == TIME_OUT);
	if (end == EXIT)
		assert_int_equal(a->result.exit_code, 0);
}

/*
 * One command with this time limit. An answer is sent when all is dead, so
 * then nothing may be left. 0 if the limit was too short for this machine.
 */
static int
attempt(struct harness *h, const struct combination *c, uint32_t ms)
{
	char *command = command_of(c->kind, c->end == EXIT), link[64];
	struct answer a;
	uint32_t id;
	int held;

	new_root_files(h->roots[0]);
	id = send_command(h, command, ms);
	free(command);
	held = pin(h->roots[0], link, sizeof(link), ms);
	if (held != -1 && (c->end == CANCEL || c->end == EXECUTOR_KILLED))
		assert_true(wait_file(h->roots[0], "begun", ms));
	if (c->end == EXECUTOR_KILLED) {
		assert_int_not_equal(held, -1);
		/* They are found while they are there. */
		assert_true(namespace_members(link) >= 2);
		harness_kill(h);
		must_be_empty(link, namespace_emptied(link), c);
		close(held);
		return 1;
	}
	if (c->end == CANCEL)
		harness_cancel(h, id);
	assert_int_equal(harness_wait(h, id, &a), 0);
	if (held != -1 && wait_file(h->roots[0], "begun", 0)) {
		must_be_empty(link, namespace_members(link), c);
		check_answer(&a, c->end);
		answer_free(&a);
		close(held);
		return 1;
	}
	answer_free(&a);
	if (held != -1)
		close(held);
	return 0;
}

static struct harness H;

static void
run_combination(void **state)
{
	const struct combination *c = *state;
	struct harness own;
	uint32_t ms;

	if (c->end == EXECUTOR_KILLED) {
		harness_init(&own, 1);
		copy_program(&own, "ATTACK", own.roots[0], "attack");
		if (harness_start(&own) == -1)
			fail_msg("%s", own.failed);
		assert_true(attempt(&own, c, 120000));
		harness_remove(&own);
		return;
	}
	ms = c->end == TIME_OUT ? 700 : 120000;
	while (!attempt(&H, c, ms)) {
		assert_true(ms < 60000);
		ms *= 2;
	}
}

/* The next command of the root is not disturbed by what was before. */
static void
the_root_still_works(void **state)
{
	struct answer a;

	(void)state;
	assert_int_equal(
	    harness_run(&H, 0, "set -- /proc/[0-9]*; echo $#", &a), 0);
	assert_true(a.ok);
	assert_memory_equal(a.result.out.data, "2\n", 2);
	answer_free(&a);
}

/* ---- the whole daemon ---- */

/* Row 33: the command is dead and the marker found. */
static void
the_worker_is_killed(void **state)
{
	static const size_t chosen[] = { 3, 6, 7 };
	struct harness as;
	struct pending p;
	struct world w;
	char link[64], *body, *command;
	size_t i;
	int held;

	(void)state;
	for (i = 0; i < sizeof(chosen) / sizeof(chosen[0]); i++) {
		struct combination c = { chosen[i], EXECUTOR_KILLED };

		world_init(&w, 61234);
		memset(&as, 0, sizeof(as));
		as.uid = getuid() == 0 ? 61234 : getuid();
		as.gid = getuid() == 0 ? 61234 : getgid();
		copy_program(&as, "ATTACK", w.project, "attack");
		world_server(&w, NULL);
		world_start(&w);
		command = command_of(c.kind, 0);
		body = world_command_body(command, 0);
		world_call_start(&w, body, &p);
		free(body);
		free(command);
		held = pin(w.project, link, sizeof(link), 60000);
		assert_int_not_equal(held, -1);
		assert_true(wait_file(w.project, "begun", 60000));
		assert_true(namespace_members(link) >= 2);
		assert_int_equal(kill(w.worker, SIGKILL), 0);
		must_be_empty(link, namespace_emptied(link), &c);
		close(held);
		assert_int_equal(world_markers(&w), 1);
		(void)world_worker_end(&w, 20000);
		world_call_abort(&p);
		world_free(&w);
	}
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

int
main(void)
{
	static struct combination combinations[NKINDS * NENDS];
	static char names[NKINDS * NENDS][64];
	struct CMUnitTest tests[NKINDS * NENDS + 2];
	size_t kind, end, n = 0;

	log_init("test", 0);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	memset(tests, 0, sizeof(tests));
	for (end = 0; end < NENDS; end++)
		for (kind = 0; kind < NKINDS; kind++) {
			combinations[n].kind = kind;
			combinations[n].end = (enum end)end;
			(void)xsnprintf(names[n], sizeof(names[n]), "%s, %s",
			    kinds[kind].name, end_names[end]);
			tests[n].name = names[n];
			tests[n].test_func = run_combination;
			tests[n].initial_state = &combinations[n];
			n++;
		}
	tests[n].name = "the root still works";
	tests[n++].test_func = the_root_still_works;
	tests[n].name = "the worker is killed";
	tests[n++].test_func = the_worker_is_killed;
	return _cmocka_run_group_tests("teardown", tests, n, start, stop);
}
