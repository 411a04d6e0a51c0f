#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fcntl.h>
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
#include "slots.h"

/*
 * Lease slots of the whole daemon: roots at work at the same time, one root
 * in doubt beside others that go on, and the way back that the manual tells.
 */

#define PATIENCE 60000 /* ms */
/* Says that it runs, and ends when the test says so. */
#define HELD "touch begun; until [ -e go ]; do sleep 0.02; done"

static void
control(struct place *p, const char *path, const char *body)
{
	struct json *j = world_control(&p->w, path, body);

	if (j == NULL)
		fail_msg("%s: the server refuses %s", path, body);
	json_free(j);
}

static void
rules(struct place *p, const char *text)
{
	char *body = xasprintf("{\"rules\":[%s]}", text);

	control(p, "faults", body);
	free(body);
}

static void
start(struct place *p, size_t root, const char *command, struct pending *call)
{
	char *body = place_command(p, root, command);

	world_call_start(&p->w, body, call);
	free(body);
}

static long
end(struct pending *call)
{
	struct json *j;
	long status = world_call_end(call, &j);

	json_free(j);
	return status;
}

/* ---- at the same time, and one after the other ---- */

static void
eight_roots_work_at_the_same_time(void **state)
{
	struct pending calls[8];
	struct place p;
	size_t i;

	(void)state;
	place_init(&p, 8, 8);
	for (i = 0; i < 8; i++)
		start(&p, i, HELD, &calls[i]);
	/* None of them ends before all have begun. */
	for (i = 0; i < 8; i++)
		assert_true(place_wait(&p, i, "begun"));
	for (i = 0; i < 8; i++)
		place_put(&p, i, "go");
	for (i = 0; i < 8; i++)
		assert_int_equal(end(&calls[i]), 200);
	assert_int_equal(place_stop(&p), 0);
	place_free(&p);
}

/* Entries of the worker's slots and queue at the server. */
static size_t
queued(struct place *p, const char *state)
{
	const struct json *list, *queue;
	struct json *j = world_state(&p->w);
	size_t i, n = 0;

	list = json_get_type(j, "workers", JSON_ARRAY);
	queue = json_get_type(list->items[0], "queue", JSON_ARRAY);
	for (i = 0; i < queue->n; i++)
		n += strcmp(json_get_str(queue->items[i], "state"), state) == 0;
	json_free(j);
	return n;
}

static void
await_queue(struct place *p, const char *state, size_t n)
{
	double limit = world_now() + PATIENCE;

	while (queued(p, state) != n) {
		if (world_now() > limit)
			fail_msg("no %zu entries %s", n, state);
		usleep(5000);
	}
}

static void
two_of_one_root_take_turns(void **state)
{
	struct pending first, second, other;
	struct place p;

	(void)state;
	place_init(&p, 2, 3);
	start(&p, 0, HELD, &first);
	assert_true(place_wait(&p, 0, "begun"));
	start(&p, 0, "touch second", &second);
	await_queue(&p, "waiting", 1);
	/* Another root does not wait behind it. */
	start(&p, 1, "true", &other);
	assert_int_equal(end(&other), 200);
	assert_false(place_has(&p, 0, "second"));
	place_put(&p, 0, "go");
	assert_int_equal(end(&first), 200);
	assert_int_equal(end(&second), 200);
	assert_true(place_has(&p, 0, "second"));
	place_free(&p);
}

/* Another server in the place of the first one. */
static void
other_server(struct place *p, const char *option)
{
	assert_int_equal(place_stop(p), 0);
	world_server_stop(&p->w);
	world_server(&p->w, option, NULL);
	world_pair(&p->w);
	world_worker(&p->w, "--allow-workspace-writes",
	    "--allow-workspace-commands", "--workspace-lease-slots=4",
	    p->args[0], NULL);
	assert_true(place_lanes(p, 1, PATIENCE));
}

