#ifndef MONITOR_MONITOR_H
#define MONITOR_MONITOR_H

#include <sys/types.h>
#include <stdint.h>

#include "cgroup.h"
#include "guard.h"
#include "peer.h"
#include "proc.h"
#include "roots.h"
#include "settings.h"

struct event;
struct event_base;
struct status;

/* States of the monitor, for the tables of permitted messages. */
enum monitor_state {
	MS_START, /* waiting for both helpers to be ready */
	MS_RUN,
	MS_STOP, /* orderly stop: the bridge first, then the executor */
	MS_END /* something ended: everything ends */
};

struct helper {
	const char *name; /* in the log */
	struct proc proc;
	struct peer *peer; /* NULL once the channel is closed */
	int started;
	int exited;
	int wait_status;
	int ready;
	int stop_sent;
	int64_t exit_time; /* monotonic ms */
	int64_t gone_time; /* when it closed the channel; 0 = it did not */
	int ended; /* MSG_ENDED or MSG_FAILED was received */
	uint8_t status;
	char *text;
};

/* The one structure of the monitor process. */
struct monitor {
	unsigned int state; /* enum monitor_state */
	struct settings *settings;
	struct roots *roots;
	struct account account;
	struct guard *guards;
	char incarnation[32];
	int mountinfo;
	struct cgroups cgroups; /* of the roots, if in force */
	int maintenance; /* a reset: no executor, ends with the bridge */
	struct event_base *base;
	struct event *ev_term;
	struct event *ev_int;
	struct event *ev_child;
	struct event *ev_tick;
	struct helper bridge;
	struct helper executor;
	char **dirs; /* for confine() */
	size_t ndirs;
	int64_t deadline; /* of the state; monotonic ms, 0 = none */
	int status; /* exit status */
	struct status *report; /* to people and the service manager */
};

/*
 * Watches the helpers, which have been started and have their configuration
 * queued, until the daemon ends. Returns the exit status.
 */
int monitor_loop(struct monitor *);

/* Tables and handlers of bridge and executor (requests.c). */
extern const struct peer_handler bridge_table[];
extern const struct peer_handler executor_table[];

/* A message was handled that can change the state: looks what to do next. */
void monitor_advance(struct monitor *);

/* Answers clears that waited for an outcome or ran out of time. */
void requests_tick(struct monitor *);

#endif
