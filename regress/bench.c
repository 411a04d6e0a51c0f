#include "config.h"

#include <sys/types.h>
#include <sys/wait.h>

#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <curl/curl.h>

#include "bench.h"
#include "harness.h"
#include "log.h"
#include "world.h"

/*
 * What the README promises about speed and size, measured against a baseline
 * in the same run. It judges nothing: numbers of one machine on one day.
 */

#define ROUNDS 300

static int
compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double
bench_median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), compare);
	return v[n / 2];
}

static double
bare_bash(void)
{
	double start = world_now();
	pid_t pid;

	if ((pid = fork()) == -1)
		fatal("fork");
	if (pid == 0) {
		execl("/bin/bash", "/bin/bash", "-c", "true", (char *)NULL);
		_exit(127);
	}
	(void)waitpid(pid, NULL, 0);
	return world_now() - start;
}

void
bench_line(const char *what, double ours, const char *unit, const char *note)
{
	printf("%-46s %9.2f %-4s %s\n", what, ours, unit, note);
	fflush(stdout);
}

/* Command in a warm sandbox against a bare fork and exec of the same shell. */
static double
bench_command(void)
{
	static double in[ROUNDS], bare[ROUNDS];
	struct harness h;
	struct answer a;
	char note[80];
	double base;
	size_t i;

	harness_init(&h, 1);
	if (harness_start(&h) == -1)
		fatalx("%s", h.failed);
	for (i = 0; i < ROUNDS; i++) {
		if (harness_run(&h, 0, "true", &a) == -1 || !a.ok)
			fatalx("the command failed");
		in[i] = a.ms;
		answer_free(&a);
		bare[i] = bare_bash();
	}
	harness_stop(&h);
	base = bench_median(bare, ROUNDS);
	bench_line("bash -c true, bare fork and exec", base, "ms", "baseline");
	snprintf(note, sizeof(note),
	    "%.2f ms above, %.2f times (aim: 1.5 ms "
	    "above)",
	    bench_median(in, ROUNDS) - base, in[ROUNDS / 2] / base);
	bench_line("execute_command true, in the executor", in[ROUNDS / 2],
	    "ms", note);
	return in[ROUNDS / 2];
}

/* connect() of a Unix socket, decided by the supervisor, against a bare one. */
static void
bench_connect(void)
{
	struct harness h;
	struct answer a;
	char *cmd, note[80];
	double bare, in;
	FILE *f;

	cmd = xasprintf("%s time", getenv("ATTACK"));
	if ((f = popen(cmd, "r")) == NULL || fscanf(f, "%lf", &bare) != 1 ||
	    pclose(f) != 0)
		fatalx("%s failed", cmd);
	free(cmd);
	harness_init(&h, 1);
	copy_program(&h, "ATTACK", h.roots[0], "attack");
	if (harness_start(&h) == -1)
		fatalx("%s", h.failed);
	if (harness_run(&h, 0, "./attack time", &a) == -1 || !a.ok ||
	    a.result.out.len == 0)
		fatalx("the command failed");
	in = strtod((const char *)a.result.out.data, NULL);
	answer_free(&a);
	harness_stop(&h);
	bench_line("connect to a Unix socket, bare", bare, "us", "baseline");
	snprintf(note, sizeof(note), "%.1f times (aim: 100 us)", in / bare);
	bench_line("connect to a Unix socket, in the sandbox", in, "us", note);
}

static size_t
count_descriptors(pid_t pid)
{
	char path[64];
	size_t n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	if ((d = opendir(path)) == NULL)
		return 0;
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n - 2;
}

static long pss(pid_t);

/* The executor and what it keeps. */
static void
measure_tree(pid_t pid, long *kb, size_t *fds)
{
	pid_t list[32];
	size_t i, n;

	*kb += pss(pid);
	*fds += count_descriptors(pid);
	n = world_children(pid, list, 32);
	for (i = 0; i < n; i++)
		measure_tree(list[i], kb, fds);
}

/* Commands one after another on one root for half a minute. */
static void
bench_sustained(void)
{
	struct harness h;
	struct answer a;
	char note[120];
	double start, seconds;
	long kb[2] = { 0, 0 };
	size_t fds[2] = { 0, 0 }, count = 0;

	harness_init(&h, 1);
	if (harness_start(&h) == -1)
		fatalx("%s", h.failed);
	start = world_now();
	while (world_now() - start < 30000) {
		if (harness_run(&h, 0, "true", &a) == -1 || !a.ok)
			fatalx("the command failed");
		answer_free(&a);
		if (++count == 100)
			measure_tree(h.pid, &kb[0], &fds[0]);
	}
	seconds = (world_now() - start) / 1000;
	measure_tree(h.pid, &kb[1], &fds[1]);
	harness_stop(&h);
	snprintf(note, sizeof(note),
	    "for 30 s; %ld then %ld KiB, %zu then %zu descriptors "
	    "(aim: 200 a second, flat)",
	    kb[0], kb[1], fds[0], fds[1]);
	bench_line("commands a second on one root", (double)count / seconds,
	    "/s", note);
}

