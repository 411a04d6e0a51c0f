#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdarg.h>

/*
 * Log lines go to standard error, one write(2) a line, as
 *	librechat-code: MESSAGE
 * and, when standard error is a journal stream (systemd.exec(5),
 * JOURNAL_STREAM) or log_init was told so, with a "<N>" priority in front
 * (sd-daemon(3)). Helpers name themselves: "librechat-code[bridge]: ...".
 * Control characters and bytes that are not UTF-8 are shown as \xNN.
 *
 * Never log a request or response body, a header, a command, file content,
 * a credential or a key.
 */
#define LOG_PRI_ERR     3
#define LOG_PRI_WARNING 4
#define LOG_PRI_INFO    6
#define LOG_PRI_DEBUG   7

/*
 * process is NULL for the monitor and command line, else a short name kept by
 * reference. verbose 0 shows errors, warnings and changes of state, 1 adds
 * debug lines, 2 adds a trace of IPC message types.
 */
void log_init(const char *process, int verbose);
int log_verbose(void);

/* With and without ": strerror(errno)" at the end. errno is preserved. */
void log_warn(const char *, ...) __attribute__((__format__(__printf__, 1, 2)));
void log_warnx(const char *, ...) __attribute__((__format__(__printf__, 1, 2)));
void log_info(const char *, ...) __attribute__((__format__(__printf__, 1, 2)));
void log_debug(const char *, ...) __attribute__((__format__(__printf__, 1, 2)));
void log_trace(const char *, ...) __attribute__((__format__(__printf__, 1, 2)));

/* Log at error priority and exit with status 1. */
void fatal(const char *, ...)
    __attribute__((__format__(__printf__, 1, 2), __noreturn__));
void fatalx(const char *, ...)
    __attribute__((__format__(__printf__, 1, 2), __noreturn__));

#endif
