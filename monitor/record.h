#ifndef MONITOR_RECORD_H
#define MONITOR_RECORD_H

#include "settings.h"

/*
 * Where this identity has kept quarantine markers: IDENTITY.state, a list of
 * directories, one a line, beside the identity. Markers are found by their
 * directory; if that is not there, for example because its volume is not
 * mounted, their absence proves nothing (cli-and-storage 7.4, "fail-open").
 */

/*
 * Refuses if a recorded directory is missing. To be called before anything
 * makes directories. Without an identity, or before the first writable start,
 * there is no record. 0 or -1 with *error.
 */
int record_check(const char *identity_path, char **error);

/*
 * Adds the directory durably unless it is there. mountinfo is from
 * mountinfo_open. 0 or -1 with *error.
 */
int record_add(
    const char *identity_path, const char *dir, int mountinfo, char **error);

#endif
