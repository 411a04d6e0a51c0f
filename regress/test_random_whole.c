#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "json.h"
#include "log.h"
#include "model.h"
#include "world.h"

/*
 * test_random_whole [OPERATIONS]: random writes and edits through a Code API
 * and the whole daemon, against a model in memory, while the executor is
 * killed at random moments. After each death the daemon is started again as
 * its manual says. Whatever happens,
 *	- a file is entirely old or entirely new, and no other one changes;
 *	- a change that was not settled has its marker, and the daemon does
 *	  not start over it;
 *	- without marker and settlement nothing was changed.
 * TEST_SEED repeats a run as far as chance outside allows.
 */
#define OPERATIONS 600
#define DEATHS     30 /* one in so many operations */
#define FILES      16
#define WAIT_MS    60000

static struct world W;
static struct model model[FILES];
static int64_t journal; /* number of the server's last request */
static double latency = 20; /* of an operation, ms; a running mean */

static struct {
	size_t deaths, settled, old_marked, new_marked, before;
} count;

static void
pause_ms(double ms)
{
	struct timespec ts;

	ts.tv_sec = (time_t)(ms / 1000);
	ts.tv_nsec = (long)((ms - (double)ts.tv_sec * 1000) * 1e6);
	(void)nanosleep(&ts, NULL);
}

/* ---- requests ---- */

static void
write_edits(struct jwriter *w, const struct request *q)
{
	size_t i;

	jw_name(w, "edits");
	jw_array(w);
	for (i = 0; i < q->nedits; i++) {
		jw_object(w);
		jw_member_bytes(
		    w, "oldText", q->edits[i].old.data, q->edits[i].old.len);
		jw_member_bytes(
		    w, "newText", q->edits[i].new.data, q->edits[i].new.len);
		jw_object_end(w);
	}
	jw_array_end(w);
}

static char *
body_of(const struct request *q)
{
	struct jwriter w;
	struct buf b;

	buf_init(&b);
	jw_init(&w, &b);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_member_str(
	    &w, "operation", operation_name((enum operation)q->operation));
	jw_member_str(&w, "workspaceId", "primary");
	jw_member_bytes(&w, "path", q->path.data, q->path.len);
	if (q->operation == OP_WRITE_FILE) {
		jw_member_bytes(&w, "content", q->content.data, q->content.len);
		if (q->create_only)
			jw_member_bool(&w, "overwrite", 0);
	} else
		write_edits(&w, q);
	jw_object_end(&w);
	return buf_steal(&b);
}

static int
holds(const struct model *m, int exists, const struct buf *text)
{
	return model_holds(W.project, m, exists, text);
}

static void
check_answer(struct model *m, long status, const struct json *j,
    enum error_code expected, const struct buf *outcome)
{
	const char *code = j == NULL ? NULL : json_get_str(j, "code");

	if (expected == EC_NONE) {
		if (status != 200)
			fail_msg("%s: status %ld, %s", m->name, status,
			    code == NULL ? "no code" : code);
		model_take(m, outcome);
	} else if (status == 200 || code == NULL ||
	    strcmp(code, error_code_name(expected)) != 0)
		fail_msg("%s: status %ld, %s instead of %s", m->name, status,
		    code == NULL ? "no code" : code, error_code_name(expected));
	if (!holds(m, m->exists, &m->text))
		fail_msg("%s has other content", m->name);
}

/* ---- the server ---- */

/* Settlements that it accepted since the last call. */
static int
new_settlements(void)
{
	const struct json *list, *e;
	const char *route;
	struct json *j;
	int64_t number, status;
	char *path;
	size_t i;
	int n = 0;

	path = xasprintf("requests?since=%lld", (long long)journal);
	j = world_control(&W, path, NULL);
	free(path);
	assert_non_null(j);
	list = json_get_type(j, "requests", JSON_ARRAY);
	assert_non_null(list);
	for (i = 0; i < list->n; i++) {
		e = list->items[i];
		assert_int_equal(json_get_integer(e, "number", &number), 0);
		if (number > journal)
			journal = number;
		route = json_get_str(e, "route");
		if (route != NULL && strcmp(route, "settle") == 0 &&
		    json_get_integer(e, "status", &status) == 0 &&
		    status == 200)
			n++;
	}
	json_free(j);
	return n;
}

/*
 * The server would be busy with the lost work until its deadline. It forgets
 * everything instead, the worker's pairing too.
 */
static void
server_forgets(void)
{
	struct json *j = world_control(&W, "restart", "{}");

	assert_non_null(j);
	json_free(j);
	world_pair(&W);
}

/* ---- the worker ---- */

static void
start_worker(void)
{
	world_worker(&W, "--allow-workspace-writes", NULL);
	if (!world_wait(&W, "leasing", WAIT_MS))
		fail_msg("the worker does not lease: %s", world_log(&W));
}

static size_t
stray_files(const char *name)
{
	char *p = xasprintf("%s/%s", W.project, name);
	struct dirent *de;
	size_t n = 0;
	DIR *d;

	d = opendir(p);
	assert_non_null(d);
	while ((de = readdir(d)) != NULL)
		n += strncmp(de->d_name, ".librechat-code-", 16) == 0;
	closedir(d);
	free(p);
	return n;
}

