#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
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

/*
 * What is certain after a failure (workspace-tools 3, 8.2 and 13.3): every
 * step of an installation fails, dies or is overtaken by somebody else. Only
 * in builds with --enable-fault-injection, see executor/fault.h.
 */
static struct fault_harness F;
#define H F.h

enum op { NEW, OVER, CREATE, EDIT, PREVIEW };

static const struct pair old_to_new[] = { PAIR("old", "new") };

/* ---- helpers ---- */

static void
remove_name(const char *name)
{
	char *p = in_root(&H, name);

	if (unlink(p) == -1)
		assert_int_equal(errno, ENOENT);
	free(p);
}

static uint32_t
send_op(enum op op, const char *path)
{
	struct request q;
	uint32_t id;

	if (op == EDIT || op == PREVIEW)
		edit_request(&q, op == EDIT ? OP_EDIT_FILE : OP_PREVIEW_EDIT,
		    path, old_to_new, 1, NULL);
	else {
		memset(&q, 0, sizeof(q));
		q.operation = OP_WRITE_FILE;
		text_set(&q.path, path, strlen(path));
		text_set(&q.content, "new", 3);
		q.create_only = op == CREATE;
	}
	id = harness_send(&H, &q);
	request_free(&q);
	return id;
}

/* The target as the operation wants to find it. */
static void
prepare(enum op op, const char *path)
{
	if (op == NEW || op == CREATE)
		remove_name(path);
	else
		put_file(&H, H.roots[0], path, "old", 3, 0644);
	H.outcome = op == PREVIEW ? NOT_COMMITTED : CERTAINTY_MAX;
}

static void
expect_state(enum op op, const char *path, enum left state)
{
	char *p = in_root(&H, path);

	if (state == NEW_FILE)
		expect_content(&H, path, "new", 3);
	else if (op == NEW || op == CREATE)
		assert_int_equal(access(p, F_OK), -1);
	else
		expect_content(&H, path, "old", 3);
	free(p);
}

/* ---- errors ---- */

static const struct error_row {
	const char *name;
	enum op op;
	const char *faults;
	enum error_code code; /* EC_NONE: fulfilled */
	enum certainty certainty;
	enum left state;
} error_rows[] = {
#define NOT(c) c, NOT_COMMITTED, OLD_FILE
#define MAYBE  EC_WRITE_UNAVAILABLE, UNCERTAIN, NEW_FILE
#define DONE   EC_NONE, COMMITTED, NEW_FILE
	{ "the staging file cannot be made", NEW, "write.open EIO",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "the staging file cannot be made (replace)", OVER, "write.open EIO",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "error right after it was made", OVER, "write.opened EIO",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "error right after it was made (new)", NEW, "write.opened EIO",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "attributes cannot be kept", OVER, "write.attributes EPERM",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "28 no space", OVER, "write.write ENOSPC",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "write error", NEW, "write.write EIO", NOT(EC_WRITE_UNAVAILABLE) },
	{ "write error in an edit", EDIT, "write.write EIO",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "the content is not durable", OVER, "write.fsync EIO",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "the content is not durable (create)", CREATE, "write.fsync EIO",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "rename fails", OVER, "write.rename EIO", NOT(EC_WRITE_UNAVAILABLE) },
	{ "rename fails in an edit", EDIT, "write.rename EIO",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "FT-10 target is busy", OVER, "write.rename EBUSY",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "rename succeeds and its answer is lost", OVER, "write.renamed EIO",
	    DONE },
	{ "rename of a new file fails", NEW, "write.noreplace EIO",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "29 target appears at the last moment", NEW, "write.noreplace EEXIST",
	    NOT(EC_EDIT_CONFLICT) },
	{ "29 the same in create mode", CREATE, "write.noreplace EEXIST",
	    NOT(EC_EDIT_CONFLICT) },
	{ "FS-11 no RENAME_NOREPLACE", NEW, "write.noreplace EINVAL", DONE },
	{ "FS-11 no RENAME_NOREPLACE (create)", CREATE,
	    "write.noreplace ENOSYS", DONE },
	{ "FS-11 no hard links either", NEW,
	    "write.noreplace EINVAL\nwrite.link EPERM", DONE },
	{ "FS-11 no hard links either (create)", CREATE,
	    "write.noreplace EINVAL\nwrite.link EPERM",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "link fails", CREATE, "write.noreplace EINVAL\nwrite.link EIO",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "link finds the target", CREATE,
	    "write.noreplace EINVAL\nwrite.link EEXIST",
	    NOT(EC_EDIT_CONFLICT) },
	{ "the staging name cannot be removed", CREATE,
	    "write.noreplace EINVAL\nwrite.unlink EIO", MAYBE },
	{ "32 directory fsync fails", OVER, "write.dirsync EIO", MAYBE },
	{ "32 directory fsync fails (new)", NEW, "write.dirsync EIO", MAYBE },
	{ "32 directory fsync fails (edit)", EDIT, "write.dirsync EIO", MAYBE },
	{ "the file cannot be read back", OVER, "write.confirm EIO", MAYBE },
	{ "the file cannot be read back (create)", CREATE, "write.confirm EIO",
	    MAYBE },
	{ "the file to edit cannot be read", EDIT, "edit.read EIO",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "the file to edit cannot be read again", EDIT, "edit.reread EIO",
	    NOT(EC_WRITE_UNAVAILABLE) },
	{ "the file to preview cannot be read", PREVIEW, "edit.read EIO",
	    NOT(EC_INVALID_PATH) },
	{ "a point that is not passed", OVER, "no.such EIO", DONE },
};

