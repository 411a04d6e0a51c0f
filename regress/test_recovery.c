#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <dirent.h>
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
#include "observe.h"
#include "world.h"

/*
 * How an operator goes on: selftest, exec, the resets, several roots, what a
 * crash left, a state directory that vanished, and a machine that was cloned.
 */

static void
touch(const char *path, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);

	assert_int_not_equal(fd, -1);
	close(fd);
}

/* The log of the next start begins anew. */
static void
new_log(struct world *w)
{
	char *log = xasprintf("%s/worker.log", w->dir);

	assert_int_equal(truncate(log, 0), 0);
	free(log);
}

/* Exit status of the worker. */
static int
ended(struct world *w)
{
	int r = world_worker_end(w, 20000);

	assert_true(r != -1 && WIFEXITED(r));
	return WEXITSTATUS(r);
}

static void
stop(struct world *w)
{
	world_signal(w, SIGTERM);
	assert_int_equal(ended(w), 0);
}

/* ---- selftest ---- */

static void
selftest_names_each_primitive(void **state)
{
	static const char *const lines[] = { "user namespace: ok\n",
		"mount: ok\n", "/proc: ok\n", "network namespace: ok\n",
		"seccomp: ok\n", "seccomp notifications: ok\n",
		"Landlock: ok, ABI ", "inotify limits: ", "bash: ok\n",
		"rg: ok\n", "git: ", "/tmp size: ok, ", "process limit: ok, ",
		"memory limit: ", "identity: ok, ", "state directory: ok, ",
		"lock: ok, no worker is running\n", "connection: ok, http://" };
	struct world w;
	char *log, *p;
	size_t i;

	(void)state;
	world_init(&w, 0);
	world_server(&w, NULL);
	world_pair(&w);
	free(command_printed(&w));
	assert_int_equal(world_command(&w, NULL, "selftest", NULL), 0);
	log = p = command_printed(&w);
	for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		p = strstr(p, lines[i]);
		if (p == NULL)
			fail_msg("no \"%s\" in its place: %s", lines[i], log);
	}
	free(log);
	/* It has registered nothing, and leaves nothing armed. */
	assert_int_equal(count_requests(&w, "register", 0), 0);
	assert_int_equal(count_requests(&w, "lease", 0), 0);
	assert_int_equal(world_markers(&w), 0);

	world_worker(&w, NULL);
	assert_true(world_wait(&w, "leasing", 20000));
	assert_int_equal(world_command(&w, NULL, "selftest", NULL), 0);
	command_said(&w, "lock: ok, held by a running worker");
	stop(&w);

	world_server_stop(&w);
	assert_int_equal(world_command(&w, NULL, "selftest", NULL), 1);
	command_said(&w, "connection: FAILED: http://");
	world_free(&w);
}

static void
selftest_without_a_worker(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 0);
	setenv("WITHOUT_WORKER_ID", "1", 1);
	assert_int_equal(world_command(&w, NULL, "selftest", NULL), 0);
	unsetenv("WITHOUT_WORKER_ID");
	command_said(&w, "LIBRECHAT_CODE_WORKER_ID is not set");
	world_free(&w);
}

/* ---- exec ---- */

static void
exec_passes_everything_through(void **state)
{
	const char *mark = new_mark();
	struct world w;
	char *log;

	(void)state;
	world_init(&w, 0);
	assert_int_equal(
	    world_command(&w, NULL, "exec", "--worker-dir", w.project, "--",
		"sh", "-c", "printf '%s|' \"$@\"; echo e >&2; exit 7", "x",
		"a  b", "it's", "$HOME", NULL),
	    7);
	log = command_printed(&w);
	assert_string_equal(log, "a  b|it's|$HOME|e\n");
	free(log);
	/* The sandbox of a worker: no network, no other file, own root. */
	assert_int_equal(world_command(&w, NULL, "exec", "--worker-dir",
			     w.project, "--", "sh", "-c",
			     "touch made && ! touch /etc/made && "
			     "[ \"$(ls /sys/class/net)\" = lo ] && "
			     "[ \"$(id -u)\" != 0 ] && "
			     "! env | grep PLANTED_SECRET",
			     NULL),
	    0);
	assert_int_equal(world_markers(&w), 0);
	free(command_printed(&w));
	assert_int_equal(world_command(&w, NULL, "exec", "--worker-dir",
			     w.project, "--timeout", "1", "sleep", mark, NULL),
	    124);
	command_said(&w, "time limit");
	assert_false(process_exists(mark));
	assert_int_equal(world_command(&w, NULL, "exec", "--worker-dir",
			     w.project, "--", "kill -9 $$", NULL),
	    127);
	assert_int_equal(world_command(&w, NULL, "exec", "--worker-dir",
			     w.project, "--", "sh", "-c", "kill -9 $$", NULL),
	    137);
	assert_int_equal(
	    world_command(&w, NULL, "exec", "--worker-dir", w.project, NULL),
	    78);
	assert_int_equal(world_command(&w, NULL, "exec", "--worker-dir", "/tmp",
			     "true", NULL),
	    78);
	world_free(&w);
}

