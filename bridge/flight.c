#include "config.h"

#include <stdlib.h>

#include <event2/event.h>

#include "flight.h"
#include "log.h"

struct waiter {
	TAILQ_ENTRY(waiter) entry;
	struct flight *flight;
	unsigned int round;
	struct event *timer;
	const char *late;
	void (*done)(const struct failure *, void *);
	void *arg;
};

void
flight_init(struct flight *f, struct event_base *base, void (*abandon)(void *),
    void *arg)
{
	f->base = base;
	f->round = 0;
	f->abandon = abandon;
	f->arg = arg;
	TAILQ_INIT(&f->waiters);
}

int
flight_empty(const struct flight *f)
{
	return TAILQ_EMPTY(&f->waiters);
}

static void
waiter_free(struct waiter *w)
{
	TAILQ_REMOVE(&w->flight->waiters, w, entry);
	if (w->timer != NULL)
		event_free(w->timer);
	free(w);
}

static void
on_late(evutil_socket_t fd, short what, void *arg)
{
	struct waiter *w = arg;
	struct flight *fl = w->flight;
	void (*done)(const struct failure *, void *) = w->done;
	void *done_arg = w->arg;
	struct failure f;

	(void)fd;
	(void)what;
	failure_set(&f, FAIL_RETRY, "%s", w->late);
	waiter_free(w);
	if (flight_empty(fl))
		fl->abandon(fl->arg);
	done(&f, done_arg);
}

struct waiter *
flight_join(struct flight *f, int64_t limit, const char *late,
    void (*done)(const struct failure *, void *), void *arg)
{
	struct timeval tv;
	struct waiter *w;

	w = xcalloc(1, sizeof(*w));
	w->flight = f;
	w->round = f->round;
	w->late = late;
	w->done = done;
	w->arg = arg;
	TAILQ_INSERT_TAIL(&f->waiters, w, entry);
	if (limit > 0) {
		if ((w->timer = evtimer_new(f->base, on_late, w)) == NULL)
			fatalx("out of memory");
		tv.tv_sec = (time_t)(limit / 1000);
		tv.tv_usec = (suseconds_t)(limit % 1000 * 1000);
		(void)evtimer_add(w->timer, &tv);
	}
	return w;
}

void
waiter_cancel(struct waiter **wp)
{
	struct waiter *w = *wp;
	struct flight *f;

	*wp = NULL;
	if (w == NULL)
		return;
	f = w->flight;
	waiter_free(w);
	if (flight_empty(f))
		f->abandon(f->arg);
}

void
flight_land(struct flight *f, const struct failure *result)
{
	void (*done)(const struct failure *, void *);
	struct waiter *w;
	void *arg;

	/* Who joins from a callback waits for the next round. */
	f->round++;
	while ((w = TAILQ_FIRST(&f->waiters)) != NULL && w->round != f->round) {
		done = w->done;
		arg = w->arg;
		waiter_free(w);
		done(result, arg);
	}
}
