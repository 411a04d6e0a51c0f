#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "assignment.h"
#include "canon.h"
#include "capabilities.h"
#include "control.h"
#include "dispatch.h"
#include "fence.h"
#include "http.h"
#include "registration.h"
#include "settle.h"
#include "slots.h"

#define ERROR_MAX 4096 /* UTF-16 units */

static const char error_codes[] =
    "INVALID_PATH INVALID_REQUEST READ_LIMIT_EXCEEDED WRITE_LIMIT_EXCEEDED "
    "WRITE_DISABLED WRITE_UNAVAILABLE EDIT_CONFLICT REGISTRATION_INVALID "
    "EXECUTION_ABORTED LIST_TIMEOUT LIST_UNAVAILABLE SEARCH_TIMEOUT "
    "SEARCH_UNAVAILABLE COMMAND_TIMEOUT COMMAND_UNAVAILABLE COMMAND_DISABLED";

static int
is_fulfilled(const struct json *body)
{
	const char *s;

	s = json_text(json_get(body, "status"));
	return s != NULL && strcmp(s, "fulfilled") == 0;
}

/* The field rules of 11.1. */
static int
body_valid(const struct req *r)
{
	const struct json *token, *v;
	const char *status;

	token = json_get(r->body, "leaseToken");
	status = json_text(json_get(r->body, "status"));
	if (!field_version(r) || field_incarnation(r) == NULL ||
	    !name_is_id(r->worker_id) ||
	    !json_int(
		json_get(r->body, "generation"), 1, 9007199254740991LL, NULL) ||
	    !json_is(token, JSON_STRING) || json_units(token) < 32 ||
	    status == NULL)
		return 0;
	if (strcmp(status, "fulfilled") == 0) {
		v = json_get(r->body, "result");
		return json_is(v, JSON_OBJECT) || json_is(v, JSON_ARRAY);
	}
	if (strcmp(status, "rejected") != 0)
		return 0;
	v = json_get(r->body, "error");
	if (!json_is(v, JSON_STRING) || json_units(v) > ERROR_MAX)
		return 0;
	v = json_get(r->body, "errorCode");
	return v == NULL || name_in(error_codes, json_text(v));
}

static void
store(struct assignment *a, const struct json *body, char *text)
{
	free(a->settlement);
	json_free(a->settled);
	a->settlement = text;
	a->settled = json_copy(body);
	a->settlement_expires = record_life(a->worker->srv, a->expires);
}

/* Rows 4 to 10 of 11.2; NULL if the settlement is to be stored. */
static const char *
refusal(const struct assignment *a, const struct req *r, int fulfilled)
{
	const struct worker *w = a->worker;
	const char *live;

	if (strcmp(w->id, r->worker_id) != 0)
		return "WORKER_MISMATCH";
	if (!assignment_matches(a, r) || !worker_is_current(w, a->incarnation))
		return "ASSIGNMENT_FENCED";
	if (fulfilled && a->expires <= server_now(w->srv))
		return "ASSIGNMENT_EXPIRED";
	if (a->fence != NULL && !fence_is(w, a->fence, a->id))
		return "WORKSPACE_QUARANTINED";
	if (fulfilled && !a->open)
		return "ASSIGNMENT_EXPIRED";
	live = worker_identity(w);
	if (*a->identity != '\0' &&
	    (live == NULL || strcmp(live, a->identity) != 0))
		return "ASSIGNMENT_FENCED";
	return NULL;
}

/* Deletes the fence when both halves of 15.3 are there. */
static void
settle_fence(struct assignment *a)
{
	if (a->committed && a->cleaned && fence_is(a->worker, a->fence, a->id))
		fence_clear(a->worker, a->fence);
}

/* What follows from a settlement or receipt besides its answer. */
static void
proceed(struct assignment *a)
{
	struct worker *w = a->worker;

	settle_fence(a);
	if (a->dispatch != NULL && a->settlement != NULL)
		dispatch_settled(a->dispatch);
	else if (a->dispatch == NULL)
		assignment_cleanup(a);
	dispatch_pump(w);
	waits_check(w->srv);
}

