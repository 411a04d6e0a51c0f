#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "api.h"
#include "assignment.h"
#include "cancellation.h"
#include "credential.h"
#include "flight.h"
#include "lanes.h"
#include "lease.h"
#include "log.h"
#include "peer.h"
#include "pulse.h"
#include "receipt.h"
#include "registration.h"
#include "result.h"
#include "roots.h"
#include "settlement.h"
#include "timer.h"
#include "times.h"
#include "work.h"

#define ACK_LIMIT       10000
#define REJECTION_GRACE 30000
#define STOP_READ_LIMIT 2000 /* a read's settlement after a stop */
/* The executor kills and reaps in this time, or something is badly wrong. */
#define CANCEL_LIMIT  15000
#define RECEIPT_LIMIT 40000 /* three attempts and more */
#define ID_BYTES_MAX  512

enum phase {
	AS_ACKING,
	AS_WAITING, /* for its root */
	AS_RENEWING, /* credential, before the start */
	AS_ARMING,
	AS_EXECUTING,
	AS_DRAINING, /* last word of the cancellation poll */
	AS_SETTLING,
	AS_CLEARING,
	AS_REJECTING, /* as unexecuted */
	AS_REPORTING /* a receipt is on its way */
};

struct assignment {
	struct bridge *b;
	int slot; /* or LANE_LEGACY */
	enum phase phase;
	struct work work;
	struct root_turn turn;
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
	enum remnant owed;
	int has_result;
	struct imsg answer; /* that result points into */
	struct result result;
	int has_error;
	struct tool_error error;
	struct failure after; /* AS_REJECTING, AS_REPORTING: then */

	struct call *ack;
	struct waiter *renew;
	struct pulse *pulse;
	struct event *deadline_timer;
	struct event *cancel_timer;
	struct cancellation *cancellation;
	struct settlement *settlement;
	struct receipt *receipt;
	void (*done)(const struct failure *, enum remnant, void *);
	void *arg;
};

static void conclude(void *);
static void run(struct assignment *);
static void proceed(void *);
static void settle_rejected(
    struct assignment *, enum error_code, const char *text, int64_t deadline);

static int
mutation(const struct assignment *as)
{
	return (OP_BIT(as->work.tr.q.operation) & OPS_MUTATION) != 0;
}

static int
has_slot(const struct assignment *as)
{
	return as->slot != LANE_LEGACY;
}

/* Ends the assignment; it may be freed when this returns. */
static void
finish(struct assignment *as, enum failure_class class, const char *text)
{
	struct failure f;

	failure_set(&f, class, "%s", text);
	roots_leave(as->b->roots, &as->turn);
	as->done(&f, as->owed, as->arg);
}

/* Nothing runs any more: what could abort it is of no use. */
static void
unwatch(struct assignment *as)
{
	if (as->deadline_timer != NULL)
		(void)evtimer_del(as->deadline_timer);
	cancellation_stop(&as->cancellation);
}

/* ---- receipts (protocol 11.4, 11.5) ---- */

static void quarantine(struct assignment *, const char *);

static void
on_quarantined(enum outcome outcome, const struct failure *f, void *arg)
{
	struct assignment *as = arg;
	char why[FAILURE_TEXT];

	as->receipt = NULL;
	if (outcome == API_OK) {
		as->owed = OWED_NOTHING;
		finish(as, FAIL_NONE, "");
		return;
	}
	as->owed = OWED_QUARANTINE;
	xsnprintf(why, sizeof(why),
	    "the Code API was not told of the quarantine: %.128s", f->text);
	finish(as, f->class, why);
}

static void
report(struct assignment *as, enum receipt_kind kind,
    void (*done)(enum outcome, const struct failure *, void *))
{
	int64_t deadline = time_mono_ms() + RECEIPT_LIMIT;
	int64_t cap = as->b->stopped_at + STOP_RECEIPT_LIMIT;

	if (bridge_stopping(as->b) && deadline > cap)
		deadline = cap;
	unwatch(as);
	as->phase = AS_REPORTING;
	as->receipt = receipt_send(
	    as->b, &as->work.fence, kind, deadline, done, as);
}

