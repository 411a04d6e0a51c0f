#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
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
#include "harness.h"
#include "log.h"
#include "world.h"

/*
 * The whole daemon against the embedded Code API: the main job, and what
 * happens when something ends, is cancelled or gets lost.
 */

/* The answer is passed by address: it is set by what makes the status. */
static void
must(long status, long want, struct json **answer)
{
	struct json *j = *answer;

	if (status != want)
		fail_msg("status %ld, %s: %s", status,
		    j != NULL && json_get_str(j, "code")
			? json_get_str(j, "code")
			: "",
		    j != NULL && json_get_str(j, "error")
			? json_get_str(j, "error")
			: "");
	assert_non_null(j);
}

static void
expect_output(struct world *w, const char *command, const char *out)
{
	const struct json *s;
	struct json *j;

	must(world_run(w, command, &j), 200, &j);
	s = json_get_type(j, "stdout", JSON_STRING);
	assert_non_null(s);
	if (s->len != strlen(out) || memcmp(s->str, out, s->len) != 0)
		fail_msg("%s: <%s>, errors <%s>", command, s->str,
		    json_get_str(j, "stderr"));
	json_free(j);
}

static void
ready(struct world *w, uid_t owner)
{
	world_init(w, owner);
	world_server(w, NULL);
	world_start(w);
}

/* SIGTERM, status 0, no marker: how every healthy test ends. */
static void
finish(struct world *w)
{
	char *log;

	world_signal(w, SIGTERM);
	if (world_worker_end(w, 10000) != 0) {
		log = world_log(w);
		fail_msg("ended with %#x: %s", w->status, log);
	}
	assert_int_equal(world_markers(w), 0);
	world_free(w);
}

static void
main_job(void **state)
{
	struct world w;
	struct json *j;
	char *path;
	struct stat st;

	(void)state;
	ready(&w, 0);
	must(world_call(&w,
		 "{\"protocolVersion\":1,\"operation\":\"write_file\","
		 "\"workspaceId\":\"primary\",\"path\":\"n.txt\","
		 "\"content\":\"one\\ntwo\\n\"}",
		 &j),
	    200, &j);
	json_free(j);
	must(world_call(&w,
		 "{\"protocolVersion\":1,\"operation\":\"read_file\","
		 "\"workspaceId\":\"primary\",\"path\":\"n.txt\","
		 "\"startLine\":2}",
		 &j),
	    200, &j);
	assert_string_equal(json_get_str(j, "content"), "two");
	json_free(j);
	expect_output(&w, "cat n.txt; echo err >&2; exit 0", "one\ntwo\n");
	path = xasprintf("%s/n.txt", w.project);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, getuid());
	assert_int_equal(st.st_mode & 07777, 0644);
	free(path);
	finish(&w);
}

static void
any_text_settles_with_a_valid_signature(void **state)
{
	struct world w;
	struct json *j;

	(void)state;
	ready(&w, 0);
	expect_output(&w, "printf '\\033[32mok\\033[0m a/b \\303\\251\\n'",
	    "\033[32mok\033[0m a/b \xc3\xa9\n");
	expect_output(&w, "printf '\\360\\237\\230\\200\\342\\200\\250\\177'",
	    "\xf0\x9f\x98\x80\xe2\x80\xa8\x7f");
	expect_output(&w, "printf '\\377\\376x'", "\xef\xbf\xbd\xef\xbf\xbdx");
	must(world_run(&w, "printf 'a\\0b\\001\\037'", &j), 200, &j);
	assert_int_equal(json_get(j, "stdout")->len, 5);
	json_free(j);
	must(world_run(&w, "head -c 4096 /dev/urandom; exit 5", &j), 200, &j);
	json_free(j);
	must(world_call(&w,
		 "{\"protocolVersion\":1,\"operation\":\"write_file\","
		 "\"workspaceId\":\"primary\",\"path\":\"\xf0\x9f\x98\x80\","
		 "\"content\":\"\\u001b\\u2028\\u0000\\ud83d\\ude00\"}",
		 &j),
	    200, &j);
	json_free(j);
	must(world_call(&w,
		 "{\"protocolVersion\":1,\"operation\":\"read_file\","
		 "\"workspaceId\":\"primary\",\"path\":\"\xf0\x9f\x98\x80\"}",
		 &j),
	    200, &j);
	assert_int_equal(json_get(j, "content")->len, 9);
	json_free(j);
	finish(&w);
}

