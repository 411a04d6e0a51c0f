#include "config.h"

#include <stdlib.h>
#include <time.h>

#include <event2/event.h>

#include "clock.h"
#include "credential.h"
#include "http.h"
#include "lanes.h"
#include "log.h"
#include "times.h"

#define INTERVAL 5 /* seconds */

struct watch {
	struct bridge *b;
	struct event *timer;
	struct clocks last;
};

static void
read_clocks(struct clocks *c)
{
#ifdef CLOCK_BOOTTIME
	struct timespec ts;
#endif

	c->mono = time_mono_ms();
	c->wall = time_wall_ms();
	c->boot = c->mono;
#ifdef CLOCK_BOOTTIME
	if (clock_gettime(CLOCK_BOOTTIME, &ts) == 0)
		c->boot = (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
#endif
}

int
clock_compare(const struct clocks *was, const struct clocks *now,
    int64_t *slept, int64_t *step)
{
	int64_t boot = now->boot - was->boot;

	*slept = boot - (now->mono - was->mono);
	if (*slept < CLOCK_SLEPT_MIN)
		*slept = 0;
	*step = now->wall - was->wall - boot;
	if (llabs(*step) < CLOCK_STEP_MIN)
		*step = 0;
	return *slept != 0 || *step != 0;
}

static void
begin_anew(struct bridge *b, int connections)
{
	lanes_pause(b);
	if (connections)
		http_renew(
		    b->http, "the connection was given up after a suspend");
	lanes_resume(b);
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct watch *w = arg;
	struct clocks now;
	int64_t slept, step;
	int happened;

	(void)fd;
	(void)what;
	read_clocks(&now);
	happened = clock_compare(&w->last, &now, &slept, &step);
	w->last = now;
	if (!happened || w->b->state != PS_RUNNING)
		return;
	if (slept != 0)
		log_warnx("the machine was suspended for %lld s; connecting "
			  "anew",
		    (long long)(slept / 1000));
	if (step != 0)
		log_warnx("the clock was set %s by %lld s; registering anew",
		    step > 0 ? "forward" : "back", llabs(step) / 1000);
	credential_clock_set(w->b->credentials, step);
	begin_anew(w->b, slept != 0);
}

void
clock_watch(struct bridge *b)
{
	static const struct timeval interval = { INTERVAL, 0 };
	struct watch *w;

	w = xcalloc(1, sizeof(*w));
	w->b = b;
	read_clocks(&w->last);
	w->timer = event_new(b->base, -1, EV_PERSIST, on_timer, w);
	if (w->timer == NULL || event_add(w->timer, &interval) == -1)
		fatalx("out of memory");
}
