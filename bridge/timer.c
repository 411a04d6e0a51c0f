#include "config.h"

#include <event2/event.h>

#include "log.h"
#include "timer.h"

void
timer_set(struct event *ev, int64_t ms)
{
	struct timeval tv;

	if (ms < 0)
		ms = 0;
	tv.tv_sec = (time_t)(ms / 1000);
	tv.tv_usec = (suseconds_t)(ms % 1000 * 1000);
	if (evtimer_add(ev, &tv) == -1)
		fatalx("out of memory");
}