/*
 * What is in the root is not known, or not known to the server. Without a
 * slot that ends the process; with one, the use of this root.
 */
static void
quarantine(struct assignment *as, const char *why)
{
	static const char fmt[] =
	    "workspace %s: assignment %s: %s; the workspace is quarantined, "
	    "see \"QUARANTINE\" in librechat-code(1)";
	const char *ws = as->work.tr.workspace, *id = as->work.fence.assignment;
	struct failure f;

	failure_set(&f, FAIL_QUARANTINED, fmt, ws, id, why);
	if (!has_slot(as)) {
		as->done(&f, as->owed, as->arg);
		return;
	}
	if (roots_fenced(as->b->roots, as->work.tr.q.root) == NULL)
		log_warnx(fmt, ws, id, why);
	roots_fence(as->b->roots, as->work.tr.q.root, why);
	if (bridge_stopping(as->b) && as->armed)
		lanes_unclean(as->b, f.text);
	report(as, RECEIPT_QUARANTINE, on_quarantined);
}

static void
on_cleaned(enum outcome outcome, const struct failure *f, void *arg)
{
	struct assignment *as = arg;
	char why[FAILURE_TEXT];

	as->receipt = NULL;
	if (outcome == API_OK) {
		finish(as, as->after.class, as->after.text);
		return;
	}
	xsnprintf(why, sizeof(why),
	    "the Code API did not confirm the clean-up: %.128s", f->text);
	if (as->work.has_root)
		quarantine(as, why);
	else
		finish(as, f->class, why);
}

/* Settled, and nothing is left of it here. */
static void
accepted(struct assignment *as, enum failure_class class, const char *text)
{
	as->owed = OWED_NOTHING;
	if (!has_slot(as)) {
		finish(as, class, text);
		return;
	}
	/* text may be what is there already. */
	if (text != as->after.text)
		failure_set(&as->after, class, "%s", text);
	report(as, RECEIPT_CLEANUP, on_cleaned);
}

/* ---- from the lease to the start ---- */

struct assignment *
assignment_new(
    struct bridge *b, const struct json *j, int slot, const char **error)
{
	struct assignment *as;
	struct work work;

	if (work_read(&work, &b->config, j, error) == -1)
		return NULL;
	as = xcalloc(1, sizeof(*as));
	as->b = b;
	as->slot = slot;
	as->work = work;
	as->owed = OWED_SETTLEMENT;
	as->turn.granted = proceed;
	as->turn.arg = as;
	return as;
}

void
assignment_free(struct assignment *as)
{
	if (as == NULL)
		return;
	roots_leave(as->b->roots, &as->turn);
	call_cancel(&as->ack);
	cancellation_stop(&as->cancellation);
	waiter_cancel(&as->renew);
	pulse_stop(&as->pulse);
	settlement_cancel(&as->settlement);
	receipt_cancel(&as->receipt);
	if (as->deadline_timer != NULL)
		event_free(as->deadline_timer);
	if (as->cancel_timer != NULL)
		event_free(as->cancel_timer);
	result_free(&as->result);
	buf_free(&as->answer.data);
	tool_error_free(&as->error);
	work_free(&as->work);
	free(as);
}

const char *
assignment_id(const struct assignment *as)
{
	return as->work.fence.assignment;
}

int
assignment_is(const struct assignment *as, const char *id)
{
	return strcmp(as->work.fence.assignment, id) == 0;
}

static void
on_lost(const char *why, void *arg)
{
	assignment_lost(arg, why);
}

/* With lease slots one heartbeat serves all lanes (lanes.h). */
static void
keep_known(struct assignment *as)
{
	if (as->pulse == NULL && !lanes_concurrent(as->b))
		as->pulse = pulse_start(as->b, on_lost, as);
}