static void
one_granted_slot_is_the_serial_protocol(void **state)
{
	struct pending first, second;
	struct place p;

	(void)state;
	place_init(&p, 2, 4);
	other_server(&p, "--slots=1");
	start(&p, 0, HELD, &first);
	assert_true(place_wait(&p, 0, "begun"));
	start(&p, 1, "touch second", &second);
	await_queue(&p, "waiting", 1);
	assert_false(place_has(&p, 1, "second"));
	place_put(&p, 0, "go");
	assert_int_equal(end(&first), 200);
	assert_int_equal(end(&second), 200);
	assert_int_equal(place_stop(&p), 0);
	place_free(&p);
}

/* One that knows nothing of slots, and of few operations. */
static void
an_old_server_is_served(void **state)
{
	struct pending calls[2];
	struct place p;
	char *body;
	size_t i;

	(void)state;
	place_init(&p, 2, 4);
	other_server(&p, "--old-server");
	for (i = 0; i < 2; i++) {
		place_put(&p, i, "f");
		body = place_read(&p, i, "f");
		world_call_start(&p.w, body, &calls[i]);
		free(body);
	}
	for (i = 0; i < 2; i++)
		assert_int_equal(end(&calls[i]), 200);
	assert_int_equal(place_stop(&p), 0);
	place_free(&p);
}

static void
a_lower_ceiling_is_followed(void **state)
{
	struct place p;

	(void)state;
	place_init(&p, 2, 4);
	control(&p, "budgets", "{\"leaseTtlMs\":2000}");
	control(&p, "ceiling", "{\"slots\":2}");
	assert_int_equal(place_stop(&p), 0);
	world_worker(&p.w, "--allow-workspace-commands",
	    "--workspace-lease-slots=4", p.args[0], NULL);
	assert_true(place_lanes(&p, 3, PATIENCE));
	assert_int_equal(place_run(&p, 1, "true", NULL), 200);
	/* And raised again, while nothing is running. */
	control(&p, "ceiling", "{\"slots\":4}");
	assert_true(place_lanes(&p, 5, PATIENCE));
	assert_int_equal(place_run(&p, 1, "true", NULL), 200);
	place_free(&p);
}

/* ---- one root in doubt ---- */

/* Brings root 1 into doubt; the caller's answer is checked by status. */
static void
refused_settlement(struct place *p)
{
	rules(p,
	    "{\"route\":\"settle\",\"action\":\"status\",\"status\":409,"
	    "\"code\":\"ASSIGNMENT_EXPIRED\",\"count\":1}");
	assert_int_equal(place_run(p, 1, "true", NULL), 422);
}

static void
lost_cleanup_receipt(struct place *p)
{
	rules(p,
	    "{\"route\":\"workspace-cleanup\",\"action\":\"status\","
	    "\"status\":503,\"count\":3}");
	/* The result is the caller's all the same. */
	assert_int_equal(place_run(p, 1, "true", NULL), 200);
}

