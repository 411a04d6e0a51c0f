#include "config.h"

#include <string.h>

#include "assignment.h"
#include "canon.h"
#include "control.h"
#include "dispatch.h"
#include "http.h"
#include "journal.h"
#include "lease.h"
#include "slots.h"

static void
write_time(struct buf *b, const char *name, int64_t ms)
{
	char text[ISO_TIME_SIZE];

	iso_time(text, ms);
	w_str(b, name, text);
}

static void
write_registration(struct buf *b, const struct worker *w)
{
	const struct incarnation *i;
	int online;

	online = worker_current(w) != NULL;
	w_bool(b, "online", online);
	w_bool(b, "ready", worker_ready(w));
	if (online) {
		w_str(b, "incarnationId", w->incarnation);
		w_int(b, "leaseExpiresInMs",
		    w->registration_expires - server_now(w->srv));
		w_json(b, "capabilities", w->capabilities);
	}
	w_int(
	    b, "registrationGeneration", (long long)w->registration_generation);
	w_int(b, "generation", (long long)w->generation);
	w_int(b, "pairingGeneration", (long long)w->pairing_generation);
	w_bool(b, "paired", worker_identity(w) != NULL);
	w_int(b, "workspaceLeaseSlots", w->slots);
	w_open(b, "fencedIncarnations", '[');
	TAILQ_FOREACH (i, &w->incarnations, entry) {
		if (i->fenced)
			w_str(b, NULL, i->id);
	}
	w_close(b, ']');
	w_open(b, "quarantinedIncarnations", '[');
	TAILQ_FOREACH (i, &w->incarnations, entry) {
		if (i->quarantined)
			w_str(b, NULL, i->id);
	}
	w_close(b, ']');
}

static void
write_fences(struct buf *b, const struct worker *w)
{
	const struct fence *f;

	w_open(b, "fences", '{');
	TAILQ_FOREACH (f, &w->fences, entry) {
		if (f->value != NULL)
			w_str(b, f->name, f->value);
	}
	w_close(b, '}');
}

static void
write_slots(struct buf *b, const struct worker *w)
{
	const struct reservation *s;
	int i;

	w_bool(b, "locked", lock_held(w));
	w_open(b, "slots", '[');
	for (i = 0; i < SLOTS_MAX; i++) {
		s = &w->reservations[i];
		if (!s->used || s->expires <= server_now(w->srv))
			continue;
		w_open(b, NULL, '{');
		w_int(b, "slot", i);
		w_str(b, "workspaceId", s->root);
		w_str(b, "incarnationId", s->incarnation);
		write_time(b, "expiresAt", s->expires);
		w_close(b, '}');
	}
	w_close(b, ']');
}

static void
write_queue(struct buf *b, const struct worker *w)
{
	const struct dispatch *d;
	const struct poll *p;

	w_open(b, "queue", '[');
	TAILQ_FOREACH (d, &w->dispatches, entry) {
		w_open(b, NULL, '{');
		w_str(b, "kind", d->sandbox ? "sandbox" : "workspace_tool");
		w_str(b, "workspaceId", d->root);
		w_str(b, "state", d->assignment == NULL ? "waiting" : "active");
		if (d->assignment != NULL)
			w_str(b, "assignmentId", d->assignment->id);
		w_close(b, '}');
	}
	w_close(b, ']');
	w_open(b, "polls", '[');
	TAILQ_FOREACH (p, &w->polls, entry)
		w_int(b, NULL, p->lane);
	w_close(b, ']');
}

static const char *
assignment_state(const struct assignment *a)
{
	if (a->settlement != NULL)
		return "settled";
	if (!a->record)
		return "gone";
	if (a->acked)
		return "acknowledged";
	if (a->claimed)
		return "delivered";
	return a->listed ? "queued" : "released";
}

static void
write_assignment(struct buf *b, const struct assignment *a)
{
	w_open(b, NULL, '{');
	w_str(b, "assignmentId", a->id);
	w_str(b, "state", assignment_state(a));
	w_bool(b, "record", a->record);
	w_bool(b, "acknowledged", a->acked);
	w_bool(b, "cancelled", a->mark_expires != 0);
	w_bool(b, "open", a->open);
	w_bool(b, "waitedFor", a->dispatch != NULL);
	w_int(b, "generation", (long long)a->generation);
	w_int(b, "lane", a->lane);
	w_str(b, "kind", a->sandbox ? "sandbox" : "workspace_tool");
	w_str(b, "incarnationId", a->incarnation);
	write_time(b, "expiresAt", a->expires);
	if (a->fence != NULL)
		w_str(b, "fence", a->fence);
	if (a->receipt) {
		w_bool(b, "committed", a->committed);
		w_bool(b, "cleaned", a->cleaned);
	}
	w_json(b, "request", a->request);
	if (a->settlement != NULL)
		w_str(b, "settlement", a->settlement);
	w_close(b, '}');
}

static void
write_worker(struct buf *b, const struct worker *w)
{
	const struct credential *c;
	const struct assignment *a;
	size_t i;
	int n;

	w_open(b, NULL, '{');
	w_str(b, "workerId", w->id);
	write_registration(b, w);
	n = 0;
	TAILQ_FOREACH (c, &w->srv->credentials, entry)
		n += strcmp(c->worker, w->id) == 0 &&
		    c->expires > server_now(w->srv);
	w_int(b, "credentials", n);
	write_fences(b, w);
	write_slots(b, w);
	write_queue(b, w);
	w_open(b, "assignments", '[');
	for (i = 0; i < ASSIGNMENT_BUCKETS; i++) {
		TAILQ_FOREACH (a, &w->srv->assignments[i], entry) {
			if (a->worker == w)
				write_assignment(b, a);
		}
	}
	w_close(b, ']');
	w_close(b, '}');
}

/* The value of the query's worker member, decoded only as far as ids go. */
static int
is_wanted(const struct req *r, const char *id)
{
	const char *q;

	if (r->query == NULL || (q = strstr(r->query, "worker=")) == NULL)
		return 1;
	return strcmp(q + strlen("worker="), id) == 0;
}

void
control_state(struct server *srv, struct req *r)
{
	const struct worker *w;
	struct buf b;

	buf_init(&b);
	w_open(&b, NULL, '{');
	write_time(&b, "time", server_now(srv));
	w_int(&b, "clockOffsetMs", srv->clock_offset);
	w_int(&b, "ceiling", srv->set.ceiling);
	journal_counters(srv, &b);
	w_open(&b, "workers", '[');
	TAILQ_FOREACH (w, &srv->workers, entry) {
		if (is_wanted(r, w->id))
			write_worker(&b, w);
	}
	w_close(&b, ']');
	w_close(&b, '}');
	req_reply(r, 200, &b);
}
