#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "api.h"
#include "assignment.h"
#include "confine.h"
#include "credential.h"
#include "flight.h"
#include "json.h"
#include "lanes.h"
#include "lease.h"
#include "log.h"
#include "registration.h"
#include "retry.h"
#include "timer.h"
#include "times.h"

#define WAIT_MS     25000
#define LEASE_GRACE 5000
#define EMPTY_MIN   100 /* ms; an empty answer that came faster is odd */

struct lane {
	struct bridge *b;
	int slot; /* or LANE_LEGACY */
	unsigned int attempt; /* of the back-off */
	struct event *timer;
	struct waiter *waiter; /* credential or registration */
	struct call *lease;
	int64_t lease_started;
	struct assignment *assignment;
	/*
	 * An assignment that ended here without the server's acceptance. The
	 * server may hand it out again; it is never run twice. One whose
	 * acknowledgement was refused has not begun and may come again (7.3).
	 */
	char *spent;
	enum remnant owed; /* what the server is still to be told of it */
};

static void turn(struct lane *);

struct assignment *
lane_assignment(const struct lane *l)
{
	return l->assignment;
}

/* own: the failure is one of this lane's work, not of the connection. */
static void
back_off(struct lane *l, const struct failure *f, int own)
{
	int64_t ms;

	if (f->class == FAIL_QUARANTINED)
		bridge_end(l->b, END_GENERAL, f->text);
	lanes_end_if_stopping(l->b);
	if (bridge_stopping(l->b))
		return;
	if (f->class == FAIL_TERMINAL)
		bridge_end(l->b, END_GENERAL, f->text);
	if (confine_resolver_lost())
		bridge_end(l->b, END_GENERAL,
		    "/etc/resolv.conf was replaced and can no longer be read "
		    "by the restricted process: start again");
	ms = retry_delay(l->attempt++);
	log_debug("%s; next attempt in %lld ms", f->text, (long long)ms);
	if (!own || !lanes_concurrent(l->b))
		bridge_report(l->b, BS_RECONNECTING, f->text);
	timer_set(l->timer, ms);
}

static void
fail(struct lane *l, const char *text)
{
	struct failure f;

	failure_set(&f, FAIL_RETRY, "%s", text);
	back_off(l, &f, 0);
}

static void
on_assignment_done(const struct failure *f, enum remnant owed, void *arg)
{
	struct lane *l = arg;
	struct assignment *as = l->assignment;
	struct failure copy = *f;

	free(l->spent);
	l->spent = owed == OWED_NOTHING ? NULL : xstrdup(assignment_id(as));
	l->owed = owed;
	l->assignment = NULL;
	assignment_free(as);
	if (copy.class != FAIL_NONE) {
		if (copy.class == FAIL_RETRY && !bridge_stopping(l->b))
			log_warnx("%s", copy.text);
		back_off(l, &copy, 1);
		return;
	}
	lanes_end_if_stopping(l->b);
	if (!bridge_stopping(l->b))
		turn(l);
}

/* The checks of protocol 7.1, in its order: NULL, or what is wrong. */
static const char *
check_lease(const struct lane *l, const struct json *j, const struct json *as,
    int64_t *remaining, int64_t *elapsed)
{
	const char *incarnation = json_get_str(as, "incarnationId");
	const struct json *slot = json_get(as, "workspaceLeaseSlot");
	int64_t number;

	if (as->type != JSON_OBJECT)
		return "the assignment is not an object";
	if (incarnation == NULL ||
	    strcmp(incarnation, l->b->config.incarnation) != 0)
		return "the assignment is for another incarnation";
	if (l->slot == LANE_LEGACY ? slot != NULL
				   : slot == NULL ||
		    json_integer(slot, &number) == -1 || number != l->slot)
		return "the assignment is for another lease slot";
	if (json_get_integer(as, "remainingMs", remaining) == -1 ||
	    *remaining < 0)
		return "remainingMs is not valid";
	if (json_get_integer(j, "serverElapsedMs", elapsed) == -1 ||
	    *elapsed < 0)
		return "serverElapsedMs is not valid";
	return NULL;
}

/*
 * It has ended here and comes again. With a slot the server is told what it
 * did not hear; without one it has been told, or waits until it expires.
 */
static void
take_again(struct lane *l)
{
	if (l->slot != LANE_LEGACY) {
		assignment_repeat(
		    l->assignment, l->owed, on_assignment_done, l);
		return;
	}
	assignment_free(l->assignment);
	l->assignment = NULL;
	fail(l,
	    "lease: an assignment that has ended here was handed "
	    "out again; it is not run twice");
}

