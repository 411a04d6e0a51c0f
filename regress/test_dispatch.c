#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <curl/curl.h>
#include <sodium.h>

#include "buf.h"
#include "harness.h"
#include "log.h"
#include "slots.h"

/*
 * test_dispatch [SEED]: 12 callers send 2,000 requests to 4 roots of a worker
 * with 3 lease slots, in an order and of a kind that the seed decides. Some
 * give up after a while, which cancels them, and requests of the worker fail
 * or lose their answers. In the end the roots are compared with what the
 * callers were told and with the server's rules (code-api-server 8, 14, 15):
 *
 *   no two requests of a root were ever at work at the same time: each
 *   command takes a lock that dies with it, and notes when it is taken;
 *   no command was begun twice, whatever came twice;
 *   each command that was answered with success was done, once, and none
 *   that was answered with a rejection was;
 *   each read that was answered had the content of its own root;
 *   no root is in doubt: there is no marker, no fence, and no slot is taken.
 */
#define CALLERS  12
#define CALLS    2000
#define ROOTS    4
#define SLOTS    3
#define PATIENCE 60000 /* ms */

enum kind { APPEND, SLEEP, ENDLESS, READ };

struct call {
	unsigned char kind;
	unsigned char root;
	short give_up; /* ms after which the caller goes away, or 0 */
	short status; /* 0: it went away */
	char code[32];
};

static struct place place;
static struct call calls[CALLS];
static unsigned int next; /* atomic */
static unsigned int bad_reads; /* atomic */
static int finished; /* atomic */
static unsigned char seed[randombytes_SEEDBYTES];

/* ---- the callers ---- */

/*
 * All of a run follows from the seed. Who goes away takes the right to fulfil
 * along (13.4), which leaves a root in doubt if the command ends at the same
 * moment: so only what does not end, or only reads, is given up.
 */
static void
plan(void)
{
	static unsigned char dice[CALLS][4];
	struct call *c;
	size_t i;

	randombytes_buf_deterministic(dice, sizeof(dice), seed);
	for (i = 0; i < CALLS; i++) {
		c = &calls[i];
		c->kind = dice[i][0] < 4 ? ENDLESS
		    : dice[i][0] < 76    ? APPEND
		    : dice[i][0] < 110   ? SLEEP
					 : READ;
		c->root = dice[i][1] % ROOTS;
		if (c->kind == ENDLESS || (c->kind == READ && dice[i][2] < 40))
			c->give_up = (short)(1 + dice[i][3] / 2);
	}
}

static char *
body_of(unsigned int id)
{
	const struct call *c = &calls[id];
	char *command, *body;

	if (c->kind == READ)
		return place_read(&place, c->root, "name");
	command = xasprintf("exec 9>>lock; flock -n 9 || echo %u >>overlaps; "
			    "echo %u >>begun; %secho %u >>done; echo %u",
	    id, id,
	    c->kind == SLEEP         ? "sleep 0.03; "
		: c->kind == ENDLESS ? "sleep 100; "
				     : "",
	    id, id);
	body = place_command(&place, c->root, command);
	free(command);
	return body;
}

static size_t
collect(char *p, size_t size, size_t n, void *arg)
{
	buf_add(arg, p, size * n);
	return size * n;
}

static void
evaluate(unsigned int id, const struct buf *answer)
{
	struct call *c = &calls[id];
	struct json *j;
	const char *error, *text;
	char *own;

	j = json_parse(answer->data, answer->len, &error);
	text = json_get_str(j, "code");
	xsnprintf(c->code, sizeof(c->code), "%.31s", text == NULL ? "" : text);
	if (c->status == 200) {
		own = c->kind == READ ? xstrdup(place.ids[c->root])
				      : xasprintf("%u\n", id);
		text = json_get_str(j, c->kind == READ ? "content" : "stdout");
		if (text == NULL || strcmp(text, own) != 0)
			__atomic_add_fetch(&bad_reads, 1, __ATOMIC_SEQ_CST);
		free(own);
	}
	json_free(j);
}

