#ifndef BRIDGE_TIMER_H
#define BRIDGE_TIMER_H

#include <stdint.h>

struct event;

/* Sets a timer made with evtimer_new(3) to so many ms; below 0 means now. */
void timer_set(struct event *, int64_t ms);

#endif
