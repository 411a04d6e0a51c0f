#ifndef BRIDGE_BRIDGE_H
#define BRIDGE_BRIDGE_H

#include <stdint.h>

#include "msg.h"
#include "url.h"

struct api;
struct credentials;
struct event_base;
struct http;
struct lane;
struct lanes;
struct peer;
struct registration;
struct roots;

/* States of the process, for the message tables. */
enum process_state {
	PS_WAITING, /* MSG_READY sent, no network traffic yet */
	PS_RUNNING,
	PS_STOPPING /* MSG_STOP came; what must be delivered is delivered */
};

/* Status of MSG_ENDED and of exit(3); librechat-code(1) lists them. */
enum end_status {
	END_CLEAN = 0, /* orderly stop, or paired */
	END_GENERAL = 1, /* the text says why */
	END_TRYAGAIN = 75, /* the Code API stayed busy */
	END_FENCED = 76, /* another incarnation of this worker took over */
	END_CONFIG = 78 /* a restart does not heal it */
};

/* Everything that the process is. */
struct bridge {
	struct event_base *base;
	struct peer *monitor;
	struct peer *executor; /* worker role */
	unsigned int state; /* enum process_state */
	struct bridge_config config;
	struct url url; /* config.base_url, taken apart */
	char *worker; /* config.worker_id, percent-encoded */
	uint32_t last_id; /* of a message to a peer */
	int64_t stopped_at; /* monotonic ms; PS_STOPPING */
	int reported; /* last enum bridge_state told, or -1 */
	int fenced; /* the last refusal said WORKER_FENCED */
	struct http *http;
	struct api *api;
	struct credentials *credentials;
	struct registration *registration;
	struct roots *roots;
	struct lanes *lanes;
};

/* What went wrong, and what follows from it (protocol 7.5). */
enum failure_class {
	FAIL_NONE,
	FAIL_RETRY, /* log, back off, go on */
	FAIL_TERMINAL, /* the process ends with status 1 */
	FAIL_QUARANTINED /* a marker stays; the process ends with status 1 */
};

#define FAILURE_TEXT 256
struct failure {
	enum failure_class class;
	int status; /* of the HTTP answer that says so, or 0 */
	char text[FAILURE_TEXT];
};

void failure_set(struct failure *, enum failure_class, const char *, ...)
    __attribute__((__format__(__printf__, 3, 4)));

/* A number that no earlier message of this process carried; never 0. */
uint32_t bridge_id(struct bridge *);

/* Tells the monitor a change of state; a state told last is not repeated. */
void bridge_report(struct bridge *, enum bridge_state, const char *text);

/* Sends MSG_ENDED, waits until it is written, and exits. text may be NULL. */
void bridge_end(struct bridge *, enum end_status, const char *text)
    __attribute__((__noreturn__));

static inline int
bridge_stopping(const struct bridge *b)
{
	return b->state == PS_STOPPING;
}

#endif
