#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "assignment.h"
#include "canon.h"
#include "control.h"
#include "http.h"
#include "lease.h"
#include "log.h"
#include "registration.h"

#define WAIT_DEFAULT 25000 /* ms */
#define WAIT_MAX     30000

static void
write_assignment(struct buf *b, const struct assignment *a)
{
	char until[ISO_TIME_SIZE];
	int64_t left;

	iso_time(until, a->expires);
	left = a->expires - server_now(a->worker->srv);
	w_open(b, "assignment", '{');
	w_int(b, "protocolVersion", 1);
	w_str(b, "assignmentId", a->id);
	w_str(b, "workerId", a->worker->id);
	w_str(b, "incarnationId", a->incarnation);
	w_int(b, "generation", (long long)a->generation);
	w_str(b, "leaseToken", a->token);
	if (a->lane != LANE_LEGACY)
		w_int(b, "workspaceLeaseSlot", a->lane);
	w_str(b, "expiresAt", until);
	if (a->session != NULL)
		w_str(b, "runtimeSessionId", a->session);
	if (!a->sandbox)
		w_str(b, "executionKind", "workspace_tool");
	w_json(b, "request", a->request);
	w_int(b, "remainingMs", left < 0 ? 0 : left);
	w_close(b, '}');
}

static void
answer(struct req *r, const struct assignment *a)
{
	struct buf b;

	reply_open(&b);
	w_int(&b, "serverElapsedMs", monotonic_ms() - r->started);
	if (a != NULL)
		write_assignment(&b, a);
	w_close(&b, '}');
	req_reply(r, 200, &b);
}

/* 1 if a request with that identity may be handed work (8.3). */
static int
identity_may_lease(const struct worker *w, const char *identity)
{
	const char *live;

	live = worker_identity(w);
	if (!w->srv->set.paired)
		return live == NULL;
	return live != NULL && strcmp(live, identity) == 0;
}

/* The claimed or first queued assignment of a lane, or NULL (8.4). */
static struct assignment *
look(struct worker *w, const char *identity, const char *incarnation, int lane)
{
	struct assignment *a, *next, *queued;
	int64_t now;

	queued = NULL;
	now = server_now(w->srv);
	TAILQ_FOREACH_SAFE (a, &w->active, active, next) {
		if (a->lane != lane || strcmp(a->incarnation, incarnation) != 0)
			continue;
		if (a->expires <= now || strcmp(a->identity, identity) != 0) {
			/*
			 * The dispatcher cleans up at this same moment; work
			 * that was never acknowledged may go at once.
			 */
			if (!a->acked)
				assignment_cleanup(a);
			continue;
		}
		if (a->claimed)
			return a;
		if (queued == NULL)
			queued = a;
	}
	return queued;
}

static void
poll_free(struct poll *p)
{
	TAILQ_REMOVE(&p->worker->polls, p, entry);
	event_free(p->timer);
	free(p);
}

/* Tries to answer at once; 1 if it did. */
static int
deliver(struct worker *w, struct req *r, const char *incarnation, int lane)
{
	struct assignment *a;

	if (!identity_may_lease(w, r->identity) ||
	    (a = look(w, r->identity, incarnation, lane)) == NULL)
		return 0;
	if (!worker_is_current(w, incarnation)) {
		req_error(r, 409, "WORKER_FENCED", "another incarnation runs");
		return 1;
	}
	a->claimed = 1;
	answer(r, a);
	return 1;
}

void
lease_offer(struct worker *w)
{
	char incarnation[INCARNATION_ID_SIZE];
	struct poll *p, *next;
	struct req *r;
	int lane;

	TAILQ_FOREACH_SAFE (p, &w->polls, entry, next) {
		if (req_is_gone(p->req))
			continue;
		if (!identity_may_lease(w, p->req->identity) ||
		    look(w, p->req->identity, p->incarnation, p->lane) == NULL)
			continue;
		r = p->req;
		lane = p->lane;
		memcpy(incarnation, p->incarnation, sizeof(incarnation));
		poll_free(p);
		deliver(w, r, incarnation, lane);
	}
}

void
lease_forget(struct worker *w)
{
	struct poll *p;

	while ((p = TAILQ_FIRST(&w->polls)) != NULL)
		poll_free(p);
}

static void
timeout_cb(evutil_socket_t fd, short what, void *arg)
{
	struct poll *p = arg;
	struct req *r = p->req;

	(void)fd;
	(void)what;
	poll_free(p);
	answer(r, NULL);
}

static void
gone_cb(struct req *r, void *arg)
{
	(void)r;
	poll_free(arg);
}

/* The time to wait, or -1 if the member is not valid (8.1). */
static int64_t
wait_time(const struct json *v)
{
	double ms;
	const char *s;
	char *end;

	if (v == NULL)
		return WAIT_DEFAULT;
	if (json_is(v, JSON_NUMBER))
		ms = v->u.number;
	else if ((s = json_text(v)) != NULL) {
		ms = strtod(s, &end);
		if (*end != '\0')
			return -1;
	} else
		return -1;
	if (isnan(ms) || ms < 0)
		return -1;
	return ms > WAIT_MAX ? WAIT_MAX : (int64_t)ms;
}

/* Chapter 8.2: 1 if the numbered lane exists for that incarnation. */
static int
lane_exists(const struct worker *w, const char *incarnation, long long lane)
{
	return lane < (long long)w->srv->set.ceiling && w->slots > 1 &&
	    lane < (long long)w->slots && worker_is_current(w, incarnation) &&
	    w->slots <= w->srv->set.ceiling;
}

static void
wait_for_work(struct worker *w, struct req *r, const char *incarnation,
    int lane, int64_t ms)
{
	struct timeval tv;
	struct poll *p;

	p = xcalloc(1, sizeof(*p));
	p->req = r;
	p->worker = w;
	p->lane = lane;
	xsnprintf(p->incarnation, sizeof(p->incarnation), "%s", incarnation);
	if ((p->timer = evtimer_new(w->srv->base, timeout_cb, p)) == NULL)
		fatalx("evtimer_new");
	tv.tv_sec = ms / 1000;
	tv.tv_usec = (ms % 1000) * 1000;
	event_add(p->timer, &tv);
	TAILQ_INSERT_TAIL(&w->polls, p, entry);
	req_on_gone(r, gone_cb, p);
	waits_check(w->srv);
}

void
lease_poll(struct server *srv, struct req *r)
{
	const struct json *slot;
	const char *incarnation;
	struct worker *w;
	long long lane;
	int64_t ms;

	incarnation = field_incarnation(r);
	slot = json_get(r->body, "workspaceLeaseSlot");
	ms = wait_time(json_get(r->body, "waitMs"));
	lane = LANE_LEGACY;
	if (!field_version(r) || incarnation == NULL || ms < 0 ||
	    !name_is_id(r->worker_id) ||
	    (slot != NULL && !json_int(slot, 0, SLOTS_MAX - 1, &lane))) {
		req_error(r, 400, NULL, "the lease request is not valid");
		return;
	}
	if (!worker_configured(srv, r->worker_id)) {
		req_error(r, 403, NULL, "the worker is not configured");
		return;
	}
	w = worker_find(srv, r->worker_id, 1);
	if (lane != LANE_LEGACY && !lane_exists(w, incarnation, lane)) {
		req_error(r, 409, "WORKER_MISMATCH", "no such slot");
		return;
	}
	if (deliver(w, r, incarnation, (int)lane))
		return;
	if (ms == 0)
		answer(r, NULL);
	else
		wait_for_work(w, r, incarnation, (int)lane, ms);
}
