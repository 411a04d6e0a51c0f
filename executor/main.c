#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "command.h"
#include "filter.h"
#include "imsg.h"
#include "log.h"
#include "msg.h"
#include "peer.h"
#include "pool.h"
#include "proc.h"
#include "restrict.h"
#include "sandbox.h"
#include "spawner.h"
#include "supervisor.h"

#ifdef SANITIZERS
const char *__asan_default_options(void);
const char *
__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

/* States of the process, for the tables of permitted messages. */
enum {
	ST_PROBE, /* every sandbox is made once and a first command runs in it
		   */
	ST_READY, /* MSG_READY sent */
	ST_RUNNING,
	ST_STOPPING
};
#define IN(state) (1U << (state))

struct executor {
	struct event_base *base;
	unsigned int state;
	struct executor_config config;
	struct sock_fprog filters[2]; /* [1]: for id-mapped roots */
	struct sock_fprog notify; /* supervisor.h */
	struct sock_fprog own; /* of the spawner */
	struct sandbox sandboxes[ROOTS_MAX];
	size_t nsandboxes;
	struct pool pool;
	size_t probed; /* roots, from the last one on */
	size_t probes; /* under way */
	struct peer *monitor;
	struct peer *bridge;
};

static void
report_failed(struct imsgbuf *ib, const char *text)
{
	struct buf b;

	buf_init(&b);
	ended_build(&b, 1, text);
	imsg_compose(ib, MSG_FAILED, 0, -1, b.data, b.len);
	(void)imsg_flush_blocking(ib);
	exit(1);
}

static struct sandbox *
root_by_index(struct executor *ex, uint32_t index)
{
	return index < ex->nsandboxes ? &ex->sandboxes[index] : NULL;
}

/* ---- the end of a request ---- */

static void
clear_active(struct sandbox *sb)
{
	free(sb->assignment);
	sb->assignment = NULL;
	sb->active = 0;
	sb->command = NULL;
	if (sb->waiting)
		imsg_free(&sb->later);
	sb->waiting = 0;
	pool_release(sb);
}

/*
 * The monitor learns how a mutation ended before the bridge does, so that a
 * bridge which asks too early or wrongly cannot have the marker removed.
 */
static void
send_outcome(struct executor *ex, struct sandbox *sb, enum certainty c)
{
	struct buf b;

	if ((OP_BIT(sb->operation) & OPS_MUTATION) == 0)
		return;
	buf_init(&b);
	outcome_build(&b, sb->root.index, sb->assignment, c);
	peer_send(ex->monitor, MSG_OUTCOME, 0, -1, &b);
}

static void
answer_error(struct executor *ex, struct sandbox *sb, enum error_code code,
    enum certainty certainty, const char *text)
{
	struct buf b;

	send_outcome(ex, sb, certainty);
	buf_init(&b);
	tool_error_build(&b, code, certainty, text);
	peer_send(ex->bridge, MSG_ERROR, sb->request_id, -1, &b);
	clear_active(sb);
}

static void
answer_result(struct executor *ex, struct sandbox *sb, const struct result *res)
{
	struct buf b;

	send_outcome(ex, sb, COMMITTED);
	buf_init(&b);
	result_build(&b, res);
	peer_send(ex->bridge, MSG_RESULT, sb->request_id, -1, &b);
	clear_active(sb);
}

/* ---- commands ---- */

static void
command_done(struct command *c, enum command_end end, struct result *res,
    const char *text, void *arg)
{
	struct sandbox *sb = arg;
	struct executor *ex = sb->owner;

	switch (end) {
	case COMMAND_RESULT:
		answer_result(ex, sb, res);
		break;
	case COMMAND_ABORTED:
		answer_error(ex, sb, EC_EXECUTION_ABORTED, NOT_COMMITTED, text);
		break;
	case COMMAND_BAD_CWD:
		answer_error(ex, sb, EC_INVALID_PATH, NOT_COMMITTED, text);
		break;
	case COMMAND_NOT_STARTED:
		answer_error(
		    ex, sb, EC_COMMAND_UNAVAILABLE, NOT_COMMITTED, text);
		break;
	case COMMAND_LOST:
		/* Whatever is left of it must not meet a later command. */
		if (sb->state == SANDBOX_UP)
			sandbox_kill(sb);
		answer_error(ex, sb, EC_COMMAND_UNAVAILABLE, UNCERTAIN, text);
		break;
	}
	command_free(c);
}

