#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "api.h"
#include "assignment.h"
#include "credential.h"
#include "flight.h"
#include "json.h"
#include "log.h"
#include "peer.h"
#include "pulse.h"
#include "registration.h"
#include "request.h"
#include "result.h"
#include "settlement.h"
#include "times.h"

#define ACK_LIMIT       10000
#define POLL_INTERVAL   500
#define POLL_LIMIT      2000
#define REJECTION_GRACE 30000
#define STOP_READ_LIMIT 2000 /* a read's settlement after a stop */
/* The executor kills and reaps in this time, or something is badly wrong. */
#define CANCEL_LIMIT 15000
#define ID_BYTES_MAX 512

enum phase {
	AS_ACKING,
	AS_RENEWING, /* credential, before the start */
	AS_ARMING,
	AS_EXECUTING,
	AS_DRAINING, /* last word of the cancellation poll */
	AS_SETTLING,
	AS_CLEARING,
	AS_REJECTING /* as unexecuted */
};

struct assignment {
	struct bridge *b;
	enum phase phase;
	struct fence fence;
	int64_t expires_at; /* server clock; -1: not a time */
	const char *refusal; /* not to be run: why */
	struct tool_request tr;
	int64_t remaining; /* ms, before the acknowledgement */
	int64_t started; /* monotonic; of the acknowledgement */
	int64_t deadline; /* monotonic */

	uint32_t arm_id;
	uint32_t request_id;
	uint32_t clear_id;
	int armed; /* a marker is there */
	const char *aborted; /* first reason, or NULL */
	int hard; /* aborted by more than our own stop */
	int fulfilled; /* that is what is being settled */
	int settled;
	int refused; /* the acknowledgement was: nothing has begun */
	int has_result;
	struct imsg answer; /* that result points into */
	struct result result;
	int has_error;
	struct tool_error error;
	struct failure after; /* AS_REJECTING: what comes then */

	struct call *ack;
	struct waiter *renew;
	struct pulse *pulse;
	struct event *deadline_timer;
	struct event *cancel_timer;
	struct event *poll_timer;
	struct call *poll;
	struct settlement *settlement;
	void (*done)(const struct failure *, int, void *);
	void *arg;
};

static void conclude(struct assignment *);
static void run(struct assignment *);

static void
set_timer(struct event *ev, int64_t ms)
{
	struct timeval tv;

	if (ms < 0)
		ms = 0;
	tv.tv_sec = (time_t)(ms / 1000);
	tv.tv_usec = (suseconds_t)(ms % 1000 * 1000);
	(void)evtimer_add(ev, &tv);
}

static int
mutation(const struct assignment *as)
{
	return (OP_BIT(as->tr.q.operation) & OPS_MUTATION) != 0;
}

/* Ends the assignment; it may be freed when this returns. */
static void
finish(struct assignment *as, enum failure_class class, const char *text)
{
	struct failure f;

	failure_set(&f, class, "%s", text);
	as->done(&f, as->settled || as->refused, as->arg);
}

static void
quarantine(struct assignment *as, const char *why)
{
	struct failure f;

	failure_set(&f, FAIL_QUARANTINED,
	    "workspace %s: assignment %s: %s; the workspace is quarantined, "
	    "see \"quarantine\" in librechat-code(1)",
	    as->tr.workspace, as->fence.assignment, why);
	as->done(&f, as->settled, as->arg);
}

/* ---- from the lease to the start ---- */

static void
read_request(struct assignment *as, const struct json *j)
{
	const char *kind = json_get_str(j, "executionKind"), *wrong;

	if (kind == NULL || strcmp(kind, "sandbox") == 0) {
		as->refusal = "this worker has no sandbox runtime";
		return;
	}
	if (strcmp(kind, "workspace_tool") != 0) {
		as->refusal = "this worker does not know the execution kind";
		return;
	}
	wrong = request_validate(json_get(j, "request"), &as->tr);
	if (wrong != NULL) {
		log_debug("assignment %s: invalid request: %s",
		    as->fence.assignment, wrong);
		as->refusal = wrong;
		return;
	}
	as->tr.q.assignment = xstrdup(as->fence.assignment);
}