static void
run_error_row(void **state)
{
	const struct error_row *r = *state;
	struct answer a;

	prepare(r->op, "f");
	set_fault(&F, r->faults);
	assert_int_equal(harness_wait(&H, send_op(r->op, "f"), &a), 0);
	clear_fault(&F);
	if (r->code != EC_NONE)
		expect_failure(&H, r->name, &a, r->code, r->certainty);
	else {
		if (!a.ok)
			fail_msg("%s: %s", r->name, a.error.text);
		assert_int_equal(H.outcome, COMMITTED);
		answer_free(&a);
	}
	expect_state(r->op, "f", r->state);
	assert_int_equal(count_staging(&H, "."), 0);
}

/* ---- death ---- */

/* Points that an operation does not pass: nothing happens there. */
static int
passes(enum op op, const char *point)
{
	if (op == NEW || op == CREATE)
		return strcmp(point, "write.attributes") != 0 &&
		    strcmp(point, "write.rename") != 0 &&
		    strcmp(point, "write.renamed") != 0;
	return strcmp(point, "write.noreplace") != 0;
}

static void
die_at(enum op op, size_t i)
{
	struct answer a;
	char *fault_line;

	prepare(op, "f");
	fault_line = xasprintf("%s kill", fault_points[i].name);
	set_fault(&F, fault_line);
	free(fault_line);
	assert_int_equal(harness_wait(&H, send_op(op, "f"), &a), 0);
	clear_fault(&F);
	if (!passes(op, fault_points[i].name)) {
		assert_true(a.ok);
		answer_free(&a);
		return;
	}
	expect_failure(
	    &H, fault_points[i].name, &a, EC_WRITE_UNAVAILABLE, UNCERTAIN);
	assert_string_equal(H.outcome_of, H.allowed);
	start_again(&F);
	expect_state(op, "f",
	    op == NEW || op == CREATE ? fault_points[i].new
				      : fault_points[i].over);
	/* A write looks for leftovers in its directory first. */
	ask_write(&H, "g", "x", 1, 0, &a);
	assert_true(a.ok);
	answer_free(&a);
	assert_int_equal(count_staging(&H, "."), 0);
}

static void
death_at_every_step_leaves_the_old_or_the_new_file(void **state)
{
	static const enum op ops[] = { NEW, OVER, CREATE, EDIT };
	size_t i, j;

	(void)state;
	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		for (j = 0; j < FAULT_POINTS; j++)
			die_at(ops[i], j);
}

/* Death between link and unlink leaves two names; the next write mends it. */
static void
death_with_two_names_is_mended(void **state)
{
	struct answer a;
	struct stat st;
	char *p;

	(void)state;
	prepare(CREATE, "f");
	set_fault(&F, "write.noreplace EINVAL\nwrite.unlink kill");
	assert_int_equal(harness_wait(&H, send_op(CREATE, "f"), &a), 0);
	clear_fault(&F);
	expect_failure(&H, "unlink", &a, EC_WRITE_UNAVAILABLE, UNCERTAIN);
	expect_state(CREATE, "f", NEW_FILE);
	start_again(&F);
	ask_write(&H, "f", "next", 4, 0, &a);
	assert_true(a.ok);
	answer_free(&a);
	expect_content(&H, "f", "next", 4);
	p = in_root(&H, "f");
	assert_int_equal(stat(p, &st), 0);
	assert_int_equal(st.st_nlink, 1);
	free(p);
	assert_int_equal(count_staging(&H, "."), 0);
}

