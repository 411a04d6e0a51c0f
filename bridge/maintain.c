#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "api.h"
#include "credential.h"
#include "json.h"
#include "log.h"
#include "maintain.h"
#include "registration.h"
#include "retry.h"
#include "timer.h"
#include "times.h"

#define REACH_LIMIT 15000
#define RESET_LIMIT 10000
#define BUSY_LIMIT  120000 /* the lock of lost work can live that long */

struct reset {
	struct bridge *b;
	struct event *timer;
	unsigned int attempt;
	int64_t deadline; /* monotonic ms */
	int noted;
};

static void turn(struct reset *);

/* Tries again after a pause, or ends. */
static void
again(struct reset *r, const char *text)
{
	char line[2 * FAILURE_TEXT];
	int64_t ms, left;

	left = r->deadline - time_mono_ms();
	if (left <= 0)
		bridge_end(r->b, END_TRYAGAIN, text);
	if (!r->noted) {
		r->noted = 1;
		xsnprintf(line, sizeof(line),
		    "%s; trying again for up to %d seconds", text,
		    BUSY_LIMIT / 1000);
		bridge_report(r->b, BS_RECONNECTING, line);
	}
	ms = retry_delay(r->attempt++);
	if (ms > left)
		ms = left;
	timer_set(r->timer, ms);
}

static void
on_reset(const struct reply *rp, void *arg)
{
	struct reset *r = arg;

	if (rp->outcome == API_OK)
		bridge_end(r->b, END_CLEAN, NULL);
	if (rp->status == 503)
		again(r, rp->text);
	else
		bridge_end(r->b, END_GENERAL, rp->text);
}

static void
on_registered(const struct failure *f, void *arg)
{
	struct reset *r = arg;
	struct jwriter w;
	struct buf body;
	char *target;

	if (f->class == FAIL_RETRY) {
		again(r, f->text);
		return;
	}
	if (f->class != FAIL_NONE)
		bridge_end(r->b, END_GENERAL, f->text);
	buf_init(&body);
	jw_init(&w, &body);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_member_str(&w, "incarnationId", r->b->config.incarnation);
	jw_member_str(&w, "runtimeSessionId", r->b->config.session);
	jw_member_bool(&w, "confirmDiscarded", 1);
	jw_object_end(&w);
	target = api_worker_target(r->b, "workspaces/reset");
	(void)api_call(
	    r->b, "reset", target, &body, RESET_LIMIT, 0, on_reset, r);
	free(target);
}

static void
on_refreshed(const struct failure *f, void *arg)
{
	struct reset *r = arg;

	if (f->class == FAIL_NONE)
		turn(r);
	else if (f->class == FAIL_RETRY)
		again(r, f->text);
	else
		bridge_end(r->b, END_GENERAL, f->text);
}

static void
turn(struct reset *r)
{
	struct bridge *b = r->b;

	if (credential_due(b->credentials))
		(void)credential_refresh(b->credentials, 0, on_refreshed, r);
	else
		(void)registration_join(b->registration, 0, on_registered, r);
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	turn(arg);
}

void
reset_start(struct bridge *b)
{
	struct reset *r;

	r = xcalloc(1, sizeof(*r));
	r->b = b;
	r->deadline = time_mono_ms() + BUSY_LIMIT;
	if ((r->timer = evtimer_new(b->base, on_timer, r)) == NULL)
		fatalx("out of memory");
	turn(r);
}

static void
on_reached(const struct reply *r, void *arg)
{
	struct bridge *b = arg;
	char text[2 * FAILURE_TEXT];

	if (r->status == 401 || r->status == 403)
		bridge_end(b, END_CLEAN, "answers");
	if (r->status == 0)
		xsnprintf(text, sizeof(text), "%s", r->text);
	else
		xsnprintf(text, sizeof(text),
		    "HTTP %d where a Code API asks for a credential: is the "
		    "URL right?",
		    r->status);
	bridge_end(b, END_GENERAL, text);
}

void
reach_start(struct bridge *b)
{
	struct jwriter w;
	struct buf body;
	char *target;

	buf_init(&body);
	jw_init(&w, &body);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_object_end(&w);
	target = api_worker_target(b, "credentials/refresh");
	(void)api_call(b, "connection", target, &body, REACH_LIMIT,
	    CALL_UNSIGNED, on_reached, b);
	free(target);
}