/* ---- sandboxes come and go ---- */

/* Code of a request whose sandbox is not there. */
static const enum error_code unavailable[OP_MAX] = {
	[OP_READ_FILE] = EC_NONE,
	[OP_SEARCH_TEXT] = EC_SEARCH_UNAVAILABLE,
	[OP_LIST_FILES] = EC_LIST_UNAVAILABLE,
	[OP_WRITE_FILE] = EC_WRITE_UNAVAILABLE,
	[OP_PREVIEW_EDIT] = EC_NONE,
	[OP_EDIT_FILE] = EC_WRITE_UNAVAILABLE,
	[OP_EXECUTE_COMMAND] = EC_COMMAND_UNAVAILABLE,
};

/* Nothing of the request has reached a sandbox. */
static void
answer_unavailable(struct sandbox *sb)
{
	answer_error(sb->owner, sb, unavailable[sb->operation], NOT_COMMITTED,
	    "the sandbox is unavailable");
}

/* It died in use. */
static void
on_lost(struct sandbox *sb)
{
	if (sb->command != NULL)
		command_lost(sb->command);
	else if (sb->waiting)
		answer_unavailable(sb);
	else if (sb->active)
		answer_error(sb->owner, sb, unavailable[sb->operation],
		    (OP_BIT(sb->operation) & OPS_MUTATION) ? UNCERTAIN
							   : NOT_COMMITTED,
		    "the sandbox was lost");
}

static void
on_answered(struct sandbox *sb)
{
	if (sb->command == NULL)
		pool_died(sb, "first process (unexpected answer)");
	else
		command_answered(sb->command);
}

static void
on_no_spawner(void *arg)
{
	struct executor *ex = arg;

	log_warnx("the spawner died: no sandbox can be made any more");
	peer_drain(ex->monitor);
	peer_drain(ex->bridge);
	exit(1);
}

/* ---- the file process ---- */

static int
files_result(struct peer *p, struct imsg *im, void *arg)
{
	struct sandbox *sb = arg;
	struct executor *ex = sb->owner;
	struct result res;
	int fits;

	(void)p;
	if (!sb->active || sb->command != NULL || im->id != sb->request_id ||
	    result_view(im, &res) == -1)
		return -1;
	fits = res.operation == sb->operation;
	result_free(&res);
	if (!fits)
		return -1;
	/* What was checked is what the bridge gets, byte for byte. */
	send_outcome(ex, sb, COMMITTED);
	peer_send(ex->bridge, MSG_RESULT, sb->request_id, -1, &im->data);
	clear_active(sb);
	return 0;
}

static int
files_error(struct peer *p, struct imsg *im, void *arg)
{
	struct sandbox *sb = arg;
	struct tool_error e;

	(void)p;
	if (!sb->active || sb->command != NULL || im->id != sb->request_id ||
	    tool_error_parse(im, &e) == -1)
		return -1;
	answer_error(sb->owner, sb, (enum error_code)e.code,
	    (enum certainty)e.certainty, e.text);
	tool_error_free(&e);
	return 0;
}

static void
files_gone(struct peer *p, void *arg)
{
	(void)p;
	pool_died(arg, "file process");
}

static const struct peer_handler files_table[] = {
	{ MSG_RESULT, PEER_ANY_STATE, 0, files_result },
	{ MSG_ERROR, PEER_ANY_STATE, 0, files_error },
	{ 0, 0, 0, NULL },
};

/* ---- requests of the bridge ---- */