static void
on_rejected(enum outcome outcome, const struct failure *f, void *arg)
{
	struct assignment *as = arg;

	as->settlement = NULL;
	if (outcome == API_OK) {
		accepted(as, as->after.class, as->after.text);
		return;
	}
	log_warnx("assignment %s was not run, and the server could not be "
		  "told: %s",
	    as->work.fence.assignment, f->text);
	/* Never at once: it may be handed out again. */
	if (f->class == FAIL_TERMINAL || as->after.class == FAIL_NONE)
		finish(as, f->class, f->text);
	else
		finish(as, as->after.class, as->after.text);
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

	unwatch(as);
	as->phase = AS_REJECTING;
	failure_set(&as->after, class, "%s", why);
	keep_known(as);
	if (bridge_stopping(as->b) && limit > STOP_LIMIT)
		limit = STOP_LIMIT;
	xsnprintf(text, sizeof(text), "assignment was not executed");
	buf_init(&body);
	settlement_rejected(&body, as->b, &as->work.fence, EC_NONE, text);
	as->settlement = settlement_send(as->b, &as->work.fence, &body,
	    time_mono_ms() + limit, on_rejected, as);
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
	int64_t now = time_mono_ms(), left;

	as->ack = NULL;
	if (r->outcome == API_DEFINITE) {
		as->owed = OWED_NOTHING;
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
	as->deadline = now + left;
	if (!as->work.has_root ||
	    roots_enter(as->b->roots, &as->turn, as->work.tr.q.root)) {
		proceed(as);
		return;
	}
	as->phase = AS_WAITING;
	log_debug("assignment %s waits for workspace %s",
	    as->work.fence.assignment, as->work.tr.workspace);
	timer_set(as->deadline_timer, left);
}

/* The root is this assignment's (protocol 8.2). */
static void
proceed(void *arg)
{
	struct assignment *as = arg;
	struct credentials *cr = as->b->credentials;
	int64_t left = as->deadline - time_mono_ms();

	(void)evtimer_del(as->deadline_timer);
	if (left <= 0) {
		reject_unexecuted(as, FAIL_NONE, "");
		return;
	}
	if (as->work.expires_at != -1)
		credential_set_offset(
		    cr, as->work.expires_at - (time_wall_ms() + left));
	if (credential_due(cr)) {
		as->phase = AS_RENEWING;
		as->renew = credential_refresh(cr,
		    left < CREDENTIAL_LIMIT ? left : CREDENTIAL_LIMIT,
		    on_renewed, as);
		return;
	}
	run(as);
}

static void on_deadline(evutil_socket_t, short, void *);

void
assignment_start(struct assignment *as, int64_t remaining,
    void (*done)(const struct failure *, enum remnant, void *), void *arg)
{
	struct buf body;
	char *target;

	as->done = done;
	as->arg = arg;
	as->deadline_timer = evtimer_new(as->b->base, on_deadline, as);
	if (as->deadline_timer == NULL)
		fatalx("out of memory");
	as->remaining = remaining;
	as->started = time_mono_ms();
	as->phase = AS_ACKING;
	buf_init(&body);
	fence_ack(&body, as->b, &as->work.fence);
	target = api_assignment_target(as->b, as->work.fence.assignment, "ack");
	as->ack = api_call(
	    as->b, "ack", target, &body, ACK_LIMIT, 0, on_acknowledged, as);
	free(target);
}

void
assignment_repeat(struct assignment *as, enum remnant owed,
    void (*done)(const struct failure *, enum remnant, void *), void *arg)
{
	as->done = done;
	as->arg = arg;
	log_debug("assignment %s was handed out again; it is not run twice",
	    as->work.fence.assignment);
	if (owed == OWED_QUARANTINE)
		report(as, RECEIPT_QUARANTINE, on_quarantined);
	else
		reject_unexecuted(as, FAIL_NONE, "");
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
	log_debug("assignment %s: %s", as->work.fence.assignment, why);
	if (as->phase == AS_EXECUTING) {
		peer_send(
		    as->b->executor, MSG_CANCEL, as->request_id, -1, NULL);
		timer_set(as->cancel_timer, CANCEL_LIMIT);
	}
}

void
assignment_lost(struct assignment *as, const char *why)
{
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
	if (as->phase == AS_WAITING) {
		roots_leave(as->b->roots, &as->turn);
		reject_unexecuted(as, FAIL_NONE, "");
	} else if (as->phase == AS_DRAINING) {
		cancellation_stop(&as->cancellation);
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

static void
on_cancelled(void *arg)
{
	abort_work(arg, "assignment was cancelled; aborted", 1);
}

static void
dispatch(struct assignment *as)
{
	struct buf m;

	as->phase = AS_EXECUTING;
	as->request_id = bridge_id(as->b);
	buf_init(&m);
	request_build(&m, &as->work.tr.q);
	peer_send(as->b->executor, MSG_REQUEST, as->request_id, -1, &m);
	buf_wipe(&m);
	/*
	 * Aborted while the marker was armed: the executor answers in any
	 * case, and only its word lets the monitor clear the marker.
	 */
	if (as->aborted != NULL) {
		peer_send(
		    as->b->executor, MSG_CANCEL, as->request_id, -1, NULL);
		timer_set(as->cancel_timer, CANCEL_LIMIT);
	}
}

static void
run(struct assignment *as)
{
	struct bridge *b = as->b;
	const char *fenced;
	struct buf m;

	keep_known(as);
	if (as->work.has_root &&
	    (fenced = roots_fenced(b->roots, as->work.tr.q.root)) != NULL) {
		quarantine(as, fenced);
		return;
	}
	if (as->work.refusal == NULL)
		as->work.refusal = request_admit(&as->work.tr,
		    registration_offer(b->registration), b->config.workspaces,
		    b->config.nworkspaces);
	if (as->work.refusal != NULL) {
		settle_rejected(as, EC_NONE, as->work.refusal, as->deadline);
		return;
	}
	as->cancel_timer = evtimer_new(b->base, on_cancel_limit, as);
	if (as->cancel_timer == NULL)
		fatalx("out of memory");
	timer_set(as->deadline_timer, as->deadline - time_mono_ms());
	as->cancellation = cancellation_start(
	    b, as->work.fence.assignment, on_cancelled, as);
	log_debug("assignment %s: %s in workspace %s",
	    as->work.fence.assignment,
	    operation_name((enum operation)as->work.tr.q.operation),
	    as->work.tr.workspace);
	if (!mutation(as)) {
		dispatch(as);
		return;
	}
	as->phase = AS_ARMING;
	as->arm_id = bridge_id(b);
	buf_init(&m);
	assignment_ref_build(&m, as->work.tr.q.root, as->work.fence.assignment);
	peer_send(b->monitor, MSG_ARM, as->arm_id, -1, &m);
	buf_free(&m);
}

/* ---- settlement ---- */

/*
 * With a slot the root stays fenced at the server until there is a result
 * (code-api-server 15.3): if that of a read was not accepted, for example
 * since it is too late, a rejection may be.
 */
static void
not_settled(struct assignment *as, const struct failure *f)
{
	char why[FAILURE_TEXT + 64];

	xsnprintf(why, sizeof(why), "not settled: %s", f->text);
	if (as->armed && bridge_stopping(as->b) && !has_slot(as) &&
	    !as->fulfilled) {
		lanes_unclean(as->b, why);
		finish(as, FAIL_RETRY, f->text); /* marker stays */
	} else if (as->armed)
		quarantine(as, why);
	else if (has_slot(as) && as->fulfilled && f->class != FAIL_TERMINAL) {
		log_debug("assignment %s: %s", as->work.fence.assignment, why);
		as->fulfilled = 0;
		settle_rejected(as, EC_NONE,
		    "the result was not accepted, or too late",
		    time_mono_ms() + REJECTION_GRACE);
	} else
		finish(as, f->class, f->text);
}

static void
on_settled(enum outcome outcome, const struct failure *f, void *arg)
{
	struct assignment *as = arg;
	struct buf m;

	as->settlement = NULL;
	if (outcome != API_OK) {
		not_settled(as, f);
		return;
	}
	as->owed = OWED_NOTHING;
	if (!as->armed) {
		accepted(as, FAIL_NONE, "");
		return;
	}
	as->phase = AS_CLEARING;
	as->clear_id = bridge_id(as->b);
	buf_init(&m);
	assignment_ref_build(&m, as->work.tr.q.root, as->work.fence.assignment);
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
	    as->b, &as->work.fence, body, deadline, on_settled, as);
}

static void
settle_rejected(struct assignment *as, enum error_code code, const char *text,
    int64_t deadline)
{
	struct buf body;

	buf_init(&body);
	settlement_rejected(&body, as->b, &as->work.fence, code, text);
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
	settlement_fulfilled(&body, as->b, &as->work.fence,
	    as->work.tr.workspace, &as->work.tr.q, &as->result,
	    after_path_active(as));
	result_free(&as->result);
	buf_free(&as->answer.data);
	settle(as, &body, as->deadline);
}

/* Rows 1 and 2 of protocol 9.4. */
static void
conclude_read(struct assignment *as, const char *invalid)
{
	int64_t deadline = as->deadline;

	if (has_slot(as))
		deadline += REJECTION_GRACE;
	if (bridge_stopping(as->b) && !has_slot(as))
		finish(as, FAIL_RETRY, "the worker stops");
	else if (as->has_error)
		settle_rejected(as, (enum error_code)as->error.code,
		    as->error.text, deadline);
	else if (as->aborted != NULL)
		settle_rejected(as, EC_NONE, as->aborted, deadline);
	else if (invalid != NULL)
		settle_rejected(as, EC_NONE,
		    "the worker's executor gave an invalid result", deadline);
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
	else if (as->work.tr.q.operation == OP_EXECUTE_COMMAND)
		settle_rejected(
		    as, EC_EXECUTION_ABORTED, as->aborted, long_deadline);
	else
		quarantine(as, "it was completed although it was aborted");
}

static void
conclude(void *arg)
{
	struct assignment *as = arg;
	const char *invalid = NULL;

	(void)evtimer_del(as->deadline_timer);
	if (time_mono_ms() >= as->deadline)
		abort_work(as, "assignment expired", 1);
	if (as->has_result) {
		invalid = result_check(
		    &as->work.tr.q, &as->result, after_path_active(as));
		if (invalid != NULL)
			log_warnx("executor: invalid result of %s: %s",
			    operation_name(
				(enum operation)as->work.tr.q.operation),
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
	as->phase = AS_DRAINING;
	(void)evtimer_del(as->cancel_timer);
	if (cancellation_drain(as->cancellation, conclude))
		return;
	cancellation_stop(&as->cancellation);
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
	case AS_WAITING:
		roots_leave(as->b->roots, &as->turn);
		reject_unexecuted(as, FAIL_RETRY, "the worker stops");
		break;
	case AS_RENEWING:
		/* A root with an open slot would stay fenced at the server. */
		waiter_cancel(&as->renew);
		if (has_slot(as))
			reject_unexecuted(as, FAIL_RETRY, "the worker stops");
		else
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
			(as->armed || has_slot(as) || as->phase == AS_REJECTING
				? STOP_LIMIT
				: STOP_READ_LIMIT));
		break;
	case AS_CLEARING:
		break;
	case AS_REPORTING:
		receipt_cap(as->receipt, now + STOP_RECEIPT_LIMIT);
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
		accepted(as, FAIL_NONE, "");
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
