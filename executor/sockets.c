#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/stat.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "sockets.h"

#define ANSWER_SIZE 32768

int
sockets_open(void)
{
	return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
}

static int
send_request(int diag, uint32_t seq)
{
	struct {
		struct nlmsghdr head;
		struct unix_diag_req request;
	} m;
	ssize_t n;

	memset(&m, 0, sizeof(m));
	m.head.nlmsg_len = sizeof(m);
	m.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	m.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	m.head.nlmsg_seq = seq;
	m.request.sdiag_family = AF_UNIX;
	/*
	 * Every accepted connection shows the path as well; whoever does not
	 * listen refuses connections in any case.
	 */
	m.request.udiag_states = 1U << TCP_LISTEN;
	m.request.udiag_show = UDIAG_SHOW_VFS;
	do {
		n = send(diag, &m, sizeof(m), 0);
	} while (n == -1 && errno == EINTR);
	return n == (ssize_t)sizeof(m) ? 0 : -1;
}

/* 1 if this socket is bound to the file. */
static int
is_it(struct nlmsghdr *h, uint32_t ino, uint32_t dev)
{
	struct unix_diag_msg *m = NLMSG_DATA(h);
	struct unix_diag_vfs vfs;
	struct rtattr *a;
	unsigned int len;

	if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
		return 0;
	len = h->nlmsg_len - (unsigned int)NLMSG_LENGTH(sizeof(*m));
	for (a = (struct rtattr *)(m + 1); RTA_OK(a, len);
	     a = RTA_NEXT(a, len)) {
		if (a->rta_type != UNIX_DIAG_VFS ||
		    RTA_PAYLOAD(a) < sizeof(vfs))
			continue;
		memcpy(&vfs, RTA_DATA(a), sizeof(vfs));
		if (vfs.udiag_vfs_ino == ino && vfs.udiag_vfs_dev == dev)
			return 1;
	}
	return 0;
}

static int
search(int diag, uint32_t ino, uint32_t dev)
{
	static uint32_t seq;
	static union {
		struct nlmsghdr head;
		uint8_t bytes[ANSWER_SIZE];
	} answer;
	struct nlmsghdr *h;
	unsigned int left;
	ssize_t n;
	int found = 0;

	if (send_request(diag, ++seq) == -1)
		return -1;
	for (;;) {
		n = recv(diag, answer.bytes, sizeof(answer.bytes), MSG_TRUNC);
		if (n == -1 && errno == EINTR)
			continue;
		if (n == -1)
			return -1;
		if ((size_t)n > sizeof(answer.bytes)) {
			errno = EMSGSIZE;
			return -1;
		}
		left = (unsigned int)n;
		for (h = &answer.head; NLMSG_OK(h, left);
		     h = NLMSG_NEXT(h, left)) {
			/* A rest of an earlier answer that was broken off. */
			if (h->nlmsg_seq != seq)
				continue;
			if (h->nlmsg_type == NLMSG_DONE)
				return found;
			if (h->nlmsg_type == NLMSG_ERROR) {
				errno = EIO;
				return -1;
			}
			found |= is_it(h, ino, dev);
		}
	}
}

/* Device numbers as the kernel has them inside (linux/kdev_t.h). */
static uint32_t
kernel_device(unsigned int major_nr, unsigned int minor_nr)
{
	return (uint32_t)major_nr << 20 | (uint32_t)minor_nr;
}

/*
 * The device of the file system as the kernel knows it, from the mount table:
 * some file systems show another one in stat(2).
 */
static int
mount_device(pid_t tid, int fd, uint32_t *dev)
{
	unsigned long long id;
	unsigned int major_nr, minor_nr;
	struct statx stx;
	char path[64], line[4096];
	int r = -1, mount_id, parent;
	FILE *f;

	if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &stx) ==
		-1 ||
	    !(stx.stx_mask & STATX_MNT_ID))
		return -1;
	id = stx.stx_mnt_id;
	(void)xsnprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)tid);
	if ((f = fopen(path, "re")) == NULL)
		return -1;
	while (r == -1 && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%d %d %u:%u ", &mount_id, &parent, &major_nr,
			&minor_nr) == 4 &&
		    (unsigned long long)mount_id == id) {
			*dev = kernel_device(major_nr, minor_nr);
			r = 0;
		}
	fclose(f);
	return r;
}

int
sockets_listening_here(int diag, pid_t tid, int fd, const struct stat *st)
{
	uint32_t dev, other;
	int r;

	/*
	 * sock_diag shows 32 bits of the inode number. Where more are in use
	 * two files could look the same, and nothing is taken for ours.
	 */
	if ((uint64_t)st->st_ino > UINT32_MAX)
		return 0;
	dev = kernel_device(major(st->st_dev), minor(st->st_dev));
	r = search(diag, (uint32_t)st->st_ino, dev);
	if (r != 0)
		return r;
	if (mount_device(tid, fd, &other) == -1 || other == dev)
		return 0;
	return search(diag, (uint32_t)st->st_ino, other);
}
