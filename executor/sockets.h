#ifndef EXECUTOR_SOCKETS_H
#define EXECUTOR_SOCKETS_H

#include <sys/types.h>

struct stat;

/*
 * Which Unix sockets exist in the network namespace of the caller, from
 * sock_diag(7). Sockets of other namespaces, the host's among them, are never
 * shown there, whoever can see their files.
 */
int sockets_open(void); /* netlink socket, or -1 with errno */

/*
 * 1 if a socket of this network namespace listens at the socket file opened
 * as fd (O_PATH, its stat given), 0 if not, -1 with errno. tid is a process
 * in whose mount tree the file was opened.
 */
int sockets_listening_here(int diag, pid_t tid, int fd, const struct stat *);

#endif
