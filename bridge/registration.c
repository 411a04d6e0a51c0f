#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "credential.h"
#include "flight.h"
#include "json.h"
#include "lanes.h"
#include "log.h"
#include "registration.h"
#include "roots.h"
#include "times.h"

#define TTL_DEFAULT    60000
#define TTL_MAX        86400000
#define REGISTER_LIMIT 10000
#define READY_LIMIT    10000
#define BEAT_MIN       25

struct registration {
	struct bridge *b;
	struct flight flight;
	struct call *call;
	int64_t started; /* monotonic; of this registration */
	int64_t round_started; /* wall clock; of this round */
	int64_t deadline; /* monotonic; of all rounds */
	struct offer wanted;
	struct offer compatible;
	struct offer remembered; /* what succeeded last */
	struct offer active; /* what the server has now */
	struct offer sent;
	int promoting; /* second round */
	unsigned int slots; /* granted */
	int64_t generation; /* 0: the server does not tell */
	int64_t ttl;
	int64_t success; /* monotonic; start of the last good one */
};

static void
abandon(void *arg)
{
	struct registration *r = arg;

	call_cancel(&r->call);
}

struct registration *
registration_new(struct bridge *b)
{
	struct registration *r;

	r = xcalloc(1, sizeof(*r));
	r->b = b;
	r->ttl = TTL_DEFAULT;
	flight_init(&r->flight, b->base, abandon, r);
	offer_wanted(&r->wanted, &b->config);
	offer_compatible(&r->compatible, &r->wanted);
	r->remembered = r->compatible;
	return r;
}

void
registration_free(struct registration *r)
{
	call_cancel(&r->call);
	free(r);
}

const struct offer *
registration_offer(const struct registration *r)
{
	return &r->active;
}

int64_t
registration_beat_at(const struct registration *r)
{
	int64_t interval = r->ttl / 2;

	return r->success + (interval < BEAT_MIN ? BEAT_MIN : interval);
}

int64_t
registration_ends_at(const struct registration *r)
{
	return r->success + r->ttl;
}

static void
write_body(
    struct buf *body, const struct bridge_config *c, const struct offer *offer)
{
	struct jwriter w;
	size_t i;

	jw_init(&w, body);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_member_str(&w, "workerId", c->worker_id);
	jw_member_str(&w, "incarnationId", c->incarnation);
	jw_name(&w, "capabilities");
	jw_object(&w);
	jw_member_bool(&w, "statefulWorkspace", 0);
	jw_member_str(&w, "sandboxProfile", c->sandbox_profile);
	jw_name(&w, "runtimes");
	jw_array(&w);
	for (i = 0; i < c->nruntimes; i++)
		jw_str(&w, c->runtimes[i]);
	jw_array_end(&w);
	if (c->policy_digest != NULL)
		jw_member_str(&w, "policyDigest", c->policy_digest);
	/* A reset never confirms it, so that it cannot be given work. */
	if (c->role == ROLE_RESET || c->lease_slots > 1)
		jw_member_bool(&w, "requiresReadyConfirmation", 1);
	if (c->lease_slots > 1)
		jw_member_int(&w, "workspaceLeaseSlots", c->lease_slots);
	offer_write(&w, offer, c->workspaces);
	jw_object_end(&w);
	jw_object_end(&w);
}

static void on_registered(const struct reply *, void *);

static void
send_round(struct registration *r, const struct offer *offer)
{
	struct buf body;
	int64_t now = time_mono_ms();

	r->sent = *offer;
	r->round_started = time_wall_ms();
	buf_init(&body);
	write_body(&body, &r->b->config, offer);
	r->call = api_call(r->b, "register", "/bridge/workers/register", &body,
	    r->deadline - now, 0, on_registered, r);
}

static void
land(struct registration *r, enum failure_class class, const char *text)
{
	struct failure f;

	failure_set(&f, class, "%s", text);
	flight_land(&r->flight, &f);
}

/*
 * Number of slots that the server grants (protocol 11.1), at most what was
 * asked for; 0 if the answer cannot be.
 */
static unsigned int
granted(const struct registration *r, const struct json *j)
{
	const struct json *m = json_get(j, "workspaceLeaseSlots");
	int64_t slots;

	if (m == NULL || m->type == JSON_NULL)
		return 1;
	if (json_integer(m, &slots) == -1 || slots < 1 ||
	    slots > r->b->config.lease_slots)
		return 0;
	return (unsigned int)slots;
}

/* Takes over what a good answer says. */
static void
adopt(struct registration *r, const struct json *j)
{
	const char *at = json_get_str(j, "registeredAt");
	int64_t ms;

	r->active = r->sent;
	r->success = r->started;
	r->slots = granted(r, j);
	if (json_get_integer(j, "registrationGeneration", &r->generation) ==
		-1 ||
	    r->generation < 1)
		r->generation = 0;
	if (json_get_integer(j, "leaseTtlMs", &r->ttl) == -1 || r->ttl < 1 ||
	    r->ttl > TTL_MAX)
		r->ttl = TTL_DEFAULT;
	if (at != NULL && time_parse_iso(at, &ms) == 0)
		credential_set_offset(r->b->credentials, ms - r->round_started);
}