static void
take_assignment(struct lane *l, const struct json *j, const struct json *aj)
{
	int64_t remaining, elapsed, took;
	const char *wrong;
	char text[FAILURE_TEXT];

	took = time_mono_ms() - l->lease_started;
	wrong = check_lease(l, j, aj, &remaining, &elapsed);
	if (wrong == NULL)
		l->assignment = assignment_new(l->b, aj, l->slot, &wrong);
	if (l->assignment == NULL) {
		xsnprintf(text, sizeof(text), "lease: %s", wrong);
		fail(l, text);
		return;
	}
	if (lanes_active(l->b, l, assignment_id(l->assignment)))
		bridge_end(l->b, END_GENERAL,
		    "lease: an assignment that is being worked on was handed "
		    "out to another lane");
	if (l->spent != NULL && assignment_is(l->assignment, l->spent)) {
		take_again(l);
		return;
	}
	l->attempt = 0;
	assignment_start(l->assignment,
	    retry_remaining(remaining, took, elapsed), on_assignment_done, l);
}

static void
on_leased(const struct reply *r, void *arg)
{
	struct lane *l = arg;
	const struct json *aj;
	struct failure f;

	l->lease = NULL;
	if (r->outcome != API_OK) {
		failure_set(&f, r->terminal ? FAIL_TERMINAL : FAIL_RETRY, "%s",
		    r->text);
		back_off(l, &f, 0);
		return;
	}
	aj = json_get(r->json, "assignment");
	if (aj != NULL && aj->type != JSON_NULL) {
		take_assignment(l, r->json, aj);
		return;
	}
	/* A proxy's page can be JSON too: no hot loop over it. */
	if (json_get_type(r->json, "protocolVersion", JSON_NUMBER) == NULL &&
	    json_get(r->json, "serverElapsedMs") == NULL) {
		fail(l, "lease: the answer is not one of a Code API");
		return;
	}
	l->attempt = 0;
	if (lanes_concurrent(l->b))
		bridge_report(l->b, BS_REGISTERED, NULL);
	/* Nor over a server that does not wait as it was asked to. */
	if (time_mono_ms() - l->lease_started < EMPTY_MIN)
		timer_set(l->timer, EMPTY_MIN);
	else
		turn(l);
}

static void
lease(struct lane *l)
{
	struct jwriter w;
	struct buf body;
	char *target;

	buf_init(&body);
	jw_init(&w, &body);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_member_int(&w, "waitMs", WAIT_MS);
	jw_member_str(&w, "incarnationId", l->b->config.incarnation);
	if (l->slot != LANE_LEGACY)
		jw_member_int(&w, "workspaceLeaseSlot", l->slot);
	jw_object_end(&w);
	l->lease_started = time_mono_ms();
	target = api_worker_target(l->b, "lease");
	l->lease = api_call(l->b, "lease", target, &body, WAIT_MS + LEASE_GRACE,
	    0, on_leased, l);
	free(target);
}

static void
on_registered(const struct failure *f, void *arg)
{
	struct lane *l = arg;

	l->waiter = NULL;
	if (f->class != FAIL_NONE) {
		back_off(l, f, 0);
		return;
	}
	bridge_report(l->b, BS_REGISTERED, NULL);
	lease(l);
}

static void
on_refreshed(const struct failure *f, void *arg)
{
	struct lane *l = arg;

	l->waiter = NULL;
	if (f->class != FAIL_NONE)
		back_off(l, f, 0);
	else
		turn(l);
}

static void
turn(struct lane *l)
{
	struct bridge *b = l->b;
	int alive = lanes_concurrent(b) &&
	    registration_ends_at(b->registration) > time_mono_ms();

	if (credential_due(b->credentials))
		l->waiter = credential_refresh(
		    b->credentials, 0, on_refreshed, l);
	else if (alive)
		lease(l);
	else
		l->waiter = registration_join(
		    b->registration, 0, on_registered, l);
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	turn(arg);
}

struct lane *
lane_new(struct bridge *b, int slot)
{
	struct lane *l;

	l = xcalloc(1, sizeof(*l));
	l->b = b;
	l->slot = slot;
	if ((l->timer = evtimer_new(b->base, on_timer, l)) == NULL)
		fatalx("out of memory");
	return l;
}

void
lane_free(struct lane *l)
{
	if (l == NULL)
		return;
	waiter_cancel(&l->waiter);
	call_cancel(&l->lease);
	assignment_free(l->assignment);
	event_free(l->timer);
	free(l->spent);
	free(l);
}

void
lane_start(struct lane *l)
{
	turn(l);
}

void
lane_stop(struct lane *l)
{
	(void)evtimer_del(l->timer);
	waiter_cancel(&l->waiter);
	call_cancel(&l->lease);
	if (l->assignment != NULL)
		assignment_stop(l->assignment);
}

void
lane_pause(struct lane *l)
{
	if (l->assignment != NULL)
		return;
	(void)evtimer_del(l->timer);
	waiter_cancel(&l->waiter);
	call_cancel(&l->lease);
}

void
lane_resume(struct lane *l)
{
	if (l->assignment != NULL) {
		assignment_beat(l->assignment);
		return;
	}
	if (l->waiter != NULL || l->lease != NULL)
		return;
	(void)evtimer_del(l->timer);
	l->attempt = 0;
	turn(l);
}
