#include "config.h"

#include <sys/types.h>
#include <sys/wait.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <curl/curl.h>

#include "bench.h"
#include "buf.h"
#include "log.h"
#include "slots.h"
#include "world.h"

/*
 * Commands of several roots at the same time, through the whole of it: a
 * caller for each root, on a kept connection, to the embedded Code API, the
 * daemon with eight lease slots, and back. Each command is leased,
 * acknowledged, has its marker stored and removed (fsync(2) each time), is
 * settled and confirmed. The baseline starts the same commands, as many at a
 * time, with xargs -P and nothing else.
 */
#define ROOTS 8

struct worker {
	pthread_t thread;
	const char *url;
	char *body;
	unsigned int calls;
	long bad; /* status other than 200 */
};

static size_t
discard(char *p, size_t size, size_t n, void *arg)
{
	(void)p;
	(void)arg;
	return size * n;
}

static void *
caller(void *arg)
{
	struct worker *w = arg;
	struct curl_slist *headers = NULL;
	unsigned int i;
	long status;
	CURL *c;

	if ((c = curl_easy_init()) == NULL)
		fatalx("curl");
	headers = curl_slist_append(headers, "Content-Type: application/json");
	curl_easy_setopt(c, CURLOPT_URL, w->url);
	curl_easy_setopt(c, CURLOPT_PROXY, "");
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(c, CURLOPT_POSTFIELDS, w->body);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, discard);
	for (i = 0; i < w->calls; i++) {
		status = 0;
		if (curl_easy_perform(c) == CURLE_OK)
			curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
		if (status != 200)
			w->bad = status == 0 ? -1 : status;
	}
	curl_easy_cleanup(c);
	curl_slist_free_all(headers);
	return NULL;
}

/* So many of a command in each of the first roots: ms for all. */
static double
in_slots(struct place *p, unsigned int roots, unsigned int calls,
    const char *command)
{
	struct worker ws[ROOTS];
	char *url = xasprintf("%s/workspace-tools/execute", p->w.url);
	double start = world_now();
	unsigned int i;

	for (i = 0; i < roots; i++) {
		ws[i].url = url;
		ws[i].calls = calls;
		ws[i].bad = 0;
		ws[i].body = place_command(p, i, command);
		if (pthread_create(&ws[i].thread, NULL, caller, &ws[i]) != 0)
			fatalx("pthread_create");
	}
	for (i = 0; i < roots; i++) {
		(void)pthread_join(ws[i].thread, NULL);
		if (ws[i].bad != 0)
			fatalx("a command got status %ld", ws[i].bad);
		free(ws[i].body);
	}
	free(url);
	return world_now() - start;
}

static double
in_xargs(unsigned int parallel, unsigned int calls, const char *command)
{
	char *line = xasprintf("seq %u | xargs -P %u -I N bash -c '%s'",
	    parallel * calls, parallel, command);
	double start = world_now();
	int status = system(line);

	if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fatalx("%s failed", line);
	free(line);
	return world_now() - start;
}

static void
compare(struct place *p, const char *command, unsigned int calls)
{
	char what[80], note[120];
	unsigned int roots, each;
	double ours, bare;

	for (roots = 1; roots <= ROOTS; roots *= 2) {
		each = calls / roots;
		ours = in_slots(p, roots, each, command);
		bare = in_xargs(roots, each, command);
		xsnprintf(what, sizeof(what), "%s, %u root%s", command, roots,
		    roots == 1 ? "" : "s");
		xsnprintf(note, sizeof(note),
		    "dispatch to settled; xargs -P %u: %.0f /s, %.2f of it",
		    roots, roots * each / bare * 1000, bare / ours);
		bench_line(what, roots * each / ours * 1000, "/s", note);
	}
}

void
bench_slots(void)
{
	struct place p;
	double t;

	curl_global_init(CURL_GLOBAL_DEFAULT);
	place_init(&p, ROOTS, ROOTS);
	(void)in_slots(&p, ROOTS, 1, "true"); /* every sandbox is there */
	t = in_slots(&p, ROOTS, 1, "sleep 1");
	bench_line("8 x sleep 1 in 8 roots", t, "ms",
	    "at the same time (aim: 1300 ms)");
	compare(&p, "true", 400);
	compare(&p, "sleep 0.02", 400);
	compare(&p, "i=0; while ((i < 20000)); do ((++i)); done", 160);
	if (place_stop(&p) != 0)
		fatalx("the worker ended with an error");
	place_free(&p);
}