struct assignment *
assignment_new(struct bridge *b, const struct json *j, const char **error)
{
	const char *id, *token, *expires;
	struct assignment *as;
	int64_t generation;

	id = json_get_str(j, "assignmentId");
	token = json_get_str(j, "leaseToken");
	if (id == NULL || *id == '\0' || strlen(id) > ID_BYTES_MAX ||
	    token == NULL || *token == '\0' ||
	    json_get_integer(j, "generation", &generation) == -1) {
		*error = "the assignment has no valid id, generation or "
			 "lease token";
		return NULL;
	}
	as = xcalloc(1, sizeof(*as));
	as->b = b;
	as->fence.assignment = xstrdup(id);
	as->fence.token = xstrdup(token);
	as->fence.generation = generation;
	expires = json_get_str(j, "expiresAt");
	if (expires == NULL || time_parse_iso(expires, &as->expires_at) == -1)
		as->expires_at = -1;
	read_request(as, j);
	return as;
}

void
assignment_free(struct assignment *as)
{
	if (as == NULL)
		return;
	call_cancel(&as->ack);
	call_cancel(&as->poll);
	waiter_cancel(&as->renew);
	pulse_stop(&as->pulse);
	settlement_cancel(&as->settlement);
	if (as->deadline_timer != NULL)
		event_free(as->deadline_timer);
	if (as->cancel_timer != NULL)
		event_free(as->cancel_timer);
	if (as->poll_timer != NULL)
		event_free(as->poll_timer);
	tool_request_free(&as->tr);
	result_free(&as->result);
	buf_free(&as->answer.data);
	tool_error_free(&as->error);
	fence_free(&as->fence);
	free(as);
}

const char *
assignment_id(const struct assignment *as)
{
	return as->fence.assignment;
}

static void on_lost(const char *why, void *arg);

static void
on_rejected(enum outcome outcome, const struct failure *f, void *arg)
{
	struct assignment *as = arg;

	as->settlement = NULL;
	if (outcome == API_OK) {
		as->settled = 1;
		finish(as, as->after.class, as->after.text);
		return;
	}
	log_warnx("assignment %s was not run, and the server could not be "
		  "told: %s",
	    as->fence.assignment, f->text);
	finish(as, f->class == FAIL_TERMINAL ? FAIL_TERMINAL : as->after.class,
	    as->after.text);
}

/*
 * The assignment was certainly not started (protocol 7.4): says so, and then
 * ends with the given failure. A server that does not take it (the assignment
 * may be gone meanwhile) is no reason to stop a worker that did nothing.
 */
static void
reject_unexecuted(
    struct assignment *as, enum failure_class class, const char *why)
{
	struct buf body;
	int64_t limit = REJECTION_GRACE;
	char text[FAILURE_TEXT + 32];

	as->phase = AS_REJECTING;
	failure_set(&as->after, class, "%s", why);
	if (as->pulse == NULL)
		as->pulse = pulse_start(as->b, on_lost, as);
	if (bridge_stopping(as->b) && limit > STOP_LIMIT)
		limit = STOP_LIMIT;
	xsnprintf(text, sizeof(text), "assignment was not executed");
	buf_init(&body);
	settlement_rejected(&body, as->b, &as->fence, EC_NONE, text);
	as->settlement = settlement_send(
	    as->b, &as->fence, &body, time_mono_ms() + limit, on_rejected, as);
}

static void
on_renewed(const struct failure *f, void *arg)
{
	struct assignment *as = arg;

	as->renew = NULL;
	if (f->class != FAIL_NONE)
		reject_unexecuted(as, f->class, f->text);
	else if (time_mono_ms() >= as->deadline)
		reject_unexecuted(as, FAIL_RETRY,
		    "the credential refresh used up the assignment's time");
	else
		run(as);
}

