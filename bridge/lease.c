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
#include "lease.h"
#include "log.h"
#include "registration.h"
#include "retry.h"
#include "times.h"

#define WAIT_MS     25000
#define LEASE_GRACE 5000
#define EMPTY_MIN   100 /* ms; an empty answer that came faster is odd */

struct lane {
	struct bridge *b;
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
};

static void turn(struct lane *);

struct assignment *
lane_assignment(const struct lane *l)
{
	return l->assignment;
}

/* Exit, if the last lane is idle and the process is to stop. */
static void
end_if_stopping(struct lane *l)
{
	struct bridge *b = l->b;
	size_t i;

	if (!bridge_stopping(b))
		return;
	for (i = 0; i < b->nlanes; i++)
		if (b->lanes[i]->assignment != NULL)
			return;
	bridge_end(b, END_CLEAN, NULL);
}

static void
back_off(struct lane *l, const struct failure *f)
{
	struct timeval tv;
	int64_t ms;

	if (f->class == FAIL_QUARANTINED)
		bridge_end(l->b, END_GENERAL, f->text);
	end_if_stopping(l);
	if (f->class == FAIL_TERMINAL)
		bridge_end(l->b, END_GENERAL, f->text);
	if (confine_resolver_lost())
		bridge_end(l->b, END_GENERAL,
		    "/etc/resolv.conf was replaced and can no longer be read "
		    "by the restricted process: start again");
	ms = retry_delay(l->attempt++);
	log_debug("%s; next attempt in %lld ms", f->text, (long long)ms);
	bridge_report(l->b, BS_RECONNECTING, f->text);
	tv.tv_sec = (time_t)(ms / 1000);
	tv.tv_usec = (suseconds_t)(ms % 1000 * 1000);
	(void)evtimer_add(l->timer, &tv);
}

static void
fail(struct lane *l, const char *text)
{
	struct failure f;

	failure_set(&f, FAIL_RETRY, "%s", text);
	back_off(l, &f);
}

static void
on_assignment_done(const struct failure *f, int forget, void *arg)
{
	struct lane *l = arg;
	struct assignment *as = l->assignment;
	struct failure copy = *f;

	free(l->spent);
	l->spent = forget ? NULL : xstrdup(assignment_id(as));
	l->assignment = NULL;
	assignment_free(as);
	if (copy.class != FAIL_NONE) {
		if (copy.class == FAIL_RETRY && !bridge_stopping(l->b))
			log_warnx("%s", copy.text);
		back_off(l, &copy);
		return;
	}
	end_if_stopping(l);
	turn(l);
}

/* The checks of protocol 7.1, in its order: NULL, or what is wrong. */
static const char *
check_lease(const struct bridge *b, const struct json *j, const struct json *as,
    int64_t *remaining, int64_t *elapsed)
{
	const char *incarnation = json_get_str(as, "incarnationId");

	if (as->type != JSON_OBJECT)
		return "the assignment is not an object";
	if (incarnation == NULL ||
	    strcmp(incarnation, b->config.incarnation) != 0)
		return "the assignment is for another incarnation";
	if (json_get(as, "workspaceLeaseSlot") != NULL)
		return "the assignment is for a lease slot";
	if (json_get_integer(as, "remainingMs", remaining) == -1 ||
	    *remaining < 0)
		return "remainingMs is not valid";
	if (json_get_integer(j, "serverElapsedMs", elapsed) == -1 ||
	    *elapsed < 0)
		return "serverElapsedMs is not valid";
	return NULL;
}

static void
take_assignment(struct lane *l, const struct json *j, const struct json *aj)
{
	int64_t remaining, elapsed, took;
	const char *wrong;
	char text[FAILURE_TEXT];

	took = time_mono_ms() - l->lease_started;
	wrong = check_lease(l->b, j, aj, &remaining, &elapsed);
	if (wrong == NULL)
		l->assignment = assignment_new(l->b, aj, &wrong);
	if (l->assignment == NULL) {
		xsnprintf(text, sizeof(text), "lease: %s", wrong);
		fail(l, text);
		return;
	}
	if (l->spent != NULL &&
	    strcmp(l->spent, assignment_id(l->assignment)) == 0) {
		assignment_free(l->assignment);
		l->assignment = NULL;
		fail(l,
		    "lease: an assignment that has ended here was handed "
		    "out again; it is not run twice");
		return;
	}
	l->attempt = 0;
	assignment_start(l->assignment,
	    retry_remaining(remaining, took, elapsed), on_assignment_done, l);
}

static void
on_leased(const struct reply *r, void *arg)
{
	static const struct timeval pause = { 0, EMPTY_MIN * 1000 };
	struct lane *l = arg;
	const struct json *aj;
	struct failure f;

	l->lease = NULL;
	if (r->outcome != API_OK) {
		failure_set(&f, r->terminal ? FAIL_TERMINAL : FAIL_RETRY, "%s",
		    r->text);
		back_off(l, &f);
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
	/* Nor over a server that does not wait as it was asked to. */
	if (time_mono_ms() - l->lease_started < EMPTY_MIN)
		(void)evtimer_add(l->timer, &pause);
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
		back_off(l, f);
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
		back_off(l, f);
	else
		turn(l);
}

static void
turn(struct lane *l)
{
	struct bridge *b = l->b;

	if (credential_due(b->credentials))
		l->waiter = credential_refresh(
		    b->credentials, 0, on_refreshed, l);
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
lane_new(struct bridge *b)
{
	struct lane *l;

	l = xcalloc(1, sizeof(*l));
	l->b = b;
	if ((l->timer = evtimer_new(b->base, on_timer, l)) == NULL)
		fatalx("out of memory");
	return l;
}

void
lane_free(struct lane *l)
{
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
	else
		end_if_stopping(l);
}