static void
large_payloads_pass(void **state)
{
	struct world w;
	struct json *j;
	struct buf b;
	size_t i;

	(void)state;
	ready(&w, 0);
	buf_init(&b);
	buf_adds(&b,
	    "{\"protocolVersion\":1,\"operation\":\"write_file\","
	    "\"workspaceId\":\"primary\",\"path\":\"big\","
	    "\"content\":\"");
	for (i = 0; i < 1048576 / 2; i++)
		buf_adds(&b, i % 64 == 63 ? "x\\n" : "xy");
	buf_adds(&b, "\"}");
	must(world_call(&w, buf_cstr(&b), &j), 200, &j);
	json_free(j);
	buf_free(&b);
	must(world_call(&w,
		 "{\"protocolVersion\":1,\"operation\":\"read_file\","
		 "\"workspaceId\":\"primary\",\"path\":\"big\","
		 "\"maxLines\":500}",
		 &j),
	    200, &j);
	json_free(j);
	must(world_call(&w,
		 "{\"protocolVersion\":1,\"operation\":\"execute_command\","
		 "\"workspaceId\":\"primary\",\"command\":"
		 "\"head -c 1048576 /dev/zero\",\"maxOutputBytes\":1048576}",
		 &j),
	    200, &j);
	assert_int_equal(json_get(j, "stdout")->len, 1048576);
	json_free(j);
	finish(&w);
}

static void
tool_errors_reach_the_caller(void **state)
{
	struct world w;
	struct json *j;

	(void)state;
	ready(&w, 0);
	must(world_call(&w,
		 "{\"protocolVersion\":1,\"operation\":\"read_file\","
		 "\"workspaceId\":\"primary\",\"path\":\"missing\"}",
		 &j),
	    422, &j);
	assert_string_equal(json_get_str(j, "code"), "INVALID_PATH");
	assert_null(strstr(json_get_str(j, "error"), w.project));
	json_free(j);
	must(world_call(&w,
		 "{\"protocolVersion\":1,\"operation\":\"execute_command\","
		 "\"workspaceId\":\"primary\",\"command\":\"true\","
		 "\"cwd\":\"missing\"}",
		 &j),
	    422, &j);
	assert_string_equal(json_get_str(j, "code"), "INVALID_PATH");
	json_free(j);
	/* A clean failure: the marker goes after the settlement. */
	assert_true(world_wait(&w, "leasing", 10000));
	assert_int_equal(world_markers(&w), 0);
	must(world_run(&w, "exit 7", &j), 200, &j);
	json_free(j);
	finish(&w);
}

static void
time_out_is_a_result(void **state)
{
	const char *mark = new_mark();
	struct world w;
	char *cmd;
	struct json *j;
	char *body;

	(void)state;
	ready(&w, 0);
	cmd = with_mark(mark, "echo begun; sleep $M");
	body = world_command_body(cmd, 200);
	free(cmd);
	must(world_call(&w, body, &j), 200, &j);
	assert_true(json_get(j, "timedOut")->boolean);
	assert_string_equal(json_get_str(j, "stdout"), "begun\n");
	assert_false(process_exists(mark));
	json_free(j);
	free(body);
	finish(&w);
}

static void
caller_that_goes_away_cancels(void **state)
{
	const char *mark = new_mark();
	struct world w;
	char *cmd;
	struct pending p;
	double start;
	char *body, *path;
	int r;

	(void)state;
	ready(&w, 0);
	cmd = with_mark(mark, "touch begun; sleep $M");
	body = world_command_body(cmd, 60000);
	free(cmd);
	world_call_start(&w, body, &p);
	path = xasprintf("%s/begun", w.project);
	assert_true(world_file_wait(path, 10000));
	assert_int_equal(world_markers(&w), 1);
	world_call_abort(&p);
	start = world_now();
	while (process_exists(mark) && world_now() - start < 10000)
		usleep(2000);
	assert_false(process_exists(mark));
	/*
	 * A server without fences in serial mode has dropped the record, so
	 * the rejection cannot be delivered: the marker stays (protocol 9.4
	 * row 4) and the worker ends.
	 */
	r = world_worker_end(&w, 20000);
	assert_true(r != -1 && WIFEXITED(r) && WEXITSTATUS(r) != 0);
	assert_int_equal(world_markers(&w), 1);
	free(path);
	free(body);
	world_free(&w);
}

