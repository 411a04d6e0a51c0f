#ifndef EXECUTOR_PACKET_H
#define EXECUTOR_PACKET_H

#include <sys/types.h>
#include <sys/uio.h>
#include <stddef.h>

/*
 * Packets with descriptors between the executor, the spawner and the keepers:
 * sendmsg(2), recvmsg(2) and SCM_RIGHTS of unix(7) on connected sockets.
 */
#define PACKET_FDS_MAX 8

/* Sends all of iov and nfds descriptors, which stay open. 0, or -1, errno. */
int packet_send(
    int sock, const struct iovec *iov, size_t niov, const int *fds, size_t n);

/*
 * Receives up to size bytes and up to max descriptors (close-on-exec), whose
 * number goes to *got. flags may be MSG_DONTWAIT. Returns the number of
 * bytes, 0 at the end, or -1 with errno; EPROTO if there was more than that
 * of either. After -1 and 0 no descriptor was taken.
 */
ssize_t packet_receive(int sock, void *p, size_t size, int *fds, size_t max,
    size_t *got, int flags);

void packet_close(const int *fds, size_t n);

#endif
