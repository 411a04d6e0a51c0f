#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "assignment.h"
#include "auth.h"
#include "control.h"
#include "dispatch.h"
#include "fence.h"
#include "http.h"
#include "journal.h"
#include "lease.h"
#include "log.h"
#include "pairing.h"
#include "server.h"

#define TICK_MS        100 /* how often expired things are cleared away */
#define READ_AHEAD     1048576
#define HEADERS_MAX    65536
#define HTTP_TIMEOUT_S 120

int64_t
server_now(const struct server *srv)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000 +
	    srv->clock_offset;
}

int64_t
record_life(const struct server *srv, int64_t deadline)
{
	int64_t now, ms;

	now = server_now(srv);
	ms = (deadline - now + 999) / 1000 * 1000 + srv->set.record_grace;
	return now + (ms < 1000 ? 1000 : ms);
}

struct worker *
worker_find(struct server *srv, const char *id, int create)
{
	struct worker *w;

	TAILQ_FOREACH (w, &srv->workers, entry) {
		if (strcmp(w->id, id) == 0)
			return w;
	}
	if (!create)
		return NULL;
	w = xcalloc(1, sizeof(*w));
	w->srv = srv;
	w->slots = 1;
	xsnprintf(w->id, sizeof(w->id), "%s", id);
	TAILQ_INIT(&w->incarnations);
	TAILQ_INIT(&w->fences);
	TAILQ_INIT(&w->active);
	TAILQ_INIT(&w->dispatches);
	TAILQ_INIT(&w->polls);
	TAILQ_INSERT_TAIL(&srv->workers, w, entry);
	return w;
}

int
worker_configured(const struct server *srv, const char *id)
{
	return srv->set.dynamic ||
	    (*srv->set.worker != '\0' && strcmp(id, srv->set.worker) == 0);
}

const char *
worker_current(const struct worker *w)
{
	return w->registration_expires > server_now(w->srv) ? w->incarnation
							    : NULL;
}

int
worker_is_current(const struct worker *w, const char *incarnation)
{
	const char *current;

	current = worker_current(w);
	return current != NULL && strcmp(current, incarnation) == 0;
}

const char *
worker_identity(const struct worker *w)
{
	return *w->identity != '\0' && w->identity_expires > server_now(w->srv)
	    ? w->identity
	    : NULL;
}

int
worker_ready(const struct worker *w)
{
	if (worker_current(w) == NULL)
		return 0;
	if (!json_true(json_get(w->capabilities, "requiresReadyConfirmation")))
		return 1;
	return w->ready_expires > server_now(w->srv) &&
	    w->ready_generation == w->registration_generation &&
	    strcmp(w->ready_incarnation, w->incarnation) == 0;
}

struct incarnation *
worker_incarnation(struct worker *w, const char *id, int create)
{
	struct incarnation *i;

	TAILQ_FOREACH (i, &w->incarnations, entry) {
		if (strcmp(i->id, id) == 0)
			return i;
	}
	if (!create)
		return NULL;
	i = xcalloc(1, sizeof(*i));
	xsnprintf(i->id, sizeof(i->id), "%s", id);
	TAILQ_INSERT_TAIL(&w->incarnations, i, entry);
	return i;
}

void
worker_unregister(struct worker *w)
{
	w->registration_expires = 0;
	w->ready_expires = 0;
}

static void
worker_free(struct worker *w)
{
	struct incarnation *i;

	TAILQ_REMOVE(&w->srv->workers, w, entry);
	pairing_code_clear(w);
	while ((i = TAILQ_FIRST(&w->incarnations)) != NULL) {
		TAILQ_REMOVE(&w->incarnations, i, entry);
		free(i);
	}
	fences_free(w);
	json_free(w->capabilities);
	json_free(w->binding);
	free(w);
}

/*
 * Clears away what has expired and looks again for work that may go on
 * because of it. Nothing that is measured waits for this.
 */
static void
tick_cb(evutil_socket_t fd, short what, void *arg)
{
	struct server *srv = arg;
	struct worker *w;

	(void)fd;
	(void)what;
	credentials_sweep(srv, 0);
	TAILQ_FOREACH (w, &srv->workers, entry)
		dispatch_sweep(w);
	assignments_sweep(srv, 0);
	waits_check(srv);
}

struct server *
server_new(const struct settings *set)
{
	static const struct timeval tick = { 0, TICK_MS * 1000 };
	struct server *srv;
	size_t i;

	srv = xcalloc(1, sizeof(*srv));
	srv->set = *set;
	TAILQ_INIT(&srv->workers);
	TAILQ_INIT(&srv->credentials);
	TAILQ_INIT(&srv->reqs);
	TAILQ_INIT(&srv->conns);
	TAILQ_INIT(&srv->faults);
	TAILQ_INIT(&srv->waits);
	for (i = 0; i < ASSIGNMENT_BUCKETS; i++)
		TAILQ_INIT(&srv->assignments[i]);
	srv->nonces = nonces_new();
	srv->journal = journal_new();
	if ((srv->base = event_base_new()) == NULL ||
	    (srv->http = evhttp_new(srv->base)) == NULL ||
	    (srv->tick = event_new(srv->base, -1, EV_PERSIST, tick_cb, srv)) ==
		NULL)
		fatalx("libevent could not be started");
	event_add(srv->tick, &tick);
	/* A little more than the limit, so that 413 can be answered. */
	evhttp_set_max_body_size(
	    srv->http, (ev_ssize_t)set->body_max * 2 + READ_AHEAD);
	evhttp_set_max_headers_size(srv->http, HEADERS_MAX);
	evhttp_set_timeout(srv->http, HTTP_TIMEOUT_S);
	evhttp_set_allowed_methods(srv->http,
	    EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_PUT |
		EVHTTP_REQ_DELETE | EVHTTP_REQ_PATCH | EVHTTP_REQ_HEAD |
		EVHTTP_REQ_OPTIONS);
	evhttp_set_gencb(srv->http, http_request, srv);
	return srv;
}

int
server_listen(struct server *srv, const char *address, uint16_t port)
{
	struct evhttp_bound_socket *bound;
	struct sockaddr_storage ss;
	const struct sockaddr_in *sin = (const struct sockaddr_in *)&ss;
	const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)&ss;
	socklen_t len;

	bound = evhttp_bind_socket_with_handle(srv->http, address, port);
	if (bound == NULL)
		return -1;
	len = sizeof(ss);
	if (getsockname(evhttp_bound_socket_get_fd(bound),
		(struct sockaddr *)&ss, &len) == -1)
		return -1;
	return ntohs(
	    ss.ss_family == AF_INET6 ? sin6->sin6_port : sin->sin_port);
}

void
server_forget(struct server *srv)
{
	struct worker *w;

	TAILQ_FOREACH (w, &srv->workers, entry) {
		lease_forget(w);
		dispatch_forget(w);
	}
	assignments_sweep(srv, 1);
	credentials_sweep(srv, 1);
	nonces_clear(srv->nonces);
	while ((w = TAILQ_FIRST(&srv->workers)) != NULL)
		worker_free(w);
}

void
server_free(struct server *srv)
{
	waits_forget(srv);
	server_forget(srv);
	http_drop_all(srv, NULL);
	evhttp_free(srv->http);
	event_free(srv->tick);
	event_base_free(srv->base);
	fault_clear(srv);
	journal_free(srv->journal);
	nonces_free(srv->nonces);
	free(srv->set.token);
	free(srv);
}
