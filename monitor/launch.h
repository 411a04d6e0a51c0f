#ifndef MONITOR_LAUNCH_H
#define MONITOR_LAUNCH_H

struct monitor;

/*
 * Starting the helpers (architecture "processes"): each is started and its
 * configuration queued on its channel, to be sent by the loop or by
 * imsg_flush_blocking. channel is one end of the socket pair between bridge
 * and executor; it is taken over. Return an exit status of error.h; other
 * than STATUS_OK comes with *error.
 */

/*
 * What every start of a helper that signs needs: the directories to keep, the
 * mount table, an incarnation id, guards; also removes what a crash left.
 * Needs settings and roots, and the lock. 0 or -1 with *error.
 */
int launch_prepare(struct monitor *, char **error);
void launch_free(struct monitor *);

/*
 * Makes the control groups of the roots, if the daemon was given one to
 * divide, and says once what limits are in force (priority info, or debug).
 * After roots_account and before the first helper is started. launch_free
 * removes the groups again.
 */
void launch_limits(struct monitor *, int debug);

/* Needs settings, roots and account of the monitor. */
int launch_executor(struct monitor *, int channel, char **error);

/*
 * Needs settings, roots and incarnation. channel is -1 in every role but
 * ROLE_WORKER; session is the runtime session of ROLE_RESET, else NULL.
 */
int launch_bridge(struct monitor *, unsigned int role, int channel,
    const char *session, char **error);

#endif