/* ---- ends ---- */

enum victim { MONITOR, BRIDGE, EXECUTOR };

static pid_t
find_victim(struct world *w, enum victim v)
{
	static const char *const names[] = { NULL, "librechat-code-bridge",
		"librechat-code-executor" };

	return v == MONITOR ? w->worker : world_helper(w, names[v]);
}

static void
death_of(enum victim v)
{
	const char *mark = new_mark();
	struct world w;
	char *cmd;
	struct pending p;
	pid_t all[16], victim;
	char *body, *path;
	double start;
	size_t n, i;
	int r;

	ready(&w, 0);
	n = world_children(w.worker, all, 15);
	all[n++] = w.worker;
	cmd = with_mark(mark, "touch begun; (setsid sleep $M &); sleep $M");
	body = world_command_body(cmd, 60000);
	free(cmd);
	world_call_start(&w, body, &p);
	path = xasprintf("%s/begun", w.project);
	assert_true(world_file_wait(path, 10000));
	victim = find_victim(&w, v);
	assert_int_equal(kill(victim, SIGKILL), 0);
	start = world_now();
	r = world_worker_end(&w, 20000);
	assert_int_not_equal(r, -1);
	assert_int_not_equal(r, 0);
	for (;;) {
		/* Orphans come to us (main is a subreaper). */
		for (i = 0; i < n; i++)
			(void)waitpid(all[i], NULL, WNOHANG);
		for (i = 0; i < n; i++)
			if (kill(all[i], 0) == 0)
				break;
		if (i == n && !process_exists(mark))
			break;
		if (world_now() - start > 20000)
			fail_msg("something lives");
		usleep(2000);
	}
	/* The mutation was never confirmed: its marker stays. */
	assert_int_equal(world_markers(&w), 1);
	world_call_abort(&p);

	/* The next start refuses and says how to go on. */
	world_worker(&w, "--allow-workspace-writes", NULL);
	r = world_worker_end(&w, 10000);
	assert_true(r != -1 && WIFEXITED(r) && WEXITSTATUS(r) != 0);
	assert_true(world_log_has(&w, "clear-workspace-quarantine"));
	assert_int_equal(world_command(&w, NULL, "clear-workspace-quarantine",
			     "--worker-dir", w.project, NULL),
	    0);
	assert_int_equal(world_markers(&w), 0);
	free(path);
	free(body);
	world_free(&w);
}

static void
death_of_the_monitor(void **state)
{
	(void)state;
	death_of(MONITOR);
}

static void
death_of_the_bridge(void **state)
{
	(void)state;
	death_of(BRIDGE);
}

static void
death_of_the_executor(void **state)
{
	(void)state;
	death_of(EXECUTOR);
}

static void
stop_while_busy_is_clean_or_leaves_the_marker(void **state)
{
	const char *mark = new_mark();
	struct world w;
	char *cmd;
	struct pending p;
	struct json *j;
	char *body, *path;
	long status;
	int r;

	(void)state;
	ready(&w, 0);
	cmd = with_mark(mark, "touch begun; sleep $M");
	body = world_command_body(cmd, 60000);
	free(cmd);
	world_call_start(&w, body, &p);
	path = xasprintf("%s/begun", w.project);
	assert_true(world_file_wait(path, 10000));
	world_signal(&w, SIGTERM);
	r = world_worker_end(&w, 34000); /* the command sleeps much longer */
	assert_int_not_equal(r, -1);
	assert_false(process_exists(mark));
	if (world_markers(&w) == 0) {
		/* settled as a clean rejection */
		status = world_call_end(&p, &j);
		assert_int_equal(status, 422);
		assert_string_equal(
		    json_get_str(j, "code"), "EXECUTION_ABORTED");
		json_free(j);
	} else
		world_call_abort(&p);
	free(path);
	free(body);
	world_free(&w);
}

