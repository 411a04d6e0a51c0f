#include "config.h"

#include <sys/types.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>
#include <event2/event.h>

#include "http.h"
#include "log.h"

/* Connections kept alive, and for how many idle seconds. */
/* Nine leases, a heartbeat, and what eight assignments ask (protocol 2.1). */
#define KEEP_CONNECTIONS 24L
#define KEEP_SECONDS     60L

/* A peer that acknowledges nothing for so long is gone (tcp(7)). */
#define USER_TIMEOUT_MS 20000

/*
 * For names, connection and TLS together. Of several addresses libcurl gives
 * each but the last half of what is left, so that a silent one leaves time
 * for the next within the callers' limits, 10 s; and one silent name server
 * costs 5 s (resolv.conf(5)).
 */
#define CONNECT_MS 8500L

/*
 * libcurl 7.88 leaves a silent address only when something wakes it, for
 * which it sets no timer, and then does not tell the socket of the next one.
 * So a request that is not connected yet is looked at this often.
 */
#define KICK_MS 250

/* Addresses are looked up again after so many seconds. */
#define NAMES_SECONDS 60L

struct http_socket {
	TAILQ_ENTRY(http_socket) entry;
	struct http *http;
	struct event *ev;
};

struct http_request {
	TAILQ_ENTRY(http_request) entry;
	struct http *http;
	CURL *easy;
	struct curl_slist *headers;
	const struct buf *body;
	size_t sent;
	size_t header_bytes;
	int connected; /* asked for the body */
	int complete; /* final header line came */
	int given_up; /* by http_renew */
	const char *error; /* of a callback */
	char message[CURL_ERROR_SIZE];
	struct http_reply reply;
	void (*done)(struct http_reply *, void *);
	void *arg;
};

struct http {
	struct event_base *base;
	const struct http_config *config;
	CURLM *multi;
	struct event *timer;
	struct event *kicker;
	int doubt; /* the last request failed: addresses may have changed */
	TAILQ_HEAD(, http_request) requests;
	TAILQ_HEAD(, http_socket) sockets;
};

static void
request_free(struct http_request *rq)
{
	struct curl_slist *p;

	TAILQ_REMOVE(&rq->http->requests, rq, entry);
	(void)curl_multi_remove_handle(rq->http->multi, rq->easy);
	curl_easy_cleanup(rq->easy);
	for (p = rq->headers; p != NULL; p = p->next)
		explicit_bzero(p->data, strlen(p->data));
	curl_slist_free_all(rq->headers);
	buf_wipe(&rq->reply.body);
	free(rq);
}

/* Reports every transfer that has ended. */
static void
reap(struct http *h)
{
	struct http_request *rq;
	struct http_reply reply;
	void (*done)(struct http_reply *, void *);
	void *arg;
	char *private, message[CURL_ERROR_SIZE];
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(h->multi, &left)) != NULL) {
		if (m->msg != CURLMSG_DONE)
			continue;
		private = NULL;
		(void)curl_easy_getinfo(
		    m->easy_handle, CURLINFO_PRIVATE, &private);
		rq = (struct http_request *)(void *)private;
		if (m->data.result == CURLE_SEND_FAIL_REWIND)
			rq->error = "the connection was closed before an "
				    "answer came";
		if (m->data.result != CURLE_OK && rq->error == NULL) {
			if (rq->message[0] == '\0')
				xsnprintf(rq->message, sizeof(rq->message),
				    "%s", curl_easy_strerror(m->data.result));
			rq->error = rq->message;
		}
		h->doubt = rq->error != NULL;
		reply = rq->reply;
		buf_init(&rq->reply.body);
		done = rq->done;
		arg = rq->arg;
		if (rq->error != NULL) {
			xsnprintf(message, sizeof(message), "%s", rq->error);
			reply.error = message;
		}
		request_free(rq);
		done(&reply, arg);
		buf_wipe(&reply.body);
	}
}