/* It starts again, not over a marker, and tidies up. */
static void
next_life(int marker, int settled)
{
	double end;
	int r;

	if (marker) {
		world_worker(&W, "--allow-workspace-writes", NULL);
		r = world_worker_end(&W, WAIT_MS);
		assert_true(r != -1 && WIFEXITED(r) && WEXITSTATUS(r) == 78);
		assert_int_equal(
		    world_command(&W, NULL, "clear-workspace-quarantine",
			"--worker-dir", W.project, NULL),
		    0);
	}
	assert_int_equal(world_markers(&W), 0);
	if (!settled)
		server_forgets();
	start_worker();
	end = world_now() + WAIT_MS;
	while (stray_files(".") + stray_files("d") > 0) {
		assert_true(world_now() < end);
		pause_ms(1);
	}
}

/* Every process of the worker is gone. */
static void
wait_gone(pid_t bridge, pid_t executor)
{
	double end = world_now() + WAIT_MS;

	assert_int_not_equal(world_worker_end(&W, WAIT_MS), -1);
	while (kill(bridge, 0) == 0 || kill(executor, 0) == 0) {
		/* Orphans come to us (main is a subreaper). */
		if (waitpid(bridge, NULL, WNOHANG) == bridge ||
		    waitpid(executor, NULL, WNOHANG) == executor)
			continue;
		assert_true(world_now() < end);
		pause_ms(1);
	}
}

/* What became of the operation that the executor died in. */
static void
judge(struct model *m, int marker, int settled, struct pending *call,
    enum error_code expected, const struct buf *outcome)
{
	int new;
	struct json *j;
	long status;

	assert_true(marker == 0 || marker == 1);
	new = expected == EC_NONE &&holds(m, 1, outcome);
	if (!new && !holds(m, m->exists, &m->text))
		fail_msg("%s is neither old nor new", m->name);
	if (settled) {
		status = world_call_end(call, &j);
		json_free(j);
		/* Refused is unchanged, whatever the reason. */
		if (status == 200 && !new)
			fail_msg("%s: settled and not changed", m->name);
		if (status != 200 && !holds(m, m->exists, &m->text))
			fail_msg("%s: refused and changed", m->name);
		count.settled++;
	} else {
		world_call_abort(call);
		if (marker && new)
			count.new_marked++;
		else if (marker)
			count.old_marked++;
		else if (!holds(m, m->exists, &m->text))
			fail_msg("%s: changed without a marker", m->name);
		else
			count.before++;
	}
	if (new)
		model_take(m, outcome);
}

static void
death(const struct request *q, struct model *m, enum error_code expected,
    const struct buf *outcome)
{
	pid_t bridge = world_helper(&W, "librechat-code-bridge");
	pid_t executor = world_helper(&W, "librechat-code-executor");
	struct pending call;
	char *body = body_of(q);
	int marker, settled;
	size_t i;

	(void)new_settlements();
	world_call_start(&W, body, &call);
	free(body);
	/* From about when it is begun to after it is over. */
	pause_ms(latency * (0.2 + 1.2 * chance(1000) / 1000));
	assert_int_equal(kill(executor, SIGKILL), 0);
	wait_gone(bridge, executor);
	count.deaths++;
	settled = new_settlements() > 0;
	marker = world_markers(&W);
	judge(m, marker, settled, &call, expected, outcome);
	for (i = 0; i < FILES; i++)
		if (!holds(&model[i], model[i].exists, &model[i].text))
			fail_msg("%s has changed", model[i].name);
	next_life(marker, settled);
	/* Nothing is made up for. */
	for (i = 0; i < FILES; i++)
		if (!holds(&model[i], model[i].exists, &model[i].text))
			fail_msg("%s has changed afterwards", model[i].name);
}

static void
ordinary(const struct request *q, struct model *m, enum error_code expected,
    const struct buf *outcome)
{
	char *body = body_of(q);
	double began = world_now();
	struct json *j;
	long status;

	status = world_call(&W, body, &j);
	latency = latency * 0.9 + (world_now() - began) * 0.1;
	check_answer(m, status, j, expected, outcome);
	json_free(j);
	free(body);
}

static size_t operations = OPERATIONS;

static void
random_operations_survive_deaths(void **state)
{
	struct request q;
	struct model *m;
	struct buf outcome;
	enum error_code expected;
	size_t i;
	char *d;

	(void)state;
	chance_begin();
	model_init(model, FILES);
	world_init(&W, 0);
	d = xasprintf("%s/d", W.project);
	assert_int_equal(mkdir(d, 0755), 0);
	free(d);
	/* Nothing expires because a machine is busy. */
	world_server(
	    &W, "--tool-budget", "300000", "--queue-time", "300000", NULL);
	world_pair(&W);
	start_worker();
	buf_init(&outcome);
	for (i = 0; i < operations; i++) {
		m = &model[chance(FILES)];
		expected = model_request(&q, m, &outcome);
		if (q.operation == OP_PREVIEW_EDIT)
			q.operation = OP_EDIT_FILE;
		if (chance(DEATHS) == 0)
			death(&q, m, expected, &outcome);
		else
			ordinary(&q, m, expected, &outcome);
		request_free(&q);
	}
	print_message("# %zu operations, %zu deaths: %zu settled, %zu old with "
		      "marker, %zu new with marker, %zu before a marker\n",
	    operations, count.deaths, count.settled, count.old_marked,
	    count.new_marked, count.before);
	buf_free(&outcome);
	model_free(model, FILES);
	world_signal(&W, SIGTERM);
	assert_int_equal(world_worker_end(&W, WAIT_MS), 0);
	assert_int_equal(world_markers(&W), 0);
	world_free(&W);
}

int
main(int argc, char *argv[])
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_operations_survive_deaths),
	};

	log_init("test", 0);
	if (argc > 1)
		operations = (size_t)strtoul(argv[1], NULL, 10);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) == -1)
		fatal("subreaper");
	return cmocka_run_group_tests_name("random whole", tests, NULL, NULL);
}
