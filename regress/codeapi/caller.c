#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caller.h"
#include "canon.h"
#include "capabilities.h"
#include "dispatch.h"
#include "http.h"
#include "validate.h"

#define COMMAND_TIMEOUT 30000 /* ms, when the request has none (17.4) */
#define RATE_WINDOW     30000 /* ms (17.2) */
#define LOCAL_TENANT    "local"

static const struct {
	int status;
	const char *codes;
} statuses[] = {
	{ 504,
	    "SEARCH_TIMEOUT LIST_TIMEOUT COMMAND_TIMEOUT "
	    "ASSIGNMENT_EXPIRED" },
	{ 503,
	    "SEARCH_UNAVAILABLE LIST_UNAVAILABLE COMMAND_UNAVAILABLE "
	    "WRITE_UNAVAILABLE WORKER_OFFLINE WORKER_BUSY" },
	{ 403, "WRITE_DISABLED COMMAND_DISABLED WORKER_UNAUTHORIZED" },
	{ 413, "WRITE_LIMIT_EXCEEDED" },
	{ 409, "EDIT_CONFLICT" },
	{ 400, "ASSIGNMENT_INVALID" },
	{ 429, "WORKER_QUEUE_FULL" },
	{ 502, "RESULT_INVALID" },
};

static int
status_of(const char *code, int otherwise)
{
	size_t i;

	for (i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		if (name_in(statuses[i].codes, code))
			return statuses[i].status;
	}
	return otherwise;
}

static void
caller_log(const struct req *r, int status, const char *code)
{
	if (!r->srv->set.caller_log)
		return;
	printf("caller %d %s %lld ms\n", status, code == NULL ? "-" : code,
	    (long long)(monotonic_ms() - r->started));
	fflush(stdout);
}

void
caller_fail(struct req *r, const char *code)
{
	int status;

	status = code == NULL ? 500 : status_of(code, 409);
	caller_log(r, status, code);
	req_error(r, status, code, "the request could not be carried out");
}

void
caller_rejected(struct req *r, const struct json *settlement)
{
	const struct json *error;
	const char *code;
	struct buf b;
	int status;

	error = json_get(settlement, "error");
	code = json_text(json_get(settlement, "errorCode"));
	status = 422;
	if (code == NULL)
		code = "WORKSPACE_TOOL_REJECTED";
	else
		status = status_of(code, 422);
	caller_log(r, status, code);
	buf_init(&b);
	w_open(&b, NULL, '{');
	w_json(&b, "error", error);
	w_str(&b, "code", code);
	w_close(&b, '}');
	req_reply(r, status, &b);
}

void
caller_fulfilled(struct req *r, const struct json *result)
{
	struct buf b;

	caller_log(r, 200, NULL);
	buf_init(&b);
	canon_json(&b, result);
	req_reply(r, 200, &b);
}

/* The request with timeoutMs filled in (17.4); the caller frees it. */
static struct json *
completed(const struct server *srv, const struct json *request)
{
	struct json *c;
	const char *op;
	long long ms;

	c = json_copy(request);
	op = json_text(json_get(c, "operation"));
	if (op == NULL || strcmp(op, "execute_command") != 0)
		return c;
	if (!json_int(json_get(c, "timeoutMs"), 1, 300000, &ms))
		ms = COMMAND_TIMEOUT;
	if (ms > srv->set.job_timeout)
		ms = srv->set.job_timeout;
	json_put(c, "timeoutMs", json_number((double)ms));
	return c;
}

void
caller_dispatch(struct server *srv, struct req *r, const char *id,
    const struct json *request, const char *tenant, int is_explicit)
{
	struct work work;
	struct json *complete;

	if (!request_valid(request)) {
		req_error(r, 400, NULL, "the workspace request is not valid");
		return;
	}
	if (id == NULL || *id == '\0') {
		req_error(r, 503, NULL, "no worker is configured");
		return;
	}
	complete = completed(srv, request);
	memset(&work, 0, sizeof(work));
	work.request = complete;
	work.tenant = tenant;
	work.binding_required = is_explicit &&
	    (srv->set.dynamic || strcmp(id, srv->set.worker) != 0);
	dispatch_start(srv, r, worker_find(srv, id, 1), &work);
	json_free(complete);
}

/* Chapter 17.2, if a limit was set: 1 if the request was refused. */
static int
limit_rate(struct server *srv, struct req *r)
{
	struct buf b;
	int64_t now, left;

	if (srv->set.rate_limit == 0)
		return 0;
	now = monotonic_ms();
	if (now - srv->rate_window >= RATE_WINDOW) {
		srv->rate_window = now;
		srv->rate_count = 0;
	}
	if (++srv->rate_count <= srv->set.rate_limit)
		return 0;
	left = (RATE_WINDOW - (now - srv->rate_window) + 999) / 1000;
	buf_init(&b);
	w_open(&b, NULL, '{');
	w_str(&b, "error", "rate_limited");
	w_str(&b, "message", "too many requests");
	w_int(&b, "retry_after_seconds", left);
	w_close(&b, '}');
	req_reply(r, 429, &b);
	return 1;
}

/* Chapter 17.3: 1 if the caller names a worker, which takes a claim. */
static int
names_worker(const struct req *r)
{
	const char *h;

	h = req_header(r, "X-LibreChat-Code-Worker-ID");
	return h != NULL && h[strspn(h, " \t")] != '\0';
}

void
caller_execute(struct server *srv, struct req *r)
{
	if (limit_rate(srv, r))
		return;
	if (!request_valid(r->body))
		req_error(r, 400, NULL, "the workspace request is not valid");
	else if (names_worker(r))
		req_error(r, 403, NULL, "the worker is not yours to choose");
	else
		caller_dispatch(
		    srv, r, srv->set.worker, r->body, LOCAL_TENANT, 0);
}