static void
limits_reach_the_commands(void **state)
{
	struct world w;
	char *log;

	(void)state;
	world_init(&w, 0);
	assert_int_equal(
	    world_command(&w, NULL, "exec", "--worker-dir", w.project,
		"--process-limit", "99", "--tmp-size=10M", "--", "bash", "-c",
		"ulimit -u; echo $(($(stat -f -c %b*%S /tmp)))", NULL),
	    0);
	log = command_printed(&w);
	assert_string_equal(log, "99\n10485760\n");
	free(log);
	setenv("LIBRECHAT_CODE_PROCESS_LIMIT", "98", 1);
	setenv("LIBRECHAT_CODE_MEMORY_LIMIT", "300M", 1);
	assert_int_equal(world_command(&w, NULL, "exec", "-v", "--worker-dir",
			     w.project, "bash", "-c", "ulimit -u", NULL),
	    0);
	log = command_printed(&w);
	assert_non_null(
	    strstr(log, "commands of a workspace may use 98 processes, "));
	assert_non_null(strstr(log, "98\n"));
	free(log);
	setenv("WITHOUT_WORKER_ID", "1", 1);
	assert_int_equal(world_command(&w, NULL, "selftest", NULL), 0);
	log = command_printed(&w);
	assert_non_null(strstr(log, "process limit: ok, 98\n"));
	assert_non_null(strstr(log, "memory limit: "));
	assert_non_null(strstr(log, "300 MiB"));
	free(log);
	assert_int_equal(
	    world_command(&w, NULL, "selftest", "--process-limit", "97",
		"--memory-limit=none", "--tmp-size", "3M", NULL),
	    0);
	log = command_printed(&w);
	assert_non_null(strstr(log, "process limit: ok, 97\n"));
	assert_non_null(strstr(log, "memory limit: ok, none\n"));
	assert_non_null(strstr(log, "/tmp size: ok, 3 MiB\n"));
	free(log);
	assert_int_equal(
	    world_command(&w, NULL, "selftest", "--memory-limit", "1", NULL),
	    1);
	command_said(&w, "limits: FAILED: --memory-limit must be");
	unsetenv("WITHOUT_WORKER_ID");
	unsetenv("LIBRECHAT_CODE_MEMORY_LIMIT");

	/* A worker says it at its start. */
	world_server(&w, NULL);
	world_start(&w);
	assert_true(world_log_wait(
	    &w, "commands of a workspace may use 98 processes, ", 20000));
	unsetenv("LIBRECHAT_CODE_PROCESS_LIMIT");
	world_free(&w);
}

/* ---- resets ---- */

