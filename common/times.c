#include "config.h"

#include <ctype.h>
#include <string.h>
#include <time.h>

#include "buf.h"
#include "log.h"
#include "times.h"

static int64_t
clock_ms(clockid_t id)
{
	struct timespec ts;

	if (clock_gettime(id, &ts) == -1)
		fatal("clock_gettime");
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t
time_mono_ms(void)
{
	return clock_ms(CLOCK_MONOTONIC);
}

int64_t
time_wall_ms(void)
{
	return clock_ms(CLOCK_REALTIME);
}

/* Days since 1970-01-01 of a proleptic Gregorian date (H. Hinnant's method
 * of counting years from March, in eras of 400 years). */
static int64_t
days_from_date(int64_t y, int64_t m, int64_t d)
{
	int64_t era, yoe, doy, doe;

	if (m <= 2)
		y--;
	era = (y >= 0 ? y : y - 399) / 400;
	yoe = y - era * 400;
	doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
	return era * 146097 + doe - 719468;
}

void
time_format_iso(int64_t ms, char out[TIME_ISO_SIZE])
{
	struct tm tm;
	time_t t;
	int64_t s, frac;

	s = ms / 1000;
	frac = ms % 1000;
	if (frac < 0) {
		s--;
		frac += 1000;
	}
	t = (time_t)s;
	if (gmtime_r(&t, &tm) == NULL || tm.tm_year < -1900 ||
	    tm.tm_year > 8099)
		memset(&tm, 0, sizeof(tm));
	(void)xsnprintf(out, TIME_ISO_SIZE,
	    "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
	    tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
	    (int)frac);
}

static int
digits(const char **p, int n, int64_t *out)
{
	int64_t v = 0;

	while (n-- > 0) {
		if (!isdigit((unsigned char)**p))
			return -1;
		v = v * 10 + (**p - '0');
		(*p)++;
	}
	*out = v;
	return 0;
}

static int
literal(const char **p, char c)
{
	if (**p != c)
		return -1;
	(*p)++;
	return 0;
}

static int
days_in_month(int64_t y, int64_t m)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30,
		31 };

	if (m == 2 && (y % 4 == 0 && (y % 100 != 0 || y % 400 == 0)))
		return 29;
	return days[m - 1];
}

int
time_parse_iso(const char *p, int64_t *ms)
{
	int64_t y, mo, d, h, mi, s, frac = 0, oh = 0, om = 0, scale = 100;
	int sign = 1;

	if (digits(&p, 4, &y) == -1 || literal(&p, '-') == -1 ||
	    digits(&p, 2, &mo) == -1 || literal(&p, '-') == -1 ||
	    digits(&p, 2, &d) == -1)
		return -1;
	if (*p != 'T' && *p != 't')
		return -1;
	p++;
	if (digits(&p, 2, &h) == -1 || literal(&p, ':') == -1 ||
	    digits(&p, 2, &mi) == -1 || literal(&p, ':') == -1 ||
	    digits(&p, 2, &s) == -1)
		return -1;
	if (*p == '.') {
		p++;
		if (!isdigit((unsigned char)*p))
			return -1;
		for (; isdigit((unsigned char)*p); p++) {
			frac += (*p - '0') * scale;
			scale /= 10;
		}
	}
	if (*p == 'Z' || *p == 'z')
		p++;
	else {
		if (*p != '+' && *p != '-')
			return -1;
		sign = *p++ == '-' ? -1 : 1;
		if (digits(&p, 2, &oh) == -1 || literal(&p, ':') == -1 ||
		    digits(&p, 2, &om) == -1)
			return -1;
	}
	if (*p != '\0' || mo < 1 || mo > 12 || d < 1 ||
	    d > days_in_month(y, mo) || h > 23 || mi > 59 || s > 60 ||
	    oh > 23 || om > 59)
		return -1;
	*ms = ((days_from_date(y, mo, d) * 24 + h) * 60 + mi) * 60000 +
	    s * 1000 + frac - sign * (oh * 60 + om) * 60000;
	return 0;
}
