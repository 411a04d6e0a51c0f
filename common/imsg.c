#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "imsg.h"
#include "log.h"

#define HEADER_SIZE 16
#define FLAG_FD     1U /* the frame carries a descriptor */
#define FLAG_MORE   2U /* the next frame continues this message */
#define READ_SIZE   (IMSG_FRAME_MAX + HEADER_SIZE)

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif
#ifndef MSG_CMSG_CLOEXEC
#define MSG_CMSG_CLOEXEC 0
#endif

union fd_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * IMSG_FDS_MAX)];
};

static void
put32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)(v >> 16);
	p[3] = (uint8_t)(v >> 24);
}

static uint32_t
get32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
	    (uint32_t)p[3] << 24;
}

void
imsg_init(struct imsgbuf *ib, int fd, size_t max, int take_fds)
{
	memset(ib, 0, sizeof(*ib));
	ib->fd = fd;
	ib->max = max;
	ib->take_fds = take_fds;
	ib->partial.fd = -1;
	TAILQ_INIT(&ib->out);
}

static void
frame_free(struct imsgbuf *ib, struct imsg_frame *f)
{
	TAILQ_REMOVE(&ib->out, f, entry);
	ib->queued -= f->bytes.len - f->sent;
	if (f->fd != -1)
		close(f->fd);
	buf_wipe(&f->bytes);
	free(f);
}

void
imsg_clear(struct imsgbuf *ib)
{
	struct imsg_frame *f;
	size_t i;

	while ((f = TAILQ_FIRST(&ib->out)) != NULL)
		frame_free(ib, f);
	for (i = 0; i < ib->nfds; i++)
		close(ib->fds[i]);
	ib->nfds = 0;
	imsg_free(&ib->partial);
	buf_wipe(&ib->in);
	if (ib->fd != -1)
		close(ib->fd);
	ib->fd = -1;
}

void
imsg_compose(struct imsgbuf *ib, uint32_t type, uint32_t id, int fd,
    const void *data, size_t len)
{
	const uint8_t *p = data;
	struct imsg_frame *f;
	uint8_t *h;
	uint32_t flags;
	size_t n;

	if (len > ib->max)
		fatalx("message %u of %zu bytes is too long", type, len);
	do {
		n = len > IMSG_FRAME_MAX ? IMSG_FRAME_MAX : len;
		flags = 0;
		if (fd != -1)
			flags |= FLAG_FD;
		if (n < len)
			flags |= FLAG_MORE;
		f = xcalloc(1, sizeof(*f));
		f->fd = fd;
		fd = -1;
		h = buf_reserve(&f->bytes, HEADER_SIZE + n);
		put32(h, type);
		put32(h + 4, (uint32_t)n);
		put32(h + 8, id);
		put32(h + 12, flags);
		if (n > 0)
			memcpy(h + HEADER_SIZE, p, n);
		f->bytes.len = HEADER_SIZE + n;
		ib->queued += f->bytes.len;
		TAILQ_INSERT_TAIL(&ib->out, f, entry);
		if (n > 0)
			p += n;
		len -= n;
	} while (len > 0);
}

int
imsg_pending(const struct imsgbuf *ib)
{
	return !TAILQ_EMPTY(&ib->out);
}

static ssize_t
frame_send(int sock, struct imsg_frame *f)
{
	union fd_control control;
	struct cmsghdr *cm;
	struct msghdr msg;
	struct iovec iov;

	memset(&msg, 0, sizeof(msg));
	memset(&control, 0, sizeof(control));
	iov.iov_base = f->bytes.data + f->sent;
	iov.iov_len = f->bytes.len - f->sent;
	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	if (f->fd != -1) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int));
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(cm), &f->fd, sizeof(int));
	}
	return sendmsg(sock, &msg, MSG_NOSIGNAL);
}

int
imsg_flush(struct imsgbuf *ib)
{
	struct imsg_frame *f;
	ssize_t n;

	while ((f = TAILQ_FIRST(&ib->out)) != NULL) {
		if ((n = frame_send(ib->fd, f)) == -1) {
			if (errno == EINTR)
				continue;
			if (errno == EAGAIN || errno == EWOULDBLOCK ||
			    errno == ENOBUFS)
				return 0;
			return -1;
		}
		/* The descriptor went with the first byte. */
		if (f->fd != -1) {
			close(f->fd);
			f->fd = -1;
		}
		f->sent += (size_t)n;
		ib->queued -= (size_t)n;
		if (f->sent == f->bytes.len)
			frame_free(ib, f);
	}
	return 0;
}

