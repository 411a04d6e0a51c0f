#include "config.h"

#include <stdlib.h>

#include <event2/event.h>

#include "api.h"
#include "cancellation.h"
#include "json.h"
#include "log.h"

#define POLL_INTERVAL 500
#define POLL_LIMIT    2000

struct cancellation {
	struct bridge *b;
	const char *id;
	struct event *timer;
	struct call *call;
	void (*cancelled)(void *);
	void (*drained)(void *);
	void *arg;
};

static void
schedule(struct cancellation *c)
{
	static const struct timeval interval = { 0, POLL_INTERVAL * 1000 };

	(void)evtimer_add(c->timer, &interval);
}

/* A JavaScript truth value (protocol 10.1). */
static int
truthy(const struct json *j)
{
	if (j == NULL)
		return 0;
	switch (j->type) {
	case JSON_NULL:
		return 0;
	case JSON_BOOL:
		return j->boolean;
	case JSON_NUMBER:
		return j->number < 0 || j->number > 0;
	case JSON_STRING:
		return j->len > 0;
	case JSON_ARRAY:
	case JSON_OBJECT:
		break;
	}
	return 1;
}

static void
on_poll(const struct reply *r, void *arg)
{
	struct cancellation *c = arg;
	int cancelled;

	c->call = NULL;
	cancelled = r->status == 404 ||
	    (r->outcome == API_OK && truthy(json_get(r->json, "cancelled")));
	if (cancelled)
		c->cancelled(c->arg);
	/* drained may free it, cancelled may not. */
	if (c->drained != NULL)
		c->drained(c->arg);
	else if (!cancelled)
		schedule(c);
}

static void
poll_once(evutil_socket_t fd, short what, void *arg)
{
	struct cancellation *c = arg;
	struct jwriter w;
	struct buf body;
	char *target;

	(void)fd;
	(void)what;
	buf_init(&body);
	jw_init(&w, &body);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_member_str(&w, "incarnationId", c->b->config.incarnation);
	jw_object_end(&w);
	target = api_assignment_target(c->b, c->id, "cancellation");
	c->call = api_call(
	    c->b, "cancellation", target, &body, POLL_LIMIT, 0, on_poll, c);
	free(target);
}

struct cancellation *
cancellation_start(
    struct bridge *b, const char *id, void (*cancelled)(void *), void *arg)
{
	struct cancellation *c;

	c = xcalloc(1, sizeof(*c));
	c->b = b;
	c->id = id;
	c->cancelled = cancelled;
	c->arg = arg;
	if ((c->timer = evtimer_new(b->base, poll_once, c)) == NULL)
		fatalx("out of memory");
	schedule(c);
	return c;
}

int
cancellation_drain(struct cancellation *c, void (*drained)(void *))
{
	int status;

	(void)evtimer_del(c->timer);
	if (c->call == NULL)
		return 0;
	status = call_status(c->call);
	if ((status >= 200 && status <= 299) || status == 404) {
		c->drained = drained;
		return 1;
	}
	call_cancel(&c->call);
	return 0;
}

void
cancellation_stop(struct cancellation **cp)
{
	struct cancellation *c = *cp;

	*cp = NULL;
	if (c == NULL)
		return;
	call_cancel(&c->call);
	event_free(c->timer);
	free(c);
}