/* Somebody else's marker is in the place of ours. */
static void
marker_that_stays(struct place *p)
{
	struct pending call;
	char *marker, *text;
	int fd;

	start(p, 1, HELD, &call);
	assert_true(place_wait(p, 1, "begun"));
	marker = place_marker(p, 1);
	assert_non_null(marker);
	assert_int_equal(unlink(marker), 0);
	text = xasprintf("{\"version\":1,\"workerId\":\"w\",\"workspaceId\": "
			 "\"r1\",\"ownerId\":\"x\",\"quarantinedAt\":"
			 "\"2026-01-01T00:00:00.000Z\",\"reason\":\"x\"}\n");
	fd = open(marker, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_int_not_equal(fd, -1);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	place_put(p, 1, "go");
	assert_int_equal(end(&call), 200);
	free(text);
	free(marker);
}

/* The first process of its sandbox dies during a command. */
static void
lost_sandbox(struct place *p)
{
	const char *mark = new_mark();
	char *command = xasprintf("sleep %s; true", mark);
	struct pending call;

	start(p, 1, command, &call);
	assert_int_equal(kill(place_sandbox(p, mark), SIGKILL), 0);
	assert_int_equal(end(&call), 422);
	free(command);
}

static const struct cause {
	const char *name;
	void (*strike)(struct place *);
	int marker; /* one is left */
} causes[] = {
	{ "a refused settlement", refused_settlement, 1 },
	{ "a lost receipt", lost_cleanup_receipt, 0 },
	{ "a marker that cannot be removed", marker_that_stays, 1 },
	{ "the loss of its sandbox", lost_sandbox, 1 },
};

static void
others_go_on(struct place *p)
{
	int i;

	for (i = 0; i < 3; i++) {
		assert_int_equal(place_run(p, 0, "true", NULL), 200);
		assert_int_equal(place_run(p, 2, "true", NULL), 200);
	}
}

static void
await_fence(struct place *p, size_t root, const char *start_of_value)
{
	double limit = world_now() + PATIENCE;
	char *value;

	for (;;) {
		value = place_fence(p, root);
		if (value != NULL &&
		    strncmp(value, start_of_value, strlen(start_of_value)) == 0)
			break;
		free(value);
		if (world_now() > limit)
			fail_msg("no fence of root %zu", root);
		usleep(5000);
	}
	free(value);
}

/* "QUARANTINE" in librechat-code(1), step by step. */
static void
recover(struct place *p, int marker)
{
	/* 1. Stop the worker, inspect the directory. */
	assert_int_equal(place_stop(p), 0);
	if (marker) /* The order is kept: nothing is reset before. */
		assert_int_equal(place_reset(p, 1), 78);
	/* 2. */
	assert_int_equal(
	    world_command(&p->w, NULL, "clear-workspace-quarantine",
		"--worker-dir", p->dirs[1], "--workspace-id", p->ids[1], NULL),
	    0);
	/* 3. */
	assert_int_equal(place_reset(p, 1), 0);
	/* 4. */
	place_start(p);
}

static void
a_root_in_doubt_is_refused_until_it_is_recovered(void **state)
{
	const struct cause *c = *state;
	struct place p;
	char code[64];

	place_init(&p, 3, 2);
	c->strike(&p);
	await_fence(&p, 1, "quarantined:");
	rules(&p, "");
	assert_int_equal(world_markers(&p.w), c->marker);
	others_go_on(&p);
	assert_int_equal(place_run(&p, 1, "true", code), 409);
	assert_string_equal(code, "WORKSPACE_QUARANTINED");
	/* A restart is no recovery. */
	assert_int_equal(place_stop(&p), 0);
	place_start(&p);
	assert_int_equal(
	    world_log_has(&p.w, "workspace r1 is not served"), c->marker);
	assert_int_equal(place_run(&p, 1, "true", code), 409);
	others_go_on(&p);
	recover(&p, c->marker);
	assert_int_equal(world_markers(&p.w), 0);
	assert_int_equal(place_run(&p, 1, "true", NULL), 200);
	others_go_on(&p);
	assert_int_equal(place_stop(&p), 0);
	place_free(&p);
}

static void
a_marker_from_before_is_refused_by_the_worker(void **state)
{
	struct place p;
	char *marker, *kept, *body;
	struct json *j;

	(void)state;
	place_init(&p, 3, 2);
	refused_settlement(&p);
	await_fence(&p, 1, "quarantined:");
	marker = place_marker(&p, 1);
	assert_non_null(marker);
	kept = xasprintf("%s/kept", p.w.dir);
	assert_int_equal(link(marker, kept), 0);
	recover(&p, 1);
	/* Now the server knows of nothing, and there is a marker. */
	assert_int_equal(place_stop(&p), 0);
	assert_int_equal(rename(kept, marker), 0);
	place_start(&p);
	/* Not even a read, which needs no marker. */
	place_put(&p, 1, "f");
	body = place_read(&p, 1, "f");
	assert_int_equal(world_call(&p.w, body, &j), 422);
	json_free(j);
	free(body);
	assert_true(world_log_has(&p.w, "workspace r1 is not served"));
	await_fence(&p, 1, "quarantined:");
	others_go_on(&p);
	/* Without slots no root may be in doubt. */
	assert_int_equal(place_stop(&p), 0);
	assert_int_equal(
	    world_command(&p.w, NULL, "run", "--worker-dir", p.w.project,
		"--allow-workspace-commands", p.args[0], p.args[1], NULL),
	    78);
	place_start(&p);
	recover(&p, 1);
	assert_int_equal(place_run(&p, 1, "touch x", NULL), 200);
	free(marker);
	free(kept);
	place_free(&p);
}

/* ---- the end ---- */

static void
a_stop_ends_all_that_runs(void **state)
{
	struct pending calls[4];
	struct place p;
	size_t i;

	(void)state;
	place_init(&p, 4, 4);
	for (i = 0; i < 4; i++)
		start(&p, i, HELD, &calls[i]);
	for (i = 0; i < 4; i++)
		assert_true(place_wait(&p, i, "begun"));
	assert_int_equal(place_stop(&p), 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(end(&calls[i]), 422);
	assert_int_equal(world_markers(&p.w), 0);
	for (i = 0; i < 4; i++)
		assert_null(place_fence(&p, i));
	place_start(&p);
	for (i = 0; i < 4; i++)
		assert_int_equal(place_run(&p, i, "true", NULL), 200);
	place_free(&p);
}

static void
a_stop_that_leaves_a_marker_says_so(void **state)
{
	struct pending calls[2];
	struct place p;

	(void)state;
	place_init(&p, 2, 2);
	start(&p, 0, HELD, &calls[0]);
	start(&p, 1, HELD, &calls[1]);
	assert_true(place_wait(&p, 0, "begun"));
	assert_true(place_wait(&p, 1, "begun"));
	rules(&p,
	    "{\"route\":\"settle\",\"action\":\"status\",\"status\":404,"
	    "\"count\":1}");
	assert_int_equal(place_stop(&p), 1);
	assert_int_equal(world_markers(&p.w), 1);
	assert_true(world_log_has(&p.w, "the workspace is quarantined"));
	world_call_abort(&calls[0]);
	world_call_abort(&calls[1]);
	place_free(&p);
}

#define CAUSE(i)                                                              \
	{                                                                     \
		NULL, a_root_in_doubt_is_refused_until_it_is_recovered, NULL, \
		    NULL, (void *)(uintptr_t)&causes[i]                       \
	}

int
main(void)
{
	struct CMUnitTest tests[] = {
		cmocka_unit_test(eight_roots_work_at_the_same_time),
		cmocka_unit_test(two_of_one_root_take_turns),
		cmocka_unit_test(one_granted_slot_is_the_serial_protocol),
		cmocka_unit_test(an_old_server_is_served),
		cmocka_unit_test(a_lower_ceiling_is_followed),
		CAUSE(0),
		CAUSE(1),
		CAUSE(2),
		CAUSE(3),
		cmocka_unit_test(a_marker_from_before_is_refused_by_the_worker),
		cmocka_unit_test(a_stop_ends_all_that_runs),
		cmocka_unit_test(a_stop_that_leaves_a_marker_says_so),
	};
	static char names[sizeof(tests) / sizeof(tests[0])][64];
	const struct cause *c;
	size_t i;

	log_init("test", 0);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) == -1)
		fatal("subreaper");
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		if ((c = tests[i].initial_state) == NULL)
			continue;
		xsnprintf(names[i], sizeof(names[i]),
		    "a root is in doubt after %s", c->name);
		tests[i].name = names[i];
	}
	return cmocka_run_group_tests_name("slots", tests, NULL, NULL);
}