static void
reset_of_a_session(void **state)
{
	struct world w;
	struct json *j;

	(void)state;
	world_init(&w, 0);
	world_server(&w, NULL);
	world_pair(&w);
	free(command_printed(&w));
	assert_int_equal(
	    world_command(&w, NULL, "reset-workspace", " rt-9b1f ", NULL), 0);
	command_said(&w, "librechat-code: reset acknowledged for rt-9b1f\n");
	assert_int_equal(count_requests(&w, "reset", 0), 1);
	assert_int_equal(count_requests(&w, "ready", 0), 0);
	assert_int_equal(count_requests(&w, "lease", 0), 0);
	/* What has registered can never be given work. */
	j = world_state(&w);
	assert_non_null(j);
	json_free(j);

	assert_int_equal(world_command(&w, NULL, "reset-workspace", NULL), 78);
	command_said(
	    &w, "Usage: librechat-code reset-workspace <runtime-session-id>");
	assert_int_equal(
	    world_command(&w, NULL, "reset-workspace", "  ", NULL), 78);
	assert_int_equal(count_requests(&w, "reset", 0), 1);

	/* Busy for a while: asked again, with one line. */
	free(command_printed(&w));
	set_faults(&w,
	    "{\"route\":\"reset\",\"action\":\"status\",\"status\":503,"
	    "\"code\":\"WORKER_BUSY\",\"count\":2}");
	assert_int_equal(
	    world_command(&w, NULL, "reset-workspace", "rt-2", NULL), 0);
	command_said(&w,
	    "reset: HTTP 503 WORKER_BUSY; trying again for up to 120 "
	    "seconds");
	assert_int_equal(count_requests(&w, "reset", 0), 4);
	set_faults(
	    &w, "{\"route\":\"reset\",\"action\":\"status\",\"status\":400}");
	assert_int_equal(
	    world_command(&w, NULL, "reset-workspace", "rt-3", NULL), 1);
	command_said(&w, "reset: HTTP 400");
	world_free(&w);
}

static void
reset_of_a_root(void **state)
{
	struct world w;
	struct pending p;
	char *body, *begun;

	(void)state;
	world_init(&w, 0);
	world_server(&w, NULL);
	world_start(&w);
	assert_int_equal(
	    world_command(&w, NULL, "run", "--worker-dir", w.project,
		"--reset-workspace-quarantine", "primary", NULL),
	    75);
	/* Who holds the lock is named. */
	begun = xasprintf("is running (process %d)", w.worker);
	command_said(&w, begun);
	free(begun);
	body = world_command_body("touch begun; sleep 97433", 5000);
	world_call_start(&w, body, &p);
	free(body);
	begun = xasprintf("%s/begun", w.project);
	assert_true(world_file_wait(begun, 20000));
	world_signal(&w, SIGKILL);
	(void)world_worker_end(&w, 10000);
	world_call_abort(&p);

	/* The order: the marker first, then the server's fence. */
	free(command_printed(&w));
	assert_int_equal(
	    world_command(&w, NULL, "run", "--worker-dir", w.project,
		"--reset-workspace-quarantine", "primary", NULL),
	    78);
	command_said(&w, "has a local quarantine");
	assert_int_equal(count_requests(&w, "reset", 0), 0);
	assert_int_equal(world_command(&w, NULL, "clear-workspace-quarantine",
			     "--worker-dir", w.project, NULL),
	    0);
	assert_int_equal(
	    world_command(&w, NULL, "run", "--worker-dir", w.project,
		"--reset-workspace-quarantine", "other", NULL),
	    78);
	command_said(&w, "there is no workspace other");
	assert_int_equal(world_command(&w, NULL, "run", "--worker-dir",
			     w.project, "--allow-workspace-commands",
			     "--reset-workspace-quarantine", "primary", NULL),
	    0);
	command_said(&w,
	    "librechat-code: reset acknowledged for native workspace "
	    "primary\n");
	assert_int_equal(count_requests(&w, "ready", 0), 0);
	world_worker(&w, "--allow-workspace-commands", NULL);
	assert_true(world_wait(&w, "leasing", 60000));
	stop(&w);
	free(begun);
	world_free(&w);
}

/* ---- several roots ---- */

static void
in_root(struct world *w, const char *id, const char *command, const char *out)
{
	struct json *j;
	char *body;

	body = xasprintf("{\"protocolVersion\":1,\"operation\":"
			 "\"execute_command\",\"workspaceId\":\"%s\","
			 "\"command\":\"%s\"}",
	    id, command);
	assert_int_equal(world_call(w, body, &j), 200);
	assert_string_equal(json_get_str(j, "stdout"), out);
	json_free(j);
	free(body);
}

