#include "config.h"

#include <sys/types.h>
#include <sys/mman.h>
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
#include "json.h"
#include "log.h"
#include "matrix.h"
#include "times.h"
#include "world.h"

/*
 * Runs every cell of the matrix (matrix.c) against the whole daemon. The
 * cells mostly wait, so that several children share them, each with a world
 * of its own; cmocka only tells the results.
 */
#define SHARDS   28
#define PATIENCE 60000 /* ms; more than the longest limit, 30 s */
/*
 * Life of a registration that makes heartbeats come soon, ms. One that failed
 * has half of it to succeed, on a busy machine too.
 */
#define LIFE 4000
/* Instead of 1: another start has taken over (librechat-code(1)). */
#define STATUS_FENCED 76

struct cell {
	const struct row *row;
	const struct fault *fault;
	enum outcome expect;
	char *late; /* rules for when the command runs, or NULL */
	int done;
	char why[512]; /* empty: as expected */
};

struct board {
	size_t n;
	size_t next; /* atomic */
	struct cell cells[];
};

static struct board *board;

/* ---- talking to the server ---- */

/* Number of the newest request, and how many of a route came after since. */
static int
requests(struct world *w, int64_t since, const char *route, int64_t *last)
{
	const struct json *list;
	struct json *j;
	char *path = xasprintf("requests?since=%lld", (long long)since);
	size_t i;
	int n = 0;

	j = world_control(w, path, NULL);
	free(path);
	if (j == NULL ||
	    (list = json_get_type(j, "requests", JSON_ARRAY)) == NULL)
		fatalx("the server does not tell its requests");
	for (i = 0; route != NULL && i < list->n; i++)
		n += strcmp(json_get_str(list->items[i], "route"), route) == 0;
	if (last != NULL && json_get_integer(j, "last", last) == -1)
		*last = 0;
	json_free(j);
	return n;
}

static int64_t
mark(struct world *w)
{
	int64_t last;

	(void)requests(w, INT32_MAX, NULL, &last);
	return last;
}

/* Waits until so many requests of a route have come since the mark. */
static int
await_requests(struct world *w, int64_t since, const char *route, int n)
{
	double end = world_now() + PATIENCE;

	while (requests(w, since, route, NULL) < n) {
		if (world_now() > end)
			return -1;
		usleep(10000);
	}
	return 0;
}

static void
control(struct world *w, const char *path, char *body)
{
	struct json *j;

	if ((j = world_control(w, path, body)) == NULL)
		fatalx("%s: the server refuses %s", path, body);
	json_free(j);
	free(body);
}

static void
rules(struct world *w, const char *text)
{
	control(w, "faults", xasprintf("{\"rules\":[%s]}", text));
}

/* The rule for the fault of a cell. */
static char *
fault_rule(const struct cell *c)
{
	return xasprintf("{\"route\":\"%s\",%s%s}", c->row->route,
	    c->fault->rule, c->row->always ? "" : ",\"count\":1");
}

/*
 * A rule that answers one registration with another life and another clock
 * than the server's; the server itself does not hear of it.
 */
static char *
forged_registration(struct world *w, int count, int64_t ttl, int64_t offset)
{
	const struct json *workers;
	struct json *j;
	char when[TIME_ISO_SIZE], *rule;

	if ((j = world_state(w)) == NULL)
		fatalx("the server does not tell its state");
	workers = json_get_type(j, "workers", JSON_ARRAY);
	time_format_iso(time_wall_ms() + offset, when);
	rule = xasprintf(
	    "{\"route\":\"register\",\"count\":%d,\"action\":\"status\","
	    "\"status\":200,\"body\":\"{\\\"protocolVersion\\\":1,"
	    "\\\"workerId\\\":\\\"test-worker\\\",\\\"incarnationId\\\":"
	    "\\\"%s\\\",\\\"registeredAt\\\":\\\"%s\\\","
	    "\\\"leaseTtlMs\\\":%lld}\"}",
	    count, json_get_str(workers->items[0], "incarnationId"), when,
	    (long long)ttl);
	json_free(j);
	return rule;
}

/* ---- one cell ---- */

