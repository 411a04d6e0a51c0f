#ifndef MONITOR_CONFINE_H
#define MONITOR_CONFINE_H

#include <stddef.h>

/*
 * What the monitor gives up once its helpers are started: every file but
 * those below the directories (identity, state) and the control group that was
 * delegated to the daemon (a path, or NULL), new processes, sockets. The loss
 * is verified by real attempts, and that the directories can still be used.
 * 0, or -1 with *error.
 */
int confine(const char *const *dirs, size_t n, const char *group, char **error);

#endif
