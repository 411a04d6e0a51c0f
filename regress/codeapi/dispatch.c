#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "assignment.h"
#include "caller.h"
#include "capabilities.h"
#include "control.h"
#include "dispatch.h"
#include "fence.h"
#include "http.h"
#include "lease.h"
#include "log.h"
#include "slots.h"
#include "validate.h"

static void
dispatch_free(struct dispatch *d)
{
	TAILQ_REMOVE(&d->worker->dispatches, d, entry);
	if (d->assignment != NULL)
		d->assignment->dispatch = NULL;
	if (d->timer != NULL)
		event_free(d->timer);
	json_free(d->request);
	free(d->session);
	free(d->tenant);
	free(d);
}

/* Frees the dispatch and hands out the request that is to be answered. */
static struct req *
release(struct dispatch *d)
{
	struct req *r;

	r = d->req;
	lock_release(d->worker, d->assignment == NULL ? d->number : 0);
	dispatch_free(d);
	return r;
}

/* Ends with a store code; what is running has been closed before. */
static void
fail(struct dispatch *d, const char *code)
{
	caller_fail(release(d), code);
}

/* Revokes the right to fulfil, cleans up and detaches the assignment. */
static void
close_assignment(struct dispatch *d)
{
	struct assignment *a = d->assignment;

	if (a == NULL)
		return;
	a->open = 0;
	a->dispatch = NULL;
	d->assignment = NULL;
	assignment_cleanup(a);
}

/*
 * As close_assignment, but the dispatch keeps no claim on the lock: the
 * assignment's clean-up has decided about that.
 */
static struct req *
finish(struct dispatch *d)
{
	close_assignment(d);
	d->number = 0;
	return release(d);
}

static void
timer_cb(evutil_socket_t fd, short what, void *arg)
{
	struct dispatch *d = arg;
	struct worker *w = d->worker;

	(void)fd;
	(void)what;
	caller_fail(finish(d), "ASSIGNMENT_EXPIRED");
	dispatch_pump(w);
	waits_check(w->srv);
}

static void
gone_cb(struct req *r, void *arg)
{
	struct dispatch *d = arg;
	struct worker *w = d->worker;

	(void)r;
	finish(d);
	dispatch_pump(w);
	waits_check(w->srv);
}

static void
arm(struct dispatch *d, int64_t deadline)
{
	struct timeval tv;
	int64_t ms;

	ms = deadline - server_now(d->worker->srv);
	if (ms < 0)
		ms = 0;
	tv.tv_sec = ms / 1000;
	tv.tv_usec = (ms % 1000) * 1000;
	if (d->timer == NULL &&
	    (d->timer = evtimer_new(d->worker->srv->base, timer_cb, d)) == NULL)
		fatalx("evtimer_new");
	event_add(d->timer, &tv);
}

/* Steps 2 to 5; the code of the refusal or NULL. */
static const char *
dispatchable(const struct worker *w, const struct dispatch *d)
{
	const char *tenant;

	if (!worker_ready(w))
		return "WORKER_OFFLINE";
	if (w->slots > w->srv->set.ceiling)
		return "WORKER_MISMATCH";
	tenant = json_text(json_get(w->binding, "tenantId"));
	if (tenant == NULL
		? d->binding_required
		: d->tenant == NULL || strcmp(tenant, d->tenant) != 0)
		return "WORKER_UNAUTHORIZED";
	if (d->session != NULL &&
	    !json_true(json_get(w->capabilities, "statefulWorkspace")))
		return "WORKER_MISMATCH";
	return NULL;
}

/* Steps 10, 11 and 14, the lock or slot being held; a code or NULL. */
static const char *
admissible(const struct worker *w, const struct dispatch *d, const char *fence)
{
	if (dispatchable(w, d) != NULL ||
	    !worker_is_current(w, d->incarnation) ||
	    strcmp(w->registered_identity, d->identity) != 0)
		return "WORKER_OFFLINE";
	if (!d->sandbox && !capabilities_advertise(w->capabilities, d->request))
		return "WORKER_MISMATCH";
	if (fence != NULL && fence_value(w, fence) != NULL)
		return "WORKSPACE_QUARANTINED";
	return NULL;
}

/* The fence of the work, or NULL (15.1); the caller frees it. */
static char *
fence_name(const struct dispatch *d)
{
	if (d->sandbox)
		return d->session == NULL ? NULL : xstrdup(d->session);
	if (d->slots > 1)
		return xasprintf(FENCE_ROOT_PREFIX "%s", d->root);
	return NULL;
}