static int __attribute__((__format__(__printf__, 2, 3)))
bad(struct cell *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(c->why, sizeof(c->why), fmt, ap);
	va_end(ap);
	return -1;
}

static const char read_body[] =
    "{\"protocolVersion\":1,\"operation\":\"read_file\","
    "\"workspaceId\":\"primary\",\"path\":\"probe\"}";
static const char conflict_body[] =
    "{\"protocolVersion\":1,\"operation\":\"write_file\",\"workspaceId\":"
    "\"primary\",\"path\":\"probe\",\"content\":\"x\",\"overwrite\":false}";

static void
put(struct world *w, const char *name)
{
	char *path = xasprintf("%s/%s", w->project, name);
	int fd;

	fd = open(path, O_WRONLY | O_CREAT, 0644);
	if (fd == -1 || write(fd, "probe\n", 6) != 6)
		fatal("%s", path);
	close(fd);
	free(path);
}

static void
take_away(struct world *w, const char *name)
{
	char *path = xasprintf("%s/%s", w->project, name);

	(void)unlink(path);
	free(path);
}

/* How often the mutation was done: its bytes. */
static int
times_done(struct world *w)
{
	char *path = xasprintf("%s/count", w->project);
	struct stat st;
	int n;

	n = stat(path, &st) == -1 ? 0 : (int)st.st_size;
	free(path);
	return n;
}

static void
begin_world(struct world *w)
{
	char *log;

	world_init(w, 0);
	put(w, "probe");
	world_server(w, NULL);
	world_pair(w);
	world_worker(w, "--allow-workspace-writes",
	    "--allow-workspace-commands", "-v", NULL);
	if (!world_wait(w, "leasing", PATIENCE)) {
		log = world_log(w);
		fatalx("the worker does not lease: %s", log);
	}
}

/* One read that the waiting poll gets; the lane's next turn follows. */
static int
quick_read(struct world *w, struct cell *c)
{
	struct json *j;
	long status;

	status = world_call(w, read_body, &j);
	json_free(j);
	return status == 200 ? 0 : bad(c, "a first read got %ld", status);
}

#define SETTLE_503 "{\"route\":\"settle\",\"action\":\"status\"}"

static int
has_mutation(const struct cell *c)
{
	return c->row->situation == SI_IDLE ||
	    c->row->situation == SI_MUTATING ||
	    c->row->situation == SI_SETTLING ||
	    c->row->situation == SI_BUSY_SETTLING;
}

static char *
operation(const struct cell *c)
{
	int brief = c->row->always;

	switch (c->row->situation) {
	case SI_REJECTING:
		return xstrdup(conflict_body);
	case SI_MUTATING:
		return world_command_body("touch begun; until [ -e go ]; do "
					  "sleep 0.02; done; printf x >>count",
		    60000);
	case SI_IDLE:
	case SI_SETTLING:
	case SI_BUSY_SETTLING:
		return world_command_body(
		    "printf x >>count", brief ? 1000 : 60000);
	case SI_IDLE_READ:
	case SI_READING:
	case SI_SETTLING_READ:
	default:
		return xstrdup(read_body);
	}
}

/* The identity's end, ms since 1970. */
static int64_t
credential_end(struct world *w)
{
	char *path, text[8192];
	struct json *j;
	const char *error, *at;
	int64_t ms;
	ssize_t n;
	int fd;

	path = xasprintf("%s/.config/librechat/code/test-worker.json", w->home);
	if ((fd = open(path, O_RDONLY)) == -1)
		fatal("%s", path);
	n = read(fd, text, sizeof(text));
	close(fd);
	free(path);
	j = json_parse(text, n > 0 ? (size_t)n : 0, &error);
	at = json_get_str(j, "expiresAt");
	if (at == NULL || time_parse_iso(at, &ms) == -1)
		fatalx("the identity is not valid");
	json_free(j);
	return ms;
}

/*
 * Offset of the clock with which the credential is due at once, though not
 * yet at its end; the next one is made to live long enough beyond it.
 */