static void
stop_when_idle_is_quick(void **state)
{
	struct world w;

	(void)state;
	ready(&w, 0);
	world_signal(&w, SIGTERM);
	assert_int_equal(world_worker_end(&w, 10000), 0);
	world_free(&w);
}

/* ---- losses ---- */

static void
faults(struct world *w, const char *rules)
{
	char *body = xasprintf("{\"rules\":[%s]}", rules);
	struct json *j;

	j = world_control(w, "faults", body);
	assert_non_null(j);
	json_free(j);
	free(body);
}

static void
lost_settlement_answer_is_repeated(void **state)
{
	struct world w;

	(void)state;
	ready(&w, 0);
	faults(&w,
	    "{\"route\":\"settle\",\"action\":\"drop-after\","
	    "\"count\":2}");
	expect_output(&w, "echo x >>times; wc -l <times", "1\n");
	assert_true(world_wait(&w, "leasing", 10000));
	expect_output(&w, "wc -l <times", "1\n");
	finish(&w);
}

static void
lost_lease_answer_costs_nothing(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 0);
	world_server(&w, NULL);
	world_start(&w);
	/* The poll that waits now is the one that is lost. */
	faults(&w,
	    "{\"route\":\"lease\",\"action\":\"drop-after\","
	    "\"count\":1}");
	expect_output(&w, "echo x >>times; wc -l <times", "1\n");
	finish(&w);
}

static void
nothing_runs_after_an_ambiguous_acknowledgement(void **state)
{
	struct world w;
	struct json *j;
	long status;

	(void)state;
	ready(&w, 0);
	faults(&w,
	    "{\"route\":\"ack\",\"action\":\"drop-after\","
	    "\"count\":1}");
	status = world_run(&w, "touch ran", &j);
	assert_int_not_equal(status, 200);
	json_free(j);
	assert_true(world_wait(&w, "leasing", 20000));
	expect_output(&w, "ls", "");
	finish(&w);
}

static void
server_errors_are_survived(void **state)
{
	struct world w;

	(void)state;
	ready(&w, 0);
	faults(&w,
	    "{\"route\":\"settle\",\"action\":\"status\","
	    "\"status\":503,\"count\":2},"
	    "{\"route\":\"register\",\"action\":\"html\",\"count\":1},"
	    "{\"route\":\"lease\",\"action\":\"status\","
	    "\"status\":502,\"count\":1,\"skip\":1}");
	expect_output(&w, "echo fine", "fine\n");
	expect_output(&w, "echo fine", "fine\n");
	finish(&w);
}

static void
refused_settlement_of_a_mutation_is_quarantined(void **state)
{
	struct world w;
	int r;

	(void)state;
	ready(&w, 0);
	faults(&w,
	    "{\"route\":\"settle\",\"action\":\"status\","
	    "\"status\":409,\"code\":\"ASSIGNMENT_FENCED\"}");
	{
		struct pending p;
		char *body = world_command_body("touch done", 1000);

		world_call_start(&w, body, &p);
		r = world_worker_end(&w, 20000);
		assert_true(r != -1 && WIFEXITED(r) && WEXITSTATUS(r) != 0);
		world_call_abort(&p);
		free(body);
	}
	assert_int_equal(world_markers(&w), 1);
	world_free(&w);
}

static void
refused_settlement_of_a_read_is_not(void **state)
{
	struct world w;
	struct pending p;

	(void)state;
	ready(&w, 0);
	faults(&w,
	    "{\"route\":\"settle\",\"action\":\"status\","
	    "\"status\":409,\"code\":\"ASSIGNMENT_FENCED\","
	    "\"count\":1}");
	world_call_start(&w,
	    "{\"protocolVersion\":1,\"operation\":\"read_file\","
	    "\"workspaceId\":\"primary\",\"path\":\"missing\"}",
	    &p);
	assert_true(world_log_wait(&w, "reconnecting after", 10000));
	world_call_abort(&p);
	assert_true(world_wait(&w, "leasing", 20000));
	expect_output(&w, "echo fine", "fine\n");
	finish(&w);
}