static void *
caller(void *arg)
{
	struct curl_slist *headers = NULL;
	struct call *c;
	struct buf answer;
	unsigned int id;
	char *url, *body;
	long status;
	CURL *h;

	(void)arg;
	if ((h = curl_easy_init()) == NULL)
		fatalx("curl");
	url = xasprintf("%s/workspace-tools/execute", place.w.url);
	headers = curl_slist_append(headers, "Content-Type: application/json");
	curl_easy_setopt(h, CURLOPT_URL, url);
	curl_easy_setopt(h, CURLOPT_PROXY, "");
	curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(h, CURLOPT_WRITEDATA, &answer);
	while ((id = __atomic_fetch_add(&next, 1, __ATOMIC_SEQ_CST)) < CALLS) {
		c = &calls[id];
		body = body_of(id);
		buf_init(&answer);
		curl_easy_setopt(h, CURLOPT_POSTFIELDS, body);
		curl_easy_setopt(h, CURLOPT_TIMEOUT_MS,
		    c->give_up != 0 ? (long)c->give_up : 120000L);
		status = 0;
		if (curl_easy_perform(h) == CURLE_OK)
			curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
		c->status = (short)status;
		evaluate(id, &answer);
		buf_free(&answer);
		free(body);
	}
	curl_easy_cleanup(h);
	curl_slist_free_all(headers);
	free(url);
	return NULL;
}

/* ---- the faults ---- */

/*
 * One at a time, and long times between receipts, of which one has three
 * attempts within 300 ms. A lane that cannot lease or acknowledge pauses for
 * a second, so that is rarer. Now and then a heartbeat is hit too.
 */
static void *
trouble(void *arg)
{
	static const char *const routes[] = { "settle", "workspace-cleanup",
		"settle", "lease", "settle", "cancellation", "settle",
		"workspace-cleanup", "settle", "ack", "settle",
		"cancellation" };
	static const char *const actions[] = { "drop-before", "drop-after",
		"status", "garbage", "html", "empty", "reset", "half-json" };
	static const char *const beats[] = { "register", "ready" };
	const struct timespec pause = { 0, 130 * 1000000 };
	unsigned char dice[2048];
	struct json *j;
	char *body;
	size_t i;

	(void)arg;
	randombytes_buf_deterministic(dice, sizeof(dice), seed);
	for (i = 0; !__atomic_load_n(&finished, __ATOMIC_SEQ_CST); i++) {
		body = xasprintf("{\"rules\":[{\"route\":\"%s\",\"action\":"
				 "\"%s\",\"count\":1,\"skip\":%d},"
				 "{\"route\":\"%s\",\"action\":\"%s\","
				 "\"count\":%d}]}",
		    routes[i % 12], actions[dice[i % sizeof(dice)] % 8],
		    dice[(i + 7) % sizeof(dice)] % 3, beats[i / 4 % 2],
		    actions[dice[(i + 3) % sizeof(dice)] % 8], i % 4 == 0);
		j = world_control(&place.w, "faults", body);
		json_free(j);
		free(body);
		(void)nanosleep(&pause, NULL);
	}
	json_free(world_control(&place.w, "faults", "{\"rules\":[]}"));
	return NULL;
}

/* ---- what is left ---- */

/* How often each number stands in a file of a root. */
static void
tally(size_t root, const char *name, unsigned char counts[CALLS])
{
	char *path = xasprintf("%s/%s", place.dirs[root], name), line[64];
	unsigned long id;
	FILE *f;

	if ((f = fopen(path, "r")) != NULL) {
		while (fgets(line, sizeof(line), f) != NULL) {
			id = strtoul(line, NULL, 10);
			if (id >= CALLS || calls[id].root != root)
				fail_msg("%s: odd line %s", path, line);
			if (counts[id] < 255)
				counts[id]++;
		}
		fclose(f);
	}
	free(path);
}

