#include "config.h"

#include <string.h>

#include "canon.h"
#include "capabilities.h"
#include "control.h"
#include "dispatch.h"
#include "fence.h"
#include "http.h"
#include "pairing.h"
#include "registration.h"
#include "slots.h"
#include "utf8.h"

#define READY_EXTRA                                              \
	5000 /* ms beyond half a registration's life (chapter 7) \
	      */

int
field_version(const struct req *r)
{
	return json_int(json_get(r->body, "protocolVersion"), 1, 1, NULL);
}

const char *
field_incarnation(const struct req *r)
{
	const char *s;

	s = json_text(json_get(r->body, "incarnationId"));
	return name_is_incarnation(s) ? s : NULL;
}

/* The number of slots a registration gets (6.4, 14.1). */
static unsigned int
granted_slots(const struct server *srv, const struct json *capabilities)
{
	long long n;

	if (srv->set.old_server ||
	    !json_int(json_get(capabilities, "workspaceLeaseSlots"), 1, 8, &n))
		return 1;
	return (unsigned int)n < srv->set.ceiling ? (unsigned int)n
						  : srv->set.ceiling;
}

static void
write_list(struct buf *b, const char *name, const char *list)
{
	char word[64];
	size_t n;

	w_open(b, name, '[');
	for (; *list != '\0'; list += n + (list[n] == ' ' ? 1U : 0U)) {
		n = strcspn(list, " ");
		xsnprintf(word, sizeof(word), "%.*s", (int)n, list);
		w_str(b, NULL, word);
	}
	w_close(b, ']');
}

static void
answer_registered(struct server *srv, struct req *r, const struct worker *w)
{
	char now[ISO_TIME_SIZE];
	struct buf b;

	iso_time(now, server_now(srv));
	reply_open(&b);
	w_str(&b, "workerId", w->id);
	w_str(&b, "incarnationId", w->incarnation);
	w_int(&b, "registrationGeneration",
	    (long long)w->registration_generation);
	w_str(&b, "registeredAt", now);
	w_int(&b, "leaseTtlMs", srv->set.lease_ttl);
	if (!srv->set.old_server) {
		w_int(&b, "workspaceLeaseSlots", w->slots);
		write_list(&b, "supportedWorkspaceToolOperations",
		    WORKSPACE_OPERATIONS);
		write_list(
		    &b, "supportedWorkspaceWriteFileModes", "replace create");
		write_list(
		    &b, "supportedWorkspaceEditFileModes", "single batch");
		write_list(&b, "supportedWorkspaceEditFileFeatures",
		    "expected_base_sha256");
		write_list(
		    &b, "supportedWorkspaceListFileFeatures", "after_path");
	}
	w_close(&b, '}');
	req_reply(r, 200, &b);
}

void
registration_replace(struct worker *w, const char *incarnation,
    const struct json *capabilities, const struct json *binding,
    const char *identity)
{
	struct server *srv = w->srv;
	struct json *stored;
	const char *current;

	current = worker_current(w);
	if (current != NULL && strcmp(current, incarnation) != 0)
		worker_incarnation(w, current, 1)->fenced = 1;
	if (strcmp(w->generation_incarnation, incarnation) != 0) {
		w->registration_generation++;
		xsnprintf(w->generation_incarnation,
		    sizeof(w->generation_incarnation), "%s", incarnation);
		w->ready_expires = 0;
	}
	stored = json_copy(capabilities);
	w->slots = granted_slots(srv, stored);
	if (json_get(stored, "workspaceLeaseSlots") != NULL)
		json_put(stored, "workspaceLeaseSlots", json_number(w->slots));
	json_free(w->capabilities);
	w->capabilities = stored;
	stored = json_copy(binding);
	json_free(w->binding);
	w->binding = stored;
	xsnprintf(w->registered_identity, sizeof(w->registered_identity), "%s",
	    identity == NULL ? "" : identity);
	memmove(w->incarnation, incarnation, strlen(incarnation) + 1);
	w->registration_expires = server_now(srv) + srv->set.lease_ttl;
}

/* Rows 4 to 11 of 6.3; NULL if the registration may go on. */
static const char *
refusal(struct server *srv, struct worker *w, const char *incarnation,
    const struct json *capabilities)
{
	const struct incarnation *mark;
	const char *current;

	if (!srv->set.old_server &&
	    json_get(capabilities, "workspaceLeaseSlots") != NULL &&
	    !json_true(json_get(capabilities, "requiresReadyConfirmation")))
		return "WORKER_MISMATCH";
	mark = worker_incarnation(w, incarnation, 0);
	if (mark != NULL && mark->quarantined)
		return "WORKER_QUARANTINED";
	if (mark != NULL && mark->fenced)
		return "WORKER_FENCED";
	if (!lock_held(w))
		return NULL;
	if ((current = worker_current(w)) == NULL)
		return lock_held_by_other(w, incarnation) ? "WORKER_BUSY"
							  : NULL;
	if (strcmp(current, incarnation) != 0 ||
	    granted_slots(srv, capabilities) != w->slots)
		return "WORKER_BUSY";
	return NULL;
}

