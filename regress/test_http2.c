#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "front.h"
#include "json.h"
#include "log.h"
#include "world.h"

/*
 * A reverse proxy between worker and Code API, over HTTP/2 and HTTP/1.1: what
 * it does to connections and streams loses no result and repeats no mutation.
 */
#define PATIENCE 60000 /* ms */
#define H1       "http/1.1"
#define HELD                                                         \
	"touch begun; until [ -e go ]; do sleep 0.02; done; rm go; " \
	"printf x >>count"

static struct world w;
static struct front front;
static pid_t proxy, relay;
static int reserve; /* of the relay's port */
static char *plain; /* URL of the server itself, for callers */

static void
set_up_relayed(const char *alpn, const char *option, int relayed)
{
	const char *missing;
	char *file;
	int port;

	if ((missing = front_missing()) != NULL) {
		print_message("there is no %s\n", missing);
		skip();
	}
	world_init(&w, 0);
	world_server(&w, NULL);
	front_init(
	    &front, w.dir, (int)strtol(strrchr(w.url, ':') + 1, NULL, 10));
	proxy = front_start(&front, alpn, option);
	port = front.port;
	if (relayed)
		relay = front_relay(&front, &port, &reserve);
	plain = w.url;
	w.url = xasprintf("https://127.0.0.1:%d/v1", port);
	file = xasprintf("%s/ca.pem", w.dir);
	setenv("LIBRECHAT_CODE_CA_FILE", file, 1);
	free(file);
	world_start(&w);
	unsetenv("LIBRECHAT_CODE_CA_FILE");
	free(w.url);
	w.url = plain;
}

static void
set_up(const char *alpn, const char *option)
{
	set_up_relayed(alpn, option, 0);
}

static void
path_remove(const char *name)
{
	char *path = xasprintf("%s/%s", w.project, name);

	(void)unlink(path);
	free(path);
}

static void
path_make(const char *name)
{
	char *path = xasprintf("%s/%s", w.project, name);
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_int_equal(fclose(f), 0);
	free(path);
}

static int
times_done(void)
{
	char *path = xasprintf("%s/count", w.project);
	struct stat st;
	int n = stat(path, &st) == -1 ? 0 : (int)st.st_size;

	free(path);
	return n;
}

static void
expect_work(void)
{
	struct json *j;

	assert_int_equal(world_run(&w, "echo works", &j), 200);
	assert_string_equal(json_get_str(j, "stdout"), "works\n");
	json_free(j);
	/* The answer to the settlement has to get through as well. */
	assert_true(world_wait(&w, "leasing", PATIENCE));
}

static void
finish(void)
{
	assert_int_equal(world_markers(&w), 0);
	world_signal(&w, SIGTERM);
	assert_int_equal(world_worker_end(&w, 30000), 0);
	if (relay > 0) {
		front_relay_kill(relay);
		close(reserve);
	}
	relay = 0;
	front_kill(proxy);
	front_free(&front);
	world_free(&w);
}

/* A command that is running and waits for what happens to the proxy. */
static void
begin_held(struct pending *p)
{
	char *body, *begun;

	path_remove("begun");
	body = world_command_body(HELD, 120000);
	world_call_start(&w, body, p);
	free(body);
	begun = xasprintf("%s/begun", w.project);
	assert_true(world_file_wait(begun, PATIENCE));
	free(begun);
}

static void
end_held(struct pending *p)
{
	struct json *j;

	assert_int_equal(world_call_end(p, &j), 200);
	json_free(j);
	assert_true(world_wait(&w, "leasing", PATIENCE));
	assert_int_equal(times_done(), 1);
}

static void
everything_over(const char *alpn, const char *used, const char *unused)
{
	struct json *j;

	set_up(alpn, NULL);
	assert_int_equal(world_run(&w, "printf x >>count", &j), 200);
	json_free(j);
	assert_true(world_wait(&w, "leasing", PATIENCE));
	expect_work();
	assert_int_equal(times_done(), 1);
	/* pairing; registration in two rounds; twice lease, ack, settle */
	assert_true(front_answers(&front, used) >= 9);
	assert_int_equal(front_answers(&front, unused), 0);
	finish();
}

static void
pairing_to_settlement_over_http_2(void **state)
{
	(void)state;
	everything_over("h2," H1, "h2", H1);
}

static void
pairing_to_settlement_over_http_1_1(void **state)
{
	(void)state;
	everything_over(H1, H1, "h2");
}

