#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "caller.h"
#include "canon.h"
#include "control.h"
#include "dispatch.h"
#include "http.h"
#include "journal.h"
#include "lease.h"
#include "pairing.h"
#include "registration.h"

static void
accept_control(struct req *r)
{
	struct buf b;

	buf_init(&b);
	buf_adds(&b, "{\"ok\":true}");
	req_reply(r, 200, &b);
}

static void
refuse_control(struct req *r, const char *text)
{
	req_error(r, 400, NULL, text);
}

/* The worker id of the body, the configured one, or NULL. */
static const char *
body_worker(const struct server *srv, const struct req *r)
{
	const char *id;

	id = json_text(json_get(r->body, "workerId"));
	if (id != NULL)
		return name_is_id(id) ? id : NULL;
	return *srv->set.worker != '\0' ? srv->set.worker : NULL;
}

void
control_pair(struct server *srv, struct req *r)
{
	static const char local[] = "{\"tenantId\":\"local\",\"principal\":"
				    "{\"type\":\"user\",\"id\":\"local\"}}";
	const struct json *binding;
	struct json *b;
	const char *id;

	id = body_worker(srv, r);
	binding = json_get(r->body, "binding");
	if (!srv->set.paired)
		req_error(r, 409, NULL, "this server uses a static token");
	else if (id == NULL || !worker_configured(srv, id))
		refuse_control(r, "workerId is not valid here");
	else if (binding != NULL && !binding_valid(binding))
		refuse_control(r, "binding is not valid");
	else {
		b = json_copy(binding);
		if (b == NULL && srv->set.dynamic)
			b = json_parse(local, strlen(local));
		pairing_issue(srv, r, id, b);
	}
}

void
control_faults(struct server *srv, struct req *r)
{
	if (fault_rules(srv, r->body) == -1)
		refuse_control(r, "the rules are not valid");
	else
		accept_control(r);
}

void
control_sandbox(struct server *srv, struct req *r)
{
	const struct json *body, *headers;
	struct json *request;
	struct work work;
	const char *id;
	long long ms;

	id = body_worker(srv, r);
	body = json_get(r->body, "body");
	headers = json_get(r->body, "headers");
	if (id == NULL || body == NULL ||
	    (headers != NULL && !json_is(headers, JSON_OBJECT))) {
		refuse_control(r, "workerId, body or headers are not valid");
		return;
	}
	memset(&work, 0, sizeof(work));
	work.sandbox = 1;
	work.tenant = "local";
	work.session = json_text(json_get(r->body, "runtimeSessionId"));
	work.fail_finaliser = json_true(json_get(r->body, "failFinaliser"));
	if (json_int(json_get(r->body, "timeoutMs"), 1, 86400000, &ms))
		work.job_timeout = ms;
	request = json_object();
	json_put(request, "body", json_copy(body));
	json_put(request, "headers",
	    headers == NULL ? json_object() : json_copy(headers));
	work.request = request;
	dispatch_start(srv, r, worker_find(srv, id, 1), &work);
	json_free(request);
}

void
control_execute(struct server *srv, struct req *r)
{
	const char *tenant;

	tenant = json_text(json_get(r->body, "tenantId"));
	caller_dispatch(srv, r, body_worker(srv, r),
	    json_get(r->body, "request"), tenant == NULL ? "local" : tenant, 1);
}

void
control_requests(struct server *srv, struct req *r)
{
	struct buf b;

	buf_init(&b);
	journal_write(srv, &b, req_query_number(r, "since", 0));
	req_reply(r, 200, &b);
}

void
control_clock(struct server *srv, struct req *r)
{
	long long ms;

	if (!json_int(json_get(r->body, "offsetMs"), -1000000000000LL,
		1000000000000LL, &ms)) {
		refuse_control(r, "offsetMs is not valid");
		return;
	}
	srv->clock_offset = ms;
	accept_control(r);
}

void
control_restart(struct server *srv, struct req *r)
{
	struct worker *w;

	TAILQ_FOREACH (w, &srv->workers, entry) {
		lease_forget(w);
		dispatch_forget(w);
	}
	waits_forget(srv);
	http_drop_all(srv, r);
	if (!json_true(json_get(r->body, "memory")))
		server_forget(srv);
	accept_control(r);
}

void
control_revoke(struct server *srv, struct req *r)
{
	const char *id;

	if ((id = body_worker(srv, r)) == NULL) {
		refuse_control(r, "workerId is not valid");
		return;
	}
	worker_revoke(worker_find(srv, id, 1));
	accept_control(r);
}

void
control_expire_credentials(struct server *srv, struct req *r)
{
	struct worker *w;

	credentials_sweep(srv, 1);
	TAILQ_FOREACH (w, &srv->workers, entry)
		w->identity_expires = 0;
	accept_control(r);
}

void
control_fence(struct server *srv, struct req *r)
{
	char incarnation[RANDOM_ID_SIZE];
	struct worker *w;
	const char *id;

	id = body_worker(srv, r);
	if (id == NULL || (w = worker_find(srv, id, 0)) == NULL ||
	    worker_current(w) == NULL) {
		refuse_control(r, "that worker is not registered");
		return;
	}
	random_id(incarnation, 18);
	registration_replace(w, incarnation, w->capabilities, w->binding,
	    w->registered_identity);
	accept_control(r);
	dispatch_pump(w);
	lease_offer(w);
	waits_check(srv);
}

void
control_ceiling(struct server *srv, struct req *r)
{
	struct worker *w;
	long long n;

	if (!json_int(json_get(r->body, "slots"), 1, SLOTS_MAX, &n)) {
		refuse_control(r, "slots is not 1 to 8");
		return;
	}
	srv->set.ceiling = (unsigned int)n;
	accept_control(r);
	TAILQ_FOREACH (w, &srv->workers, entry)
		dispatch_pump(w);
}

void
control_budgets(struct server *srv, struct req *r)
{
	struct {
		const char *name;
		int64_t *value;
	} budgets[] = {
		{ "queueMs", &srv->set.queue_time },
		{ "jobTimeoutMs", &srv->set.job_timeout },
		{ "toolMs", &srv->set.tool_budget },
		{ "commandGraceMs", &srv->set.command_grace },
		{ "recordGraceMs", &srv->set.record_grace },
		{ "leaseTtlMs", &srv->set.lease_ttl },
		{ "credentialTtlMs", &srv->set.credential_ttl },
		{ "pairingTtlMs", &srv->set.pairing_ttl },
	};
	long long ms;
	size_t i;

	for (i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
		if (json_get(r->body, budgets[i].name) == NULL)
			continue;
		if (!json_int(
			json_get(r->body, budgets[i].name), 0, 86400000, &ms)) {
			refuse_control(r, "a budget is not valid");
			return;
		}
		*budgets[i].value = ms;
	}
	accept_control(r);
}
