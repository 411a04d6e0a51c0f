#include "config.h"

#include <sys/queue.h>

#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <event2/event.h>
#include <sodium.h>

#include "api.h"
#include "credential.h"
#include "http.h"
#include "json.h"
#include "log.h"
#include "peer.h"
#include "times.h"

/* Largest clock difference that a server accepts in a proof. */
#define PROOF_WINDOW 60000
/* The Date header counts seconds, and the answer took a while. */
#define PROOF_MARGIN 3000
/* An answer from so many bytes on leaves holes in the heap. */
#define LARGE_ANSWER 65536
/* A limit below is what was left of a deadline, ms; its number says nothing. */
#define SHORT_LIMIT 500

enum call_state {
	CALL_HELD, /* waits for the end of a rotation */
	CALL_SIGNING,
	CALL_SENT
};

struct call {
	TAILQ_ENTRY(call) entry;
	struct bridge *b;
	enum call_state state;
	const char *name;
	char *target;
	struct buf body;
	uint32_t sign_id;
	int64_t proof_time; /* wall clock */
	int64_t limit;
	int late; /* the limit is over */
	struct event *timer;
	struct http_request *request;
	void (*done)(const struct reply *, void *);
	void *arg;
};

struct api {
	struct bridge *b;
	int held;
	TAILQ_HEAD(, call) calls;
};

enum outcome
api_outcome(int status, int json_ok)
{
	if (status >= 200 && status <= 299)
		return json_ok ? API_OK : API_AMBIGUOUS;
	if (status < 200 || status == 408 || status == 429 || status >= 500)
		return API_AMBIGUOUS;
	return API_DEFINITE;
}

int
api_terminal(int status, const char *code)
{
	return status == 401 || status == 403 ||
	    strcmp(code, "WORKER_FENCED") == 0 ||
	    strcmp(code, "WORKER_QUARANTINED") == 0;
}

int
api_clock_suspect(int status, const char *code, int64_t date,
    int64_t proof_time, int64_t *skew)
{
	*skew = 0;
	if (status != 401 || date < 0)
		return 0;
	/* A server without codes gives none; the others name the proof. */
	if (*code != '\0' && strcmp(code, "PROOF_INVALID") != 0)
		return 0;
	*skew = date - proof_time;
	return llabs(*skew) > PROOF_WINDOW - PROOF_MARGIN;
}

struct api *
api_new(struct bridge *b)
{
	struct api *a;

	a = xcalloc(1, sizeof(*a));
	a->b = b;
	TAILQ_INIT(&a->calls);
	return a;
}

static void
call_free(struct call *c)
{
	TAILQ_REMOVE(&c->b->api->calls, c, entry);
	if (c->request != NULL)
		http_cancel(c->request, c->late);
	event_free(c->timer);
	buf_wipe(&c->body);
	free(c->target);
	free(c);
}

void
api_free(struct api *a)
{
	struct call *c;

	while ((c = TAILQ_FIRST(&a->calls)) != NULL)
		call_free(c);
	free(a);
}

/* Ends a call with the reply; the call is gone before the caller hears. */
static void
call_finish(struct call *c, const struct reply *r)
{
	void (*done)(const struct reply *, void *) = c->done;
	void *arg = c->arg;

	call_free(c);
	done(r, arg);
}

static void
call_fail(struct call *c, const char *why)
{
	struct reply r;

	memset(&r, 0, sizeof(r));
	r.outcome = API_AMBIGUOUS;
	xsnprintf(r.text, sizeof(r.text), "%s: %s", c->name, why);
	call_finish(c, &r);
}

static void
on_limit(evutil_socket_t fd, short what, void *arg)
{
	struct call *c = arg;
	char why[64];

	(void)fd;
	(void)what;
	c->late = 1;
	if (c->limit < SHORT_LIMIT)
		xsnprintf(why, sizeof(why), "no answer until the deadline");
	else
		xsnprintf(why, sizeof(why), "no answer within %lld ms",
		    (long long)c->limit);
	call_fail(c, why);
}