static void
on_acknowledged(const struct reply *r, void *arg)
{
	struct assignment *as = arg;
	struct credentials *cr = as->b->credentials;
	int64_t now = time_mono_ms(), left;

	as->ack = NULL;
	if (r->outcome == API_DEFINITE) {
		as->refused = 1;
		finish(as, r->terminal ? FAIL_TERMINAL : FAIL_RETRY, r->text);
		return;
	}
	if (r->outcome == API_AMBIGUOUS) {
		reject_unexecuted(
		    as, r->terminal ? FAIL_TERMINAL : FAIL_RETRY, r->text);
		return;
	}
	left = as->remaining - (now - as->started);
	if (left <= 0) {
		reject_unexecuted(as, FAIL_RETRY,
		    "the assignment's time was over before it could start");
		return;
	}
	if (as->expires_at != -1)
		credential_set_offset(
		    cr, as->expires_at - (time_wall_ms() + left));
	as->deadline = now + left;
	if (credential_due(cr)) {
		as->phase = AS_RENEWING;
		as->renew = credential_refresh(cr,
		    left < CREDENTIAL_LIMIT ? left : CREDENTIAL_LIMIT,
		    on_renewed, as);
		return;
	}
	run(as);
}

void
assignment_start(struct assignment *as, int64_t remaining,
    void (*done)(const struct failure *, int, void *), void *arg)
{
	struct buf body;
	char *target;

	as->done = done;
	as->arg = arg;
	as->remaining = remaining;
	as->started = time_mono_ms();
	as->phase = AS_ACKING;
	buf_init(&body);
	fence_ack(&body, as->b, &as->fence);
	target = api_assignment_target(as->b, as->fence.assignment, "ack");
	as->ack = api_call(
	    as->b, "ack", target, &body, ACK_LIMIT, 0, on_acknowledged, as);
	free(target);
}

/* ---- execution ---- */

/* Cancels what runs; hard unless it is only our own stop. */
static void
abort_work(struct assignment *as, const char *why, int hard)
{
	as->hard |= hard;
	if (as->aborted != NULL)
		return;
	as->aborted = why;
	log_debug("assignment %s: %s", as->fence.assignment, why);
	if (as->phase == AS_EXECUTING) {
		peer_send(
		    as->b->executor, MSG_CANCEL, as->request_id, -1, NULL);
		set_timer(as->cancel_timer, CANCEL_LIMIT);
	}
}

static void
on_lost(const char *why, void *arg)
{
	struct assignment *as = arg;

	if (as->phase == AS_ARMING || as->phase == AS_EXECUTING ||
	    as->phase == AS_DRAINING)
		abort_work(as, why, 1);
}

static void
on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct assignment *as = arg;

	(void)fd;
	(void)what;
	if (as->phase == AS_DRAINING) {
		call_cancel(&as->poll);
		conclude(as);
	} else
		abort_work(as, "assignment expired", 1);
}

static void
on_cancel_limit(evutil_socket_t fd, short what, void *arg)
{
	struct assignment *as = arg;

	(void)fd;
	(void)what;
	log_warnx("executor: no answer to a cancellation within %d s",
	    CANCEL_LIMIT / 1000);
	bridge_end(as->b, END_GENERAL,
	    "the executor does not answer; a mutation under way stays "
	    "quarantined");
}

/* A JavaScript truth value (protocol 10.1). */
static int
truthy(const struct json *j)
{
	if (j == NULL)
		return 0;
	switch (j->type) {
	case JSON_NULL:
		return 0;
	case JSON_BOOL:
		return j->boolean;
	case JSON_NUMBER:
		return j->number < 0 || j->number > 0;
	case JSON_STRING:
		return j->len > 0;
	case JSON_ARRAY:
	case JSON_OBJECT:
		break;
	}
	return 1;
}