/* Steps 10 to 14; the dispatch holds the lock or the slot of the lane. */
static void
assign(struct dispatch *d, int lane)
{
	struct worker *w = d->worker;
	struct assignment *a;
	const char *code;
	char *fence;

	fence = fence_name(d);
	if ((code = admissible(w, d, fence)) != NULL) {
		free(fence);
		fail(d, code);
		return;
	}
	a = assignment_new(w, lane, d->request,
	    (d->sandbox ? d->queue_deadline : server_now(w->srv)) + d->budget);
	d->request = NULL;
	d->assignment = a;
	a->dispatch = d;
	a->owner = d->number;
	a->sandbox = d->sandbox;
	a->session = d->session == NULL ? NULL : xstrdup(d->session);
	a->record_expires = record_life(w->srv, d->queue_deadline + d->budget);
	a->fence = fence;
	if (fence != NULL)
		fence_set(w, fence, a->id);
	if (lane != LANE_LEGACY) {
		a->receipt = 1;
		a->receipt_expires = a->record_expires;
		a->epoch = fence_epoch(w, fence);
	}
	arm(d, a->expires);
	lease_offer(w);
	waits_check(w->srv);
}

/* Step 9 for one waiting dispatch; 1 if it was admitted or has failed. */
static int
try_admit(struct dispatch *d, int *blocked)
{
	struct worker *w = d->worker;
	int64_t until;
	int slot;

	until = record_life(w->srv, d->queue_deadline + d->budget);
	if (d->slots < 2) {
		*blocked = 1;
		if (!lock_take(w, d->number, until))
			return 0;
		assign(d, LANE_LEGACY);
		return 1;
	}
	if (!worker_is_current(w, d->incarnation) || w->slots != d->slots) {
		caller_fail(release(d), NULL);
		return 1;
	}
	if (slot_root_taken(w, d->root))
		return 0;
	*blocked = 1;
	if ((slot = slot_reserve(w, d->number, d->root, until)) == -1)
		return 0;
	assign(d, slot);
	return 1;
}

/* One round over the queue; 1 if somebody left the waiting ones. */
static int
admit_one(struct worker *w)
{
	struct dispatch *d;
	int64_t now;
	int blocked, seen;

	now = server_now(w->srv);
	blocked = seen = 0;
	TAILQ_FOREACH (d, &w->dispatches, entry) {
		if (d->sandbox || d->queue_deadline <= now)
			continue;
		if (++seen > ADMISSIONS_MAX)
			break;
		if (d->assignment != NULL) {
			if (d->slots < 2)
				return 0;
			continue;
		}
		if (try_admit(d, &blocked))
			return 1;
		if (blocked)
			return 0;
	}
	return 0;
}

void
dispatch_pump(struct worker *w)
{
	if (w->pumping) {
		w->pumping = 2;
		return;
	}
	do {
		w->pumping = 1;
		while (admit_one(w))
			continue;
	} while (w->pumping == 2);
	w->pumping = 0;
}

/* Entries of the admission queue (13.2). */
static int
admissions(const struct worker *w)
{
	const struct dispatch *d;
	int64_t now;
	int n;

	now = server_now(w->srv);
	n = 0;
	TAILQ_FOREACH (d, &w->dispatches, entry)
		n += !d->sandbox && d->queue_deadline > now;
	return n;
}

/* Chapter 17.4: the time a workspace request may run. */
static int64_t
budget_of(const struct server *srv, const struct json *request)
{
	const char *op;
	long long ms;

	op = json_text(json_get(request, "operation"));
	if (op != NULL && strcmp(op, "execute_command") == 0 &&
	    json_int(json_get(request, "timeoutMs"), 1, 300000, &ms))
		return ms + srv->set.command_grace;
	return srv->set.job_timeout < srv->set.tool_budget
	    ? srv->set.job_timeout
	    : srv->set.tool_budget;
}

static struct dispatch *
dispatch_new(struct server *srv, struct req *r, struct worker *w,
    const struct work *work)
{
	struct dispatch *d;
	const char *root;

	d = xcalloc(1, sizeof(*d));
	d->worker = w;
	d->req = r;
	d->number = ++srv->dispatch_number;
	d->request = json_copy(work->request);
	d->sandbox = work->sandbox;
	d->fail_finaliser = work->fail_finaliser;
	d->binding_required = work->binding_required;
	d->session = work->session == NULL ? NULL : xstrdup(work->session);
	d->tenant = work->tenant == NULL ? NULL : xstrdup(work->tenant);
	d->slots = w->slots;
	root = json_text(json_get(work->request, "workspaceId"));
	xsnprintf(d->root, sizeof(d->root), "%s", root == NULL ? "" : root);
	memcpy(d->incarnation, w->incarnation, sizeof(d->incarnation));
	memcpy(d->identity, w->registered_identity, sizeof(d->identity));
	d->queue_deadline = server_now(srv);
	if (d->sandbox)
		d->budget = work->job_timeout > 0 ? work->job_timeout
						  : srv->set.job_timeout;
	else {
		d->queue_deadline += srv->set.queue_time;
		d->budget = budget_of(srv, work->request);
	}
	TAILQ_INSERT_TAIL(&w->dispatches, d, entry);
	return d;
}