static void
refuse(struct executor *ex, uint32_t id, enum error_code code, const char *text)
{
	struct buf b;

	buf_init(&b);
	tool_error_build(&b, code, NOT_COMMITTED, text);
	peer_send(ex->bridge, MSG_ERROR, id, -1, &b);
}

/*
 * A mutation needs the monitor's word for exactly this assignment, which it
 * gives once, after the marker is on disk. Whatever the bridge says, nothing
 * is changed without it.
 */
static int
may_mutate(struct sandbox *sb, const struct request *q)
{
	int ok;

	if ((OP_BIT(q->operation) & OPS_MUTATION) == 0)
		return 1;
	ok = sb->allowed != NULL && strcmp(sb->allowed, q->assignment) == 0;
	free(sb->allowed);
	sb->allowed = NULL;
	return ok;
}

/* The sandbox is there. */
static void
start_request(struct sandbox *sb, struct request *q, struct imsg *im)
{
	struct executor *ex = sb->owner;

	if (q->operation == OP_EXECUTE_COMMAND)
		sb->command = command_start(
		    ex->base, sb->control, &sb->memory, q, command_done, sb);
	else
		peer_send(sb->files, MSG_REQUEST, im->id, -1, &im->data);
}

static void
take_request(struct sandbox *sb, struct request *q, struct imsg *im)
{
	sb->active = 1;
	sb->request_id = im->id;
	sb->operation = q->operation;
	sb->assignment = xstrdup(q->assignment);
	switch (pool_want(sb)) {
	case POOL_UP:
		start_request(sb, q, im);
		break;
	case POOL_LATER:
		sb->waiting = 1;
		sb->later = *im;
		buf_init(&im->data);
		break;
	case POOL_UNAVAILABLE:
		answer_unavailable(sb);
		break;
	}
}

/* The sandbox that a request waited for. */
static void
start_waiting(struct sandbox *sb)
{
	struct imsg im = sb->later;
	struct request q;

	if (!sb->waiting)
		return;
	sb->waiting = 0;
	if (request_parse(&im, &q) == -1)
		fatalx("a request changed while it waited");
	start_request(sb, &q, &im);
	request_free(&q);
	imsg_free(&im);
}

static int
bridge_request(struct peer *p, struct imsg *im, void *arg)
{
	struct executor *ex = arg;
	struct sandbox *sb;
	struct request q;

	(void)p;
	if (request_view(im, &q) == -1)
		return -1;
	if ((sb = root_by_index(ex, q.root)) == NULL)
		refuse(ex, im->id, EC_INVALID_REQUEST,
		    "invalid workspace tool request: unknown workspace");
	else if ((sb->root.operations & OP_BIT(q.operation)) == 0)
		refuse(ex, im->id,
		    q.operation == OP_EXECUTE_COMMAND ? EC_COMMAND_DISABLED
						      : EC_WRITE_DISABLED,
		    "operation is not enabled");
	else if (sb->active)
		refuse(ex, im->id, EC_COMMAND_UNAVAILABLE, "workspace is busy");
	else if (!may_mutate(sb, &q)) {
		log_warnx("workspace %s: refused a mutation that the monitor "
			  "did not allow",
		    sb->root.id);
		refuse(ex, im->id, EC_COMMAND_UNAVAILABLE,
		    "mutation was not allowed");
	} else
		take_request(sb, &q, im);
	request_free(&q);
	return 0;
}

static int
bridge_cancel(struct peer *p, struct imsg *im, void *arg)
{
	struct executor *ex = arg;
	struct sandbox *sb;
	size_t i;

	(void)p;
	if (im->data.len != 0)
		return -1;
	for (i = 0; i < ex->nsandboxes; i++) {
		sb = &ex->sandboxes[i];
		if (!sb->active || sb->request_id != im->id)
			continue;
		if (sb->waiting)
			answer_error(ex, sb, EC_EXECUTION_ABORTED,
			    NOT_COMMITTED, "execution aborted");
		else if (sb->command != NULL)
			command_cancel(sb->command);
		else
			peer_send(sb->files, MSG_CANCEL, im->id, -1, NULL);
	}
	return 0;
}

