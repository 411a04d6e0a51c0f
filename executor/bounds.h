#ifndef EXECUTOR_BOUNDS_H
#define EXECUTOR_BOUNDS_H

#include <stdint.h>

/*
 * Limits that need no control group: setrlimit(2) and the limits of a user
 * namespace (user_namespaces(7), /proc/sys/user). RLIMIT_AS and RLIMIT_DATA
 * are never used, since programs reserve far more than they use (field report
 * TL-10).
 *
 * Since Linux 5.14 processes are counted for each user namespace, so those of
 * one sandbox are no trouble to another. Before that the account's number in
 * the whole system counts.
 */

/*
 * For process 1 of a sandbox, in its user namespace with all capabilities and
 * the host's /proc: at most half of the host's inotify(7) instances and
 * watches. What the system refuses stays as it is (librechat-code selftest
 * says it).
 */
void bounds_sandbox(void);

/*
 * For the shell of a command: so many processes in the sandbox, its own few
 * included, 0 for no limit; at most 65536 descriptors until it raises that
 * itself, since programs walk through all of them; the first to be ended when
 * the machine's memory is used up. The caller is about to execute a program: it
 * becomes dumpable.
 */
void bounds_command(uint32_t processes);

#endif
