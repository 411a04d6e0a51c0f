#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <sched.h>
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
#include "faulttool.h"
#include "log.h"
#include "model.h"

/*
 * Many random writes and edits against a model in memory, while the file
 * process dies at random steps and the executor at random moments: whatever
 * happens, a file is entirely old or entirely new, and no other one changes.
 * TEST_SEED repeats a run as far as chance outside allows.
 */
static struct fault_harness F;
#define H          F.h

#define OPERATIONS 10000
#define FILES      24

static struct model model[FILES];

static int
holds(const struct model *m, int file_exists, const struct buf *text)
{
	return model_holds(H.roots[0], m, file_exists, text);
}

/* After a death: every file as the model has it, one of them old or new. */
static void
check_after_death(
    struct model *m, enum error_code expected, const struct buf *outcome)
{
	struct answer a;
	size_t i;

	start_again(&F);
	if (!holds(m, m->exists, &m->text)) {
		if (expected != EC_NONE || !holds(m, 1, outcome))
			fail_msg("%s is neither old nor new", m->name);
		model_take(m, outcome);
	}
	for (i = 0; i < FILES; i++)
		if (!holds(&model[i], model[i].exists, &model[i].text))
			fail_msg("%s has changed", model[i].name);
	ask_write(&H, "w", "x", 1, 0, &a);
	assert_true(a.ok);
	answer_free(&a);
	ask_write(&H, "d/w", "x", 1, 0, &a);
	assert_true(a.ok);
	answer_free(&a);
	assert_int_equal(count_staging(&H, "."), 0);
	assert_int_equal(count_staging(&H, "d"), 0);
}

/* A mutation that the monitor did not allow. */
static void
not_allowed(struct request *q, struct model *m)
{
	struct answer a;
	struct buf b;
	uint32_t id = ++H.next_id;

	q->assignment = xstrdup("not-allowed");
	buf_init(&b);
	request_build(&b, q);
	imsg_compose(&H.bridge, MSG_REQUEST, id, -1, b.data, b.len);
	buf_free(&b);
	assert_int_equal(imsg_flush_blocking(&H.bridge), 0);
	assert_int_equal(harness_wait(&H, id, &a), 0);
	assert_false(a.ok);
	assert_int_equal(a.error.certainty, NOT_COMMITTED);
	answer_free(&a);
	assert_true(holds(m, m->exists, &m->text));
}

static void
check_answer(struct model *m, const struct request *q, struct answer *a,
    enum error_code expected, const struct buf *outcome)
{
	if (expected != EC_NONE) {
		if (a->ok || a->error.code != expected)
			fail_msg("%s: %s instead of %s", m->name,
			    a->ok ? "fulfilled"
				  : error_code_name(a->error.code),
			    error_code_name(expected));
		assert_int_equal(a->error.certainty, NOT_COMMITTED);
	} else if (!a->ok)
		fail_msg("%s: %s", m->name, a->error.text);
	else
		assert_int_equal(a->result.bytes_written, outcome->len);
	if (expected == EC_NONE && q->operation != OP_PREVIEW_EDIT)
		model_take(m, outcome);
	if (!holds(m, m->exists, &m->text))
		fail_msg("%s has other content", m->name);
}

/* The file process kills itself at a step, or the executor is killed. */
static void
random_death(struct request *q, struct model *m, enum error_code expected,
    const struct buf *outcome, size_t *uncertain)
{
	struct answer a;
	uint32_t id, spin;
	char *line;

	if (chance(3) == 0) {
		(void)harness_send(&H, q);
		for (spin = chance(300); spin > 0; spin--)
			(void)sched_yield();
	} else {
		line = xasprintf(
		    "%s kill", fault_points[chance(FAULT_POINTS)].name);
		set_fault(&F, line);
		free(line);
		id = harness_send(&H, q);
		assert_int_equal(harness_wait(&H, id, &a), 0);
		clear_fault(&F);
		if (a.ok || a.error.certainty != UNCERTAIN) {
			check_answer(m, q, &a, expected, outcome);
			answer_free(&a);
			return;
		}
		assert_int_equal(H.outcome, UNCERTAIN);
		assert_string_equal(H.outcome_of, H.allowed);
		answer_free(&a);
		(*uncertain)++;
	}
	check_after_death(m,
	    q->operation == OP_PREVIEW_EDIT ? EC_INVALID_REQUEST : expected,
	    outcome);
}

static void
random_operations_match_a_model(void **state)
{
	struct request q;
	struct answer a;
	struct model *m;
	struct buf outcome;
	enum error_code expected;
	size_t i, deaths = 0, uncertain = 0;

	(void)state;
	chance_begin();
	model_init(model, FILES);
	buf_init(&outcome);
	for (i = 0; i < OPERATIONS; i++) {
		m = &model[chance(FILES)];
		expected = model_request(&q, m, &outcome);
		if (chance(200) == 0 && q.operation != OP_PREVIEW_EDIT)
			not_allowed(&q, m);
		else if (chance(25) == 0) {
			deaths++;
			random_death(&q, m, expected, &outcome, &uncertain);
		} else {
			assert_int_equal(harness_request(&H, &q, &a), 0);
			check_answer(m, &q, &a, expected, &outcome);
			answer_free(&a);
		}
		request_free(&q);
	}
	print_message("# %d operations, %zu deaths, %zu uncertain answers\n",
	    OPERATIONS, deaths, uncertain);
	buf_free(&outcome);
	model_free(model, FILES);
}

static int
start(void **state)
{
	char *p;

	(void)state;
	if (fault_start(&F) == -1)
		return -1;
	p = in_root(&H, "d");
	assert_int_equal(mkdir(p, 0755), 0);
	assert_int_equal(chown(p, H.uid, H.gid), 0);
	free(p);
	return 0;
}

static int
stop(void **state)
{
	(void)state;
	fault_stop(&F);
	return 0;
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_operations_match_a_model),
	};

	log_init("test", 0);
	return cmocka_run_group_tests_name("random", tests, start, stop);
}
