#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "http.h"
#include "lease.h"
#include "log.h"
#include "slots.h"

#define WAIT_DEFAULT 10000 /* ms */
#define WAIT_MAX     600000

enum wait_event { WAIT_REGISTERED, WAIT_READY, WAIT_LEASING, WAIT_IDLE };

/* A request that is answered when something is so. */
struct wait {
	TAILQ_ENTRY(wait) entry;
	struct server *srv;
	struct req *req;
	struct event *timer;
	enum wait_event event;
	char worker[WORKER_ID_SIZE];
	long long slot; /* leasing: that lane only; -2: any */
	long long count; /* leasing: so many polls */
};

static long long
polls_waiting(const struct worker *w, long long slot)
{
	const struct poll *p;
	long long n;

	n = 0;
	TAILQ_FOREACH (p, &w->polls, entry) {
		if ((slot == -2 || slot == p->lane) && !req_is_gone(p->req) &&
		    worker_is_current(w, p->incarnation))
			n++;
	}
	return n;
}

static int
holds(const struct wait *wait)
{
	const struct worker *w;

	if ((w = worker_find(wait->srv, wait->worker, 0)) == NULL)
		return 0;
	switch (wait->event) {
	case WAIT_REGISTERED:
		return worker_current(w) != NULL;
	case WAIT_READY:
		return worker_ready(w);
	case WAIT_LEASING:
		return polls_waiting(w, wait->slot) >= wait->count;
	case WAIT_IDLE:
		return worker_current(w) != NULL && TAILQ_EMPTY(&w->active) &&
		    TAILQ_EMPTY(&w->dispatches) && !lock_held(w);
	}
	return 0;
}

/* Frees a wait and hands out its request. */
static struct req *
wait_free(struct wait *wait)
{
	struct req *r;

	r = wait->req;
	TAILQ_REMOVE(&wait->srv->waits, wait, entry);
	event_free(wait->timer);
	free(wait);
	return r;
}

static void
accept_wait(struct req *r)
{
	struct buf b;

	buf_init(&b);
	buf_adds(&b, "{\"ok\":true}");
	req_reply(r, 200, &b);
}

void
waits_check(struct server *srv)
{
	struct wait *wait, *next;

	TAILQ_FOREACH_SAFE (wait, &srv->waits, entry, next) {
		if (holds(wait))
			accept_wait(wait_free(wait));
	}
}

void
waits_forget(struct server *srv)
{
	struct wait *wait;

	while ((wait = TAILQ_FIRST(&srv->waits)) != NULL)
		wait_free(wait);
}

static void
timeout_cb(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	req_error(wait_free(arg), 408, NULL, "it did not happen in time");
}

static void
gone_cb(struct req *r, void *arg)
{
	(void)r;
	wait_free(arg);
}

static int
parse_event(const char *name, enum wait_event *event)
{
	static const char *const names[] = { "registered", "ready", "leasing",
		"idle" };
	size_t i;

	for (i = 0; name != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i], name) == 0) {
			*event = (enum wait_event)i;
			return 0;
		}
	}
	return -1;
}

void
control_wait(struct server *srv, struct req *r)
{
	struct timeval tv;
	struct wait *wait;
	enum wait_event event;
	const char *id;
	long long ms;

	id = json_text(json_get(r->body, "workerId"));
	if (id == NULL)
		id = srv->set.worker;
	if (parse_event(json_text(json_get(r->body, "event")), &event) == -1 ||
	    !name_is_id(id)) {
		req_error(r, 400, NULL, "event or workerId is not valid");
		return;
	}
	if (!json_int(json_get(r->body, "timeoutMs"), 0, WAIT_MAX, &ms))
		ms = WAIT_DEFAULT;
	wait = xcalloc(1, sizeof(*wait));
	wait->srv = srv;
	wait->req = r;
	wait->event = event;
	xsnprintf(wait->worker, sizeof(wait->worker), "%s", id);
	if (!json_int(
		json_get(r->body, "slot"), -1, SLOTS_MAX - 1, &wait->slot))
		wait->slot = -2;
	if (!json_int(json_get(r->body, "count"), 1, 64, &wait->count))
		wait->count = 1;
	if ((wait->timer = evtimer_new(srv->base, timeout_cb, wait)) == NULL)
		fatalx("evtimer_new");
	tv.tv_sec = (time_t)(ms / 1000);
	tv.tv_usec = (suseconds_t)(ms % 1000 * 1000);
	event_add(wait->timer, &tv);
	TAILQ_INSERT_TAIL(&srv->waits, wait, entry);
	req_on_gone(r, gone_cb, wait);
	waits_check(srv);
}