static void
several_roots_one_after_the_other(void **state)
{
	struct world w;
	struct pending p;
	char *second, *option, *body, *begun;

	(void)state;
	world_init(&w, 0);
	world_server(&w, NULL);
	world_pair(&w);
	second = xasprintf("%s/second", w.dir);
	option = xasprintf("second=%s", second);
	assert_int_equal(mkdir(second, 0755), 0);
	world_worker(&w, "--workspace", option, "--allow-workspace-writes",
	    "--allow-workspace-commands", NULL);
	assert_true(world_wait(&w, "leasing", 30000));
	in_root(&w, "primary", "touch one; ls", "one\n");
	in_root(&w, "second", "touch two; ls", "two\n");
	in_root(&w, "primary", "ls", "one\n");
	assert_true(world_wait(&w, "leasing", 20000));
	assert_int_equal(world_markers(&w), 0);

	/* A quarantine of the second stops the next start (7.6). */
	begun = xasprintf("%s/begun", second);
	body = xasprintf("{\"protocolVersion\":1,\"operation\":"
			 "\"execute_command\",\"workspaceId\":\"second\","
			 "\"command\":\"touch begun; sleep 97434\"}");
	world_call_start(&w, body, &p);
	assert_true(world_file_wait(begun, 20000));
	assert_int_equal(world_markers(&w), 1);
	world_signal(&w, SIGKILL);
	(void)world_worker_end(&w, 10000);
	world_call_abort(&p);
	/* Also a start that only reads looks at it, with several roots. */
	new_log(&w);
	world_worker(&w, "--workspace", option, NULL);
	assert_int_equal(ended(&w), 78);
	assert_true(world_log_has(&w, "are quarantined since"));
	/* The one that is not in doubt can be served alone. */
	new_log(&w);
	world_worker(&w, "--allow-workspace-commands", NULL);
	assert_true(world_log_wait(&w, "registered as", 60000));
	stop(&w);
	assert_int_equal(world_command(&w, NULL, "clear-workspace-quarantine",
			     "--worker-dir", second, NULL),
	    0);
	assert_int_equal(world_markers(&w), 0);
	free(second);
	free(option);
	free(begun);
	free(body);
	world_free(&w);
}

/* ---- left-overs ---- */

static int
exists(const char *dir, const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);
	struct stat st;
	int r = lstat(path, &st) == 0;

	free(path);
	return r;
}

static void
put(const char *dir, const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);

	touch(path, 0600);
	free(path);
}

static void
only_exact_leftovers_are_removed(void **state)
{
	static const char *const gone[] = {
		"test-worker.json.0123456789abcdef.tmp",
		"test-worker.json.fedcba9876543210.probe",
		"restricted.0123456789abcdef.probe"
	};
	static const char *const kept[] = {
		"test-worker.json.0123456789ABCDEF.tmp",
		"test-worker.json.0123456789abcde.tmp",
		"test-worker.json.0123456789abcdef0.tmp",
		"test-worker.json.0123456789abcdef.bak",
		"other.json.0123456789abcdef.tmp", "test-worker.json.tmp"
	};
	struct world w;
	char *dir, *from, *to;
	size_t i;

	(void)state;
	world_init(&w, 0);
	world_server(&w, NULL);
	world_pair(&w);
	dir = xasprintf("%s/.config/librechat/code", w.home);
	for (i = 0; i < 3; i++)
		put(dir, gone[i]);
	for (i = 0; i < 6; i++)
		put(dir, kept[i]);
	/* Of the right name, but not a plain file with one name. */
	from = xasprintf("%s/%s", dir, kept[0]);
	to = xasprintf("%s/test-worker.json.1111111111111111.tmp", dir);
	assert_int_equal(link(from, to), 0);
	free(to);
	to = xasprintf("%s/test-worker.json.2222222222222222.tmp", dir);
	assert_int_equal(symlink(from, to), 0);
	world_worker(&w, NULL);
	assert_true(world_wait(&w, "leasing", 20000));
	for (i = 0; i < 3; i++)
		assert_false(exists(dir, gone[i]));
	for (i = 0; i < 6; i++)
		assert_true(exists(dir, kept[i]));
	assert_true(exists(dir, "test-worker.json.1111111111111111.tmp"));
	assert_true(exists(dir, "test-worker.json.2222222222222222.tmp"));
	stop(&w);
	free(from);
	free(to);
	free(dir);
	world_free(&w);
}