static void
on_poll(const struct reply *r, void *arg)
{
	struct assignment *as = arg;
	int cancelled;

	as->poll = NULL;
	cancelled = r->status == 404 ||
	    (r->outcome == API_OK && truthy(json_get(r->json, "cancelled")));
	if (cancelled)
		abort_work(as, "assignment was cancelled; aborted", 1);
	if (as->phase == AS_DRAINING)
		conclude(as);
	else if (!cancelled)
		set_timer(as->poll_timer, POLL_INTERVAL);
}

static void
poll_cancellation(evutil_socket_t fd, short what, void *arg)
{
	struct assignment *as = arg;
	struct jwriter w;
	struct buf body;
	char *target;

	(void)fd;
	(void)what;
	buf_init(&body);
	jw_init(&w, &body);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_member_str(&w, "incarnationId", as->b->config.incarnation);
	jw_object_end(&w);
	target = api_assignment_target(
	    as->b, as->fence.assignment, "cancellation");
	as->poll = api_call(
	    as->b, "cancellation", target, &body, POLL_LIMIT, 0, on_poll, as);
	free(target);
}

static void
dispatch(struct assignment *as)
{
	struct buf m;

	as->phase = AS_EXECUTING;
	as->request_id = bridge_id(as->b);
	buf_init(&m);
	request_build(&m, &as->tr.q);
	peer_send(as->b->executor, MSG_REQUEST, as->request_id, -1, &m);
	buf_wipe(&m);
	/*
	 * Aborted while the marker was armed: the executor answers in any
	 * case, and only its word lets the monitor clear the marker.
	 */
	if (as->aborted != NULL) {
		peer_send(
		    as->b->executor, MSG_CANCEL, as->request_id, -1, NULL);
		set_timer(as->cancel_timer, CANCEL_LIMIT);
	}
}

static void settle_rejected(
    struct assignment *, enum error_code, const char *text, int64_t deadline);

static void
run(struct assignment *as)
{
	struct bridge *b = as->b;
	struct buf m;

	as->pulse = pulse_start(b, on_lost, as);
	if (as->refusal == NULL)
		as->refusal = request_admit(&as->tr,
		    registration_offer(b->registration), b->config.workspaces,
		    b->config.nworkspaces);
	if (as->refusal != NULL) {
		settle_rejected(as, EC_NONE, as->refusal, as->deadline);
		return;
	}
	as->deadline_timer = evtimer_new(b->base, on_deadline, as);
	as->cancel_timer = evtimer_new(b->base, on_cancel_limit, as);
	as->poll_timer = evtimer_new(b->base, poll_cancellation, as);
	if (as->deadline_timer == NULL || as->cancel_timer == NULL ||
	    as->poll_timer == NULL)
		fatalx("out of memory");
	set_timer(as->deadline_timer, as->deadline - time_mono_ms());
	set_timer(as->poll_timer, POLL_INTERVAL);
	log_debug("assignment %s: %s in workspace %s", as->fence.assignment,
	    operation_name((enum operation)as->tr.q.operation),
	    as->tr.workspace);
	if (!mutation(as)) {
		dispatch(as);
		return;
	}
	as->phase = AS_ARMING;
	as->arm_id = bridge_id(b);
	buf_init(&m);
	assignment_ref_build(&m, as->tr.q.root, as->fence.assignment);
	peer_send(b->monitor, MSG_ARM, as->arm_id, -1, &m);
	buf_free(&m);
}

/* ---- settlement ---- */