/* A preview changes nothing whatever happens to it. */
static void
death_in_a_preview_is_certain(void **state)
{
	struct answer a;

	(void)state;
	prepare(PREVIEW, "f");
	set_fault(&F, "preview.read kill");
	assert_int_equal(harness_wait(&H, send_op(PREVIEW, "f"), &a), 0);
	clear_fault(&F);
	assert_false(a.ok);
	assert_int_equal(a.error.certainty, NOT_COMMITTED);
	answer_free(&a);
	start_again(&F);
	expect_state(PREVIEW, "f", OLD_FILE);
}

/* ---- somebody else is faster ---- */

/* Sends the operation and returns when it waits at the point. */
static uint32_t
run_to(enum op op, const char *path, const char *point)
{
	char *line = xasprintf("%s wait", point);
	uint32_t id;

	set_fault(&F, line);
	free(line);
	id = send_op(op, path);
	await_point(&F);
	return id;
}

static void
go_on(uint32_t id, struct answer *a)
{
	let_go(&F);
	assert_int_equal(harness_wait(&H, id, a), 0);
}

static void
appear(const char *name)
{
	put_file(&H, H.roots[0], name, "theirs", 6, 0644);
}

static void
vanish(const char *name)
{
	remove_name(name);
}

static void
be_replaced(const char *name)
{
	char *from, *to = in_root(&H, name);

	put_file(&H, H.roots[0], "other", "theirs", 6, 0644);
	from = in_root(&H, "other");
	assert_int_equal(rename(from, to), 0);
	free(from);
	free(to);
}

static void
change_in_place(const char *name)
{
	put_file(&H, H.roots[0], name, "theirs", 6, 0644);
}

static void
grow(const char *name)
{
	char *p = in_root(&H, name);

	assert_int_equal(truncate(p, MIB + 1), 0);
	free(p);
}

static void
become_link(const char *name)
{
	char *p = in_root(&H, name);

	remove_name(name);
	put_file(&H, H.roots[0], "other", "theirs", 6, 0644);
	assert_int_equal(symlink("other", p), 0);
	free(p);
}

static void
become_fifo(const char *name)
{
	char *p = in_root(&H, name);

	remove_name(name);
	assert_int_equal(mkfifo(p, 0666), 0);
	assert_int_equal(chown(p, H.uid, H.gid), 0);
	free(p);
}

static const struct overtake_row {
	const char *name;
	enum op op;
	const char *point;
	void (*act)(const char *);
	enum error_code code;
	enum certainty certainty;
	const char *content; /* afterwards; NULL: not a file */
} overtake_rows[] = {
	{ "29 target appears", NEW, "write.staged", appear, EC_EDIT_CONFLICT,
	    NOT_COMMITTED, "theirs" },
	{ "29 target appears (create)", CREATE, "write.staged", appear,
	    EC_EDIT_CONFLICT, NOT_COMMITTED, "theirs" },
	{ "29 target appears after the last check", NEW, "write.commit", appear,
	    EC_EDIT_CONFLICT, NOT_COMMITTED, "theirs" },
	{ "29 target appears after the last check (create)", CREATE,
	    "write.commit", appear, EC_EDIT_CONFLICT, NOT_COMMITTED, "theirs" },
	{ "30 target deleted", OVER, "write.staged", vanish, EC_EDIT_CONFLICT,
	    NOT_COMMITTED, NULL },
	{ "30 target replaced", OVER, "write.staged", be_replaced,
	    EC_EDIT_CONFLICT, NOT_COMMITTED, "theirs" },
	{ "30 target becomes a link", OVER, "write.staged", become_link,
	    EC_EDIT_CONFLICT, NOT_COMMITTED, NULL },
	{ "30 target becomes a FIFO", OVER, "write.staged", become_fifo,
	    EC_EDIT_CONFLICT, NOT_COMMITTED, NULL },
	{ "9.4/40 content changed", EDIT, "write.staged", change_in_place,
	    EC_EDIT_CONFLICT, NOT_COMMITTED, "theirs" },
	{ "9.4/40 target deleted", EDIT, "write.staged", vanish,
	    EC_EDIT_CONFLICT, NOT_COMMITTED, NULL },
	{ "9.4/40 target replaced", EDIT, "write.staged", be_replaced,
	    EC_EDIT_CONFLICT, NOT_COMMITTED, "theirs" },
	{ "9.4/40 target becomes a link", EDIT, "write.staged", become_link,
	    EC_EDIT_CONFLICT, NOT_COMMITTED, NULL },
	{ "9.4/40 target becomes a FIFO", EDIT, "write.staged", become_fifo,
	    EC_EDIT_CONFLICT, NOT_COMMITTED, NULL },
	{ "9.2/7 target grows beyond the limit", EDIT, "write.staged", grow,
	    EC_WRITE_LIMIT_EXCEEDED, NOT_COMMITTED, NULL },
	/* A plain write does not care what it replaces. */
	{ "content changed under a write", OVER, "write.staged",
	    change_in_place, EC_NONE, COMMITTED, "new" },
	{ "another file after the commit", OVER, "write.committed", be_replaced,
	    EC_WRITE_UNAVAILABLE, UNCERTAIN, "theirs" },
	{ "other content after the commit", OVER, "write.committed",
	    change_in_place, EC_WRITE_UNAVAILABLE, UNCERTAIN, "theirs" },
	{ "deleted after the commit", NEW, "write.committed", vanish,
	    EC_WRITE_UNAVAILABLE, UNCERTAIN, NULL },
};