static int64_t
due_offset(struct world *w)
{
	int64_t left = credential_end(w) - time_wall_ms();

	control(w, "budgets",
	    xasprintf("{\"credentialTtlMs\":%lld}", (long long)left + 120000));
	return left - 59000;
}

/*
 * Brings the world to where the fault can strike. A busy worker gets a
 * registration with a short life first, so that heartbeats come soon.
 */
static int
prepare(struct world *w, struct cell *c)
{
	int busy = c->row->situation == SI_READING ||
	    c->row->situation == SI_MUTATING ||
	    c->row->situation == SI_BUSY_SETTLING;
	int beats = busy && strcmp(c->row->route, "cancellation") != 0;
	char *rule, *forged, *all;
	int64_t since = mark(w);

	take_away(w, "count");
	take_away(w, "begun");
	take_away(w, "go");
	control(w, "budgets",
	    xasprintf("{\"toolMs\":%d,\"commandGraceMs\":%d}",
		c->expect == UNANSWERED ? 1500 : 60000,
		c->row->always ? 500 : 5000));
	rule = fault_rule(c);
	if (beats) {
		/* Until the fault is due every heartbeat keeps it short. */
		forged = forged_registration(
		    w, c->row->situation == SI_READING ? 1 : 1000000, LIFE, 0);
		rules(w, forged);
		if (quick_read(w, c) == -1)
			return -1;
		if (await_requests(w, since, "register", 1) == -1 ||
		    !world_wait(w, "leasing", PATIENCE))
			return bad(c, "no lease before the fault");
		if (c->row->situation == SI_BUSY_SETTLING) {
			all = xasprintf("%s," SETTLE_503, forged);
			rules(w, all);
			free(all);
		}
		free(forged);
		forged = xstrdup("");
		if (strcmp(c->row->route, "refresh") == 0) {
			free(forged);
			forged = forged_registration(
			    w, 1, 60000, due_offset(w));
		}
		all = xasprintf("%s%s%s%s", forged, *forged != '\0' ? "," : "",
		    rule,
		    c->row->situation == SI_BUSY_SETTLING ? "," SETTLE_503
							  : "");
		free(forged);
	} else if (strcmp(c->row->route, "refresh") == 0) {
		/* The turn after a lease that fails finds it due. */
		forged = forged_registration(w, 1, 60000, due_offset(w));
		all = xasprintf("%s,%s,{\"route\":\"lease\",\"action\":"
				"\"status\",\"count\":1}",
		    forged, rule);
		free(forged);
	} else
		all = xstrdup(rule);
	if (beats && c->row->situation != SI_READING)
		c->late = all;
	else {
		rules(w, all);
		free(all);
	}
	free(rule);
	if (c->row->situation == SI_IDLE || c->row->situation == SI_IDLE_READ) {
		/* An acknowledgement belongs to the operation itself. */
		if (strcmp(c->row->route, "ack") != 0 && quick_read(w, c) == -1)
			return -1;
		/* The first round of a registration offers reads only (5.4). */
		if (strcmp(c->row->route, "register") == 0 &&
		    c->expect == DONE && !world_wait(w, "leasing", PATIENCE))
			return bad(c, "it does not lease again");
	}
	return 0;
}

/* How many requests of the route show that the worker went on after it. */
static int
requests_expected(const struct cell *c)
{
	if (c->expect != DONE)
		return 1;
	if (strcmp(c->row->route, "cancellation") == 0)
		return 2;
	return c->fault->class == CLASS_OK ? 1 : 2;
}

