#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "packet.h"

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * PACKET_FDS_MAX)];
};

int
packet_send(
    int sock, const struct iovec *iov, size_t niov, const int *fds, size_t n)
{
	union control control;
	struct cmsghdr *cm;
	struct msghdr msg;
	size_t i, all = 0;
	ssize_t sent;

	for (i = 0; i < niov; i++)
		all += iov[i].iov_len;
	if (n > PACKET_FDS_MAX) {
		errno = EINVAL;
		return -1;
	}
	memset(&msg, 0, sizeof(msg));
	memset(&control, 0, sizeof(control));
	msg.msg_iov = (struct iovec *)(uintptr_t)iov;
	msg.msg_iovlen = niov;
	if (n > 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n);
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_len = CMSG_LEN(sizeof(int) * n);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(cm), fds, sizeof(int) * n);
	}
	do {
		sent = sendmsg(sock, &msg, MSG_NOSIGNAL);
	} while (sent == -1 && errno == EINTR);
	if (sent == -1)
		return -1;
	if ((size_t)sent != all) {
		errno = EMSGSIZE;
		return -1;
	}
	return 0;
}

void
packet_close(const int *fds, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		close(fds[i]);
}

/* Takes the descriptors of a message; -1 if there are more than max. */
static int
take_descriptors(struct msghdr *msg, int *fds, size_t max, size_t *got)
{
	struct cmsghdr *cm;
	size_t i, n;
	int fd, r = 0;

	for (cm = CMSG_FIRSTHDR(msg); cm != NULL; cm = CMSG_NXTHDR(msg, cm)) {
		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < n; i++) {
			memcpy(
			    &fd, CMSG_DATA(cm) + i * sizeof(int), sizeof(int));
			if (*got < max)
				fds[(*got)++] = fd;
			else {
				close(fd);
				r = -1;
			}
		}
	}
	return r;
}

ssize_t
packet_receive(int sock, void *p, size_t size, int *fds, size_t max,
    size_t *got, int flags)
{
	union control control;
	struct iovec iov = { p, size };
	struct msghdr msg;
	ssize_t n;
	int r;

	*got = 0;
	do {
		memset(&msg, 0, sizeof(msg));
		msg.msg_iov = &iov;
		msg.msg_iovlen = 1;
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | flags);
	} while (n == -1 && errno == EINTR);
	if (n == -1)
		return -1;
	r = take_descriptors(&msg, fds, max, got);
	if (n > 0 && r == 0 && (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0)
		return n;
	packet_close(fds, *got);
	*got = 0;
	if (n == 0)
		return 0;
	errno = EPROTO;
	return -1;
}