/* Steps 7 and 9 of sandbox work, which does not wait. */
static void
start_sandbox(struct dispatch *d)
{
	struct worker *w = d->worker;

	if (d->session != NULL && fence_value(w, d->session) != NULL) {
		fail(d, "WORKSPACE_QUARANTINED");
		return;
	}
	if (!lock_take(w, d->number,
		record_life(w->srv, d->queue_deadline + d->budget))) {
		fail(d, "WORKER_BUSY");
		return;
	}
	assign(d, LANE_LEGACY);
}

void
dispatch_start(struct server *srv, struct req *r, struct worker *w,
    const struct work *work)
{
	struct dispatch *d;
	const char *code;
	int full;

	full = admissions(w) >= ADMISSIONS_MAX;
	d = dispatch_new(srv, r, w, work);
	req_on_gone(r, gone_cb, d);
	if ((code = dispatchable(w, d)) != NULL)
		fail(d, code);
	else if (d->sandbox)
		start_sandbox(d);
	else if (!capabilities_advertise(w->capabilities, d->request))
		fail(d, "WORKER_MISMATCH");
	else if (full)
		fail(d, "WORKER_QUEUE_FULL");
	else {
		arm(d, d->queue_deadline);
		dispatch_pump(w);
	}
}

/* The finaliser of sandbox work; 0 if it was told to fail (15.6). */
static int
finalise_sandbox(struct dispatch *d)
{
	struct assignment *a = d->assignment;
	struct worker *w = d->worker;

	if (!d->fail_finaliser) {
		if (a->fence != NULL && fence_is(w, a->fence, a->id))
			fence_clear(w, a->fence);
		return 1;
	}
	if (a->fence != NULL) {
		fence_set(w, a->fence, "1");
		worker_incarnation(w, a->incarnation, 1)->quarantined = 1;
		if (worker_is_current(w, a->incarnation))
			worker_unregister(w);
	}
	return 0;
}

/* Step 16 of a fulfilled settlement; the code of its failure or NULL. */
static const char *
commit(struct dispatch *d, const struct json *result)
{
	struct assignment *a = d->assignment;
	struct worker *w = d->worker;
	int after_path;

	if (d->sandbox)
		return finalise_sandbox(d) ? NULL : "RESULT_INVALID";
	after_path = capabilities_have(
	    w->capabilities, "listFileFeatures", "after_path");
	if (!result_valid(a->request, result, after_path))
		return "RESULT_INVALID";
	if (a->lane == LANE_LEGACY)
		return NULL;
	if (!a->receipt || a->receipt_expires <= server_now(w->srv))
		return "WORKSPACE_QUARANTINED";
	a->committed = 1;
	if (a->cleaned && fence_is(w, a->fence, a->id))
		fence_clear(w, a->fence);
	return NULL;
}

void
dispatch_settled(struct dispatch *d)
{
	struct json *settled;
	const char *status, *code;

	settled = json_copy(d->assignment->settled);
	status = json_text(json_get(settled, "status"));
	if (status != NULL && strcmp(status, "rejected") == 0)
		caller_rejected(finish(d), settled);
	else if ((code = commit(d, json_get(settled, "result"))) != NULL)
		caller_fail(finish(d), code);
	else
		caller_fulfilled(finish(d), json_get(settled, "result"));
	json_free(settled);
}

void
dispatch_sweep(struct worker *w)
{
	struct dispatch *d, *next;
	int64_t now, deadline;

	now = server_now(w->srv);
	TAILQ_FOREACH_SAFE (d, &w->dispatches, entry, next) {
		deadline = d->assignment != NULL ? d->assignment->expires
						 : d->queue_deadline;
		if (deadline <= now)
			caller_fail(finish(d), "ASSIGNMENT_EXPIRED");
	}
	dispatch_pump(w);
}

void
dispatch_forget(struct worker *w)
{
	struct dispatch *d;

	while ((d = TAILQ_FIRST(&w->dispatches)) != NULL)
		dispatch_free(d);
}