/* GOAWAY: a new connection goes to whatever took over the port. */
static void
a_proxy_that_is_replaced_in_order(void **state)
{
	struct pending p;
	pid_t old;
	int i;

	(void)state;
	set_up("h2", NULL);
	for (i = 0; i < 3; i++) {
		path_remove("count");
		begin_held(&p);
		old = proxy;
		assert_int_equal(kill(old, SIGQUIT), 0);
		proxy = front_start(&front, "h2", NULL);
		path_make("go");
		end_held(&p);
		front_kill(old);
		expect_work();
	}
	finish();
}

/* What was under way is gone, and for a while nobody listens. */
static void
killed(const char *alpn)
{
	struct pending p;

	set_up(alpn, NULL);
	begin_held(&p);
	front_kill(proxy);
	path_make("go");
	assert_true(world_log_wait(&w, "delivering it again", PATIENCE));
	proxy = front_start(&front, alpn, NULL);
	end_held(&p);
	/* The same while it waits for work. */
	front_kill(proxy);
	assert_true(world_log_wait(&w, "reconnecting", PATIENCE));
	proxy = front_start(&front, alpn, NULL);
	assert_true(world_wait(&w, "leasing", PATIENCE));
	expect_work();
	finish();
}

static void
a_proxy_that_is_killed(void **state)
{
	(void)state;
	killed("h2");
}

static void
a_proxy_that_is_killed_over_http_1_1(void **state)
{
	(void)state;
	killed(H1);
}

static void
control(const char *path, const char *body)
{
	json_free(world_control(&w, path, body));
}

/* Streams that last a second are reset, the connection stays. */
static void
streams_that_are_reset(void **state)
{
	struct json *j;
	long status;
	int i, done = 0;

	(void)state;
	set_up("h2", "--stream-read-timeout=1s");
	for (i = 0; i < 3; i++) {
		/* Delivered, but the worker does not hear of it. */
		control("faults",
		    "{\"rules\":[{\"route\":\"settle\",\"action\":\"delay\","
		    "\"ms\":30000,\"count\":1}]}");
		status = world_run(&w, "printf x >>count", &j);
		json_free(j);
		done += status == 200;
		assert_true(status == 200 || status == 422);
		assert_int_equal(times_done(), done);
	}
	assert_true(done > 0);
	assert_true(world_wait(&w, "leasing", PATIENCE));
	assert_true(world_log_wait(&w, "delivering it again", PATIENCE));
	control("faults", "{\"rules\":[]}");
	finish();
}

/* It goes on after a while. */
static void
a_proxy_that_hangs(void **state)
{
	struct pending p;

	(void)state;
	set_up("h2", NULL);
	begin_held(&p);
	assert_int_equal(kill(-proxy, SIGSTOP), 0);
	path_make("go");
	assert_true(world_log_wait(&w, "delivering it again", PATIENCE));
	assert_int_equal(kill(-proxy, SIGCONT), 0);
	end_held(&p);
	expect_work();
	finish();
}

/*
 * Connections that are open and silent for ever: the kernel of the other side
 * acknowledges what nobody reads. New ones to the same port work.
 */
static void
frozen(const char *alpn)
{
	struct pending p;

	set_up_relayed(alpn, NULL, 1);
	begin_held(&p);
	assert_true(front_relay_freeze(relay) > 0);
	path_make("go");
	end_held(&p);
	expect_work();
	finish();
}

static void
connections_that_go_silent(void **state)
{
	(void)state;
	frozen("h2");
}

static void
connections_that_go_silent_over_http_1_1(void **state)
{
	(void)state;
	frozen(H1);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(pairing_to_settlement_over_http_2),
		cmocka_unit_test(pairing_to_settlement_over_http_1_1),
		cmocka_unit_test(a_proxy_that_is_replaced_in_order),
		cmocka_unit_test(a_proxy_that_is_killed),
		cmocka_unit_test(a_proxy_that_is_killed_over_http_1_1),
		cmocka_unit_test(streams_that_are_reset),
		cmocka_unit_test(a_proxy_that_hangs),
		cmocka_unit_test(connections_that_go_silent),
		cmocka_unit_test(connections_that_go_silent_over_http_1_1),
	};

	log_init("test", 0);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) == -1)
		fatal("subreaper");
	return cmocka_run_group_tests_name("http2", tests, NULL, NULL);
}
