#ifndef CODEAPI_SERVER_H
#define CODEAPI_SERVER_H

#include <sys/queue.h>

#include <stdint.h>

#include <event2/event.h>
#include <event2/http.h>

#include "buf.h"
#include "json.h"
#include "names.h"

#define SLOTS_MAX          8
#define LANE_LEGACY        (-1)
#define ADMISSIONS_MAX     32
#define ASSIGNMENT_BUCKETS 1024

#ifndef TAILQ_FOREACH_SAFE
#define TAILQ_FOREACH_SAFE(var, head, field, tvar)                    \
	for ((var) = TAILQ_FIRST((head));                             \
	     (var) != NULL && ((tvar) = TAILQ_NEXT((var), field), 1); \
	     (var) = (tvar))
#endif

struct fault;
struct journal;
struct nonces;
struct req;
struct server;

/* What the command line and the control routes set; times in milliseconds. */
struct settings {
	const char *base; /* "/v1" */
	char *token; /* administrator; NULL is none (4.1) */
	char worker[WORKER_ID_SIZE]; /* configured id, or empty */
	int paired;
	int dynamic;
	int old_server; /* registers as before slots existed */
	int unknown_status; /* of unknown bridge routes (3.4) */
	int caller_log;
	unsigned int ceiling; /* of workspace lease slots */
	unsigned int rate_limit; /* caller requests in 30 s; 0 is none */
	size_t body_max;
	int64_t credential_ttl;
	int64_t pairing_ttl;
	int64_t lease_ttl;
	int64_t queue_time; /* 17.4 */
	int64_t job_timeout;
	int64_t tool_budget;
	int64_t command_grace; /* added to a command's timeoutMs */
	int64_t record_grace; /* the 30 s of T(d) */
};

/* Chapter 5.1; a worker has at most one, which is live if expires is. */
struct pairing_code {
	char hash[HASH_SIZE];
	int64_t expires; /* 0 is no code */
	uint64_t generation;
	struct json *binding;
};

/* Chapter 5.3. */
struct credential {
	TAILQ_ENTRY(credential) entry;
	char hash[HASH_SIZE];
	char worker[WORKER_ID_SIZE];
	char identity[RANDOM_ID_SIZE];
	uint8_t public_key[32];
	int64_t expires;
	struct json *binding;
};

/* What is known of an incarnation for ever (6.3 rows 7 and 8). */
struct incarnation {
	TAILQ_ENTRY(incarnation) entry;
	char id[INCARNATION_ID_SIZE];
	int fenced;
	int quarantined;
};

/* A fence and the epoch of one root or session (15.1, 15.2). */
struct fence {
	TAILQ_ENTRY(fence) entry;
	char *name;
	char *value; /* NULL is no fence */
	uint64_t epoch;
};

/* Chapter 14.3. */
struct reservation {
	int used;
	char incarnation[INCARNATION_ID_SIZE];
	char root[WORKER_ID_SIZE];
	uint64_t owner; /* number of the dispatch */
	int64_t expires;
};

/* The serial lock (13.3). */
struct lock {
	int held;
	char incarnation[INCARNATION_ID_SIZE];
	uint64_t owner;
	int64_t expires;
};

TAILQ_HEAD(assignments, assignment);
TAILQ_HEAD(dispatches, dispatch);
TAILQ_HEAD(polls, poll);
TAILQ_HEAD(incarnations, incarnation);
TAILQ_HEAD(fences, fence);

struct worker {
	TAILQ_ENTRY(worker) entry;
	struct server *srv;
	char id[WORKER_ID_SIZE];

	uint64_t pairing_generation;
	struct pairing_code code;
	char active_hash[HASH_SIZE];
	char identity[RANDOM_ID_SIZE];
	int64_t identity_expires;

	char incarnation[INCARNATION_ID_SIZE];
	int64_t registration_expires;
	unsigned int slots; /* granted */
	struct json *capabilities;
	struct json *binding;
	char registered_identity[RANDOM_ID_SIZE];
	uint64_t registration_generation;
	char generation_incarnation[INCARNATION_ID_SIZE];
	char ready_incarnation[INCARNATION_ID_SIZE];
	uint64_t ready_generation;
	int64_t ready_expires;

	uint64_t generation; /* of assignments */
	struct incarnations incarnations;
	struct fences fences;
	struct lock lock;
	struct reservation reservations[SLOTS_MAX];
	struct assignments active; /* queued and claimed, in order */
	struct dispatches dispatches; /* in order of arrival */
	struct polls polls;
	int pumping;
};

TAILQ_HEAD(workers, worker);
TAILQ_HEAD(credentials, credential);
TAILQ_HEAD(reqs, req);
TAILQ_HEAD(conns, conn);
TAILQ_HEAD(faults, fault);
TAILQ_HEAD(waits, wait);

struct server {
	struct settings set;
	struct event_base *base;
	struct evhttp *http;
	struct event *tick;
	int64_t clock_offset;
	uint64_t dispatch_number;
	struct workers workers;
	struct credentials credentials;
	struct assignments assignments[ASSIGNMENT_BUCKETS]; /* by id */
	struct nonces *nonces;
	struct reqs reqs;
	struct conns conns;
	struct faults faults;
	struct waits waits;
	struct journal *journal;
	int64_t rate_window; /* start, monotonic */
	unsigned int rate_count;
};

/*
 * Makes a server with its own event base; settings are copied, the token is
 * taken over. server_free answers nobody and releases everything.
 */
struct server *server_new(const struct settings *);
void server_free(struct server *);

/* Binds to address and port (0 is any) and returns the port, or -1. */
int server_listen(struct server *, const char *, uint16_t);

/* Forgets all workers, credentials and work, as after a restart. */
void server_forget(struct server *);

/* The server's clock in milliseconds since the epoch. */
int64_t server_now(const struct server *);

/* The end of T(d), d being a deadline (chapter 1). */
int64_t record_life(const struct server *, int64_t deadline);

/* The worker of that id; made on first use if create is set, else NULL. */
struct worker *worker_find(struct server *, const char *id, int create);

/* Chapter 2.1: 1 if the id is one that this server serves. */
int worker_configured(const struct server *, const char *id);

/* The current incarnation, or NULL if no registration is alive (6.6). */
const char *worker_current(const struct worker *);

/* 1 if that incarnation is the current one. */
int worker_is_current(const struct worker *, const char *);

/* The live paired identity, or NULL. */
const char *worker_identity(const struct worker *);

/* 1 if registered and, if it asks for confirmation, confirmed (chapter 7). */
int worker_ready(const struct worker *);

/* The permanent marks of an incarnation; made on first use if create. */
struct incarnation *worker_incarnation(
    struct worker *, const char *, int create);

/* Ends the registration; the incarnation is not marked by this. */
void worker_unregister(struct worker *);

#endif