static void
on_event(evutil_socket_t fd, short what, void *arg)
{
	struct http_socket *s = arg;
	struct http *h = s->http;
	int action = 0, running;

	if (what & EV_READ)
		action |= CURL_CSELECT_IN;
	if (what & EV_WRITE)
		action |= CURL_CSELECT_OUT;
	(void)curl_multi_socket_action(h->multi, fd, action, &running);
	reap(h);
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct http *h = arg;
	int running;

	(void)fd;
	(void)what;
	(void)curl_multi_socket_action(
	    h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	reap(h);
}

static int
on_set_timer(CURLM *multi, long ms, void *arg)
{
	struct http *h = arg;
	struct timeval tv;

	(void)multi;
	if (ms < 0) {
		(void)evtimer_del(h->timer);
		return 0;
	}
	tv.tv_sec = ms / 1000;
	tv.tv_usec = (ms % 1000) * 1000;
	(void)evtimer_add(h->timer, &tv);
	return 0;
}

static void
kick_later(struct http *h)
{
	static const struct timeval tv = { 0, KICK_MS * 1000 };

	if (!evtimer_pending(h->kicker, NULL))
		(void)evtimer_add(h->kicker, &tv);
}

/* Deprecated since it looks at every transfer, which is the point here. */
static void
look_at_all(CURLM *multi)
{
	int running;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	(void)curl_multi_socket_all(multi, &running);
#pragma GCC diagnostic pop
}

static void
on_kick(evutil_socket_t fd, short what, void *arg)
{
	struct http *h = arg;
	struct http_request *rq;

	(void)fd;
	(void)what;
	TAILQ_FOREACH (rq, &h->requests, entry)
		if (!rq->connected)
			break;
	if (rq == NULL)
		return;
	kick_later(h);
	look_at_all(h->multi);
	reap(h);
}

static void
socket_free(struct http_socket *s)
{
	TAILQ_REMOVE(&s->http->sockets, s, entry);
	if (s->ev != NULL)
		event_free(s->ev);
	free(s);
}

static int
on_set_socket(
    CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
	struct http *h = arg;
	struct http_socket *s = socket_arg;
	short events = EV_PERSIST;

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		if (s != NULL) {
			(void)curl_multi_assign(h->multi, fd, NULL);
			socket_free(s);
		}
		return 0;
	}
	if (s == NULL) {
		s = xcalloc(1, sizeof(*s));
		s->http = h;
		TAILQ_INSERT_TAIL(&h->sockets, s, entry);
		(void)curl_multi_assign(h->multi, fd, s);
	}
	if (s->ev != NULL)
		event_free(s->ev);
	if (what & CURL_POLL_IN)
		events |= EV_READ;
	if (what & CURL_POLL_OUT)
		events |= EV_WRITE;
	s->ev = event_new(h->base, fd, events, on_event, s);
	if (s->ev == NULL || event_add(s->ev, NULL) == -1)
		fatalx("no event for a connection");
	return 0;
}

static size_t
on_read(char *to, size_t size, size_t n, void *arg)
{
	struct http_request *rq = arg;
	size_t left = rq->body->len - rq->sent;

	rq->connected = 1;
	n *= size;
	if (n > left)
		n = left;
	if (n > 0)
		memcpy(to, rq->body->data + rq->sent, n);
	rq->sent += n;
	return n;
}

/* Called to send the body again, which must not happen. */
static int
on_seek(void *arg, curl_off_t offset, int whence)
{
	(void)arg;
	(void)offset;
	(void)whence;
	return CURL_SEEKFUNC_FAIL;
}

static size_t
on_write(char *data, size_t size, size_t n, void *arg)
{
	struct http_request *rq = arg;

	n *= size;
	if (n > HTTP_BODY_MAX - rq->reply.body.len) {
		rq->error = "answer is longer than 16 MiB";
		return 0;
	}
	buf_add(&rq->reply.body, data, n);
	return n;
}

static void
header_line(struct http_request *rq, const char *p, size_t n)
{
	const char *end = p + n;
	char date[64];
	time_t t;

	if (n >= 5 && memcmp(p, "HTTP/", 5) == 0) {
		rq->reply.status = 0;
		rq->reply.date = -1;
		if ((p = memchr(p, ' ', n)) == NULL || end - p < 4)
			return;
		for (p++; p < end && *p >= '0' && *p <= '9'; p++)
			if (rq->reply.status < 1000)
				rq->reply.status = rq->reply.status * 10 +
				    (*p - '0');
	} else if (n == 0) {
		if (rq->reply.status >= 200)
			rq->complete = 1;
	} else if (n > 5 && strncasecmp(p, "date:", 5) == 0) {
		xsnprintf(date, sizeof(date), "%.*s", (int)(n - 5), p + 5);
		if ((t = curl_getdate(date, NULL)) != -1)
			rq->reply.date = (int64_t)t * 1000;
	}
}