static size_t
discard(char *p, size_t size, size_t n, void *arg)
{
	(void)p;
	(void)arg;
	return size * n;
}

/* Through the server, on one kept connection as LibreChat has it. */
static double
bench_dispatch(struct world *w, const char *body)
{
	static double t[ROUNDS];
	struct curl_slist *headers = NULL;
	char *url = xasprintf("%s/workspace-tools/execute", w->url);
	double start;
	long status;
	size_t i;
	CURL *c;

	if ((c = curl_easy_init()) == NULL)
		fatalx("curl");
	headers = curl_slist_append(headers, "Content-Type: application/json");
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_PROXY, "");
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(c, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, discard);
	for (i = 0; i < ROUNDS; i++) {
		start = world_now();
		if (curl_easy_perform(c) != CURLE_OK)
			fatalx("the request failed");
		t[i] = world_now() - start;
		curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
		if (status != 200)
			fatalx("status %ld", status);
	}
	curl_easy_cleanup(c);
	curl_slist_free_all(headers);
	free(url);
	return bench_median(t, ROUNDS);
}

/* Proportional set size in KiB, or 0. */
static long
pss(pid_t pid)
{
	char path[64], text[256];
	long kb = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	if ((f = fopen(path, "r")) == NULL)
		return 0;
	while (fgets(text, sizeof(text), f) != NULL)
		if (sscanf(text, "Pss: %ld kB", &kb) == 1)
			break;
	fclose(f);
	return kb;
}

static long
tree_pss(pid_t pid, const char *indent)
{
	char path[64], name[64] = "";
	pid_t list[32];
	long sum, own;
	size_t n, i;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	if ((f = fopen(path, "r")) != NULL) {
		if (fgets(name, sizeof(name), f) != NULL)
			name[strcspn(name, "\n")] = '\0';
		fclose(f);
	}
	sum = own = pss(pid);
	printf(
	    "%s%-*s %9ld KiB\n", indent, (int)(46 - strlen(indent)), name, own);
	n = world_children(pid, list, 32);
	for (i = 0; i < n; i++)
		sum += tree_pss(list[i], *indent == '\0' ? "  " : "    ");
	return sum;
}

/* "bench tools": the file tools alone. */
int
main(int argc, char *argv[])
{
	const char *source = getenv("SOURCE"), *build = getenv("BUILD");
	struct world w;
	char *body, note[80];
	double command, t, start;
	long kb;

	log_init("bench", 0);
	if (source == NULL || build == NULL)
		fatalx("SOURCE and BUILD must name the trees");
	if (argc == 2 && strcmp(argv[1], "tools") == 0) {
		bench_tools(source, build);
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], "slots") == 0) {
		bench_slots();
		return 0;
	}
	command = bench_command();
	bench_connect();
	bench_sustained();
	bench_pool();
	bench_slots();
	bench_tools(source, build);

	world_init(&w, 0);
	world_server(&w, NULL);
	world_pair(&w);
	start = world_now();
	world_worker(
	    &w, "--allow-workspace-writes", "--allow-workspace-commands", NULL);
	if (!world_wait(&w, "registered", 20000))
		fatalx("the worker did not register");
	bench_line("start of run to registered", world_now() - start, "ms",
	    "(aim: 150 ms)");
	if (!world_wait(&w, "leasing", 20000))
		fatalx("the worker does not lease");

	body = world_command_body("true", 0);
	t = bench_dispatch(&w, body);
	free(body);
	snprintf(note, sizeof(note),
	    "%.2f ms above the executor alone (aim: "
	    "5 ms)",
	    t - command);
	bench_line("execute_command true, dispatch to settled", t, "ms", note);
	t = bench_dispatch(&w,
	    "{\"protocolVersion\":1,\"operation\":\"write_file\","
	    "\"workspaceId\":\"primary\",\"path\":\"f\","
	    "\"content\":\"x\"}");
	bench_line("write_file of one byte, dispatch to settled", t, "ms",
	    "with three fsync and a marker");
	t = bench_dispatch(&w,
	    "{\"protocolVersion\":1,\"operation\":\"read_file\","
	    "\"workspaceId\":\"primary\",\"path\":\"f\"}");
	bench_line("read_file of one byte, dispatch to settled", t, "ms", "");

	printf("\nAt rest, proportional set size:\n");
	kb = tree_pss(w.worker, "");
	bench_line("together", (double)kb / 1024, "MiB", "(aim: 16 MiB)");

	start = world_now();
	world_signal(&w, SIGTERM);
	if (world_worker_end(&w, 20000) != 0)
		fatalx("the worker ended with an error");
	bench_line("SIGTERM to exit, idle", world_now() - start, "ms",
	    "(aim: 100 ms)");
	world_free(&w);
	return 0;
}