static void
revoked_worker_ends(void **state)
{
	struct world w;
	struct json *j;
	int r;

	(void)state;
	ready(&w, 0);
	j = world_control(&w, "revoke", "{\"workerId\":\"test-worker\"}");
	assert_non_null(j);
	json_free(j);
	/* The open poll ends; the next request is refused for good. */
	j = world_control(&w, "restart", "{\"memory\":true}");
	json_free(j);
	r = world_worker_end(&w, 40000);
	assert_true(r != -1 && WIFEXITED(r) && WEXITSTATUS(r) != 0);
	world_free(&w);
}

/* Rotations that the server has answered with 200. */
static int
refreshes(struct world *w)
{
	const struct json *list;
	struct json *j;
	int64_t status;
	size_t i;
	int n = 0;

	j = world_control(w, "requests?since=0", NULL);
	assert_non_null(j);
	list = json_get_type(j, "requests", JSON_ARRAY);
	assert_non_null(list);
	for (i = 0; i < list->n; i++)
		if (strcmp(json_get_str(list->items[i], "route"), "refresh") ==
			0 &&
		    json_get_integer(list->items[i], "status", &status) == 0 &&
		    status == 200)
			n++;
	json_free(j);
	return n;
}

static void
credential_is_rotated_and_kept(void **state)
{
	struct world w;
	double paired;

	(void)state;
	world_init(&w, 0);
	/*
	 * The first clock offset counts 60 s and a credential is due 60 s
	 * before its end: this one is due when it is a second old.
	 */
	world_server(&w, "--credential-ttl", "121", NULL);
	paired = world_now();
	world_pair(&w);
	while (world_now() - paired < 1200)
		usleep(10000);
	world_worker(&w, "--allow-workspace-commands", NULL);
	assert_true(world_wait(&w, "leasing", 20000));
	assert_int_equal(refreshes(&w), 1);
	expect_output(&w, "echo a", "a\n");
	world_signal(&w, SIGTERM);
	assert_int_equal(world_worker_end(&w, 10000), 0);
	/* What was stored is the rotated one; it is good for a next start. */
	world_worker(&w, "--allow-workspace-commands", NULL);
	assert_true(world_wait(&w, "leasing", 20000));
	expect_output(&w, "echo b", "b\n");
	finish(&w);
}

static void
static_token_mode(void **state)
{
	struct world w;
	struct json *j;
	char *file;
	int fd;

	(void)state;
	world_init(&w, 0);
	file = xasprintf("%s/token", w.dir);
	fd = open(file, O_WRONLY | O_CREAT, 0600);
	assert_int_equal(write(fd, "0123456789abcdef0123456789abcdef", 32), 32);
	close(fd);
	world_server(&w, "--auth", "static", "--token-file", file, NULL);
	setenv("LIBRECHAT_CODE_URL", w.url, 1);
	setenv("LIBRECHAT_CODE_WORKER_TOKEN",
	    "0123456789abcdef0123456789abcdef", 1);
	world_worker(&w, "--allow-workspace-commands", NULL);
	unsetenv("LIBRECHAT_CODE_URL");
	unsetenv("LIBRECHAT_CODE_WORKER_TOKEN");
	if (!world_wait(&w, "leasing", 20000)) {
		char *log = world_log(&w);

		fail_msg("%s", log);
	}
	must(world_run(&w, "env | grep -c TOKEN", &j), 200, &j);
	assert_string_equal(json_get_str(j, "stdout"), "0\n");
	json_free(j);
	free(file);
	finish(&w);
}

/* ---- secrets ---- */

static int
file_has(const char *path, const char *needle)
{
	static char text[1 << 20];
	ssize_t n, got = 0;
	int fd;

	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		return 0;
	while ((n = read(fd, text + got, sizeof(text) - (size_t)got)) > 0)
		got += n;
	close(fd);
	return got > 0 &&
	    memmem(text, (size_t)got, needle, strlen(needle)) != NULL;
}

