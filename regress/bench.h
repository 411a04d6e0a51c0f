#ifndef REGRESS_BENCH_H
#define REGRESS_BENCH_H

#include <stddef.h>

/* Sorts. */
double bench_median(double *, size_t);

/* One line of the report. */
void bench_line(
    const char *what, double value, const char *unit, const char *note);

/* Several roots in one executor. */
void bench_pool(void);

/* Commands of several roots at the same time, through the whole daemon. */
void bench_slots(void);

/* The file tools; absolute names of this program's source and build. */
void bench_tools(const char *source, const char *build);

#endif