/* While the operation is held: the fault strikes, then it may end. */
static int
strike(struct world *w, struct cell *c, int64_t since, pid_t executor)
{
	char *begun;
	int r;

	if (c->row->situation == SI_MUTATING) {
		begun = xasprintf("%s/begun", w->project);
		r = world_file_wait(begun, PATIENCE);
		free(begun);
		if (!r)
			return bad(c, "the command did not begin");
	}
	if (c->row->situation == SI_BUSY_SETTLING &&
	    await_requests(w, since, "settle", 1) == -1)
		return bad(c, "it was not settled");
	if (c->late != NULL) {
		since = mark(w);
		rules(w, c->late);
		free(c->late);
		c->late = NULL;
	}
	if (await_requests(w, since, c->row->route, requests_expected(c)) == -1)
		return bad(c, "the request did not come, or only once");
	/* The abort has to be known before the read can end. */
	if (c->row->situation == SI_READING && c->expect == UNDONE &&
	    !world_log_wait(w, "assignment was cancelled", PATIENCE / 9) &&
	    !world_log_wait(w, "cannot be renewed", PATIENCE / 9))
		return bad(c, "the read was not aborted");
	if (c->row->situation == SI_MUTATING && c->expect == DONE)
		put(w, "go");
	if (c->row->situation == SI_BUSY_SETTLING && c->expect == DONE)
		rules(w, "");
	if (executor > 0 && c->expect < ENDS)
		(void)kill(executor, SIGCONT);
	return 0;
}

static int
check_caller(struct cell *c, long status, const struct json *j)
{
	const char *code = json_get_str(j, "code");

	switch (c->expect) {
	case DONE:
		if (status == 200)
			return 0;
		break;
	case UNDONE:
		if (status == 422 && code != NULL &&
		    (strcmp(code, "WORKSPACE_TOOL_REJECTED") == 0 ||
			strcmp(code, "EXECUTION_ABORTED") == 0))
			return 0;
		break;
	case UNANSWERED: /* the answer to the worker may be all that is lost */
		if (status == 504 || status == 200)
			return 0;
		break;
	case CONFLICT:
		if (status == 409 && code != NULL &&
		    strcmp(code, "EDIT_CONFLICT") == 0)
			return 0;
		break;
	case ENDS:
	case ENDS_DONE:
	case ENDS_MARKED:
		return 0;
	}
	return bad(
	    c, "the caller got %ld %s", status, code == NULL ? "" : code);
}

static int
check_traces(struct world *w, struct cell *c)
{
	int n = times_done(w), markers = world_markers(w);
	int most = c->expect == DONE || c->expect == ENDS_MARKED ||
	    c->expect == UNANSWERED;

	if (has_mutation(c)) {
		if (n > most)
			return bad(c, "done %d times", n);
		if (c->expect == DONE && n != 1)
			return bad(c, "not done");
	}
	if (markers != (c->expect == ENDS_MARKED))
		return bad(c, "%d markers", markers);
	return 0;
}

/* The daemon goes on: idle again, and without a marker. */
static int
check_going_on(struct world *w, struct cell *c, struct pending *p)
{
	double end = world_now() + PATIENCE;
	struct json *j;
	long status;
	int r;

	status = world_call_end(p, &j);
	r = check_caller(c, status, j);
	json_free(j);
	if (r == -1)
		return -1;
	rules(w, "");
	if (!world_wait(w, "leasing", PATIENCE))
		return bad(c, "it does not lease again");
	/* The server may be quicker than the last clearing. */
	while (world_markers(w) != 0 && world_now() < end)
		usleep(2000);
	return check_traces(w, c);
}

static int
check_end(struct world *w, struct cell *c, struct pending *p)
{
	int status = world_worker_end(w, PATIENCE);

	world_call_abort(p);
	if (status == -1)
		return bad(c, "it goes on");
	if (!WIFEXITED(status) ||
	    (WEXITSTATUS(status) != 1 &&
		(WEXITSTATUS(status) != STATUS_FENCED ||
		    strstr(c->fault->rule, "WORKER_FENCED") == NULL)))
		return bad(c, "ended with %#x", status);
	return check_traces(w, c);
}