/*
 * In an orderly stop the bridge ends first, and the monitor then tells us;
 * if it ended otherwise the monitor ends us. It is given a moment for that.
 */
static void
on_orphaned(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	log_warnx("the bridge is gone");
	exit(1);
}

static void
bridge_gone(struct peer *p, void *arg)
{
	static const struct timeval moment = { 1, 0 };
	struct executor *ex = arg;

	(void)p;
	if (event_base_once(
		ex->base, -1, EV_TIMEOUT, on_orphaned, ex, &moment) == -1)
		fatalx("no timer");
}

static const struct peer_handler bridge_table[] = {
	/*
	 * The bridge is told to start after us, but its request may be seen
	 * first.
	 */
	{ MSG_REQUEST, IN(ST_READY) | IN(ST_RUNNING) | IN(ST_STOPPING), 0,
	    bridge_request },
	{ MSG_CANCEL, IN(ST_READY) | IN(ST_RUNNING) | IN(ST_STOPPING), 0,
	    bridge_cancel },
	{ 0, 0, 0, NULL },
};

/* ---- the monitor ---- */

static int
monitor_start(struct peer *p, struct imsg *im, void *arg)
{
	struct executor *ex = arg;

	(void)p;
	if (im->data.len != 0)
		return -1;
	ex->state = ST_RUNNING;
	return 0;
}

static int
monitor_allow(struct peer *p, struct imsg *im, void *arg)
{
	struct executor *ex = arg;
	struct assignment_ref a;
	struct sandbox *sb;
	struct buf b;

	if (assignment_ref_parse(im, &a) == -1)
		return -1;
	if ((sb = root_by_index(ex, a.root)) == NULL) {
		free(a.assignment);
		return -1;
	}
	free(sb->allowed);
	sb->allowed = a.assignment;
	buf_init(&b);
	assignment_ref_build(&b, a.root, sb->allowed);
	peer_send(p, MSG_ALLOWED, im->id, -1, &b);
	return 0;
}

static int
monitor_stop(struct peer *p, struct imsg *im, void *arg)
{
	struct executor *ex = arg;
	struct buf b;

	if (im->data.len != 0)
		return -1;
	ex->state = ST_STOPPING;
	buf_init(&b);
	ended_build(&b, 0, NULL);
	peer_send(p, MSG_ENDED, 0, -1, &b);
	peer_drain(p);
	/* The keepers die with us, and their namespaces with them. */
	exit(0);
}

static void
monitor_gone(struct peer *p, void *arg)
{
	(void)p;
	(void)arg;
	exit(1);
}

static const struct peer_handler monitor_table[] = {
	{ MSG_START, IN(ST_READY), 0, monitor_start },
	{ MSG_ALLOW, IN(ST_RUNNING), 0, monitor_allow },
	{ MSG_STOP, PEER_ANY_STATE, 0, monitor_stop },
	{ 0, 0, 0, NULL },
};

/* ---- start-up ---- */

static void __attribute__((__noreturn__))
start_failed(struct executor *ex, const char *text)
{
	struct buf b;

	buf_init(&b);
	ended_build(&b, 1, text);
	peer_send(ex->monitor, MSG_FAILED, 0, -1, &b);
	peer_drain(ex->monitor);
	exit(1);
}

/*
 * Makes every sandbox once, as many at a time as may be kept; each later one
 * takes the place of one that was tried before. The first root comes last,
 * so its sandbox stays.
 */
static void
probe_next(struct executor *ex)
{
	while (ex->probed < ex->nsandboxes && ex->probes < ex->config.slots) {
		ex->probes++;
		ex->probed++;
		(void)pool_want(&ex->sandboxes[ex->nsandboxes - ex->probed]);
	}
}