static void
run_overtake_row(void **state)
{
	const struct overtake_row *r = *state;
	struct answer a;
	uint32_t id;

	prepare(r->op, "f");
	id = run_to(r->op, "f", r->point);
	r->act("f");
	go_on(id, &a);
	if (r->code != EC_NONE)
		expect_failure(&H, r->name, &a, r->code, r->certainty);
	else {
		assert_true(a.ok);
		answer_free(&a);
	}
	if (r->content != NULL)
		expect_content(&H, "f", r->content, strlen(r->content));
	assert_int_equal(count_staging(&H, "."), 0);
	remove_name("f");
	remove_name("other");
}

static void
overtaken_31_parent_replaced(void **state)
{
	static const enum op ops[] = { NEW, OVER, CREATE, EDIT };
	struct answer a;
	char *dir, *away, *file;
	uint32_t id;
	size_t i;

	(void)state;
	dir = in_root(&H, "dir");
	away = in_root(&H, "away");
	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		assert_int_equal(mkdir(dir, 0755), 0);
		assert_int_equal(chown(dir, H.uid, H.gid), 0);
		prepare(ops[i], "dir/f");
		id = run_to(ops[i], "dir/f", "write.staged");
		assert_int_equal(rename(dir, away), 0);
		if (i % 2 == 0)
			assert_int_equal(mkdir(dir, 0755), 0);
		else
			assert_int_equal(symlink("away", dir), 0);
		go_on(id, &a);
		expect_failure(&H, "31", &a, EC_INVALID_PATH, NOT_COMMITTED);
		expect_state(ops[i], "away/f", OLD_FILE);
		assert_int_equal(count_staging(&H, "away"), 0);
		assert_int_equal(count_staging(&H, "dir"), 0);
		remove_tree(dir);
		remove_name("away/f");
		assert_int_equal(rmdir(away), 0);
	}
	/* After the commit the file is not where it was asked for. */
	assert_int_equal(mkdir(dir, 0755), 0);
	assert_int_equal(chown(dir, H.uid, H.gid), 0);
	prepare(NEW, "dir/f");
	id = run_to(NEW, "dir/f", "write.committed");
	assert_int_equal(rename(dir, away), 0);
	go_on(id, &a);
	expect_failure(&H, "31", &a, EC_WRITE_UNAVAILABLE, UNCERTAIN);
	expect_content(&H, "away/f", "new", 3);
	file = in_root(&H, "away/f");
	assert_int_equal(unlink(file), 0);
	free(file);
	assert_int_equal(rmdir(away), 0);
	free(dir);
	free(away);
}

/* The staging file's name, found by somebody who can list the directory. */
static char *
staging_name(void)
{
	static const char command[] = "ls -A | grep '^.librechat-code-'";
	char line[128], *dir, *script;
	FILE *f;

	dir = H.roots[0];
	script = xasprintf("cd %s && %s", dir, command);
	f = popen(script, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	(void)pclose(f);
	free(script);
	line[strcspn(line, "\n")] = '\0';
	return xstrdup(line);
}

static void
overtaken_33_staging_file_swapped(void **state)
{
	static const enum op ops[] = { NEW, OVER, CREATE, EDIT };
	struct answer a;
	char *name;
	uint32_t id;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		prepare(ops[i], "f");
		id = run_to(ops[i], "f", "write.commit");
		name = staging_name();
		be_replaced(name);
		free(name);
		go_on(id, &a);
		expect_failure(&H, "33", &a, EC_WRITE_UNAVAILABLE, UNCERTAIN);
		expect_content(&H, "f", "theirs", 6);
		assert_int_equal(count_staging(&H, "."), 0);
	}
}