/* Keeps what arrived, or closes everything and says why not. */
static int
take_descriptors(struct imsgbuf *ib, struct msghdr *msg)
{
	struct cmsghdr *cm;
	size_t i, n;
	int fd, bad = 0;

	for (cm = CMSG_FIRSTHDR(msg); cm != NULL; cm = CMSG_NXTHDR(msg, cm)) {
		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < n; i++) {
			memcpy(
			    &fd, CMSG_DATA(cm) + i * sizeof(int), sizeof(int));
			if (!ib->take_fds || ib->nfds == IMSG_FDS_MAX) {
				close(fd);
				bad = 1;
				continue;
			}
			if (MSG_CMSG_CLOEXEC == 0)
				(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
			ib->fds[ib->nfds++] = fd;
		}
	}
	if ((msg->msg_flags & MSG_CTRUNC) || bad) {
		errno = EPROTO;
		return -1;
	}
	return 0;
}

ssize_t
imsg_read(struct imsgbuf *ib)
{
	union fd_control control;
	struct msghdr msg;
	struct iovec iov;
	ssize_t n;

	memset(&msg, 0, sizeof(msg));
	iov.iov_base = buf_reserve(&ib->in, READ_SIZE);
	iov.iov_len = READ_SIZE;
	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	msg.msg_control = control.bytes;
	msg.msg_controllen = sizeof(control.bytes);
	do {
		n = recvmsg(ib->fd, &msg, MSG_CMSG_CLOEXEC);
	} while (n == -1 && errno == EINTR);
	if (n == -1)
		return -1;
	if (take_descriptors(ib, &msg) == -1)
		return -1;
	ib->in.len += (size_t)n;
	return n;
}

static int
protocol_error(void)
{
	errno = EPROTO;
	return -1;
}

int
imsg_get(struct imsgbuf *ib, struct imsg *im)
{
	struct imsg *part = &ib->partial;
	uint32_t type, len, id, flags;
	const uint8_t *h;

	while (ib->in.len >= HEADER_SIZE) {
		h = ib->in.data;
		type = get32(h);
		len = get32(h + 4);
		id = get32(h + 8);
		flags = get32(h + 12);
		if (len > IMSG_FRAME_MAX || (flags & ~(FLAG_FD | FLAG_MORE)))
			return protocol_error();
		if (ib->in.len - HEADER_SIZE < len)
			return 0;
		if (!ib->in_partial) {
			part->type = type;
			part->id = id;
			part->fd = -1;
			if (flags & FLAG_FD) {
				if (ib->nfds == 0)
					return protocol_error();
				part->fd = ib->fds[0];
				ib->nfds--;
				memmove(ib->fds, ib->fds + 1,
				    ib->nfds * sizeof(ib->fds[0]));
			}
			ib->in_partial = 1;
		} else if (type != part->type || id != part->id ||
		    (flags & FLAG_FD) || len == 0)
			return protocol_error();
		if (len > ib->max - part->data.len)
			return protocol_error();
		buf_add(&part->data, h + HEADER_SIZE, len);
		buf_drain(&ib->in, HEADER_SIZE + len);
		if (flags & FLAG_MORE)
			continue;
		*im = *part;
		memset(part, 0, sizeof(*part));
		part->fd = -1;
		ib->in_partial = 0;
		return 1;
	}
	/* A descriptor without a frame that announces it. */
	if (ib->in.len == 0 && ib->nfds > 0)
		return protocol_error();
	return 0;
}

void
imsg_free(struct imsg *im)
{
	if (im->fd != -1)
		close(im->fd);
	im->fd = -1;
	buf_wipe(&im->data);
}

int
imsg_flush_blocking(struct imsgbuf *ib)
{
	struct pollfd pfd;

	for (;;) {
		if (imsg_flush(ib) == -1)
			return -1;
		if (!imsg_pending(ib))
			return 0;
		pfd.fd = ib->fd;
		pfd.events = POLLOUT;
		if (poll(&pfd, 1, -1) == -1 && errno != EINTR)
			return -1;
	}
}

static int64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int
imsg_get_blocking(struct imsgbuf *ib, struct imsg *im, int timeout)
{
	struct pollfd pfd;
	int64_t end = now_ms() + timeout, left;
	ssize_t n;
	int r, wait;

	for (;;) {
		if ((r = imsg_get(ib, im)) != 0)
			return r;
		wait = -1;
		if (timeout >= 0) {
			left = end - now_ms();
			wait = left > 0 ? (int)left : 0;
		}
		pfd.fd = ib->fd;
		pfd.events = POLLIN;
		if ((r = poll(&pfd, 1, wait)) == -1) {
			if (errno == EINTR)
				continue;
			return -1;
		}
		if (r == 0) {
			errno = ETIMEDOUT;
			return -1;
		}
		if ((n = imsg_read(ib)) == 0)
			return 0;
		if (n == -1 && errno != EAGAIN && errno != EWOULDBLOCK)
			return -1;
	}
}
