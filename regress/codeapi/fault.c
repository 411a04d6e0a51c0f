#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "http.h"

/* One rule of /control/faults. */
struct fault {
	TAILQ_ENTRY(fault) entry;
	char *route;
	long long skip; /* requests still to be left alone */
	long long count; /* requests still to be hit; -1: all */
	struct fault_action action;
};

static const struct {
	enum fault_kind kind;
	const char *name;
} names[] = {
	{ FAULT_DROP_BEFORE, "drop-before" },
	{ FAULT_DROP_AFTER, "drop-after" },
	{ FAULT_STATUS, "status" },
	{ FAULT_DELAY, "delay" },
	{ FAULT_STALL, "stall" },
	{ FAULT_GARBAGE, "garbage" },
	{ FAULT_HTML, "html" },
	{ FAULT_EMPTY, "empty" },
	{ FAULT_SLOW_HEADERS, "slow-headers" },
	{ FAULT_SLOW_BODY, "slow-body" },
	{ FAULT_RESET, "reset" },
	{ FAULT_RESET_AFTER, "reset-after" },
	{ FAULT_HALF_JSON, "half-json" },
};

const char *
fault_name(enum fault_kind kind)
{
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].kind == kind)
			return names[i].name;
	}
	return NULL;
}

static enum fault_kind
fault_kind(const char *name)
{
	size_t i;

	for (i = 0; name != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i].name, name) == 0)
			return names[i].kind;
	}
	return FAULT_NONE;
}

void
fault_action_free(struct fault_action *a)
{
	free(a->code);
	free(a->body);
	memset(a, 0, sizeof(*a));
}

static void
fault_free(struct server *srv, struct fault *f)
{
	TAILQ_REMOVE(&srv->faults, f, entry);
	fault_action_free(&f->action);
	free(f->route);
	free(f);
}

void
fault_clear(struct server *srv)
{
	struct fault *f;

	while ((f = TAILQ_FIRST(&srv->faults)) != NULL)
		fault_free(srv, f);
}

static char *
optional_text(const struct json *v, const char *name)
{
	const char *s;

	s = json_text(json_get(v, name));
	return s == NULL ? NULL : xstrdup(s);
}

static long long
optional_int(const struct json *v, const char *name, long long otherwise)
{
	long long n;

	return json_int(json_get(v, name), 0, 1000000000, &n) ? n : otherwise;
}

static int
add_rule(struct server *srv, const struct json *v)
{
	struct fault *f;
	enum fault_kind kind;
	const char *route;

	kind = fault_kind(json_text(json_get(v, "action")));
	route = json_text(json_get(v, "route"));
	if (kind == FAULT_NONE || route == NULL ||
	    !json_only(v, "route skip count action status code body ms"))
		return -1;
	f = xcalloc(1, sizeof(*f));
	f->route = xstrdup(route);
	f->skip = optional_int(v, "skip", 0);
	f->count = optional_int(v, "count", -1);
	f->action.kind = kind;
	f->action.status = (int)optional_int(v, "status", 503);
	f->action.code = optional_text(v, "code");
	f->action.body = optional_text(v, "body");
	f->action.ms = optional_int(v, "ms", 0);
	TAILQ_INSERT_TAIL(&srv->faults, f, entry);
	return 0;
}

int
fault_rules(struct server *srv, const struct json *body)
{
	const struct json *rules;
	size_t i;

	fault_clear(srv);
	rules = json_get(body, "rules");
	if (!json_is(rules, JSON_ARRAY))
		return -1;
	for (i = 0; i < rules->u.array.n; i++) {
		if (add_rule(srv, rules->u.array.item[i]) == -1) {
			fault_clear(srv);
			return -1;
		}
	}
	return 0;
}

void
fault_choose(struct server *srv, const char *route, struct fault_action *out)
{
	struct fault *f;

	TAILQ_FOREACH (f, &srv->faults, entry) {
		if (strcmp(f->route, "any") != 0 &&
		    strcmp(f->route, route) != 0)
			continue;
		if (f->skip > 0) {
			f->skip--;
			continue;
		}
		if (f->count == 0)
			continue;
		if (f->count > 0)
			f->count--;
		*out = f->action;
		out->code = out->body = NULL;
		if (f->action.code != NULL)
			out->code = xstrdup(f->action.code);
		if (f->action.body != NULL)
			out->body = xstrdup(f->action.body);
		return;
	}
}

int
fault_before(struct req *r)
{
	struct fault_action a;
	struct buf b;

	switch (r->fault.kind) {
	case FAULT_DROP_BEFORE:
		req_drop(r);
		return 1;
	case FAULT_RESET:
		req_reset(r);
		return 1;
	case FAULT_STATUS:
		a = r->fault;
		r->fault.code = r->fault.body = NULL;
		if (a.body != NULL) {
			buf_init(&b);
			buf_adds(&b, a.body);
			req_reply(r, a.status, &b);
		} else
			req_error(r, a.status, a.code, "a fault was injected");
		fault_action_free(&a);
		return 1;
	default:
		return 0;
	}
}
