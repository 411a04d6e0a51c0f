#ifndef MONITOR_ERROR_H
#define MONITOR_ERROR_H

/*
 * Sets *error to an allocated line and returns -1. The first error is kept:
 * if *error is set already nothing happens.
 */
int errorf(char **error, const char *, ...)
    __attribute__((__format__(__printf__, 2, 3)));

/* As errorf with ": strerror(errno)" at the end; errno is preserved. */
int error_errno(char **error, const char *, ...)
    __attribute__((__format__(__printf__, 2, 3)));

/* Exit statuses, documented in librechat-code(1). */
#define STATUS_OK       0
#define STATUS_ERROR    1
#define STATUS_TRYAGAIN 75 /* EX_TEMPFAIL: the same start may work later */
#define STATUS_FENCED   76 /* another start with this identity took over */
#define STATUS_CONFIG   78 /* EX_CONFIG: a restart does not heal it */

/* Of exec, as env(1) and timeout(1) have them. */
#define STATUS_EXEC_FAILED  125 /* the command was not run, or got lost */
#define STATUS_EXEC_TIMEOUT 124

#endif