/* Taken away altogether it proves that nothing was done. */
static void
overtaken_staging_file_removed(void **state)
{
	static const enum op ops[] = { NEW, OVER, CREATE, EDIT };
	struct answer a;
	char *name;
	uint32_t id;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		prepare(ops[i], "f");
		id = run_to(ops[i], "f", "write.commit");
		name = staging_name();
		remove_name(name);
		free(name);
		go_on(id, &a);
		expect_failure(
		    &H, "removed", &a, EC_WRITE_UNAVAILABLE, NOT_COMMITTED);
		expect_state(ops[i], "f", OLD_FILE);
	}
}

/* ---- cancellation ---- */

static const struct cancel_row {
	const char *name;
	enum op op;
	const char *point;
	int aborted;
} cancel_rows[] = {
	{ "34 while staging", OVER, "write.write", 1 },
	{ "34 while staging a new file", NEW, "write.opened", 1 },
	{ "34 before the last check", CREATE, "write.staged", 1 },
	{ "35 at the commit", OVER, "write.commit", 0 },
	{ "35 after the rename", OVER, "write.committed", 0 },
	{ "35 after the rename of a new file", NEW, "write.committed", 0 },
	{ "9.4/41 while staging", EDIT, "write.write", 1 },
	{ "9.4/41 before the last check", EDIT, "write.staged", 1 },
	{ "9.4/41 after the rename", EDIT, "write.committed", 0 },
	{ "10/15 after reading", PREVIEW, "preview.read", 1 },
};

static void
run_cancel_row(void **state)
{
	const struct cancel_row *r = *state;
	struct answer a;
	uint32_t id;

	prepare(r->op, "f");
	id = run_to(r->op, "f", r->point);
	harness_cancel(&H, id);
	/*
	 * A second request on the root is refused by the executor, which
	 * takes what we send in order: then it has the cancellation too.
	 */
	{
		struct request q;
		struct answer busy;

		edit_request(&q, OP_PREVIEW_EDIT, "f", old_to_new, 1, NULL);
		assert_int_equal(harness_request(&H, &q, &busy), 0);
		request_free(&q);
		assert_false(busy.ok);
		answer_free(&busy);
	}
	go_on(id, &a);
	if (r->aborted)
		expect_failure(
		    &H, r->name, &a, EC_EXECUTION_ABORTED, NOT_COMMITTED);
	else {
		assert_true(a.ok);
		assert_int_equal(H.outcome, COMMITTED);
		answer_free(&a);
	}
	expect_state(r->op, "f", r->aborted ? OLD_FILE : NEW_FILE);
	assert_int_equal(count_staging(&H, "."), 0);
}

/* ---- */

static int
start(void **state)
{
	(void)state;
	return fault_start(&F);
}

static int
stop(void **state)
{
	(void)state;
	fault_stop(&F);
	return 0;
}

#define N(a) (sizeof(a) / sizeof((a)[0]))

int
main(void)
{
	static const struct CMUnitTest more[] = {
		cmocka_unit_test(
		    death_at_every_step_leaves_the_old_or_the_new_file),
		cmocka_unit_test(death_with_two_names_is_mended),
		cmocka_unit_test(death_in_a_preview_is_certain),
		cmocka_unit_test(overtaken_31_parent_replaced),
		cmocka_unit_test(overtaken_33_staging_file_swapped),
		cmocka_unit_test(overtaken_staging_file_removed),
	};
	struct CMUnitTest
	    tests[N(error_rows) + N(overtake_rows) + N(cancel_rows) + N(more)];
	size_t i, n = 0;

	log_init("test", 0);
	memset(tests, 0, sizeof(tests));
	for (i = 0; i < N(error_rows); i++, n++) {
		tests[n].name = error_rows[i].name;
		tests[n].test_func = run_error_row;
		tests[n].initial_state = (void *)(uintptr_t)&error_rows[i];
	}
	for (i = 0; i < N(overtake_rows); i++, n++) {
		tests[n].name = overtake_rows[i].name;
		tests[n].test_func = run_overtake_row;
		tests[n].initial_state = (void *)(uintptr_t)&overtake_rows[i];
	}
	for (i = 0; i < N(cancel_rows); i++, n++) {
		tests[n].name = cancel_rows[i].name;
		tests[n].test_func = run_cancel_row;
		tests[n].initial_state = (void *)(uintptr_t)&cancel_rows[i];
	}
	memcpy(tests + n, more, sizeof(more));
	return cmocka_run_group_tests_name("faults", tests, start, stop);
}
