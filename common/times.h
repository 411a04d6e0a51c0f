#ifndef COMMON_TIMES_H
#define COMMON_TIMES_H

#include <stddef.h>
#include <stdint.h>

/* Monotonic clock in milliseconds; for every duration and deadline. */
int64_t time_mono_ms(void);

/* Wall clock in milliseconds since 1970; for time stamps only. */
int64_t time_wall_ms(void);

/*
 * "YYYY-MM-DDTHH:MM:SS.mmmZ": always 24 characters and a NUL. ms must lie in
 * the years 0 to 9999.
 */
#define TIME_ISO_SIZE 25
void time_format_iso(int64_t ms, char out[TIME_ISO_SIZE]);

/* RFC 3339 date-time, any fraction, "Z" or an offset: 0 and *ms, or -1. */
int time_parse_iso(const char *, int64_t *ms);

#endif
