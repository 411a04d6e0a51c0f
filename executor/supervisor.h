#ifndef EXECUTOR_SUPERVISOR_H
#define EXECUTOR_SUPERVISOR_H

#include <linux/filter.h>

/*
 * The supervisor of a sandbox answers connect(2) for every process in it
 * (seccomp_unotify(2)): it copies the address once, looks the socket up
 * itself, and makes the connection itself on a duplicate of the caller's
 * descriptor, so that nothing the caller changes meanwhile has an influence.
 * A path leads only to a socket that was bound in the sandbox's own network
 * namespace (sock_diag(7)); sockets of the host are refused wherever they
 * are. When the supervisor is dead connect(2) fails with ENOSYS.
 *
 * What cannot be supervised is refused by the filter of commands: Unix
 * datagram sockets, whose every send may carry an address, and io_uring.
 * A socketpair(2) of Unix datagram sockets, which programs use as a pipe that
 * keeps messages apart, is answered with one of sequenced packet sockets:
 * these ignore an address.
 */

/* The filter that asks for notifications. 0, or -1 with one line. */
int supervisor_compile(struct sock_fprog *, char **error);

/*
 * Installs it for the calling process and all its later children. Returns
 * the listener, or -1 with errno.
 */
int supervisor_install(const struct sock_fprog *);

/*
 * Runs the supervisor on a listener that arrives on the socket. Its process
 * must be in the sandbox's namespaces with CAP_SYS_PTRACE and must not have
 * the filter itself.
 */
void supervisor_main(int channel, const char *root_path)
    __attribute__((__noreturn__));

#endif
