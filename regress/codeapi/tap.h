#ifndef CODEAPI_TAP_H
#define CODEAPI_TAP_H

/*
 * Test Anything Protocol on standard output: one "ok" or "not ok" line a
 * check, named after what is promised, and the plan at the end.
 */
int tap_ok(int, const char *, ...)
    __attribute__((__format__(__printf__, 2, 3)));

/* Compares texts and shows both when they differ; NULL is fine. */
int tap_same(const char *got, const char *wanted, const char *, ...)
    __attribute__((__format__(__printf__, 3, 4)));

/* Compares numbers. */
int tap_number(long long got, long long wanted, const char *, ...)
    __attribute__((__format__(__printf__, 3, 4)));

/* Prints the plan and returns the exit status of the program. */
int tap_done(void);

#endif
