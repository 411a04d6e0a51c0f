#include "config.h"

#include <stdlib.h>

#include <event2/event.h>

#include "json.h"
#include "log.h"
#include "receipt.h"
#include "timer.h"
#include "times.h"

#define ATTEMPTS      3
#define ATTEMPT_LIMIT 10000
#define FIRST_LIMIT   2000 /* even when the deadline is over */
#define RETRY_STEP    100 /* ms, times the attempts made */

struct receipt {
	struct bridge *b;
	const struct fence *fence;
	enum receipt_kind kind;
	char *target;
	int64_t deadline;
	int attempts;
	struct call *call;
	struct event *timer;
	struct failure last;
	void (*done)(enum outcome, const struct failure *, void *);
	void *arg;
};

static const struct {
	const char *route;
	const char *text;
} kinds[] = {
	[RECEIPT_CLEANUP] = { "workspace-cleanup", "local cleanup done" },
	[RECEIPT_QUARANTINE] = { "quarantine",
	    "the workspace is quarantined on the worker" },
};

void
receipt_body(struct buf *body, const struct bridge *b, const struct fence *f,
    enum receipt_kind kind)
{
	struct jwriter w;

	jw_init(&w, body);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_member_str(&w, "incarnationId", b->config.incarnation);
	jw_member_int(&w, "generation", f->generation);
	jw_member_str(&w, "leaseToken", f->token);
	jw_member_str(&w, "status", "rejected");
	jw_member_str(&w, "error", kinds[kind].text);
	jw_object_end(&w);
}

static void
receipt_free(struct receipt *r)
{
	call_cancel(&r->call);
	event_free(r->timer);
	free(r->target);
	free(r);
}

static void
finish(struct receipt *r, enum outcome outcome)
{
	void (*done)(enum outcome, const struct failure *, void *) = r->done;
	struct failure f = r->last;
	void *arg = r->arg;

	receipt_free(r);
	done(outcome, &f, arg);
}

static void
on_attempt(const struct reply *rp, void *arg)
{
	struct receipt *r = arg;
	int64_t pause = RETRY_STEP * r->attempts;

	r->call = NULL;
	if (rp->outcome == API_OK) {
		failure_set(&r->last, FAIL_NONE, " ");
		finish(r, API_OK);
		return;
	}
	failure_set(&r->last, rp->terminal ? FAIL_TERMINAL : FAIL_RETRY, "%s",
	    rp->text);
	if (rp->outcome == API_DEFINITE || r->attempts == ATTEMPTS ||
	    r->deadline <= time_mono_ms() + pause) {
		finish(r, rp->outcome);
		return;
	}
	timer_set(r->timer, pause);
}

static void
attempt(evutil_socket_t fd, short what, void *arg)
{
	struct receipt *r = arg;
	int64_t limit = r->deadline - time_mono_ms();
	struct buf body;

	(void)fd;
	(void)what;
	if (r->attempts == 0 && limit < FIRST_LIMIT)
		limit = FIRST_LIMIT;
	if (limit > ATTEMPT_LIMIT)
		limit = ATTEMPT_LIMIT;
	r->attempts++;
	buf_init(&body);
	receipt_body(&body, r->b, r->fence, r->kind);
	r->call = api_call(r->b, kinds[r->kind].route, r->target, &body, limit,
	    0, on_attempt, r);
}

struct receipt *
receipt_send(struct bridge *b, const struct fence *f, enum receipt_kind kind,
    int64_t deadline,
    void (*done)(enum outcome, const struct failure *, void *), void *arg)
{
	struct receipt *r;

	r = xcalloc(1, sizeof(*r));
	r->b = b;
	r->fence = f;
	r->kind = kind;
	r->target = api_assignment_target(b, f->assignment, kinds[kind].route);
	r->deadline = deadline;
	r->done = done;
	r->arg = arg;
	if ((r->timer = evtimer_new(b->base, attempt, r)) == NULL)
		fatalx("out of memory");
	attempt(-1, 0, r);
	return r;
}

void
receipt_cap(struct receipt *r, int64_t deadline)
{
	if (r->deadline > deadline)
		r->deadline = deadline;
}

void
receipt_cancel(struct receipt **r)
{
	if (*r != NULL)
		receipt_free(*r);
	*r = NULL;
}
