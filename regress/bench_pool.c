#include "config.h"

#include <sys/types.h>
#include <sys/wait.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "harness.h"
#include "log.h"
#include "world.h"

/* What a further root costs: its sandbox at rest, and making it anew. */

#define ROUNDS 60
#define MANY   8

/* Memory of a process that it shares with nobody, KiB. */
static long
private_memory(pid_t pid)
{
	char path[64], text[256];
	long kb, sum = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	if ((f = fopen(path, "r")) == NULL)
		return 0;
	while (fgets(text, sizeof(text), f) != NULL)
		if (sscanf(text, "Private_Clean: %ld kB", &kb) == 1 ||
		    sscanf(text, "Private_Dirty: %ld kB", &kb) == 1)
			sum += kb;
	fclose(f);
	return sum;
}

static long
tree_memory(pid_t pid)
{
	pid_t list[64];
	size_t i, n;
	long kb = private_memory(pid);

	n = world_children(pid, list, 64);
	for (i = 0; i < n; i++)
		kb += tree_memory(list[i]);
	return kb;
}

static void
run(struct harness *h, uint32_t root, const char *command, double *ms)
{
	struct answer a;

	if (harness_run_with(h, root, command, "", 300000, 4096, &a) == -1 ||
	    !a.ok || a.result.exit_code != 0)
		fatalx("the command failed");
	if (ms != NULL)
		*ms = a.ms;
	answer_free(&a);
}

/* With n roots, all of which have run commands. */
static long
memory_with(size_t n)
{
	struct harness h;
	uint32_t r, i;
	long kb;

	harness_init(&h, n);
	if (harness_start(&h) == -1)
		fatalx("%s", h.failed);
	for (i = 0; i < 20; i++)
		for (r = 0; r < n; r++)
			run(&h, r, "true", NULL);
	kb = tree_memory(h.pid);
	harness_stop(&h);
	return kb;
}

static void
bench_making(void)
{
	static double warm[ROUNDS], made[ROUNDS], after;
	struct harness h;
	char note[80];
	uint32_t i;

	harness_init(&h, 2);
	h.slots = 1;
	h.tmp_bytes = 1U << 30;
	if (harness_start(&h) == -1)
		fatalx("%s", h.failed);
	for (i = 0; i < ROUNDS; i++) {
		run(&h, i & 1, "true", &made[i]);
		run(&h, i & 1, "true", &warm[i]);
	}
	(void)bench_median(made, ROUNDS);
	snprintf(note, sizeof(note), "%.2f ms with its sandbox at hand",
	    bench_median(warm, ROUNDS));
	bench_line("true, its sandbox made in the place of another",
	    made[ROUNDS / 2], "ms", note);
	run(&h, 0,
	    "cd /tmp; mkdir {1..100}; for d in {1..100}; do "
	    "(cd $d; touch {1..1000}); done",
	    NULL);
	run(&h, 1, "true", &after);
	bench_line(
	    "the same, that one had 100000 files in /tmp", after, "ms", "");
	harness_stop(&h);
}

/* The kernel frees what was in the sandbox; nobody waits for that. */
static void
bench_end(void)
{
	struct harness h;
	double start;

	harness_init(&h, 1);
	h.tmp_bytes = 1U << 30;
	if (harness_start(&h) == -1)
		fatalx("%s", h.failed);
	run(&h, 0,
	    "cd /tmp; mkdir {1..100}; for d in {1..100}; do "
	    "(cd $d; touch {1..1000}); done; head -c 500M /dev/zero >big",
	    NULL);
	start = world_now();
	imsg_compose(&h.monitor, MSG_STOP, 0, -1, NULL, 0);
	if (imsg_flush_blocking(&h.monitor) == -1 ||
	    waitpid(h.pid, NULL, 0) == -1)
		fatal("stop");
	bench_line("end of the executor, 100000 files, 500 MB",
	    world_now() - start, "ms", "in /tmp");
	h.pid = 0;
	harness_stop(&h);
}

void
bench_pool(void)
{
	char note[80];
	long one, many;

	one = memory_with(1);
	many = memory_with(MANY);
	snprintf(note, sizeof(note),
	    "private; %ld KiB with one root (aim: 1 MiB)", one);
	bench_line("memory per further idle root",
	    (double)(many - one) / (MANY - 1) / 1024, "MiB", note);
	bench_making();
	bench_end();
}
