#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
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
#include "faulttool.h"
#include "log.h"

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
#define TEXT_MAX   4096

struct model {
	char name[16];
	int exists;
	struct buf text;
};
static struct model model[FILES];
static uint64_t chance_state;

static uint32_t
chance(uint32_t n)
{
	chance_state = chance_state * 6364136223846793005U +
	    1442695040888963407U;
	return (uint32_t)(chance_state >> 33) % n;
}

static void
random_text(struct buf *b, size_t max)
{
	size_t n = chance(8) == 0 ? 0 : chance((uint32_t)max);

	buf_reset(b);
	while (b->len < n)
		buf_addc(b, (uint8_t)("abcdefgh \n"[chance(10)]));
}

/* Plainly, to be a judge of the tool: how often old is in the text. */
static size_t
occurrences(const struct buf *text, const struct text *old, size_t *at)
{
	size_t i, n = 0;

	for (i = 0; i + old->len <= text->len; i++)
		if (memcmp(text->data + i, old->data, old->len) == 0) {
			*at = i;
			n++;
		}
	return n;
}

/* The outcome of the edits: 1, or 0 if they conflict. */
static int
model_edit(const struct buf *from, const struct request *q, struct buf *to)
{
	struct buf next;
	size_t i, at;

	buf_reset(to);
	buf_add(to, from->data, from->len);
	for (i = 0; i < q->nedits; i++) {
		if (occurrences(to, &q->edits[i].old, &at) != 1)
			return 0;
		buf_init(&next);
		buf_add(&next, to->data, at);
		buf_add(&next, q->edits[i].new.data, q->edits[i].new.len);
		at += q->edits[i].old.len;
		buf_add(&next, to->data + at, to->len - at);
		buf_free(to);
		*to = next;
	}
	return 1;
}

static void
random_edit(struct request *q, const struct model *m)
{
	struct buf new;
	size_t i, at, len;

	buf_init(&new);
	q->nedits = 1 + chance(3);
	q->edits = xcalloc(q->nedits, sizeof(*q->edits));
	for (i = 0; i < q->nedits; i++) {
		at = m->text.len == 0 ? 0 : chance((uint32_t)m->text.len);
		len = 1 + chance(12);
		if (len > m->text.len - at)
			text_set(&q->edits[i].old, "none", 4);
		else
			text_set(&q->edits[i].old, m->text.data + at, len);
		random_text(&new, 16);
		text_set(&q->edits[i].new, new.data, new.len);
	}
	buf_free(&new);
}

/*
 * Makes a request on a file of the model. Returns the code that is expected
 * (EC_NONE: fulfilled) and what the file then holds.
 */
static enum error_code
random_request(struct request *q, struct model *m, struct buf *outcome)
{
	memset(q, 0, sizeof(*q));
	text_set(&q->path, m->name, strlen(m->name));
	if (chance(2) == 0) {
		q->operation = OP_WRITE_FILE;
		q->create_only = chance(4) == 0;
		random_text(outcome, chance(50) == 0 ? MIB : TEXT_MAX);
		text_set(&q->content, outcome->data, outcome->len);
		return q->create_only && m->exists ? EC_EDIT_CONFLICT : EC_NONE;
	}
	q->operation = chance(5) == 0 ? OP_PREVIEW_EDIT : OP_EDIT_FILE;
	random_edit(q, m);
	if (!m->exists)
		return EC_INVALID_PATH;
	if (!model_edit(&m->text, q, outcome))
		return EC_EDIT_CONFLICT;
	return outcome->len > MIB ? EC_WRITE_LIMIT_EXCEEDED : EC_NONE;
}

/* 1 if the file on disk is exactly this. */
static int
holds(const struct model *m, int file_exists, const struct buf *text)
{
	char *p = in_root(&H, m->name);
	struct stat st;
	struct buf b;
	int fd, r;

	fd = open(p, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	free(p);
	if (fd == -1) {
		assert_int_equal(errno, ENOENT);
		return !file_exists;
	}
	assert_int_equal(fstat(fd, &st), 0);
	buf_init(&b);
	(void)buf_reserve(&b, (size_t)st.st_size + 1);
	assert_int_equal(read(fd, b.data, (size_t)st.st_size + 1), st.st_size);
	b.len = (size_t)st.st_size;
	close(fd);
	r = file_exists && b.len == text->len &&
	    (b.len == 0 || memcmp(b.data, text->data, b.len) == 0);
	buf_free(&b);
	return r;
}

static void
take(struct model *m, const struct buf *outcome)
{
	m->exists = 1;
	buf_reset(&m->text);
	buf_add(&m->text, outcome->data, outcome->len);
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
		take(m, outcome);
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
		take(m, outcome);
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
	const char *v = getenv("TEST_SEED");
	struct request q;
	struct answer a;
	struct model *m;
	struct buf outcome;
	enum error_code expected;
	size_t i, deaths = 0, uncertain = 0;

	(void)state;
	chance_state = (uint64_t)time(NULL) * 65536 + (uint64_t)getpid();
	if (v != NULL)
		chance_state = strtoull(v, NULL, 10);
	print_message("# TEST_SEED=%llu\n", (unsigned long long)chance_state);
	for (i = 0; i < FILES; i++)
		(void)xsnprintf(model[i].name, sizeof(model[i].name), "%sm%zu",
		    i % 3 == 0 ? "d/" : "", i);
	buf_init(&outcome);
	for (i = 0; i < OPERATIONS; i++) {
		m = &model[chance(FILES)];
		expected = random_request(&q, m, &outcome);
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
	for (i = 0; i < FILES; i++)
		buf_free(&model[i].text);
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