static int
play(struct world *w, struct cell *c)
{
	int held = c->row->situation == SI_READING ||
	    c->row->situation == SI_MUTATING ||
	    c->row->situation == SI_BUSY_SETTLING;
	struct pending p;
	pid_t executor = 0;
	char *body, *log;
	int64_t before, since;
	int r;

	log = xasprintf("%s/worker.log", w->dir);
	if (truncate(log, 0) == -1)
		fatal("%s", log);
	free(log);
	before = mark(w);
	if (prepare(w, c) == -1)
		return -1;
	if (c->row->situation == SI_READING) {
		executor = world_helper(w, "librechat-code-executor");
		(void)kill(executor, SIGSTOP);
	}
	since = mark(w);
	body = operation(c);
	world_call_start(w, body, &p);
	free(body);
	r = held ? strike(w, c, since, executor) : 0;
	if (r == -1)
		world_call_abort(&p);
	else if (c->expect >= ENDS)
		r = check_end(w, c, &p);
	else
		r = check_going_on(w, c, &p);
	if (executor > 0 && w->worker > 0)
		(void)kill(executor, SIGCONT);
	if (r == 0 && !held &&
	    requests(w, before, c->row->route, NULL) < requests_expected(c))
		r = bad(c, "the fault did not strike");
	return r;
}

/* ---- sharing the work ---- */

static void
add_log(struct world *w, struct cell *c)
{
	char *text = world_log(w);
	size_t used = strlen(c->why), n = strlen(text);

	if (n > 300)
		memmove(text, text + n - 300, 301);
	(void)snprintf(c->why + used, sizeof(c->why) - used, "; log: %s", text);
	free(text);
}

static void __attribute__((__noreturn__)) shard(void)
{
	struct world w;
	struct cell *c;
	size_t i;
	int open = 0;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	while ((i = __atomic_fetch_add(&board->next, 1, __ATOMIC_SEQ_CST)) <
	    board->n) {
		c = &board->cells[i];
		if (!open)
			begin_world(&w);
		open = 1;
		if (play(&w, c) == -1)
			add_log(&w, c);
		c->done = 1;
		if (w.worker == 0 || c->why[0] != '\0') {
			world_free(&w);
			open = 0;
		}
	}
	if (open)
		world_free(&w);
	_exit(0);
}

static void
start_shard(void)
{
	pid_t pid;

	fflush(NULL);
	if ((pid = fork()) == -1)
		fatal("fork");
	if (pid == 0)
		shard();
}

/* Runs all; a child that ends early is replaced. */
static void
run_all(void)
{
	int i, status;

	for (i = 0; i < SHARDS; i++)
		start_shard();
	while (wait(&status) > 0)
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			start_shard();
}

static void
cell_test(void **state)
{
	const struct cell *c = *state;

	if (c->done && c->why[0] == '\0')
		return;
	print_message("protocol %s: %s\n", c->row->chapter,
	    c->done ? c->why : "its process ended");
	fail();
}

static const char *const situations[] = {
	"before a mutation",
	"before a read",
	"reading",
	"mutating",
	"settling a read",
	"settling a mutation",
	"settling a refusal",
	"while settling",
};

static void
make_board(const char *only)
{
	struct cell *c;
	size_t pass, i, k;
	int expect;

	board = mmap(NULL,
	    sizeof(*board) + nrows * nfaults * sizeof(struct cell),
	    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED)
		fatal("mmap");
	/* The long ones first, then those after which the daemon goes on. */
	for (pass = 0; pass < 2; pass++)
		for (i = 0; i < nrows; i++)
			for (k = 0; k < nfaults; k++) {
				expect = matrix_expect(&rows[i], &faults[k]);
				if (expect == -1 ||
				    (size_t)!faults[k].slow != pass)
					continue;
				if (only != NULL &&
				    strstr(rows[i].route, only) == NULL)
					continue;
				c = &board->cells[board->n++];
				c->row = &rows[i];
				c->fault = &faults[k];
				c->expect = (enum outcome)expect;
			}
}

int
main(int argc, char **argv)
{
	struct CMUnitTest *tests;
	struct cell *c;
	size_t i;

	log_init("test", 0);
	make_board(argc > 1 ? argv[1] : NULL);
	run_all();
	tests = xcalloc(board->n, sizeof(*tests));
	for (i = 0; i < board->n; i++) {
		c = &board->cells[i];
		tests[i].name = xasprintf("%s %s: %s%s", c->row->route,
		    situations[c->row->situation], c->fault->name,
		    c->row->always ? " for ever" : "");
		tests[i].test_func = cell_test;
		tests[i].initial_state = c;
	}
	return _cmocka_run_group_tests("matrix", tests, board->n, NULL, NULL);
}
