#include "config.h"

#include <sys/socket.h>

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/keyvalq_struct.h>

#include "auth.h"
#include "canon.h"
#include "http.h"
#include "journal.h"
#include "log.h"

#define DRIP_MS 50 /* between two bytes of a slow answer */

/* A connection that has brought a request. */
struct conn {
	TAILQ_ENTRY(conn) entry;
	struct server *srv;
	struct evhttp_connection *ev;
	struct event *closer;
};

static int
req_fd(const struct req *r)
{
	return bufferevent_getfd(evhttp_connection_get_bufferevent(
	    evhttp_request_get_connection(r->ev)));
}

static void
req_free(struct req *r)
{
	TAILQ_REMOVE(&r->srv->reqs, r, entry);
	if (r->watch != NULL)
		event_free(r->watch);
	if (r->timer != NULL)
		event_free(r->timer);
	fault_action_free(&r->fault);
	json_free(r->body);
	buf_free(&r->raw);
	free(r->path);
	free(r->query);
	free(r->worker_id);
	free(r->assignment_id);
	free(r);
}

const char *
req_header(const struct req *r, const char *name)
{
	return evhttp_find_header(
	    evhttp_request_get_input_headers(r->ev), name);
}

uint64_t
req_query_number(const struct req *r, const char *name, uint64_t otherwise)
{
	const char *p;
	size_t n;

	n = strlen(name);
	for (p = r->query; p != NULL && *p != '\0';) {
		if (strncmp(p, name, n) == 0 && p[n] == '=')
			return strtoull(p + n + 1, NULL, 10);
		p += strcspn(p, "&");
		p += *p == '&';
	}
	return otherwise;
}

static void
closed_cb(struct evhttp_connection *ev, void *arg)
{
	struct conn *c = arg;

	evhttp_connection_set_closecb(ev, NULL, NULL);
	TAILQ_REMOVE(&c->srv->conns, c, entry);
	event_free(c->closer);
	free(c);
}

static void
close_cb(evutil_socket_t fd, short what, void *arg)
{
	struct conn *c = arg;

	(void)fd;
	(void)what;
	evhttp_connection_free(c->ev);
}

static struct conn *
conn_find(struct server *srv, struct evhttp_connection *ev)
{
	struct conn *c;

	TAILQ_FOREACH (c, &srv->conns, entry) {
		if (c->ev == ev)
			return c;
	}
	c = xcalloc(1, sizeof(*c));
	c->srv = srv;
	c->ev = ev;
	if ((c->closer = evtimer_new(srv->base, close_cb, c)) == NULL)
		fatalx("evtimer_new");
	TAILQ_INSERT_TAIL(&srv->conns, c, entry);
	evhttp_connection_set_closecb(ev, closed_cb, c);
	return c;
}

/*
 * libevent still works on the connection while it calls us, so a connection
 * is closed from the event loop.
 */
static void
close_later(struct conn *c)
{
	static const struct timeval now;

	event_add(c->closer, &now);
}

void
req_drop(struct req *r)
{
	struct conn *c;

	journal_answer(r->srv, r, 0, NULL);
	c = conn_find(r->srv, evhttp_request_get_connection(r->ev));
	req_free(r);
	close_later(c);
}

void
req_reset(struct req *r)
{
	static const struct linger linger = { 1, 0 };
	int fd, null;

	/*
	 * The descriptor is replaced before libevent closes it, because
	 * libevent calls shutdown(2) first, which would send a FIN.
	 */
	fd = req_fd(r);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	if ((null = open("/dev/null", O_RDWR | O_CLOEXEC)) != -1) {
		if (r->watch != NULL)
			event_del(r->watch);
		dup2(null, fd);
		close(null);
	}
	req_drop(r);
}

int
req_is_gone(const struct req *r)
{
	ssize_t n;
	char c;

	n = recv(req_fd(r), &c, 1, MSG_PEEK | MSG_DONTWAIT);
	return n == 0 ||
	    (n == -1 && errno != EAGAIN && errno != EWOULDBLOCK &&
		errno != EINTR);
}