static void
secrets_stay_where_they_belong(void **state)
{
	static const char *const files[] = { "cmdline", "environ" };
	struct world w;
	struct json *j, *id;
	const char *error, *key, *credential;
	char *path, *text;
	pid_t list[16];
	size_t n, i, k;
	int fd;
	ssize_t len;

	(void)state;
	world_init(&w, 0);
	world_server(&w, NULL);
	world_pair(&w);
	world_worker(&w, "--allow-workspace-writes",
	    "--allow-workspace-commands", "-v", "-v", NULL);
	assert_true(world_wait(&w, "leasing", 20000));
	expect_output(
	    &w, "echo planted-command-text", "planted-command-text\n");

	path = xasprintf("%s/.config/librechat/code/test-worker.json", w.home);
	text = xmalloc(65536);
	fd = open(path, O_RDONLY);
	assert_int_not_equal(fd, -1);
	len = read(fd, text, 65536);
	close(fd);
	id = json_parse(text, (size_t)len, &error);
	assert_non_null(id);
	credential = json_get_str(id, "credential");
	key = strchr(json_get_str(id, "privateKey"), '\n') + 1;
	n = world_children(w.worker, list, 15);
	assert_true(n >= 2);
	list[n++] = w.worker;
	for (i = 0; i < n; i++)
		for (k = 0; k < 2; k++) {
			free(path);
			path = xasprintf("/proc/%d/%s", list[i], files[k]);
			assert_false(file_has(path, credential));
			assert_false(file_has(path, "MC4CAQAwBQYDK2VwBCIEI"));
		}
	free(path);
	path = xasprintf("%s/worker.log", w.dir);
	assert_false(file_has(path, credential));
	assert_false(file_has(path, "MC4CAQAwBQYDK2VwBCIEI"));
	assert_false(file_has(path, "planted-command-text"));
	assert_false(file_has(path, "Bridge "));
	(void)key;
	json_free(id);
	/* Nor can a command see them. */
	free(path);
	path = xasprintf("cat %s/.config/librechat/code/*.json; "
			 "grep -rs BEGIN ~ /tmp; env | grep -c PLANTED",
	    w.home);
	must(world_run(&w, path, &j), 200, &j);
	assert_string_equal(json_get_str(j, "stdout"), "0\n");
	json_free(j);
	free(path);
	free(text);
	finish(&w);
}

/* ---- accounts ---- */

static void
root_owned_project_is_worked_on_by_the_account(void **state)
{
	struct world w;
	struct stat st;
	char *path;

	(void)state;
	if (getuid() != 0) {
		print_message("needs root\n");
		skip();
	}
	ready(&w, 0);
	expect_output(&w, "id -un; touch made; stat -c %U . made",
	    "librechat-code\nlibrechat-code\nlibrechat-code\n");
	path = xasprintf("%s/made", w.project);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 0);
	assert_int_equal(st.st_gid, 0);
	free(path);
	expect_output(&w, "cat /etc/shadow 2>/dev/null | wc -l", "0\n");
	finish(&w);
}

#ifdef __x86_64__
/*
 * What a command makes in such a project is root's on the host's disk: it
 * must not be able to leave a set-id program there, by any system call.
 */
static void
no_set_id_program_can_be_left_behind(void **state)
{
	static const char attack[] =
	    "perl -e 'my $f = \"victim\"; my $n = 0;"
	    "open(my $h, \">\", $f); my $d = fileno($h);"
	    "sub t { $n++; my $m = (stat $f)[2]; $m |= (stat \"made\")[2] "
	    "if -e \"made\"; print \"call $_[0] set $_[1]\\n\" "
	    "if $m & 06000; chmod 0644, $f; unlink \"made\" }"
	    "my $made = \"made\"; my $dot = \".\";"
	    "for my $b (04755, 02755, 06755) {"
	    " syscall(90, $f, $b); t(90, $b);" /* chmod */
	    " syscall(91, $d, $b); t(91, $b);" /* fchmod */
	    " syscall(268, -100, $f, $b); t(268, $b);" /* fchmodat */
	    " syscall(452, -100, $f, $b, 0); t(452, $b);" /* fchmodat2 */
	    " syscall(85, $made, $b); t(85, $b);" /* creat */
	    " syscall(2, $made, 0101, $b); t(2, $b);" /* open */
	    " syscall(257, -100, $made, 0101, $b); t(257, $b);" /* openat */
	    " syscall(133, $made, 0100000 | $b, 0); t(133, $b);" /* mknod */
	    " syscall(259, -100, $made, 0100000 | $b, 0); t(259, $b);"
	    " my $how = pack(\"QQQ\", 0101, $b, 0);"
	    " syscall(437, -100, $made, $how, 24); t(437, $b);" /* openat2 */
	    " my $t = syscall(257, -100, $dot, 020200002, $b);" /* TMPFILE */
	    " print \"tmpfile\\n\" if $t >= 0;"
	    "} print \"$n tries\\n\"'; chmod 755 victim && echo usual; "
	    "rm -f victim";
	struct world w;

	(void)state;
	if (getuid() != 0) {
		print_message("needs root\n");
		skip();
	}
	ready(&w, 0);
	expect_output(&w, attack, "30 tries\nusual\n");
	finish(&w);
}
#endif

