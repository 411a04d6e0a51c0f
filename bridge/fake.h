#ifndef BRIDGE_FAKE_H
#define BRIDGE_FAKE_H

#include <sys/queue.h>
#include <sys/types.h>
#include <stdint.h>

#include "msg.h"

/*
 * The surroundings of a bridge under test: a monitor, an executor and a
 * Code API in the test's own process, which starts the built program. Every
 * request has to carry a proof of exactly its path and bytes, used once.
 */
struct fake_request {
	TAILQ_ENTRY(fake_request) entry;
	char *path;
	char *body;
	char *authorization; /* or NULL */
};

/* What the Code API does with the next request to such a path. */
struct fake_fault {
	TAILQ_ENTRY(fake_fault) entry;
	const char *suffix; /* of the path */
	int status; /* 0: read it and close without an answer; -1: hang */
	const char *body;
	int times;
};

enum fake_executor {
	FE_ANSWER, /* with the result at once */
	FE_HOLD, /* answers a MSG_CANCEL with a clean EXECUTION_ABORTED */
	FE_ERROR, /* with error at once */
	FE_LATE /* with the result when it is cancelled */
};

#define FAKE_LANES 9 /* [0] the legacy lane, [n + 1] slot n */
#define FAKE_ROOTS 8

struct fake {
	struct event_base *base;
	struct evhttp *http;
	unsigned int port;
	struct peer *monitor; /* our end of the channel to the bridge */
	struct peer *executor;
	unsigned int state;
	pid_t pid;
	struct bridge_config config;

	TAILQ_HEAD(fake_requests, fake_request) requests;
	TAILQ_HEAD(, fake_fault) faults;
	struct evhttp_request *lease; /* of the legacy lane, waiting */
	struct evhttp_request *leases[FAKE_LANES]; /* [0] is not used */
	char *assignments[FAKE_LANES]; /* for the next lease of each */
	int grant; /* lease slots in the answer; 0: no such member */
	int generation; /* registrationGeneration; 0: no such member */
	const char *date; /* Date header of faults, or NULL: the true one */
	int cancelled; /* what the cancellation poll says */
	int64_t ttl;
	int64_t credential_life; /* of a refreshed one */
	unsigned int proofs; /* given */
	char *used; /* all time stamps seen, for replays */

	enum fake_executor behaviour;
	struct result result;
	enum error_code error;
	enum certainty certainty;

	unsigned int arms, clears, stores, executed, cancels;
	uint32_t running[FAKE_ROOTS]; /* request in each root, or 0 */
	uint32_t operation[FAKE_ROOTS]; /* its operation */
	const char *arm_error;
	const char *clear_error;
	int started; /* MSG_START was sent */
	int registered; /* MSG_STATE said so */
	int reconnecting;
	char *trouble; /* text of the last such state */
	char *paired;
	int failed; /* MSG_FAILED */
	int gone;
	int ended; /* MSG_ENDED */
	int end_status;
	char *end_text;
};

/* Made before the start, so that a test can change the configuration. */
struct fake *fake_new(enum bridge_role);
void fake_start(struct fake *);

/* Kills what still runs. */
void fake_free(struct fake *);

/* Runs the event loop until done holds; fails the test after 20 s. */
void fake_wait(struct fake *, int (*done)(struct fake *), const char *what);

/* Waits for the end of the process and returns its exit status. */
int fake_exit_status(struct fake *);

void fake_stop(struct fake *); /* MSG_STOP */
void fake_fault(
    struct fake *, const char *suffix, int status, const char *body, int times);

/* Hands out a workspace_tool assignment with this request. */
void fake_assign(
    struct fake *, const char *id, int64_t remaining, const char *request);
void fake_assign_raw(struct fake *, char *assignment);

/* The same on a lane, see FAKE_LANES. */
void fake_offer(struct fake *, int lane, char *assignment);

/*
 * With lease slots: so many workspaces "r0", "r1" and on, and as many slots
 * asked for and granted; before fake_start. An assignment of a slot.
 */
void fake_slots(struct fake *, unsigned int slots, unsigned int roots);
void fake_assign_slot(struct fake *, int slot, const char *id,
    int64_t remaining, const char *request);

/* Answers what runs in a root (FE_HOLD) with the result. */
void fake_release(struct fake *, unsigned int root);

/* Lanes that wait for an assignment, the legacy one too. */
unsigned int fake_leasing(struct fake *);

/* Requests to a path that ends so. */
unsigned int fake_count(struct fake *, const char *suffix);

/* Body of the last of them, or "". */
const char *fake_body(struct fake *, const char *suffix);

#endif
