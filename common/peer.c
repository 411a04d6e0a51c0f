#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "log.h"
#include "msg.h"
#include "peer.h"

struct peer {
	const char *name;
	struct imsgbuf ib;
	struct event *rev;
	struct event *wev;
	const struct peer_handler *table;
	const unsigned int *state;
	void (*gone)(struct peer *, void *);
	void *arg;
	int dispatching;
	int dead;
	int isolated;
	int broken;
};

static void
peer_gone(struct peer *p)
{
	event_del(p->rev);
	event_del(p->wev);
	p->dead = 1;
	p->gone(p, p->arg);
}

/* The peer broke the protocol. */
static void __attribute__((__format__(__printf__, 2, 3)))
broke(struct peer *p, const char *fmt, ...)
{
	char text[128];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!p->isolated)
		fatalx("%s %s", p->name, text);
	log_warnx("%s %s", p->name, text);
	p->broken = 1;
}

static void
peer_dispatch(struct peer *p, struct imsg *im)
{
	const struct peer_handler *h;
	const char *what = msg_name(im->type);

	log_trace(
	    "%s: got %s id %u, %zu bytes", p->name, what, im->id, im->data.len);
	for (h = p->table; h->type != 0; h++)
		if (h->type == im->type)
			break;
	if (h->type == 0)
		broke(p, "sent message %u, which it may not", im->type);
	else if (*p->state > 31 || (h->states & (1U << *p->state)) == 0)
		broke(p, "sent %s in state %u", what, *p->state);
	else if ((im->fd != -1) != (h->want_fd != 0))
		broke(p, "sent %s %s descriptor", what,
		    im->fd == -1 ? "without its" : "with a");
	else if (h->handle(p, im, p->arg) == -1)
		broke(p, "sent a malformed %s", what);
}

static void
peer_readable(evutil_socket_t fd, short what, void *arg)
{
	struct peer *p = arg;
	struct imsg im;
	ssize_t n;
	int r;

	(void)fd;
	(void)what;
	if ((n = imsg_read(&p->ib)) == -1) {
		if (errno == EPROTO) {
			broke(p, "broke the message format");
			peer_gone(p);
			return;
		}
		if (errno != EAGAIN && errno != EWOULDBLOCK) {
			peer_gone(p);
			return;
		}
		/* Dispatch what came with the last start-up message. */
	}
	p->dispatching = 1;
	while (!p->dead && !p->broken && (r = imsg_get(&p->ib, &im)) != 0) {
		if (r == -1) {
			broke(p, "broke the message format");
			break;
		}
		peer_dispatch(p, &im);
		imsg_free(&im);
	}
	p->dispatching = 0;
	if (p->dead) {
		peer_free(p);
		return;
	}
	if (n == 0 || p->broken)
		peer_gone(p);
}

static void
peer_flush(struct peer *p)
{
	if (p->dead)
		return;
	/*
	 * A failed write means that the peer is gone; its last words may still
	 * be readable, so the read side reports it.
	 */
	if (imsg_flush(&p->ib) == -1) {
		event_del(p->wev);
		return;
	}
	if (imsg_pending(&p->ib))
		event_add(p->wev, NULL);
	else
		event_del(p->wev);
}

static void
peer_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	peer_flush(arg);
}

struct peer *
peer_adopt(struct event_base *base, const char *name, struct imsgbuf *ib,
    const struct peer_handler *table, const unsigned int *state,
    void (*gone)(struct peer *, void *), void *arg)
{
	struct peer *p;

	p = xcalloc(1, sizeof(*p));
	p->name = name;
	p->table = table;
	p->state = state;
	p->gone = gone;
	p->arg = arg;
	p->ib = *ib;
	TAILQ_INIT(&p->ib.out);
	TAILQ_CONCAT(&p->ib.out, &ib->out, entry);
	memset(ib, 0, sizeof(*ib));
	ib->fd = -1;
	if (evutil_make_socket_nonblocking(p->ib.fd) == -1)
		fatal("%s: non-blocking mode", name);
	p->rev = event_new(
	    base, p->ib.fd, EV_READ | EV_PERSIST, peer_readable, p);
	p->wev = event_new(
	    base, p->ib.fd, EV_WRITE | EV_PERSIST, peer_writable, p);
	if (p->rev == NULL || p->wev == NULL || event_add(p->rev, NULL) == -1)
		fatalx("%s: no event", name);
	/* A message may already have been read together with the last one. */
	if (p->ib.in.len > 0)
		event_active(p->rev, EV_READ, 0);
	peer_flush(p);
	return p;
}

struct peer *
peer_new(struct event_base *base, const char *name, int fd,
    const struct peer_handler *table, const unsigned int *state,
    void (*gone)(struct peer *, void *), void *arg)
{
	const struct peer_handler *h;
	struct imsgbuf ib;
	int take_fds = 0;

	for (h = table; h->type != 0; h++)
		if (h->want_fd)
			take_fds = 1;
	imsg_init(&ib, fd, IMSG_MESSAGE_MAX, take_fds);
	return peer_adopt(base, name, &ib, table, state, gone, arg);
}

void
peer_isolate(struct peer *p)
{
	p->isolated = 1;
}

void
peer_free(struct peer *p)
{
	if (p == NULL)
		return;
	if (p->dispatching) {
		p->dead = 1;
		return;
	}
	event_free(p->rev);
	event_free(p->wev);
	imsg_clear(&p->ib);
	free(p);
}

void
peer_send(struct peer *p, uint32_t type, uint32_t id, int fd, struct buf *b)
{
	log_trace("%s: send %s id %u, %zu bytes", p->name, msg_name(type), id,
	    b == NULL ? (size_t)0 : b->len);
	if (p->dead) {
		if (fd != -1)
			close(fd);
		if (b != NULL)
			buf_wipe(b);
		return;
	}
	if (b == NULL)
		imsg_compose(&p->ib, type, id, fd, NULL, 0);
	else
		imsg_compose_buf(&p->ib, type, id, fd, b);
	peer_flush(p);
}

void
peer_drain(struct peer *p)
{
	if (!p->dead)
		(void)imsg_flush_blocking(&p->ib);
}

const char *
peer_name(const struct peer *p)
{
	return p->name;
}