static void
watch_cb(evutil_socket_t fd, short what, void *arg)
{
	struct req *r = arg;

	(void)fd;
	(void)what;
	if (!req_is_gone(r))
		return; /* bytes of a further request; they can wait */
	if (r->gone != NULL)
		r->gone(r, r->gone_arg);
	req_drop(r);
}

static void
watch(struct req *r)
{
	if (r->watch != NULL)
		return;
	r->watch = event_new(r->srv->base, req_fd(r), EV_READ, watch_cb, r);
	if (r->watch == NULL || event_add(r->watch, NULL) == -1)
		fatalx("event_new");
}

void
req_on_gone(struct req *r, void (*gone)(struct req *, void *), void *arg)
{
	r->gone = gone;
	r->gone_arg = arg;
	watch(r);
}

static void
date_header(const struct server *srv, char *out, size_t size)
{
	struct tm tm;
	time_t t;

	t = (time_t)(server_now(srv) / 1000);
	gmtime_r(&t, &tm);
	strftime(out, size, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

static const char *
reason(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 400:
		return "Bad Request";
	case 401:
		return "Unauthorized";
	case 403:
		return "Forbidden";
	case 404:
		return "Not Found";
	case 409:
		return "Conflict";
	case 503:
		return "Service Unavailable";
	default:
		return "Status";
	}
}

/* Answers through libevent and frees the request. */
static void
send_now(struct req *r, int status, struct buf *body, const char *type)
{
	struct evkeyvalq *headers;
	struct evhttp_request *ev;
	struct evbuffer *out;
	char date[64];

	ev = r->ev;
	headers = evhttp_request_get_output_headers(ev);
	date_header(r->srv, date, sizeof(date));
	evhttp_add_header(headers, "Date", date);
	evhttp_add_header(headers, "Content-Type", type);
	evhttp_add_header(headers, "X-CodeAPI-Execution-Profile", "stateful");
	out = evhttp_request_get_output_buffer(ev);
	evbuffer_add(out, body->data, body->len);
	buf_free(body);
	req_free(r);
	evhttp_send_reply(ev, status, reason(status), NULL);
}

static void
drip_cb(evutil_socket_t fd, short what, void *arg)
{
	struct req *r = arg;
	struct timeval tv;
	int64_t ms;

	(void)fd;
	(void)what;
	if (r->raw_sent == r->raw.len ||
	    send(req_fd(r), r->raw.data + r->raw_sent, 1, MSG_NOSIGNAL) != 1) {
		req_drop(r);
		return;
	}
	r->raw_sent++;
	ms = r->fault.ms > 0 ? r->fault.ms : DRIP_MS;
	tv.tv_sec = ms / 1000;
	tv.tv_usec = (ms % 1000) * 1000;
	event_add(r->timer, &tv);
}

/* Sends the answer byte by byte, from its start or from the body on. */
static void
send_slowly(struct req *r, int status, struct buf *body, int only_body)
{
	char date[64];
	size_t head;

	date_header(r->srv, date, sizeof(date));
	buf_addf(&r->raw,
	    "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: application/json; "
	    "charset=utf-8\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
	    status, reason(status), date, body->len);
	head = r->raw.len;
	buf_add(&r->raw, body->data, body->len);
	buf_free(body);
	if (only_body) {
		if (send(req_fd(r), r->raw.data, head, MSG_NOSIGNAL) !=
		    (ssize_t)head) {
			req_drop(r);
			return;
		}
		r->raw_sent = head;
	}
	r->gone = NULL;
	watch(r);
	r->timer = evtimer_new(r->srv->base, drip_cb, r);
	drip_cb(-1, 0, r);
}

static void
delay_cb(evutil_socket_t fd, short what, void *arg)
{
	struct req *r = arg;
	struct buf body;

	(void)fd;
	(void)what;
	body = r->raw;
	buf_init(&r->raw);
	send_now(r, (int)r->raw_sent, &body, "application/json; charset=utf-8");
}

/* Holds the answer back for a while, or for ever if the time is negative. */
static void
send_later(struct req *r, int status, struct buf *body, int64_t ms)
{
	struct timeval tv;

	r->raw = *body;
	buf_init(body);
	r->raw_sent = (size_t)status;
	r->gone = NULL;
	watch(r);
	if (ms < 0)
		return;
	tv.tv_sec = ms / 1000;
	tv.tv_usec = (ms % 1000) * 1000;
	r->timer = evtimer_new(r->srv->base, delay_cb, r);
	event_add(r->timer, &tv);
}

static void
reply(struct req *r, int status, struct buf *body, const char *code)
{
	const char *type;

	if (r->watch != NULL) {
		event_free(r->watch);
		r->watch = NULL;
	}
	type = "application/json; charset=utf-8";
	journal_answer(r->srv, r, status, code);
	switch (r->fault.kind) {
	case FAULT_DROP_AFTER:
		buf_free(body);
		req_drop(r);
		return;
	case FAULT_RESET_AFTER:
		buf_free(body);
		req_reset(r);
		return;
	case FAULT_STALL:
		send_later(r, status, body, -1);
		return;
	case FAULT_DELAY:
		send_later(r, status, body, r->fault.ms);
		return;
	case FAULT_SLOW_HEADERS:
	case FAULT_SLOW_BODY:
		send_slowly(r, status, body, r->fault.kind == FAULT_SLOW_BODY);
		return;
	case FAULT_GARBAGE:
		buf_reset(body);
		buf_add(body, "\x8f\x00\xff{]\x1b[2J\xc3(", 11);
		status = 200;
		break;
	case FAULT_HTML:
		buf_reset(body);
		buf_adds(body, "<!DOCTYPE html><title>Sign in</title>\n");
		type = "text/html; charset=utf-8";
		status = 200;
		break;
	case FAULT_EMPTY:
		buf_reset(body);
		status = 200;
		break;
	case FAULT_HALF_JSON:
		body->len /= 2;
		status = 200;
		break;
	default:
		break;
	}
	send_now(r, status, body, type);
}

void
req_reply(struct req *r, int status, struct buf *body)
{
	reply(r, status, body, NULL);
}

void
req_error(struct req *r, int status, const char *code, const char *text)
{
	struct buf b;

	buf_init(&b);
	w_open(&b, NULL, '{');
	w_str(&b, "error", text);
	if (code != NULL)
		w_str(&b, "code", code);
	w_close(&b, '}');
	reply(r, status, &b, code);
}

void
reply_open(struct buf *b)
{
	buf_init(b);
	w_open(b, NULL, '{');
	w_int(b, "protocolVersion", 1);
}

void
req_accept(struct req *r, const char *name)
{
	struct buf b;

	reply_open(&b);
	w_bool(&b, name, 1);
	w_close(&b, '}');
	req_reply(r, 200, &b);
}

void
http_drop_all(struct server *srv, const struct req *except)
{
	struct evhttp_connection *keep;
	struct req *r, *next;
	struct conn *c;

	TAILQ_FOREACH_SAFE (r, &srv->reqs, entry, next) {
		if (r != except)
			req_drop(r);
	}
	keep = except == NULL ? NULL
			      : evhttp_request_get_connection(except->ev);
	TAILQ_FOREACH (c, &srv->conns, entry) {
		if (c->ev != keep)
			close_later(c);
	}
}

/*
 * Chapter 3.1: 0 if the body is to be parsed, 1 if it counts as {}, or the
 * status of a refusal.
 */
static int
body_kind(const struct req *r, size_t len)
{
	const char *type, *charset;
	size_t n;

	type = req_header(r, "Content-Type");
	if (len == 0 || type == NULL)
		return 1;
	n = strcspn(type, "; \t");
	if (n != 16 || strncasecmp(type, "application/json", n) != 0)
		return 1;
	if (len > r->srv->set.body_max)
		return 413;
	if ((charset = strcasestr(type + n, "charset=")) != NULL) {
		charset += strlen("charset=");
		charset += *charset == '"';
		if (strncasecmp(charset, "utf-", 4) != 0)
			return 415;
	}
	return 0;
}

/* Parses the body and hashes its serialised form; 0 or a status. */
static int
read_body(struct req *r, const void *data, size_t len)
{
	struct buf b;
	int kind;

	if ((kind = body_kind(r, len)) > 1)
		return kind;
	if (kind == 1)
		r->body = json_object();
	else if ((r->body = json_parse(data, len)) == NULL)
		return 400;
	if (r->body->type != JSON_OBJECT && r->body->type != JSON_ARRAY)
		return 400;
	buf_init(&b);
	canon_json(&b, r->body);
	sha256_hex(r->body_hash, b.data, b.len);
	buf_free(&b);
	return 0;
}

/* Chapter 3.2: 1 if the expected profile was refused. */
static int
refuse_profile(struct req *r)
{
	const char *expected;
	struct buf b;
	int known;

	expected = req_header(r, "X-CodeAPI-Expected-Profile");
	if (expected == NULL || strcmp(expected, "stateful") == 0)
		return 0;
	known = strcmp(expected, "default") == 0;
	buf_init(&b);
	w_open(&b, NULL, '{');
	w_str(&b, "error",
	    known ? "execution_profile_mismatch" : "invalid_execution_profile");
	w_str(&b, "message", "this server runs the profile stateful");
	w_str(&b, "expected_profile", expected);
	w_str(&b, "actual_profile", "stateful");
	w_close(&b, '}');
	req_reply(r, known ? 409 : 400, &b);
	return 1;
}

static void
handle(struct server *srv, struct req *r, int status)
{
	if (status == 413)
		req_error(r, status, NULL, "the body is too large");
	else if (status == 415)
		req_error(r, status, NULL, "the charset is not supported");
	else if (status != 0)
		req_error(r, status, NULL, "the body is not valid JSON");
	else if (refuse_profile(r))
		return;
	else if (r->route == NULL)
		req_error(r,
		    route_is_bridge(srv, r->path) ? srv->set.unknown_status
						  : 404,
		    NULL, "no such route");
	else if (auth_check(srv, r))
		r->route->handler(srv, r);
}

static struct req *
req_new(struct server *srv, struct evhttp_request *ev)
{
	struct req *r;
	const char *uri;
	size_t n;

	r = xcalloc(1, sizeof(*r));
	r->srv = srv;
	r->ev = ev;
	r->started = monotonic_ms();
	uri = evhttp_request_get_uri(ev);
	n = strcspn(uri, "?");
	r->path = xstrndup(uri, n);
	if (uri[n] == '?')
		r->query = xstrdup(uri + n + 1);
	TAILQ_INSERT_TAIL(&srv->reqs, r, entry);
	conn_find(srv, evhttp_request_get_connection(ev));
	return r;
}

void
http_request(struct evhttp_request *ev, void *arg)
{
	static const int on = 1;
	struct server *srv = arg;
	struct evbuffer *in;
	struct req *r;
	const void *data;
	size_t len;
	int status;

	r = req_new(srv, ev);
	setsockopt(req_fd(r), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	in = evhttp_request_get_input_buffer(ev);
	len = evbuffer_get_length(in);
	data = len > 0 ? evbuffer_pullup(in, -1) : (const unsigned char *)"";
	status = read_body(r, data, len);
	if (route_find(srv, r) == -1)
		status = 400;
	if (route_of_worker(srv, r)) {
		journal_arrival(srv, r, data, len);
		fault_choose(srv, route_name(r), &r->fault);
		if (fault_before(r))
			return;
	}
	handle(srv, r, status);
}
