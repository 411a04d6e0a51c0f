#include "config.h"

#include <sys/types.h>

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "observe.h"

#define TEXT_MAX 65536

void
set_faults(struct world *w, const char *rules)
{
	char *body = xasprintf("{\"rules\":[%s]}", rules);
	struct json *j;

	j = world_control(w, "faults", body);
	assert_non_null(j);
	json_free(j);
	free(body);
}

int
count_requests(struct world *w, const char *route, int answered)
{
	const struct json *list;
	struct json *j;
	int64_t status;
	const char *r;
	size_t i;
	int n = 0;

	j = world_control(w, "requests?since=0", NULL);
	assert_non_null(j);
	list = json_get_type(j, "requests", JSON_ARRAY);
	assert_non_null(list);
	for (i = 0; i < list->n; i++) {
		r = json_get_str(list->items[i], "route");
		if (r == NULL || strcmp(r, route) != 0)
			continue;
		if (!answered ||
		    (json_get_integer(list->items[i], "status", &status) == 0 &&
			status == 200))
			n++;
	}
	json_free(j);
	return n;
}

char *
file_text(const char *path)
{
	char *text = xcalloc(1, TEXT_MAX);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd != -1) {
		(void)!read(fd, text, TEXT_MAX - 1);
		close(fd);
	}
	return text;
}

char *
command_printed(struct world *w)
{
	char *path = xasprintf("%s/command.log", w->dir), *log;

	log = file_text(path);
	(void)unlink(path);
	free(path);
	return log;
}

void
command_said(struct world *w, const char *text)
{
	char *log = command_printed(w);

	if (strstr(log, text) == NULL)
		fail_msg("no \"%s\" in: %s", text, log);
	free(log);
}
