#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "assignment.h"
#include "canon.h"
#include "fence.h"
#include "http.h"
#include "registration.h"
#include "slots.h"

#define ID_BYTES    18
#define TOKEN_BYTES 32

static struct assignments *
bucket(struct server *srv, const char *id)
{
	unsigned int h;

	for (h = 0; *id != '\0'; id++)
		h = h * 31 + (unsigned char)*id;
	return &srv->assignments[h % ASSIGNMENT_BUCKETS];
}

struct assignment *
assignment_find(struct server *srv, const char *id)
{
	struct assignment *a;

	TAILQ_FOREACH (a, bucket(srv, id), entry) {
		if (strcmp(a->id, id) == 0)
			return a;
	}
	return NULL;
}

struct assignment *
assignment_new(
    struct worker *w, int lane, struct json *request, int64_t expires)
{
	struct assignment *a;

	a = xcalloc(1, sizeof(*a));
	a->worker = w;
	random_id(a->id, ID_BYTES);
	random_id(a->token, TOKEN_BYTES);
	memcpy(a->incarnation, w->incarnation, sizeof(a->incarnation));
	memcpy(a->identity, w->registered_identity, sizeof(a->identity));
	a->generation = ++w->generation;
	a->lane = lane;
	a->request = request;
	a->expires = expires;
	a->record = a->open = a->listed = 1;
	TAILQ_INSERT_TAIL(&w->active, a, active);
	TAILQ_INSERT_TAIL(bucket(w->srv, a->id), a, entry);
	return a;
}

static void
assignment_free(struct assignment *a)
{
	assignment_unclaim(a);
	TAILQ_REMOVE(bucket(a->worker->srv, a->id), a, entry);
	json_free(a->request);
	json_free(a->settled);
	free(a->settlement);
	free(a->session);
	free(a->fence);
	free(a);
}

void
assignment_unclaim(struct assignment *a)
{
	if (a->listed)
		TAILQ_REMOVE(&a->worker->active, a, active);
	a->listed = a->claimed = a->acked = 0;
}

/* Drops the record and releases the lock or slot. */
static void
drop(struct assignment *a)
{
	assignment_unclaim(a);
	a->record = 0;
	lock_release(a->worker, a->owner);
}

void
assignment_cleanup(struct assignment *a)
{
	struct worker *w = a->worker;
	int own;

	if (a->mark_expires == 0)
		a->mark_expires = record_life(w->srv, a->expires);
	own = fence_is(w, a->fence, a->id);
	if (a->settlement != NULL) {
		assignment_unclaim(a);
		if (!a->receipt || !own)
			drop(a);
	} else if (!a->acked) {
		if (own)
			fence_clear(w, a->fence);
		a->receipt = 0;
		drop(a);
	} else if (!own)
		drop(a);
}

int
assignment_matches(const struct assignment *a, const struct req *r)
{
	const char *token, *incarnation;
	long long generation;
	size_t n;

	token = json_text(json_get(r->body, "leaseToken"));
	incarnation = json_text(json_get(r->body, "incarnationId"));
	n = strlen(a->token);
	return token != NULL && strlen(token) == n &&
	    sodium_memcmp(token, a->token, n) == 0 && incarnation != NULL &&
	    strcmp(incarnation, a->incarnation) == 0 &&
	    json_int(json_get(r->body, "generation"), 1, 9007199254740991LL,
		&generation) &&
	    (uint64_t)generation == a->generation &&
	    strcmp(r->identity, a->identity) == 0;
}

void
assignment_ack(struct server *srv, struct req *r)
{
	const struct json *token;
	struct assignment *a;

	token = json_get(r->body, "leaseToken");
	if (!field_version(r) || field_incarnation(r) == NULL ||
	    !name_is_id(r->worker_id) ||
	    !json_int(
		json_get(r->body, "generation"), 1, 9007199254740991LL, NULL) ||
	    !json_is(token, JSON_STRING) || json_units(token) < 32) {
		req_error(r, 400, NULL, "the acknowledgement is not valid");
		return;
	}
	a = assignment_find(srv, r->assignment_id);
	if (a == NULL || !a->record || !a->claimed ||
	    strcmp(a->worker->id, r->worker_id) != 0 ||
	    !assignment_matches(a, r) ||
	    !worker_is_current(a->worker, a->incarnation)) {
		req_error(
		    r, 409, "ASSIGNMENT_FENCED", "the assignment is not yours");
		return;
	}
	a->acked = 1;
	req_accept(r, "accepted");
}

void
assignment_cancellation(struct server *srv, struct req *r)
{
	const struct assignment *a;
	const char *incarnation;
	struct buf b;
	int cancelled;

	incarnation = field_incarnation(r);
	if (!field_version(r) || incarnation == NULL ||
	    !name_is_id(r->worker_id)) {
		req_error(r, 400, NULL, "the request is not valid");
		return;
	}
	a = assignment_find(srv, r->assignment_id);
	cancelled = a == NULL || !a->record ||
	    strcmp(a->worker->id, r->worker_id) != 0 ||
	    strcmp(a->incarnation, incarnation) != 0 ||
	    !worker_is_current(a->worker, incarnation) || a->mark_expires != 0;
	reply_open(&b);
	w_bool(&b, "cancelled", cancelled);
	w_close(&b, '}');
	req_reply(r, 200, &b);
}

/* Ends the parts that are over; 1 if nothing is left. */
static int
expire(struct assignment *a, int64_t now)
{
	if (a->record && a->record_expires <= now && a->dispatch == NULL) {
		assignment_unclaim(a);
		a->record = 0;
	}
	if (a->receipt && a->receipt_expires <= now)
		a->receipt = 0;
	if (a->settlement != NULL && a->settlement_expires <= now) {
		free(a->settlement);
		a->settlement = NULL;
	}
	return a->dispatch == NULL && !a->record && !a->receipt &&
	    a->settlement == NULL;
}

void
assignments_sweep(struct server *srv, int all)
{
	struct assignment *a, *next;
	int64_t now;
	size_t i;

	now = server_now(srv);
	for (i = 0; i < ASSIGNMENT_BUCKETS; i++) {
		TAILQ_FOREACH_SAFE (a, &srv->assignments[i], entry, next) {
			if (all || expire(a, now))
				assignment_free(a);
		}
	}
}