static const char *
check_answer(struct registration *r, const struct json *j)
{
	const char *incarnation = json_get_str(j, "incarnationId");

	if (incarnation == NULL ||
	    strcmp(incarnation, r->b->config.incarnation) != 0)
		return "register: the answer is for another incarnation";
	return NULL;
}

/* The registration counts: lanes may lease. */
static void
complete(struct registration *r)
{
	if (r->b->config.role == ROLE_WORKER)
		lanes_follow(r->b, r->slots);
	land(r, FAIL_NONE, "");
}

static void
on_ready(const struct reply *rp, void *arg)
{
	struct registration *r = arg;

	r->call = NULL;
	if (rp->outcome == API_OK)
		complete(r);
	else
		land(r, rp->terminal ? FAIL_TERMINAL : FAIL_RETRY, rp->text);
}

/*
 * Who asks for slots has to confirm every registration before it gets work
 * (protocol 6.1).
 */
static void
confirm(struct registration *r)
{
	const struct bridge_config *c = &r->b->config;
	struct jwriter w;
	struct buf body;
	char *target;

	if (c->role != ROLE_WORKER || c->lease_slots == 1) {
		complete(r);
		return;
	}
	if (r->slots == 1 && roots_any_fenced(r->b->roots))
		bridge_end(r->b, END_CONFIG,
		    "the Code API grants one lease slot only, and a workspace "
		    "is quarantined: inspect or restore it, then run "
		    "librechat-code clear-workspace-quarantine");
	if (r->generation == 0) {
		land(r, FAIL_RETRY,
		    "register: this Code API is too old for lease slots, it "
		    "does not tell a registrationGeneration: use "
		    "--workspace-lease-slots 1");
		return;
	}
	buf_init(&body);
	jw_init(&w, &body);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_member_str(&w, "incarnationId", c->incarnation);
	jw_member_int(&w, "registrationGeneration", r->generation);
	jw_object_end(&w);
	target = api_worker_target(r->b, "ready");
	r->call = api_call(
	    r->b, "ready", target, &body, READY_LIMIT, 0, on_ready, r);
	free(target);
}

/* The second round failed: what the first one gave stays in force. */
static void
keep_first(struct registration *r, const char *why)
{
	log_debug("%s; the server has the compatible set", why);
	r->remembered = r->compatible;
	confirm(r);
}

static void
first_answer(struct registration *r, const struct reply *rp)
{
	struct offer promoted;
	struct support support;

	adopt(r, rp->json);
	support_read(&support, rp->json);
	if (!offer_promote(&promoted, &r->wanted, &support) ||
	    offer_equal(&promoted, &r->sent) || r->deadline <= time_mono_ms()) {
		r->remembered = r->sent;
		confirm(r);
		return;
	}
	r->promoting = 1;
	send_round(r, &promoted);
}

static void
on_registered(const struct reply *rp, void *arg)
{
	struct registration *r = arg;
	const char *wrong;
	unsigned int slots;

	r->call = NULL;
	if (rp->outcome != API_OK) {
		if (r->promoting)
			keep_first(r, rp->text);
		else if (rp->status == 400 && !rp->terminal &&
		    !offer_equal(&r->sent, &r->compatible) &&
		    r->deadline > time_mono_ms())
			send_round(r, &r->compatible);
		else
			land(r, rp->terminal ? FAIL_TERMINAL : FAIL_RETRY,
			    rp->text);
		return;
	}
	if ((wrong = check_answer(r, rp->json)) != NULL) {
		if (r->promoting)
			keep_first(r, wrong);
		else
			land(r, FAIL_RETRY, wrong);
		return;
	}
	if ((slots = granted(r, rp->json)) == 0) {
		land(r, FAIL_TERMINAL,
		    "register: the server grants lease slots that were not "
		    "asked for (WORKER_FENCED)");
		return;
	}
	if (r->b->config.role == ROLE_WORKER && lanes_busy(r->b) &&
	    slots != lanes_slots(r->b)) {
		land(r, FAIL_RETRY,
		    "register: the server changed the number of lease slots "
		    "while work is in progress: refused until that is over");
		return;
	}
	if (!r->promoting) {
		first_answer(r, rp);
		return;
	}
	adopt(r, rp->json);
	r->remembered = r->active;
	confirm(r);
}

struct waiter *
registration_join(struct registration *r, int64_t limit,
    void (*done)(const struct failure *, void *), void *arg)
{
	if (r->call == NULL) {
		if (limit == 0) {
			limit = r->ttl - 1;
			if (limit > REGISTER_LIMIT)
				limit = REGISTER_LIMIT;
		}
		if (limit < 1)
			limit = 1;
		r->started = time_mono_ms();
		r->deadline = r->started + limit;
		r->promoting = 0;
		send_round(r, &r->remembered);
	}
	return flight_join(&r->flight, 0, "", done, arg);
}