static void
compare(void)
{
	static unsigned char begun[CALLS], done[CALLS];
	unsigned int answered = 0, gone = 0, refused = 0;
	const struct call *c;
	size_t i;

	for (i = 0; i < ROOTS; i++) {
		if (place_has(&place, i, "overlaps"))
			fail_msg("two at work in root %zu", i);
		tally(i, "begun", begun);
		tally(i, "done", done);
	}
	for (i = 0; i < CALLS; i++) {
		c = &calls[i];
		answered += c->status == 200;
		gone += c->status == 0;
		refused += c->status != 0 && c->status != 200;
		if (begun[i] > 1)
			fail_msg("call %zu was begun %d times", i, begun[i]);
		if (c->kind != READ && c->status == 200 && done[i] != 1)
			fail_msg("call %zu was answered but not done", i);
		/* An answer that says that it did not run is true. */
		if (c->status == 422 && done[i] != 0 &&
		    strcmp(c->code, "WORKSPACE_TOOL_REJECTED") == 0)
			fail_msg("call %zu was rejected but done", i);
		/* A heartbeat that was late enough; nothing was handed out. */
		if (c->status == 503 && begun[i] == 0 &&
		    strcmp(c->code, "WORKER_OFFLINE") == 0)
			continue;
		if (c->status != 200 && c->status != 422 && c->status != 0)
			fail_msg(
			    "call %zu: status %d %s", i, c->status, c->code);
		if (c->status == 0 && c->give_up == 0)
			fail_msg("call %zu was not answered", i);
	}
	print_message("%u answered, %u rejected, %u went away\n", answered,
	    refused, gone);
	assert_int_equal(bad_reads, 0);
	/* Not all of it went wrong. */
	assert_true(answered > CALLS / 2);
}

/* What the worker said goes with a failure. */
static int
tell_log(void **state)
{
	char *log;

	(void)state;
	if (place.w.dir == NULL)
		return 0;
	log = world_log(&place.w);
	fputs(log, stderr);
	free(log);
	place_free(&place);
	return 0;
}

/* Idle, and nothing held, at the server and here. */
static void
nothing_is_held(void)
{
	const struct json *list;
	struct json *j;
	size_t i;

	assert_true(world_wait(&place.w, "idle", PATIENCE));
	assert_true(place_lanes(&place, SLOTS + 1, PATIENCE));
	assert_int_equal(world_markers(&place.w), 0);
	for (i = 0; i < ROOTS; i++)
		assert_null(place_fence(&place, i));
	assert_non_null(j = world_state(&place.w));
	list = json_get_type(j, "workers", JSON_ARRAY);
	list = json_get_type(list->items[0], "slots", JSON_ARRAY);
	assert_int_equal(list->n, 0);
	json_free(j);
}

static void
write_name(size_t root)
{
	char *path = xasprintf("%s/name", place.dirs[root]);
	int fd = open(path, O_WRONLY | O_CREAT, 0644);
	size_t n = strlen(place.ids[root]);

	if (fd == -1 || write(fd, place.ids[root], n) != (ssize_t)n)
		fatal("%s", path);
	close(fd);
	free(path);
}

static void
callers_never_see_two_in_one_root(void **state)
{
	pthread_t threads[CALLERS + 1];
	size_t i;

	(void)state;
	plan();
	place_init(&place, ROOTS, SLOTS);
	for (i = 0; i < ROOTS; i++)
		write_name(i);
	json_free(world_control(
	    &place.w, "budgets", "{\"leaseTtlMs\":30000,\"queueMs\":120000}"));
	for (i = 0; i <= CALLERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL,
				     i < CALLERS ? caller : trouble, NULL),
		    0);
	for (i = 0; i < CALLERS; i++)
		(void)pthread_join(threads[i], NULL);
	__atomic_store_n(&finished, 1, __ATOMIC_SEQ_CST);
	(void)pthread_join(threads[CALLERS], NULL);
	nothing_is_held();
	compare();
	assert_int_equal(place_stop(&place), 0);
	place_free(&place);
}

int
main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(
		    callers_never_see_two_in_one_root, tell_log),
	};
	char hex[2 * sizeof(seed) + 1];

	log_init("test", 0);
	if (sodium_init() == -1 || prctl(PR_SET_CHILD_SUBREAPER, 1) == -1)
		fatalx("cannot start");
	curl_global_init(CURL_GLOBAL_DEFAULT);
	randombytes_buf(seed, sizeof(seed));
	if (argc > 1 &&
	    sodium_hex2bin(seed, sizeof(seed), argv[1], strlen(argv[1]), NULL,
		NULL, NULL) == -1)
		fatalx(
		    "the seed is not %zu hexadecimal digits", 2 * sizeof(seed));
	print_message(
	    "seed %s\n", sodium_bin2hex(hex, sizeof(hex), seed, sizeof(seed)));
	return cmocka_run_group_tests_name("dispatch", tests, NULL, NULL);
}
