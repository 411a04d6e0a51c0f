#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "error.h"

static char *__attribute__((__format__(__printf__, 1, 0)))
format(const char *fmt, va_list ap)
{
	struct buf b;
	va_list again;
	int n;

	buf_init(&b);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0)
		return xstrdup(fmt);
	(void)vsnprintf(
	    (char *)buf_reserve(&b, (size_t)n + 1), (size_t)n + 1, fmt, ap);
	b.len = (size_t)n;
	return buf_steal(&b);
}

int
errorf(char **error, const char *fmt, ...)
{
	va_list ap;

	if (*error != NULL)
		return -1;
	va_start(ap, fmt);
	*error = format(fmt, ap);
	va_end(ap);
	return -1;
}

int
error_errno(char **error, const char *fmt, ...)
{
	va_list ap;
	char *text;
	int save = errno;

	if (*error == NULL) {
		va_start(ap, fmt);
		text = format(fmt, ap);
		va_end(ap);
		*error = xasprintf("%s: %s", text, strerror(save));
		free(text);
	}
	errno = save;
	return -1;
}
