#include "config.h"

#include <sys/types.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "memory.h"
#include "size.h"

/* The number after "name " at the start of a line, or 0. */
static uint64_t
value_of(const char *text, const char *name)
{
	size_t n = strlen(name);
	const char *p = text;

	while (p != NULL) {
		if (strncmp(p, name, n) == 0 && p[n] == ' ')
			return strtoull(p + n + 1, NULL, 10);
		if ((p = strchr(p, '\n')) != NULL)
			p++;
	}
	return 0;
}

int
memory_read(int fd, struct memory_events *e)
{
	char text[512];
	ssize_t n;

	memset(e, 0, sizeof(*e));
	if (fd == -1)
		return 0;
	do {
		n = pread(fd, text, sizeof(text) - 1, 0);
	} while (n == -1 && errno == EINTR);
	if (n == -1)
		return -1;
	text[n] = '\0';
	e->limit = value_of(text, "oom");
	e->killed = value_of(text, "oom_kill");
	return 0;
}

enum memory_end
memory_compare(
    const struct memory_events *before, const struct memory_events *after)
{
	if (after->killed <= before->killed)
		return MEMORY_FINE;
	return after->limit > before->limit ? MEMORY_LIMIT : MEMORY_MACHINE;
}

char *
memory_line(enum memory_end end, uint64_t limit)
{
	char *size, *line;

	if (end == MEMORY_MACHINE)
		return xstrdup("librechat-code: the command was ended: the "
			       "machine or the service ran out of memory\n");
	size = size_text(limit);
	line = xasprintf("librechat-code: the command was ended: it exceeded "
			 "the memory limit of %s\n",
	    size);
	free(size);
	return line;
}