static size_t
on_header(char *data, size_t size, size_t n, void *arg)
{
	struct http_request *rq = arg;
	size_t len;

	n *= size;
	rq->header_bytes += n;
	if (rq->header_bytes > HTTP_HEADER_MAX) {
		rq->error = "answer has more than 64 KiB of headers";
		return 0;
	}
	len = n;
	while (len > 0 && (data[len - 1] == '\n' || data[len - 1] == '\r'))
		len--;
	header_line(rq, data, len);
	return n;
}

static int
on_socket_options(void *arg, curl_socket_t fd, curlsocktype purpose)
{
#ifdef TCP_USER_TIMEOUT
	int ms = USER_TIMEOUT_MS;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
#endif
	(void)arg;
	(void)fd;
	(void)purpose;
	return CURL_SOCKOPT_OK;
}

/*
 * An option that this libcurl refuses would leave a default that was not
 * meant, so it fails the request.
 */
#define SET(rq, option, value)                                               \
	do {                                                                 \
		if (curl_easy_setopt((rq)->easy, option, value) != CURLE_OK) \
			fatalx("libcurl does not take %s, build against "    \
			       "the version that is used",                   \
			    #option);                                        \
	} while (0)

/* libcurl may have been built without it. */
static int
http2_known(void)
{
	return (curl_version_info(CURLVERSION_NOW)->features &
		   CURL_VERSION_HTTP2) != 0;
}

static void
set_connection(struct http_request *rq)
{
	const struct http_config *c = rq->http->config;

#if LIBCURL_VERSION_NUM >= 0x075500
	SET(rq, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	SET(rq, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
	/* HTTP/2 where the server chooses it in the TLS handshake. */
	SET(rq, CURLOPT_HTTP_VERSION,
	    http2_known() ? (long)CURL_HTTP_VERSION_2TLS
			  : (long)CURL_HTTP_VERSION_1_1);
	SET(rq, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	SET(rq, CURLOPT_DNS_CACHE_TIMEOUT,
	    rq->http->doubt ? 0L : NAMES_SECONDS);
	/* Others that were open then may be as dead. */
	SET(rq, CURLOPT_FRESH_CONNECT, rq->http->doubt ? 1L : 0L);
	SET(rq, CURLOPT_NOSIGNAL, 1L);
	SET(rq, CURLOPT_TCP_NODELAY, 1L);
	SET(rq, CURLOPT_TCP_KEEPALIVE, 1L);
	SET(rq, CURLOPT_TCP_KEEPIDLE, 15L);
	SET(rq, CURLOPT_TCP_KEEPINTVL, 5L);
	SET(rq, CURLOPT_MAXAGE_CONN, KEEP_SECONDS);
	SET(rq, CURLOPT_SOCKOPTFUNCTION, on_socket_options);
#if LIBCURL_VERSION_NUM >= 0x075700
	/* Do not wait for a resolver thread that hangs. */
	SET(rq, CURLOPT_QUICK_EXIT, 1L);
#endif
	SET(rq, CURLOPT_SSL_VERIFYPEER, 1L);
	SET(rq, CURLOPT_SSL_VERIFYHOST, 2L);
	SET(rq, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (c->ca_file != NULL) {
		SET(rq, CURLOPT_CAINFO, c->ca_file);
		SET(rq, CURLOPT_CAPATH, NULL);
	}
	/* An empty name also keeps the environment out. */
	SET(rq, CURLOPT_PROXY, c->proxy != NULL ? c->proxy : "");
	SET(rq, CURLOPT_NOPROXY, c->no_proxy != NULL ? c->no_proxy : "");
	/* The credential is for the server, not for a proxy. */
	SET(rq, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
	SET(rq, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	SET(rq, CURLOPT_BUFFERSIZE, 16384L);
	SET(rq, CURLOPT_UPLOAD_BUFFERSIZE, 16384L);
}

static void
set_request(struct http_request *rq, const char *url)
{
	SET(rq, CURLOPT_PRIVATE, rq);
	SET(rq, CURLOPT_ERRORBUFFER, rq->message);
	SET(rq, CURLOPT_URL, url);
	SET(rq, CURLOPT_PATH_AS_IS, 1L);
	SET(rq, CURLOPT_FOLLOWLOCATION, 0L);
	SET(rq, CURLOPT_USERAGENT, PACKAGE_NAME "/" PACKAGE_VERSION);
	SET(rq, CURLOPT_POST, 1L);
	SET(rq, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)rq->body->len);
	SET(rq, CURLOPT_READFUNCTION, on_read);
	SET(rq, CURLOPT_READDATA, rq);
	SET(rq, CURLOPT_SEEKFUNCTION, on_seek);
	SET(rq, CURLOPT_WRITEFUNCTION, on_write);
	SET(rq, CURLOPT_WRITEDATA, rq);
	SET(rq, CURLOPT_HEADERFUNCTION, on_header);
	SET(rq, CURLOPT_HEADERDATA, rq);
	SET(rq, CURLOPT_HTTPHEADER, rq->headers);
}

struct http_request *
http_post(struct http *h, const char *url, const char *const *headers,
    const struct buf *body, void (*done)(struct http_reply *, void *),
    void *arg)
{
	struct http_request *rq;
	struct curl_slist *list;
	const char *const *hp;

	rq = xcalloc(1, sizeof(*rq));
	rq->http = h;
	rq->body = body;
	rq->done = done;
	rq->arg = arg;
	rq->reply.date = -1;
	if ((rq->easy = curl_easy_init()) == NULL)
		fatalx("out of memory");
	TAILQ_INSERT_TAIL(&h->requests, rq, entry);
	for (hp = headers; *hp != NULL; hp++) {
		if ((list = curl_slist_append(rq->headers, *hp)) == NULL)
			fatalx("out of memory");
		rq->headers = list;
	}
	set_connection(rq);
	set_request(rq, url);
	if (curl_multi_add_handle(h->multi, rq->easy) != CURLM_OK)
		fatalx("libcurl does not take a request");
	kick_later(h);
	return rq;
}

int
http_request_status(const struct http_request *rq)
{
	return rq->complete ? rq->reply.status : 0;
}

void
http_cancel(struct http_request *rq, int late)
{
	/*
	 * HTTP/2 would end the stream only. A connection that gave no answer
	 * in time may be dead, and the next request must not wait on it.
	 */
	if (late) {
		SET(rq, CURLOPT_FORBID_REUSE, 1L);
		rq->http->doubt = 1;
	}
	request_free(rq);
}

static void
make_multi(struct http *h)
{
	if ((h->multi = curl_multi_init()) == NULL)
		fatalx("out of memory");
	(void)curl_multi_setopt(
	    h->multi, CURLMOPT_SOCKETFUNCTION, on_set_socket);
	(void)curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
	(void)curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_set_timer);
	(void)curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
	(void)curl_multi_setopt(
	    h->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	(void)curl_multi_setopt(
	    h->multi, CURLMOPT_MAXCONNECTS, KEEP_CONNECTIONS);
}

void
http_renew(struct http *h, const char *error)
{
	struct http_request *rq;
	struct http_reply reply;
	void (*done)(struct http_reply *, void *);
	void *arg;

	TAILQ_FOREACH (rq, &h->requests, entry) {
		(void)curl_multi_remove_handle(h->multi, rq->easy);
		rq->given_up = 1;
	}
	/* The pool of connections goes with it. */
	(void)curl_multi_cleanup(h->multi);
	(void)evtimer_del(h->timer);
	make_multi(h);
	/* A callback may end others of them, and begin new ones. */
	for (;;) {
		TAILQ_FOREACH (rq, &h->requests, entry)
			if (rq->given_up)
				break;
		if (rq == NULL)
			break;
		memset(&reply, 0, sizeof(reply));
		reply.date = -1;
		reply.error = error;
		done = rq->done;
		arg = rq->arg;
		request_free(rq);
		done(&reply, arg);
	}
}

struct http *
http_new(struct event_base *base, const struct http_config *c, char **error)
{
	struct http *h;

	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		*error = xstrdup("libcurl cannot be initialised");
		return NULL;
	}
	h = xcalloc(1, sizeof(*h));
	h->base = base;
	h->config = c;
	TAILQ_INIT(&h->requests);
	TAILQ_INIT(&h->sockets);
	h->timer = evtimer_new(base, on_timer, h);
	h->kicker = evtimer_new(base, on_kick, h);
	if (h->timer == NULL || h->kicker == NULL)
		fatalx("out of memory");
	make_multi(h);
	return h;
}

void
http_free(struct http *h)
{
	struct http_request *rq;
	struct http_socket *s;

	if (h == NULL)
		return;
	while ((rq = TAILQ_FIRST(&h->requests)) != NULL)
		request_free(rq);
	(void)curl_multi_cleanup(h->multi);
	while ((s = TAILQ_FIRST(&h->sockets)) != NULL)
		socket_free(s);
	event_free(h->timer);
	event_free(h->kicker);
	free(h);
	curl_global_cleanup();
}
