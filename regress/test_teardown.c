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
 * First the command says which namespace it is in, then it leaves its
 * processes, then it says so, and ends or not.
 */
static char *
command_of(size_t kind, int ends)
{
	return xasprintf("readlink /proc/self/ns/pid >ns.new; mv ns.new ns; "
			 "%s\ntouch begun; %s",
	    kinds[kind].command, ends ? "exit 0" : "sleep 1000");
}

/* Waits for a file of the root; 0 if it does not come. */
static int
wait_file(const char *root, const char *name)
{
	char *path = xasprintf("%s/%s", root, name);
	int64_t end = time_mono_ms() + 60000;
	int there;

	while (!(there = access(path, F_OK) == 0) && time_mono_ms() < end)
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

/* The namespace that the command was in. */
static void
read_namespace(const char *root, char *link, size_t size)
{
	char *path = xasprintf("%s/ns", root);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	assert_int_not_equal(fd, -1);
	n = read(fd, link, size - 1);
	assert_true(n > 6);
	close(fd);
	link[n] = '\0';
	link[strcspn(link, "\n")] = '\0';
	assert_memory_equal(link, "pid:[", 5);
	free(path);
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

/* After an answer nothing is left, at once: it is sent when all are dead. */
static void
answered(struct harness *h, uint32_t id, const struct combination *c)
{
	struct answer a;
	char link[64];

	assert_int_equal(harness_wait(h, id, &a), 0);
	read_namespace(h->roots[0], link, sizeof(link));
	must_be_empty(link, namespace_members(link), c);
	if (c->end == CANCEL) {
		assert_false(a.ok);
		assert_int_equal(a.error.code, EC_EXECUTION_ABORTED);
		assert_int_equal(a.error.certainty, NOT_COMMITTED);
	} else {
		assert_true(a.ok);
		assert_int_equal(a.result.timed_out, c->end == TIME_OUT);
		if (c->end == EXIT)
			assert_int_equal(a.result.exit_code, 0);
	}
	answer_free(&a);
}

static void
killed(struct harness *h, const struct combination *c)
{
	char link[64];

	read_namespace(h->roots[0], link, sizeof(link));
	/* They are found while they are there. */
	assert_true(namespace_members(link) >= 2);
	harness_kill(h);
	must_be_empty(link, namespace_emptied(link), c);
}

static struct harness H;

/* A limit within which the command comes to its end, four times over. */
static uint32_t
time_enough(struct harness *h, const char *command)
{
	struct answer a;
	uint32_t ms, id;
	char *path = xasprintf("%s/begun", h->roots[0]);

	for (ms = 250; ms < 60000; ms *= 2) {
		remove_file(h->roots[0], "begun");
		id = send_command(h, command, ms);
		assert_int_equal(harness_wait(h, id, &a), 0);
		answer_free(&a);
		if (access(path, F_OK) == 0)
			break;
	}
	free(path);
	return ms * 4;
}

static void
run_combination(void **state)
{
	const struct combination *c = *state;
	char *command = command_of(c->kind, c->end == EXIT);
	struct harness own, *h = &H;
	uint32_t id, timeout_ms = 300000;

	if (c->end == EXECUTOR_KILLED) {
		h = &own;
		harness_init(h, 1);
		copy_program(h, "ATTACK", h->roots[0], "attack");
		if (harness_start(h) == -1)
			fail_msg("%s", h->failed);
	}
	if (c->end == TIME_OUT)
		timeout_ms = time_enough(h, command);
	remove_file(h->roots[0], "ns");
	remove_file(h->roots[0], "begun");
	id = send_command(h, command, timeout_ms);
	free(command);
	if (c->end == CANCEL || c->end == EXECUTOR_KILLED)
		assert_true(wait_file(h->roots[0], "begun"));
	if (c->end == CANCEL)
		harness_cancel(h, id);
	if (c->end == EXECUTOR_KILLED) {
		killed(h, c);
		harness_remove(h);
	} else
		answered(h, id, c);
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
		assert_true(wait_file(w.project, "begun"));
		read_namespace(w.project, link, sizeof(link));
		assert_true(namespace_members(link) >= 2);
		assert_int_equal(kill(w.worker, SIGKILL), 0);
		must_be_empty(link, namespace_emptied(link), &c);
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