static void
probe_end(struct sandbox *sb)
{
	struct executor *ex = sb->owner;

	ex->probes--;
	pool_release(sb);
	probe_next(ex);
	if (ex->probes > 0)
		return;
	ex->state = ST_READY;
	peer_send(ex->monitor, MSG_READY, 0, -1, NULL);
}

static void
probe_done(struct command *c, enum command_end end, struct result *res,
    const char *text, void *arg)
{
	struct sandbox *sb = arg;

	sb->command = NULL;
	if (end != COMMAND_RESULT || res->exit_code != 0 || res->out.len != 3 ||
	    memcmp(res->out.data, "ok\n", 3) != 0)
		start_failed(sb->owner,
		    xasprintf("workspace %s: a first command in its sandbox "
			      "failed: %.*s",
			sb->root.id,
			text != NULL ? (int)strlen(text) : (int)res->err.len,
			text != NULL ? text : (const char *)res->err.data));
	command_free(c);
	probe_end(sb);
}

/* Runs one real command in a sandbox that has commands. */
static void
probe(struct sandbox *sb)
{
	static char command[] = "[ -r /proc/self/status ] && [ $$ != 1 ] && "
				"echo ok";
	struct executor *ex = sb->owner;
	struct request q;

	if ((sb->root.operations & OP_BIT(OP_EXECUTE_COMMAND)) == 0) {
		probe_end(sb);
		return;
	}
	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	q.command.data = (uint8_t *)command;
	q.command.len = strlen(command);
	q.timeout_ms = 10000;
	q.max_output = 4096;
	sb->command = command_start(
	    ex->base, sb->control, &sb->memory, &q, probe_done, sb);
}

static void
on_ready(struct sandbox *sb)
{
	struct executor *ex = sb->owner;

	sb->files = peer_new(ex->base, "files", sb->files_fd, files_table,
	    &ex->state, files_gone, sb);
	peer_isolate(sb->files);
	sb->files_fd = -1;
}

static void
on_up(struct sandbox *sb)
{
	struct executor *ex = sb->owner;

	if (ex->state == ST_PROBE)
		probe(sb);
	else
		start_waiting(sb);
}

static void
on_failed(struct sandbox *sb, const char *text)
{
	struct executor *ex = sb->owner;

	if (ex->state == ST_PROBE)
		start_failed(ex, text);
	if (sb->waiting)
		answer_unavailable(sb);
}

static const char *const more_calls[] = { "pidfd_send_signal", "wait4",
	"waitid", "kill", NULL };

static int
restrict_executor(char **error)
{
	const struct landlock_path none[1] = { { NULL, 0 } };

	if (restrict_basic(error) == -1 ||
	    restrict_landlock(none, 0, LL_NO_BIND | LL_NO_CONNECT, error) ==
		-1 ||
	    restrict_seccomp_with(more_calls, error) == -1)
		return -1;
	if (open("/", O_RDONLY | O_CLOEXEC) != -1) {
		*error = xstrdup("Landlock or seccomp does not hold: / can be "
				 "opened");
		return -1;
	}
	if (syscall(SYS_socket, AF_INET, SOCK_STREAM, 0) != -1) {
		*error = xstrdup("seccomp does not hold: a socket can be made");
		return -1;
	}
	return 0;
}

static void
receive_config(
    struct executor *ex, struct spawner *sp, struct imsgbuf *ib, int *channel)
{
	struct imsg im;
	struct root_config rc;
	uint32_t i;

	if (imsg_get_blocking(ib, &im, -1) != 1)
		exit(1);
	if (im.type != MSG_CONFIG || executor_config_parse(&im, &ex->config))
		fatalx("malformed configuration");
	*channel = im.fd;
	im.fd = -1;
	imsg_free(&im);
	log_init("executor", ex->config.verbose);
	for (i = 0; i < ex->config.nroots; i++) {
		if (imsg_get_blocking(ib, &im, -1) != 1)
			exit(1);
		if (im.type != MSG_ROOT || im.fd == -1 ||
		    root_config_parse(&im, &rc) == -1 || rc.index != i)
			fatalx("malformed root");
		ex->sandboxes[i].root = rc;
		ex->sandboxes[i].owner = ex;
		sp->roots[i] = &ex->sandboxes[i].root;
		sp->fds[i].root = im.fd;
		sp->fds[i].group = -1;
		ex->sandboxes[i].memory.events = -1;
		ex->sandboxes[i].memory.limit = ex->config.memory_bytes;
		im.fd = -1;
		imsg_free(&im);
		ex->nsandboxes++;
	}
}