static void
owner_of_the_project_runs_the_commands(void **state)
{
	struct world w;
	struct stat st;
	char *path;

	(void)state;
	if (getuid() != 0) {
		print_message("needs root\n");
		skip();
	}
	ready(&w, 61234);
	expect_output(&w, "id -u; id -G; touch made", "61234\n61234\n");
	path = xasprintf("%s/made", w.project);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 61234);
	free(path);
	finish(&w);
}

static void
commands_never_run_as_root(void **state)
{
	struct world w;
	int r;

	(void)state;
	if (getuid() != 0) {
		print_message("needs root\n");
		skip();
	}
	world_init(&w, 0);
	world_server(&w, NULL);
	world_pair(&w);
	world_worker(&w, "--allow-workspace-commands", "--user", "root", NULL);
	r = world_worker_end(&w, 10000);
	assert_true(WIFEXITED(r) && WEXITSTATUS(r) != 0);
	assert_true(world_log_has(&w, "never run as root"));
	world_free(&w);
}

static void
second_worker_is_refused(void **state)
{
	struct world w;
	int r;
	pid_t first;

	(void)state;
	ready(&w, 0);
	first = w.worker;
	world_worker(&w, "--allow-workspace-commands", NULL);
	r = world_worker_end(&w, 10000);
	assert_true(r != -1 && WIFEXITED(r) && WEXITSTATUS(r) != 0);
	w.worker = first;
	expect_output(&w, "echo first", "first\n");
	finish(&w);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(main_job),
		cmocka_unit_test(any_text_settles_with_a_valid_signature),
		cmocka_unit_test(large_payloads_pass),
		cmocka_unit_test(tool_errors_reach_the_caller),
		cmocka_unit_test(time_out_is_a_result),
		cmocka_unit_test(caller_that_goes_away_cancels),
		cmocka_unit_test(death_of_the_monitor),
		cmocka_unit_test(death_of_the_bridge),
		cmocka_unit_test(death_of_the_executor),
		cmocka_unit_test(stop_while_busy_is_clean_or_leaves_the_marker),
		cmocka_unit_test(stop_when_idle_is_quick),
		cmocka_unit_test(lost_settlement_answer_is_repeated),
		cmocka_unit_test(lost_lease_answer_costs_nothing),
		cmocka_unit_test(
		    nothing_runs_after_an_ambiguous_acknowledgement),
		cmocka_unit_test(server_errors_are_survived),
		cmocka_unit_test(
		    refused_settlement_of_a_mutation_is_quarantined),
		cmocka_unit_test(refused_settlement_of_a_read_is_not),
		cmocka_unit_test(revoked_worker_ends),
		cmocka_unit_test(credential_is_rotated_and_kept),
		cmocka_unit_test(static_token_mode),
		cmocka_unit_test(secrets_stay_where_they_belong),
		cmocka_unit_test(
		    root_owned_project_is_worked_on_by_the_account),
#ifdef __x86_64__
		cmocka_unit_test(no_set_id_program_can_be_left_behind),
#endif
		cmocka_unit_test(owner_of_the_project_runs_the_commands),
		cmocka_unit_test(commands_never_run_as_root),
		cmocka_unit_test(second_worker_is_refused),
	};

	log_init("test", 0);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) == -1)
		fatal("subreaper");
	return cmocka_run_group_tests_name("daemon", tests, NULL, NULL);
}
