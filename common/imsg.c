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

#define FLAG_FD 1U /* the frame carries a descriptor */

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

static size_t
frame_left(const struct imsg_frame *f)
{
	return sizeof(f->header) + f->data.len - f->sent;
}

static void
frame_free(struct imsgbuf *ib, struct imsg_frame *f)
{
	TAILQ_REMOVE(&ib->out, f, entry);
	ib->queued -= frame_left(f);
	if (f->fd != -1)
		close(f->fd);
	buf_wipe(&f->data);
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
imsg_compose_buf(
    struct imsgbuf *ib, uint32_t type, uint32_t id, int fd, struct buf *data)
{
	struct imsg_frame *f;

	if (data->len > ib->max || data->len > UINT32_MAX)
		fatalx("message %u of %zu bytes is too long", type, data->len);
	f = xcalloc(1, sizeof(*f));
	f->fd = fd;
	f->data = *data;
	buf_init(data);
	put32(f->header, type);
	put32(f->header + 4, (uint32_t)f->data.len);
	put32(f->header + 8, id);
	put32(f->header + 12, fd != -1 ? FLAG_FD : 0);
	ib->queued += frame_left(f);
	TAILQ_INSERT_TAIL(&ib->out, f, entry);
}

void
imsg_compose(struct imsgbuf *ib, uint32_t type, uint32_t id, int fd,
    const void *data, size_t len)
{
	struct buf b;

	buf_init(&b);
	buf_add(&b, data, len);
	imsg_compose_buf(ib, type, id, fd, &b);
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
	struct iovec iov[2];
	size_t head = 0, skip = f->sent;

	memset(&msg, 0, sizeof(msg));
	memset(&control, 0, sizeof(control));
	if (f->sent < sizeof(f->header)) {
		head = sizeof(f->header) - f->sent;
		iov[0].iov_base = f->header + f->sent;
		iov[0].iov_len = head;
		msg.msg_iovlen++;
		skip = sizeof(f->header);
	}
	if (frame_left(f) > head) {
		skip -= sizeof(f->header);
		iov[msg.msg_iovlen].iov_base = f->data.data + skip;
		iov[msg.msg_iovlen].iov_len = f->data.len - skip;
		msg.msg_iovlen++;
	}
	msg.msg_iov = iov;
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
		if (frame_left(f) == 0)
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
	struct buf *to = &ib->in;
	ssize_t n;

	memset(&msg, 0, sizeof(msg));
	if (ib->want > 0) {
		to = &ib->partial.data;
		iov.iov_len = ib->want - to->len;
	} else
		iov.iov_len = IMSG_READ_SIZE - to->len;
	/* Nothing more is taken before imsg_get has handed out what is here. */
	if (iov.iov_len == 0) {
		errno = EAGAIN;
		return -1;
	}
	iov.iov_base = buf_reserve(to, iov.iov_len);
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
	/* A descriptor comes with the first byte of its frame. */
	if (to == &ib->partial.data && ib->nfds > 0) {
		errno = EPROTO;
		return -1;
	}
	to->len += (size_t)n;
	return n;
}

static int
protocol_error(void)
{
	errno = EPROTO;
	return -1;
}

/* The frame's descriptor, if it announces one. */
static int
attach_descriptor(struct imsgbuf *ib, struct imsg *im, uint32_t flags)
{
	im->fd = -1;
	if ((flags & FLAG_FD) == 0)
		return 0;
	if (ib->nfds == 0)
		return -1;
	im->fd = ib->fds[0];
	ib->nfds--;
	memmove(ib->fds, ib->fds + 1, ib->nfds * sizeof(ib->fds[0]));
	return 0;
}

/* Takes a header and what is there of the payload out of the buffer. */
static int
begin_message(struct imsgbuf *ib)
{
	struct imsg *im = &ib->partial;
	const uint8_t *h = ib->in.data;
	uint32_t flags = get32(h + 12);
	size_t len = get32(h + 4), here;

	if (len > ib->max || (flags & ~FLAG_FD) != 0)
		return -1;
	im->type = get32(h);
	im->id = get32(h + 8);
	if (attach_descriptor(ib, im, flags) == -1)
		return -1;
	here = ib->in.len - IMSG_HEADER_SIZE;
	if (here > len)
		here = len;
	if (len > 0) {
		buf_exact(&im->data, len);
		buf_add(&im->data, h + IMSG_HEADER_SIZE, here);
	}
	buf_drain(&ib->in, IMSG_HEADER_SIZE + here);
	ib->want = len;
	return 0;
}

int
imsg_get(struct imsgbuf *ib, struct imsg *im)
{
	if (ib->want == 0) {
		if (ib->in.len < IMSG_HEADER_SIZE) {
			/* A descriptor without a frame that announces it. */
			if (ib->in.len == 0 && ib->nfds > 0)
				return protocol_error();
			return 0;
		}
		if (begin_message(ib) == -1)
			return protocol_error();
	}
	if (ib->partial.data.len < ib->want)
		return 0;
	*im = ib->partial;
	memset(&ib->partial, 0, sizeof(ib->partial));
	ib->partial.fd = -1;
	ib->want = 0;
	return 1;
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