void
settle(struct server *srv, struct req *r)
{
	struct assignment *a;
	const char *code;
	struct buf text;
	int fulfilled, same;

	if (!body_valid(r)) {
		req_error(r, 400, NULL, "the settlement is not valid");
		return;
	}
	fulfilled = is_fulfilled(r->body);
	a = assignment_find(srv, r->assignment_id);
	buf_init(&text);
	canon_json(&text, r->body);
	buf_cstr(&text);
	if (a != NULL && a->settlement != NULL) {
		same = strcmp(a->settlement, (char *)text.data) == 0;
		buf_free(&text);
		if (same)
			req_accept(r, "accepted");
		else
			req_error(r, 409, "ASSIGNMENT_FENCED",
			    "another settlement was accepted");
		return;
	}
	if (a == NULL || !a->record) {
		buf_free(&text);
		req_error(r, 404, "ASSIGNMENT_NOT_FOUND", "no such assignment");
		return;
	}
	if ((code = refusal(a, r, fulfilled)) != NULL) {
		buf_free(&text);
		req_error(r, 409, code, "the settlement is refused");
		return;
	}
	store(a, r->body, buf_steal(&text));
	assignment_unclaim(a);
	if (!fulfilled) {
		a->committed = 1;
		if (a->session != NULL)
			fence_clear(a->worker, a->fence);
	}
	req_accept(r, "accepted");
	proceed(a);
}

/* The assignment whose receipt the request may use, or NULL (15.4). */
static struct assignment *
receipt_owner(struct server *srv, const struct req *r)
{
	struct assignment *a;
	const char *live;

	a = assignment_find(srv, r->assignment_id);
	if (a == NULL || !a->receipt || a->receipt_expires <= server_now(srv) ||
	    is_fulfilled(r->body) || strcmp(a->worker->id, r->worker_id) != 0 ||
	    !assignment_matches(a, r) ||
	    !worker_is_current(a->worker, a->incarnation) ||
	    fence_epoch(a->worker, a->fence) != a->epoch)
		return NULL;
	live = worker_identity(a->worker);
	if (*a->identity != '\0' &&
	    (live == NULL || strcmp(live, a->identity) != 0))
		return NULL;
	return a;
}

/* Checks a receipt; NULL after having answered. */
static struct assignment *
receipt_check(struct server *srv, struct req *r)
{
	struct assignment *a;

	if (!body_valid(r)) {
		req_error(r, 400, NULL, "the receipt is not valid");
		return NULL;
	}
	if ((a = receipt_owner(srv, r)) == NULL)
		req_error(
		    r, 409, "ASSIGNMENT_FENCED", "the receipt is not yours");
	return a;
}

static int
is_quarantined(const struct assignment *a)
{
	const char *value;

	value = fence_value(a->worker, a->fence);
	return value != NULL && strncmp(value, "quarantined:", 12) == 0;
}

void
settle_cleanup(struct server *srv, struct req *r)
{
	struct assignment *a;

	if ((a = receipt_check(srv, r)) == NULL)
		return;
	if (is_quarantined(a)) {
		req_error(
		    r, 409, "ASSIGNMENT_FENCED", "the root is quarantined");
		return;
	}
	a->cleaned = 1;
	assignment_unclaim(a);
	req_accept(r, "accepted");
	proceed(a);
}

void
settle_quarantine(struct server *srv, struct req *r)
{
	struct assignment *a;
	struct buf text;
	char *value;

	if ((a = receipt_check(srv, r)) == NULL)
		return;
	if (a->committed && a->cleaned) {
		req_accept(r, "accepted");
		return;
	}
	value = xasprintf("quarantined:%s", a->id);
	fence_set(a->worker, a->fence, value);
	free(value);
	if (a->settlement == NULL) {
		buf_init(&text);
		canon_json(&text, r->body);
		store(a, r->body, buf_steal(&text));
	}
	assignment_unclaim(a);
	lock_release(a->worker, a->owner);
	req_accept(r, "accepted");
	proceed(a);
}
