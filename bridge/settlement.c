#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "json.h"
#include "log.h"
#include "result.h"
#include "settlement.h"
#include "timer.h"
#include "times.h"
#include "utf8.h"

#define ERROR_MAX     4096 /* UTF-16 units */
#define ATTEMPT_LIMIT 10000
#define FIRST_LIMIT   5000 /* even when the deadline is over */
#define RETRY_DELAY   100

struct settlement {
	struct bridge *b;
	char *target;
	struct buf body;
	int64_t deadline;
	int attempts;
	struct call *call;
	struct event *timer;
	struct failure last;
	void (*done)(enum outcome, const struct failure *, void *);
	void *arg;
};

void
fence_free(struct fence *f)
{
	free(f->assignment);
	if (f->token != NULL)
		explicit_bzero(f->token, strlen(f->token));
	free(f->token);
	memset(f, 0, sizeof(*f));
}

void
fence_ack(struct buf *body, const struct bridge *b, const struct fence *f)
{
	struct jwriter w;

	jw_init(&w, body);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_member_str(&w, "incarnationId", b->config.incarnation);
	jw_member_int(&w, "generation", f->generation);
	jw_member_str(&w, "leaseToken", f->token);
	jw_object_end(&w);
}

static void
begin(struct jwriter *w, struct buf *body, const struct bridge *b,
    const struct fence *f, const char *status)
{
	jw_init(w, body);
	jw_object(w);
	jw_member_int(w, "protocolVersion", 1);
	jw_member_int(w, "generation", f->generation);
	jw_member_str(w, "leaseToken", f->token);
	jw_member_str(w, "incarnationId", b->config.incarnation);
	jw_member_str(w, "status", status);
}

void
settlement_fulfilled(struct buf *body, const struct bridge *b,
    const struct fence *f, const char *workspace, const struct request *q,
    const struct result *r, int after_path)
{
	struct jwriter w;

	begin(&w, body, b, f, "fulfilled");
	jw_name(&w, "result");
	result_write(&w, workspace, q, r, after_path);
	jw_object_end(&w);
}

void
settlement_rejected(struct buf *body, const struct bridge *b,
    const struct fence *f, enum error_code code, const char *text)
{
	struct jwriter w;

	begin(&w, body, b, f, "rejected");
	if (error_code_name(code) != NULL)
		jw_member_str(&w, "errorCode", error_code_name(code));
	jw_member_bytes(
	    &w, "error", text, utf8_cut_units(text, strlen(text), ERROR_MAX));
	jw_object_end(&w);
}

static void
settlement_free(struct settlement *s)
{
	call_cancel(&s->call);
	event_free(s->timer);
	buf_wipe(&s->body);
	free(s->target);
	free(s);
}

static void
finish(struct settlement *s, enum outcome outcome)
{
	void (*done)(enum outcome, const struct failure *, void *) = s->done;
	struct failure f = s->last;
	void *arg = s->arg;

	settlement_free(s);
	done(outcome, &f, arg);
}

static void
on_attempt(const struct reply *r, void *arg)
{
	struct settlement *s = arg;
	int64_t left;

	s->call = NULL;
	if (r->outcome == API_OK) {
		failure_set(&s->last, FAIL_NONE, " ");
		finish(s, API_OK);
		return;
	}
	failure_set(
	    &s->last, r->terminal ? FAIL_TERMINAL : FAIL_RETRY, "%s", r->text);
	left = s->deadline - time_mono_ms();
	if (r->outcome == API_DEFINITE || left <= 0) {
		finish(s, r->outcome);
		return;
	}
	if (s->attempts == 1)
		log_warnx("settlement %s; delivering it again", r->text);
	timer_set(s->timer, left > RETRY_DELAY ? RETRY_DELAY : left);
}

static void
attempt(evutil_socket_t fd, short what, void *arg)
{
	struct settlement *s = arg;
	int64_t limit = s->deadline - time_mono_ms();
	struct buf body;

	(void)fd;
	(void)what;
	if (s->attempts == 0 && limit < FIRST_LIMIT)
		limit = FIRST_LIMIT;
	if (limit > ATTEMPT_LIMIT)
		limit = ATTEMPT_LIMIT;
	s->attempts++;
	buf_init(&body);
	buf_add(&body, s->body.data, s->body.len);
	s->call = api_call(
	    s->b, "settle", s->target, &body, limit, 0, on_attempt, s);
}

struct settlement *
settlement_send(struct bridge *b, const struct fence *f, struct buf *body,
    int64_t deadline,
    void (*done)(enum outcome, const struct failure *, void *), void *arg)
{
	struct settlement *s;

	s = xcalloc(1, sizeof(*s));
	s->b = b;
	s->target = api_assignment_target(b, f->assignment, "settle");
	s->body = *body;
	buf_init(body);
	s->deadline = deadline;
	s->done = done;
	s->arg = arg;
	if ((s->timer = evtimer_new(b->base, attempt, s)) == NULL)
		fatalx("out of memory");
	attempt(-1, 0, s);
	return s;
}

void
settlement_cap(struct settlement *s, int64_t deadline)
{
	if (s->deadline > deadline)
		s->deadline = deadline;
}

void
settlement_cancel(struct settlement **s)
{
	if (*s != NULL)
		settlement_free(*s);
	*s = NULL;
}