/* A machine code, if it looks like one; it goes into the log. */
static void
copy_code(char *to, size_t size, const char *code)
{
	size_t n;

	*to = '\0';
	if (code == NULL)
		return;
	n = strspn(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
	if (code[n] == '\0' && n < size)
		xsnprintf(to, size, "%s", code);
}

/* The proof may have been refused because of the clock: say so, go on. */
static void
explain_refusal(struct call *c, struct reply *r, int64_t date)
{
	int64_t skew;

	r->terminal = api_terminal(r->status, r->code);
	/* A refusal that ended nothing explains no later one. */
	c->b->fenced = strcmp(r->code, "WORKER_FENCED") == 0;
	if (c->b->config.auth != AUTH_PAIRED ||
	    !api_clock_suspect(r->status, r->code, date, c->proof_time, &skew))
		return;
	r->terminal = 0;
	r->outcome = API_AMBIGUOUS;
	xsnprintf(r->text, sizeof(r->text),
	    "%s: proof refused; this clock is %lld s %s the server's (limit "
	    "60 s): set it, or start time synchronisation",
	    c->name, llabs(skew) / 1000, skew > 0 ? "behind" : "ahead of");
}

/* The many small pieces of a large answer go back to the system at once. */
static void
give_back(size_t len)
{
#ifdef __GLIBC__
	if (len >= LARGE_ANSWER)
		(void)malloc_trim(0);
#else
	(void)len;
#endif
}

static void
on_reply(struct http_reply *hr, void *arg)
{
	struct call *c = arg;
	struct reply r;
	struct json *json = NULL;
	const char *error, *s;
	size_t len = hr->body.len;

	c->request = NULL;
	if (hr->error != NULL) {
		call_fail(c, hr->error);
		return;
	}
	memset(&r, 0, sizeof(r));
	r.status = hr->status;
	json = json_parse(hr->body.data, hr->body.len, &error);
	if (json != NULL && json->type != JSON_OBJECT) {
		json_free(json);
		json = NULL;
	}
	r.outcome = api_outcome(r.status, json != NULL);
	if (r.outcome == API_OK)
		r.json = json;
	else if (r.status >= 200 && r.status <= 299)
		xsnprintf(r.text, sizeof(r.text),
		    "%s: HTTP %d without a JSON object", c->name, r.status);
	else {
		copy_code(r.code, sizeof(r.code), json_get_str(json, "code"));
		if ((s = json_get_str(json, "error")) != NULL)
			xsnprintf(r.error, sizeof(r.error), "%s", s);
		xsnprintf(r.text, sizeof(r.text), "%s: HTTP %d%s%s", c->name,
		    r.status, r.code[0] != '\0' ? " " : "", r.code);
		explain_refusal(c, &r, hr->date);
	}
	log_debug("%s: HTTP %d %s", c->name, r.status, r.code);
	call_finish(c, &r);
	json_free(json);
	give_back(len);
}

#define MAX_HEADERS 8

static void
add_header(char **headers, size_t *n, const char *name, const char *value)
{
	headers[(*n)++] = xasprintf("%s: %s", name, value);
}

static void
call_send(struct call *c, const struct sign_answer *proof)
{
	struct bridge *b = c->b;
	char *headers[MAX_HEADERS], *url;
	const char *list[MAX_HEADERS + 1];
	size_t i, n = 0;

	add_header(headers, &n, "Content-Type", "application/json");
	headers[n++] = xstrdup("Expect:"); /* none */
	if (proof != NULL) {
		headers[n++] = xasprintf("Authorization: Bridge %s",
		    credential_value(b->credentials));
		add_header(headers, &n, "X-LibreChat-Code-Timestamp",
		    proof->timestamp);
		add_header(headers, &n, "X-LibreChat-Code-Nonce", proof->nonce);
		add_header(headers, &n, "X-LibreChat-Code-Signature",
		    proof->signature);
	} else if (c->state != CALL_SENT)
		headers[n++] = xasprintf("Authorization: Bearer %s",
		    credential_value(b->credentials));
	c->state = CALL_SENT;
	for (i = 0; i < n; i++)
		list[i] = headers[i];
	list[n] = NULL;
	url = xasprintf("%s%s%s", b->url.origin, b->url.prefix, c->target);
	c->request = http_post(b->http, url, list, &c->body, on_reply, c);
	for (i = 0; i < n; i++) {
		explicit_bzero(headers[i], strlen(headers[i]));
		free(headers[i]);
	}
	free(url);
}

static void
call_sign(struct call *c)
{
	struct bridge *b = c->b;
	struct sign_request sr;
	struct buf m;

	if (b->api->held) {
		c->state = CALL_HELD;
		return;
	}
	c->state = CALL_SIGNING;
	c->sign_id = bridge_id(b);
	sr.path = xasprintf("%s%s", b->url.prefix, c->target);
	(void)crypto_hash_sha256(sr.sha256, c->body.data, c->body.len);
	buf_init(&m);
	sign_request_build(&m, &sr);
	peer_send(b->monitor, MSG_SIGN, c->sign_id, -1, &m);
	buf_free(&m);
	free(sr.path);
}

struct call *
api_call(struct bridge *b, const char *name, const char *target,
    struct buf *body, int64_t limit, int flags,
    void (*done)(const struct reply *, void *), void *arg)
{
	struct timeval tv;
	struct call *c;

	c = xcalloc(1, sizeof(*c));
	c->b = b;
	c->name = name;
	c->target = xstrdup(target);
	c->body = *body;
	buf_init(body);
	c->limit = limit < 1 ? 1 : limit;
	c->done = done;
	c->arg = arg;
	TAILQ_INSERT_TAIL(&b->api->calls, c, entry);
	if ((c->timer = evtimer_new(b->base, on_limit, c)) == NULL)
		fatalx("out of memory");
	tv.tv_sec = (time_t)(c->limit / 1000);
	tv.tv_usec = (suseconds_t)(c->limit % 1000 * 1000);
	(void)evtimer_add(c->timer, &tv);
	if (flags & CALL_UNSIGNED) {
		c->state = CALL_SENT;
		call_send(c, NULL);
	} else if (b->config.auth == AUTH_STATIC)
		call_send(c, NULL);
	else
		call_sign(c);
	return c;
}

int
api_signed(struct peer *p, struct imsg *im, void *arg)
{
	struct bridge *b = arg;
	struct sign_answer proof;
	struct call *c;

	(void)p;
	if (im->id == 0 || im->id > b->last_id ||
	    sign_answer_parse(im, &proof) == -1)
		return -1;
	TAILQ_FOREACH (c, &b->api->calls, entry)
		if (c->state == CALL_SIGNING && c->sign_id == im->id)
			break;
	/* Without one the call was cancelled meanwhile. */
	if (c != NULL) {
		c->proof_time = time_wall_ms();
		call_send(c, &proof);
	}
	sign_answer_free(&proof);
	return 0;
}

char *
api_worker_target(const struct bridge *b, const char *what)
{
	return xasprintf("/bridge/workers/%s/%s", b->worker, what);
}

char *
api_assignment_target(
    const struct bridge *b, const char *assignment, const char *what)
{
	struct buf id;
	char *target;

	buf_init(&id);
	url_encode(&id, assignment);
	target = xasprintf("/bridge/workers/%s/assignments/%s/%s", b->worker,
	    buf_cstr(&id), what);
	buf_free(&id);
	return target;
}

int
call_status(const struct call *c)
{
	return c->request == NULL ? 0 : http_request_status(c->request);
}

void
call_cancel(struct call **c)
{
	if (*c != NULL)
		call_free(*c);
	*c = NULL;
}

void
api_hold(struct api *a)
{
	a->held = 1;
}

void
api_release(struct api *a)
{
	struct call *c;

	a->held = 0;
	TAILQ_FOREACH (c, &a->calls, entry)
		if (c->state == CALL_HELD)
			call_sign(c);
}

void
reply_misshapen(struct reply *r, const char *name, const char *what)
{
	r->outcome = API_AMBIGUOUS;
	xsnprintf(r->text, sizeof(r->text), "%s: HTTP %d, but %s", name,
	    r->status, what);
}