/* ---- a state directory that vanished ---- */

static void
vanished_state_directory(void **state)
{
	struct world w;
	char *dir, *away, *record;

	(void)state;
	world_init(&w, 0);
	world_server(&w, NULL);
	world_start(&w);
	stop(&w);
	dir = xasprintf("%s/.local/state", w.home);
	away = xasprintf("%s/.local/away", w.home);
	assert_int_equal(rename(dir, away), 0);
	free(command_printed(&w));
	/* Neither command takes it for a clean one, or makes another. */
	assert_int_equal(world_command(&w, NULL, "run", "--worker-dir",
			     w.project, "--allow-workspace-writes", NULL),
	    78);
	command_said(&w, "is not there, and with it may be quarantine markers");
	assert_int_equal(world_command(&w, NULL, "clear-workspace-quarantine",
			     "--worker-dir", w.project, NULL),
	    78);
	assert_int_equal(
	    world_command(&w, NULL, "reset-workspace", "x", NULL), 78);
	assert_int_equal(
	    world_command(&w, "code\n", "pair", w.url, "-", NULL), 78);
	assert_int_equal(world_command(&w, NULL, "selftest", NULL), 1);
	assert_false(exists(w.home, ".local/state"));
	assert_int_equal(rename(away, dir), 0);
	new_log(&w);
	world_worker(&w, "--allow-workspace-writes", NULL);
	assert_true(world_log_wait(&w, "registered as", 20000));
	stop(&w);
	/* Lost for good: the operator says so by removing the record. */
	assert_int_equal(rename(dir, away), 0);
	record = xasprintf(
	    "%s/.config/librechat/code/test-worker.json.state", w.home);
	assert_int_equal(unlink(record), 0);
	assert_int_equal(world_command(&w, NULL, "clear-workspace-quarantine",
			     "--worker-dir", w.project, NULL),
	    0);
	free(dir);
	free(away);
	free(record);
	world_free(&w);
}

/* ---- a cloned machine ---- */

static void
cloned_machine_gives_way(void **state)
{
	struct world w;
	char *clone, *home, *command;
	pid_t first;
	int r, before;

	(void)state;
	world_init(&w, 0);
	world_server(&w, NULL);
	world_start(&w);
	clone = xasprintf("%s/clone", w.dir);
	command = xasprintf("cp -a %s %s", w.home, clone);
	assert_int_equal(system(command), 0);
	first = w.worker;
	home = w.home;
	w.home = clone;
	new_log(&w);
	world_worker(&w, NULL);
	assert_true(world_log_wait(&w, "registered as", 20000));
	/* Ends the open poll of the older one, which would take 25 s. */
	json_free(world_control(&w, "restart", "{\"memory\":true}"));
	/* The newer one serves; the older one is told, and ends for good. */
	while (waitpid(first, &r, 0) == -1 && errno == EINTR)
		;
	assert_true(WIFEXITED(r));
	assert_int_equal(WEXITSTATUS(r), 76);
	assert_true(world_log_has(&w, "Pair each machine as a worker"));
	assert_true(world_wait(&w, "leasing", 20000));
	before = count_requests(&w, "register", 0);
	assert_true(before >= 2);
	stop(&w);
	w.home = home;
	free(clone);
	free(command);
	world_free(&w);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(selftest_names_each_primitive),
		cmocka_unit_test(selftest_without_a_worker),
		cmocka_unit_test(exec_passes_everything_through),
		cmocka_unit_test(limits_reach_the_commands),
		cmocka_unit_test(reset_of_a_session),
		cmocka_unit_test(reset_of_a_root),
		cmocka_unit_test(several_roots_one_after_the_other),
		cmocka_unit_test(only_exact_leftovers_are_removed),
		cmocka_unit_test(vanished_state_directory),
		cmocka_unit_test(cloned_machine_gives_way),
	};

	log_init("test", 0);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) == -1)
		fatal("subreaper");
	return cmocka_run_group_tests_name("recovery", tests, NULL, NULL);
}
