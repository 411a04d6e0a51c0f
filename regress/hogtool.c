#include "config.h"

#include <sys/types.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "harness.h"
#include "hogtool.h"

double
hog_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* An executor with roots that have the hog in them. */
void
hog_begin(struct harness *h, size_t nroots, uint32_t processes)
{
	size_t i;

	harness_init(h, nroots);
	h->processes = processes;
	h->tmp_bytes = 256U << 20;
	for (i = 0; i < nroots; i++)
		copy_program(h, "HOG", h->roots[i], "hog");
}

void
hog_start(struct harness *h)
{
	if (harness_start(h) == -1)
		fail_msg("%s", h->failed);
}

/* Runs to its end: standard output, to be freed. */
char *
hog_output(struct harness *h, uint32_t root, const char *command)
{
	struct answer a;
	char *text;

	assert_int_equal(
	    harness_run_with(h, root, command, "", 120000, 65536, &a), 0);
	if (!a.ok)
		fail_msg("%s: %s", command, a.error.text);
	if (a.result.exit_code != 0)
		fail_msg("%s: status %d: %.*s", command, a.result.exit_code,
		    (int)a.result.err.len, (char *)a.result.err.data);
	text = xstrndup((char *)a.result.out.data, a.result.out.len);
	answer_free(&a);
	return text;
}

void
hog_expect(
    struct harness *h, uint32_t root, const char *command, const char *out)
{
	char *text = hog_output(h, root, command);

	if (strcmp(text, out) != 0)
		fail_msg("%s: \"%s\" instead of \"%s\"", command, text, out);
	free(text);
}

/* "number error" as the hog prints it. */
unsigned long
hog_number(const char *text, const char *error)
{
	unsigned long n;
	char *end;

	n = strtoul(text, &end, 10);
	if (end == text || *end != ' ' ||
	    strncmp(end + 1, error, strlen(error)) != 0)
		fail_msg("the hog says \"%s\"", text);
	return n;
}

static int
has_file(const struct harness *h, uint32_t root, const char *name)
{
	char *path = xasprintf("%s/%s", h->roots[root], name);
	int r = access(path, F_OK);

	free(path);
	return r == 0;
}

/* Starts it in root 0 and waits until it has made the file "begun". */
uint32_t
hog_hold(struct harness *h, const char *command)
{
	struct request q;
	uint32_t id;

	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	text_set(&q.command, command, strlen(command));
	q.timeout_ms = 300000;
	q.max_output = 4096;
	id = harness_send(h, &q);
	request_free(&q);
	WAIT_UNTIL(has_file(h, 0, "begun"));
	return id;
}

/* Cancels it; every process of it is dead and the root can be used again. */
void
hog_release(struct harness *h, uint32_t id)
{
	char *mark = xasprintf("%s/hog", h->roots[0]);
	struct answer a;

	harness_cancel(h, id);
	assert_int_equal(harness_wait(h, id, &a), 0);
	assert_false(a.ok);
	assert_int_equal(a.error.code, EC_EXECUTION_ABORTED);
	assert_int_equal(a.error.certainty, NOT_COMMITTED);
	answer_free(&a);
	assert_false(process_exists(mark));
	free(mark);
	hog_expect(h, 0, "rmdir begun; echo again", "again\n");
}

char *
hog_command(const struct harness *h, const char *what)
{
	return xasprintf("exec %s/hog %s", h->roots[0], what);
}
