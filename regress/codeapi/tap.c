#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tap.h"

static int checks, failures;

static int report(int, const char *, va_list)
    __attribute__((__format__(__printf__, 2, 0)));

static int
report(int ok, const char *fmt, va_list ap)
{
	printf("%sok %d - ", ok ? "" : "not ", ++checks);
	vprintf(fmt, ap);
	printf("\n");
	fflush(stdout);
	failures += !ok;
	return ok;
}

int
tap_ok(int ok, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report(ok, fmt, ap);
	va_end(ap);
	return ok;
}

int
tap_same(const char *got, const char *wanted, const char *fmt, ...)
{
	va_list ap;
	int ok;

	ok = got == NULL || wanted == NULL ? got == wanted
					   : strcmp(got, wanted) == 0;
	va_start(ap, fmt);
	report(ok, fmt, ap);
	va_end(ap);
	if (!ok)
		printf("# got    %s\n# wanted %s\n",
		    got == NULL ? "nothing" : got,
		    wanted == NULL ? "nothing" : wanted);
	return ok;
}

int
tap_number(long long got, long long wanted, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report(got == wanted, fmt, ap);
	va_end(ap);
	if (got != wanted)
		printf("# got %lld, wanted %lld\n", got, wanted);
	return got == wanted;
}

int
tap_done(void)
{
	printf("1..%d\n", checks);
	return failures != 0;
}
