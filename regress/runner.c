#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "log.h"

/*
 * Runs commands in a fresh sandbox and prints what they did: a tool for
 * whoever works on the sandbox.
 *	EXECUTOR=PROGRAM runner COMMAND [COMMAND ...]
 */
int
main(int argc, char *argv[])
{
	struct harness h;
	struct answer a;
	int i;

	log_init("runner", 0);
	harness_init(&h, 1);
	if (harness_start(&h) == -1) {
		fprintf(stderr, "runner: %s\n", h.failed);
		harness_stop(&h);
		return 1;
	}
	for (i = 1; i < argc; i++) {
		if (harness_run(&h, 0, argv[i], &a) == -1)
			fatalx("the executor ended");
		printf("$ %s\n", argv[i]);
		if (a.ok)
			printf("%.*s%.*s[exit %d%s%s%s%s, %.2f ms]\n",
			    (int)a.result.out.len, (char *)a.result.out.data,
			    (int)a.result.err.len, (char *)a.result.err.data,
			    a.result.exit_code, a.result.signal ? " " : "",
			    a.result.signal ? a.result.signal : "",
			    a.result.timed_out ? " timed out" : "",
			    a.result.truncated ? " truncated" : "", a.ms);
		else
			printf("[%s, %s: %s, %.2f ms]\n",
			    error_code_name(a.error.code),
			    a.error.certainty == UNCERTAIN ? "uncertain"
							   : "clean",
			    a.error.text, a.ms);
		answer_free(&a);
	}
	harness_stop(&h);
	return 0;
}
