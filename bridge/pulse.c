#include "config.h"

#include <stdlib.h>

#include <event2/event.h>

#include "credential.h"
#include "flight.h"
#include "log.h"
#include "pulse.h"
#include "registration.h"
#include "timer.h"
#include "times.h"

#define RETRY_FIRST 100
#define RETRY_MAX   1000

struct pulse {
	struct bridge *b;
	struct event *beat_timer;
	struct waiter *beat;
	unsigned int beat_failures;
	struct event *renew_timer;
	struct waiter *renew;
	unsigned int renew_failures;
	void (*lost)(const char *, void *);
	void *arg;
};

static int64_t
retry_in(unsigned int failures)
{
	int64_t ms = RETRY_MAX;

	if (failures < 4)
		ms = (int64_t)RETRY_FIRST << failures;
	return ms > RETRY_MAX ? RETRY_MAX : ms;
}

static void
schedule_renewal(struct pulse *p)
{
	int64_t due = credential_due_in(p->b->credentials);

	if (due >= 0)
		timer_set(p->renew_timer, due);
}

static void
on_beat(const struct failure *f, void *arg)
{
	struct pulse *p = arg;

	p->beat = NULL;
	if (f->class == FAIL_NONE) {
		p->beat_failures = 0;
		bridge_report(p->b, BS_REGISTERED, NULL);
		timer_set(p->beat_timer,
		    registration_beat_at(p->b->registration) - time_mono_ms());
		/* It measured the server's clock anew (10.4). */
		if (p->renew == NULL && p->renew_failures == 0)
			schedule_renewal(p);
		return;
	}
	if (f->class == FAIL_TERMINAL)
		bridge_end(p->b, END_GENERAL, f->text);
	bridge_report(p->b, BS_RECONNECTING, f->text);
	timer_set(p->beat_timer, retry_in(p->beat_failures++));
	if (registration_ends_at(p->b->registration) <= time_mono_ms())
		p->lost("the registration ran out", p->arg);
}

/*
 * One heartbeat may take most of the life that is left, since a slow answer
 * is as good as a quick one, but not all of it: if nothing comes there is
 * time for another on a new connection.
 */
static void
beat(evutil_socket_t fd, short what, void *arg)
{
	struct pulse *p = arg;
	struct registration *r = p->b->registration;
	int64_t left = registration_ends_at(r) - time_mono_ms();

	(void)fd;
	(void)what;
	if (p->beat == NULL)
		p->beat = registration_join(
		    r, left > 0 ? left - left / 4 : 0, on_beat, p);
}

static void
on_renewed(const struct failure *f, void *arg)
{
	struct pulse *p = arg;
	int64_t ms, life;

	p->renew = NULL;
	if (f->class == FAIL_NONE) {
		p->renew_failures = 0;
		schedule_renewal(p);
		return;
	}
	if (p->renew_failures == 0)
		log_warnx("%s", f->text);
	life = credential_life(p->b->credentials);
	ms = retry_in(p->renew_failures++);
	if (life > 0 && ms > life / 2)
		ms = life / 2 + 1;
	timer_set(p->renew_timer, ms);
	/* Only these two statuses say that repeating is no use (3.3, 14). */
	if (f->status == 401 || f->status == 403 || life <= 0)
		p->lost("the credential cannot be renewed", p->arg);
}

static void
renew(evutil_socket_t fd, short what, void *arg)
{
	struct pulse *p = arg;

	(void)fd;
	(void)what;
	if (p->renew != NULL)
		return;
	if (credential_due(p->b->credentials))
		p->renew = credential_refresh(
		    p->b->credentials, 0, on_renewed, p);
	else
		schedule_renewal(p);
}

struct pulse *
pulse_start(struct bridge *b, void (*lost)(const char *, void *), void *arg)
{
	struct pulse *p;

	p = xcalloc(1, sizeof(*p));
	p->b = b;
	p->lost = lost;
	p->arg = arg;
	p->beat_timer = evtimer_new(b->base, beat, p);
	p->renew_timer = evtimer_new(b->base, renew, p);
	if (p->beat_timer == NULL || p->renew_timer == NULL)
		fatalx("out of memory");
	timer_set(p->beat_timer,
	    registration_beat_at(b->registration) - time_mono_ms());
	schedule_renewal(p);
	return p;
}

void
pulse_stop(struct pulse **pp)
{
	struct pulse *p = *pp;

	*pp = NULL;
	if (p == NULL)
		return;
	waiter_cancel(&p->beat);
	waiter_cancel(&p->renew);
	event_free(p->beat_timer);
	event_free(p->renew_timer);
	free(p);
}

void
pulse_beat(struct pulse *p)
{
	if (p->beat == NULL)
		timer_set(p->beat_timer, 0);
	if (p->renew == NULL)
		schedule_renewal(p);
}
