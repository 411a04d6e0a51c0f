#include "config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "assignment.h"
#include "caller.h"
#include "control.h"
#include "http.h"
#include "lease.h"
#include "pairing.h"
#include "registration.h"
#include "settle.h"
#include "utf8.h"

static void
health(struct server *srv, struct req *r)
{
	struct buf b;

	(void)srv;
	buf_init(&b);
	buf_adds(&b, "\"OK\"");
	req_reply(r, 200, &b);
}

#define W          AUTH_WORKER, ROUTE_WORKER
#define ASSIGNMENT "/bridge/workers/:w/assignments/:a"

static const struct route routes[] = {
	{ "pairings", "POST", "/bridge/pairings", AUTH_ADMIN, ROUTE_OTHER,
	    pairing_create },
	{ "redeem", "POST", "/bridge/pairings/redeem", AUTH_NONE, ROUTE_WORKER,
	    pairing_redeem },
	{ "register", "POST", "/bridge/workers/register", W,
	    registration_register },
	{ "refresh", "POST", "/bridge/workers/:w/credentials/refresh", W,
	    pairing_refresh },
	{ "revoke", "POST", "/bridge/workers/:w/revoke", AUTH_ADMIN,
	    ROUTE_OTHER, pairing_revoke },
	{ "status", "GET", "/bridge/workers/:w/status", AUTH_ADMIN, ROUTE_OTHER,
	    registration_status },
	{ "ready", "POST", "/bridge/workers/:w/ready", W, registration_ready },
	{ "lease", "POST", "/bridge/workers/:w/lease", W, lease_poll },
	{ "ack", "POST", ASSIGNMENT "/ack", W, assignment_ack },
	{ "settle", "POST", ASSIGNMENT "/settle", W, settle },
	{ "cancellation", "POST", ASSIGNMENT "/cancellation", W,
	    assignment_cancellation },
	{ "quarantine", "POST", ASSIGNMENT "/quarantine", W,
	    settle_quarantine },
	{ "workspace-cleanup", "POST", ASSIGNMENT "/workspace-cleanup", W,
	    settle_cleanup },
	{ "reset", "POST", "/bridge/workers/:w/workspaces/reset", W,
	    registration_reset },
	{ "execute", "POST", "/workspace-tools/execute", AUTH_NONE, ROUTE_OTHER,
	    caller_execute },
	{ "health", "GET", "/health", AUTH_NONE, ROUTE_OTHER, health },
#define CONTROL(method, name, handler)                                    \
	{                                                                 \
		name, method, "/control/" name, AUTH_NONE, ROUTE_CONTROL, \
		    handler                                               \
	}
	CONTROL("POST", "pair", control_pair),
	CONTROL("POST", "faults", control_faults),
	CONTROL("POST", "sandbox", control_sandbox),
	CONTROL("POST", "execute", control_execute),
	CONTROL("GET", "state", control_state),
	CONTROL("GET", "requests", control_requests),
	CONTROL("POST", "clock", control_clock),
	CONTROL("POST", "restart", control_restart),
	CONTROL("POST", "revoke", control_revoke),
	CONTROL("POST", "expire-credentials", control_expire_credentials),
	CONTROL("POST", "fence", control_fence),
	CONTROL("POST", "ceiling", control_ceiling),
	CONTROL("POST", "budgets", control_budgets),
	CONTROL("POST", "wait", control_wait),
};

static const char *
method_name(const struct req *r)
{
	switch (evhttp_request_get_command(r->ev)) {
	case EVHTTP_REQ_GET:
		return "GET";
	case EVHTTP_REQ_POST:
		return "POST";
	default:
		return "";
	}
}

/* The path below the base, or NULL; the base matches in any letter case. */
static const char *
below_base(const struct server *srv, const char *path)
{
	size_t n;

	n = strlen(srv->set.base);
	if (strncasecmp(path, srv->set.base, n) != 0 || path[n] != '/')
		return NULL;
	return path + n;
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes one segment; NULL if an escape is bad or the text is not UTF-8. */
static char *
decode(const char *s, size_t len)
{
	struct buf b;
	size_t i;
	int hi, lo;

	buf_init(&b);
	for (i = 0; i < len; i++) {
		if (s[i] != '%') {
			buf_addc(&b, (uint8_t)s[i]);
			continue;
		}
		if (i + 2 >= len || (hi = hex_digit(s[i + 1])) == -1 ||
		    (lo = hex_digit(s[i + 2])) == -1) {
			buf_free(&b);
			return NULL;
		}
		buf_addc(&b, (uint8_t)(hi << 4 | lo));
		i += 2;
	}
	/* A NUL would cut the name short and make it another one. */
	if (!utf8_valid(b.data, b.len) ||
	    (b.len > 0 && memchr(b.data, '\0', b.len) != NULL)) {
		buf_free(&b);
		return NULL;
	}
	return buf_steal(&b);
}

/* Matches a path with a pattern and decodes the parameters; -1: bad escape. */
static int
match(const char *pattern, const char *path, struct req *r)
{
	char *value;
	size_t n, m;

	while (*pattern == '/' && *path == '/') {
		n = strcspn(++pattern, "/");
		m = strcspn(++path, "/");
		if (*pattern != ':') {
			if (n != m || strncasecmp(pattern, path, n) != 0)
				return 0;
		} else {
			if (m == 0)
				return 0;
			if ((value = decode(path, m)) == NULL)
				return -1;
			if (pattern[1] == 'w') {
				free(r->worker_id);
				r->worker_id = value;
			} else {
				free(r->assignment_id);
				r->assignment_id = value;
			}
		}
		pattern += n;
		path += m;
	}
	return *pattern == '\0' && (*path == '\0' || strcmp(path, "/") == 0);
}

int
route_find(struct server *srv, struct req *r)
{
	const char *path, *method;
	size_t i;
	int m, bad;

	method = method_name(r);
	bad = 0;
	for (i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		if (strcmp(routes[i].method, method) != 0)
			continue;
		path = r->path;
		if (routes[i].kind != ROUTE_CONTROL)
			path = below_base(srv, r->path);
		if (path == NULL)
			continue;
		if (srv->set.old_server &&
		    (routes[i].handler == settle_cleanup ||
			routes[i].handler == settle_quarantine))
			continue;
		m = match(routes[i].path, path, r);
		bad |= m == -1;
		if (m == 1) {
			r->route = &routes[i];
			return 0;
		}
	}
	return bad ? -1 : 0;
}

int
route_is_bridge(const struct server *srv, const char *path)
{
	path = below_base(srv, path);
	return path != NULL && strncasecmp(path, "/bridge", 7) == 0 &&
	    (path[7] == '/' || path[7] == '\0');
}

int
route_of_worker(const struct server *srv, const struct req *r)
{
	if (r->route == NULL)
		return route_is_bridge(srv, r->path);
	return r->route->kind == ROUTE_WORKER;
}

const char *
route_name(const struct req *r)
{
	return r->route == NULL ? "unknown" : r->route->name;
}