static void
on_settled(enum outcome outcome, const struct failure *f, void *arg)
{
	struct assignment *as = arg;
	char why[FAILURE_TEXT + 64];
	struct buf m;

	as->settlement = NULL;
	if (outcome != API_OK) {
		if (!as->armed)
			finish(as, f->class, f->text);
		else if (bridge_stopping(as->b) && !as->fulfilled)
			finish(as, FAIL_RETRY, f->text); /* marker stays */
		else {
			xsnprintf(why, sizeof(why), "not settled: %s", f->text);
			quarantine(as, why);
		}
		return;
	}
	as->settled = 1;
	if (!as->armed) {
		finish(as, FAIL_NONE, "");
		return;
	}
	as->phase = AS_CLEARING;
	as->clear_id = bridge_id(as->b);
	buf_init(&m);
	assignment_ref_build(&m, as->tr.q.root, as->fence.assignment);
	peer_send(as->b->monitor, MSG_CLEAR, as->clear_id, -1, &m);
	buf_free(&m);
}

static void
settle(struct assignment *as, struct buf *body, int64_t deadline)
{
	int64_t cap = as->b->stopped_at + STOP_LIMIT;

	as->phase = AS_SETTLING;
	if (bridge_stopping(as->b) && deadline > cap)
		deadline = cap;
	as->settlement = settlement_send(
	    as->b, &as->fence, body, deadline, on_settled, as);
}

static void
settle_rejected(struct assignment *as, enum error_code code, const char *text,
    int64_t deadline)
{
	struct buf body;

	buf_init(&body);
	settlement_rejected(&body, as->b, &as->fence, code, text);
	settle(as, &body, deadline);
}

static int
after_path_active(const struct assignment *as)
{
	return (registration_offer(as->b->registration)->list_features &
		   LIST_AFTER_PATH) != 0;
}

static void
settle_fulfilled(struct assignment *as)
{
	struct buf body;

	as->fulfilled = 1;
	buf_init(&body);
	settlement_fulfilled(&body, as->b, &as->fence, as->tr.workspace,
	    &as->tr.q, &as->result, after_path_active(as));
	result_free(&as->result);
	buf_free(&as->answer.data);
	settle(as, &body, as->deadline);
}

/* Rows 1 and 2 of protocol 9.4. */
static void
conclude_read(struct assignment *as, const char *invalid)
{
	if (bridge_stopping(as->b))
		finish(as, FAIL_RETRY, "the worker stops");
	else if (as->has_error)
		settle_rejected(as, (enum error_code)as->error.code,
		    as->error.text, as->deadline);
	else if (as->aborted != NULL)
		settle_rejected(as, EC_NONE, as->aborted, as->deadline);
	else if (invalid != NULL)
		settle_rejected(as, EC_NONE,
		    "the worker's executor gave an invalid result",
		    as->deadline);
	else
		settle_fulfilled(as);
}

/*
 * Rows 3 to 5 of protocol 9.4. A command that ended by itself although it was
 * just being cancelled is as clean as one that was killed: none of its
 * processes is left. A write that was made in spite of a cancellation is not.
 * A stop of this worker does not undo a mutation that was completed, so that
 * is settled as what it is.
 */
static void
conclude_mutation(struct assignment *as, const char *invalid)
{
	int64_t long_deadline = as->deadline + REJECTION_GRACE;

	if (as->has_error) {
		if (as->error.certainty == NOT_COMMITTED)
			settle_rejected(as, (enum error_code)as->error.code,
			    as->error.text, long_deadline);
		else
			quarantine(as, as->error.text);
	} else if (invalid != NULL)
		quarantine(as, "the executor gave an invalid result");
	else if (!as->hard)
		settle_fulfilled(as);
	else if (as->tr.q.operation == OP_EXECUTE_COMMAND)
		settle_rejected(
		    as, EC_EXECUTION_ABORTED, as->aborted, long_deadline);
	else
		quarantine(as, "it was completed although it was aborted");
}

