#ifndef MONITOR_STATUS_H
#define MONITOR_STATUS_H

#include <stdint.h>

struct event_base;
struct status;

/*
 * What the daemon is doing, told to people and to the service manager: one
 * log line on each change, of which a flapping server cannot cause more than
 * STATUS_BURST at once and then one a minute (the last one is always told in
 * the end), and the messages of sd_notify(3).
 */
#define STATUS_BURST 10

/*
 * Connects to the service manager's socket, if this is the service (run, not
 * an administrator's command) and NOTIFY_SOCKET names one; to be called before
 * the process restricts itself. A manager that cannot be reached costs a
 * warning.
 */
struct status *status_new(int service);
void status_free(struct status *);

/* Begins to answer the watchdog, if WATCHDOG_USEC asks for that. */
void status_watch(struct status *, struct event_base *);

/* Tells a new state; the first time that ready is set, READY=1 as well. */
void status_tell(struct status *, const char *line, int ready);

/* STOPPING=1, once. */
void status_stopping(struct status *);

#endif