void
registration_register(struct server *srv, struct req *r)
{
	const struct json *capabilities;
	const char *id, *incarnation, *code;
	struct worker *w;

	id = json_text(json_get(r->body, "workerId"));
	incarnation = field_incarnation(r);
	capabilities = json_get(r->body, "capabilities");
	if (!field_version(r) || !name_is_id(id) || incarnation == NULL ||
	    !capabilities_valid(capabilities)) {
		req_error(r, 400, NULL, "the registration is not valid");
		return;
	}
	if (!worker_configured(srv, id)) {
		req_error(r, 403, NULL, "the worker is not configured");
		return;
	}
	w = worker_find(srv, id, 1);
	if ((code = refusal(srv, w, incarnation, capabilities)) != NULL) {
		req_error(r, strcmp(code, "WORKER_BUSY") == 0 ? 503 : 409, code,
		    "the registration is refused");
		return;
	}
	registration_replace(
	    w, incarnation, capabilities, r->binding, r->identity);
	answer_registered(srv, r, w);
	dispatch_pump(w);
	waits_check(srv);
}

static int64_t
ready_life(const struct server *srv)
{
	int64_t ms;

	ms = (srv->set.lease_ttl + 1) / 2 + READY_EXTRA;
	return ms < srv->set.lease_ttl ? ms : srv->set.lease_ttl;
}

void
registration_ready(struct server *srv, struct req *r)
{
	const struct incarnation *mark;
	const char *incarnation;
	struct worker *w;
	long long generation;

	incarnation = field_incarnation(r);
	if (!field_version(r) || incarnation == NULL ||
	    !name_is_id(r->worker_id) ||
	    !json_int(json_get(r->body, "registrationGeneration"), 1,
		9007199254740991LL, &generation)) {
		req_error(r, 400, NULL, "the confirmation is not valid");
		return;
	}
	if (!worker_configured(srv, r->worker_id)) {
		req_error(r, 403, NULL, "the worker is not configured");
		return;
	}
	w = worker_find(srv, r->worker_id, 0);
	if (w == NULL || worker_current(w) == NULL) {
		req_error(r, 409, "WORKER_OFFLINE", "no registration is alive");
		return;
	}
	mark = worker_incarnation(w, incarnation, 0);
	if (!worker_is_current(w, incarnation) ||
	    (uint64_t)generation != w->registration_generation ||
	    (mark != NULL && mark->fenced)) {
		req_error(r, 409, "WORKER_FENCED", "another incarnation runs");
		return;
	}
	if (mark != NULL && mark->quarantined) {
		req_error(r, 409, "WORKER_QUARANTINED", "quarantined");
		return;
	}
	memcpy(
	    w->ready_incarnation, w->incarnation, sizeof(w->ready_incarnation));
	w->ready_generation = w->registration_generation;
	w->ready_expires = server_now(srv) + ready_life(srv);
	req_accept(r, "ready");
	dispatch_pump(w);
	waits_check(srv);
}

void
registration_status(struct server *srv, struct req *r)
{
	const struct worker *w;
	struct buf b;
	int online;

	if (!name_is_id(r->worker_id) ||
	    !worker_configured(srv, r->worker_id)) {
		req_error(r, 400, NULL, "workerId is not valid here");
		return;
	}
	w = worker_find(srv, r->worker_id, 0);
	online = w != NULL && worker_current(w) != NULL;
	reply_open(&b);
	w_str(&b, "workerId", r->worker_id);
	w_bool(&b, "online", online);
	w_bool(&b, "ready", online && worker_ready(w));
	if (online) {
		w_int(&b, "leaseExpiresInMs",
		    w->registration_expires - server_now(srv));
		w_json(&b, "capabilities", w->capabilities);
	}
	w_close(&b, '}');
	req_reply(r, 200, &b);
}

void
registration_reset(struct server *srv, struct req *r)
{
	const struct json *session;
	const char *incarnation;
	struct worker *w;

	incarnation = field_incarnation(r);
	session = json_get(r->body, "runtimeSessionId");
	if (!field_version(r) || incarnation == NULL ||
	    !name_is_id(r->worker_id) || !json_is(session, JSON_STRING) ||
	    json_units(session) < 1 || json_units(session) > 512 ||
	    utf8_blank(session->u.string.data, session->u.string.len) ||
	    !json_true(json_get(r->body, "confirmDiscarded"))) {
		req_error(r, 400, NULL, "the reset is not valid");
		return;
	}
	if (!worker_configured(srv, r->worker_id)) {
		req_error(r, 403, NULL, "the worker is not configured");
		return;
	}
	w = worker_find(srv, r->worker_id, 0);
	if (w == NULL || !worker_is_current(w, incarnation)) {
		req_error(r, 409, "WORKER_FENCED", "another incarnation runs");
		return;
	}
	if (lock_held(w)) {
		req_error(r, 503, "WORKER_BUSY", "work is in progress");
		return;
	}
	fence_reset(w, session->u.string.data);
	req_accept(r, "reset");
}