/* What happens in a group is read here; commands begin in it elsewhere. */
static void
receive_groups(struct executor *ex, struct spawner *sp, struct imsgbuf *ib)
{
	struct cgroup_config cg;
	struct imsg im;
	size_t i;
	int fd;

	for (i = 0; ex->config.groups && i < ex->nsandboxes; i++) {
		if (imsg_get_blocking(ib, &im, -1) != 1)
			exit(1);
		if (im.type != MSG_CGROUP || im.fd == -1 ||
		    cgroup_config_parse(&im, &cg) == -1 || cg.index != i)
			fatalx("malformed control group");
		fd = openat(im.fd, "memory.events", O_RDONLY | O_CLOEXEC);
		if (fd == -1)
			log_warn("workspace %s: memory.events of its control "
				 "group",
			    ex->sandboxes[i].root.id);
		ex->sandboxes[i].memory.events = fd;
		sp->fds[i].group = im.fd;
		im.fd = -1;
		imsg_free(&im);
	}
}

/* Compiles what the spawner needs and forks it: its channel. */
static int
start_spawner(struct executor *ex, struct spawner *sp, char **error)
{
	if (filter_compile(&ex->filters[0], 0, 0, error) == -1 ||
	    filter_compile(&ex->filters[1], 0, 1, error) == -1 ||
	    filter_compile_spawner(&ex->own, error) == -1 ||
	    supervisor_compile(&ex->notify, error) == -1)
		return -1;
	sp->config = &ex->config;
	sp->nroots = ex->nsandboxes;
	sp->filters = ex->filters;
	sp->notify = &ex->notify;
	sp->own = &ex->own;
	return spawner_start(sp, error);
}

int
main(void)
{
	static const struct pool_handlers handlers = { on_ready, on_up,
		on_failed, on_lost, on_answered, on_no_spawner };
	struct executor ex;
	struct spawner sp;
	struct imsgbuf ib;
	char *error = NULL;
	int channel = -1, spawner;

	memset(&ex, 0, sizeof(ex));
	memset(&sp, 0, sizeof(sp));
	log_init("executor", 0);
	proc_helper_init(&ib, 1);
	receive_config(&ex, &sp, &ib, &channel);
	receive_groups(&ex, &sp, &ib);
	if (channel == -1)
		fatalx("malformed configuration: no bridge channel");
	if (geteuid() == 0)
		report_failed(&ib, "the executor never runs as root");
	/* Keepers are children; the kernel reaps them. */
	(void)signal(SIGCHLD, SIG_IGN);
	if ((spawner = start_spawner(&ex, &sp, &error)) == -1)
		report_failed(&ib, error);
	if ((ex.base = event_base_new()) == NULL ||
	    pool_init(&ex.pool, ex.base, ex.sandboxes, ex.nsandboxes,
		ex.config.slots, spawner, &handlers, &ex) == -1)
		report_failed(&ib, "no event loop");
	/* They are made while this process restricts itself. */
	probe_next(&ex);
	if (restrict_executor(&error) == -1)
		report_failed(&ib, error);
	ex.monitor = peer_adopt(ex.base, "monitor", &ib, monitor_table,
	    &ex.state, monitor_gone, &ex);
	ex.bridge = peer_new(ex.base, "bridge", channel, bridge_table,
	    &ex.state, bridge_gone, &ex);
	if (event_base_dispatch(ex.base) == -1)
		fatalx("event loop");
	return 1;
}