static void
conclude(struct assignment *as)
{
	const char *invalid = NULL;

	(void)evtimer_del(as->deadline_timer);
	if (time_mono_ms() >= as->deadline)
		abort_work(as, "assignment expired", 1);
	if (as->has_result) {
		invalid = result_check(
		    &as->tr.q, &as->result, after_path_active(as));
		if (invalid != NULL)
			log_warnx("executor: invalid result of %s: %s",
			    operation_name((enum operation)as->tr.q.operation),
			    invalid);
	}
	if (mutation(as))
		conclude_mutation(as, invalid);
	else
		conclude_read(as, invalid);
}

/*
 * The executor is done. An answer to a poll that is already arriving still
 * counts (protocol 10.2).
 */
static void
executed(struct assignment *as)
{
	int status;

	as->phase = AS_DRAINING;
	(void)evtimer_del(as->cancel_timer);
	(void)evtimer_del(as->poll_timer);
	if (as->poll != NULL) {
		status = call_status(as->poll);
		if ((status >= 200 && status <= 299) || status == 404)
			return;
		call_cancel(&as->poll);
	}
	conclude(as);
}

/* ---- stop and messages ---- */

void
assignment_stop(struct assignment *as)
{
	int64_t now = time_mono_ms();

	switch (as->phase) {
	case AS_ACKING:
		/* The server may have taken it as started. */
		call_cancel(&as->ack);
		reject_unexecuted(as, FAIL_RETRY, "the worker stops");
		break;
	case AS_RENEWING:
		finish(as, FAIL_RETRY, "the worker stops");
		break;
	case AS_ARMING:
	case AS_EXECUTING:
	case AS_DRAINING:
		abort_work(as, "the worker stops; aborted", 0);
		break;
	case AS_SETTLING:
	case AS_REJECTING:
		settlement_cap(as->settlement,
		    now +
			(as->armed || as->phase == AS_REJECTING
				? STOP_LIMIT
				: STOP_READ_LIMIT));
		break;
	case AS_CLEARING:
		break;
	}
}

void
assignment_beat(struct assignment *as)
{
	if (as->pulse != NULL)
		pulse_beat(as->pulse);
}

int
assignment_awaits(const struct assignment *as, uint32_t type, uint32_t id)
{
	switch (type) {
	case MSG_ARMED:
		return as->phase == AS_ARMING && as->arm_id == id;
	case MSG_CLEARED:
		return as->phase == AS_CLEARING && as->clear_id == id;
	case MSG_RESULT:
	case MSG_ERROR:
		return as->phase == AS_EXECUTING && as->request_id == id;
	default:
		return 0;
	}
}

static int
got_verdict(struct assignment *as, struct imsg *im)
{
	char why[FAILURE_TEXT];
	struct verdict v;

	if (verdict_parse(im, &v) == -1)
		return -1;
	xsnprintf(why, sizeof(why), "%s the marker: %s",
	    im->type == MSG_ARMED ? "cannot arm" : "cannot clear",
	    v.error == NULL ? "" : v.error);
	if (v.error != NULL && im->type == MSG_ARMED && bridge_stopping(as->b))
		reject_unexecuted(as, FAIL_RETRY, "the worker stops");
	else if (v.error != NULL)
		quarantine(as, why);
	else if (im->type == MSG_ARMED) {
		as->armed = 1;
		dispatch(as);
	} else {
		as->armed = 0;
		finish(as, FAIL_NONE, "");
	}
	free(v.error);
	return 0;
}

int
assignment_message(struct assignment *as, struct imsg *im)
{
	switch (im->type) {
	case MSG_ARMED:
	case MSG_CLEARED:
		return got_verdict(as, im);
	case MSG_RESULT:
		as->answer.data = im->data;
		buf_init(&im->data);
		if (result_view(&as->answer, &as->result) == -1)
			return -1;
		as->has_result = 1;
		break;
	case MSG_ERROR:
		if (tool_error_parse(im, &as->error) == -1)
			return -1;
		as->has_error = 1;
		break;
	default:
		return -1;
	}
	executed(as);
	return 0;
}
