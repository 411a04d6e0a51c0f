#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
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
 * No secret is seen from outside: planted and real ones are looked for in
 * /proc of every process of the daemon, in the log at its highest verbosity,
 * in everything that is stored, and after a crash.
 */

#define NEEDLES 8

static char *needles[NEEDLES];
static size_t nneedles;
static char *allowed; /* the identity, the only file that has them */
static int looked_at; /* files, so that nothing is found by not looking */

static void
look_for(const char *secret)
{
	assert_true(nneedles < NEEDLES);
	/* A short one would be found by chance. */
	assert_true(strlen(secret) >= 16);
	needles[nneedles++] = xstrdup(secret);
}

static void
forget(void)
{
	while (nneedles > 0)
		free(needles[--nneedles]);
	free(allowed);
	allowed = NULL;
	looked_at = 0;
}

static void
must_be_clean(const char *where, const void *data, size_t len)
{
	size_t i;

	for (i = 0; i < nneedles; i++)
		if (memmem(data, len, needles[i], strlen(needles[i])) != NULL)
			fail_msg("%s has secret %zu", where, i);
}

/* What cannot be opened is well hidden. */
static void
check_file(const char *path)
{
	struct buf b;
	ssize_t n;
	int fd;

	if ((fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) == -1)
		return;
	buf_init(&b);
	while ((n = read(fd, buf_reserve(&b, 65536), 65536)) > 0)
		b.len += (size_t)n;
	close(fd);
	looked_at++;
	must_be_clean(path, b.data, b.len);
	buf_free(&b);
}

static void
check_links(pid_t pid)
{
	char path[400], target[4096];
	struct dirent *de;
	ssize_t n;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	if ((d = opendir(path)) == NULL)
		return;
	while ((de = readdir(d)) != NULL) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, de->d_name);
		if ((n = readlink(path, target, sizeof(target))) > 0)
			must_be_clean(path, target, (size_t)n);
	}
	closedir(d);
}

/* A process and all below it. */
static int
check_process(pid_t pid)
{
	static const char *const files[] = { "cmdline", "environ", "comm",
		"maps", "status", "stat", "cgroup", "mountinfo" };
	char path[64];
	pid_t list[64];
	size_t n, i;
	int count = 1;

	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, files[i]);
		check_file(path);
	}
	check_links(pid);
	n = world_children(pid, list, 64);
	for (i = 0; i < n; i++)
		count += check_process(list[i]);
	return count;
}

static int
check_stored(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)f;
	if (type == FTW_F && (allowed == NULL || strcmp(path, allowed) != 0))
		check_file(path);
	return 0;
}

/* Log, state, workspace, everything of the world but the identity. */
static void
check_files(struct world *w)
{
	assert_int_equal(nftw(w->dir, check_stored, 16, FTW_PHYS), 0);
}

/* The credential and the key of the identity, in the forms they can have. */
static void
look_for_identity(struct world *w)
{
	char *text = xcalloc(1, 65536), *end;
	const char *error, *key;
	struct json *j;
	ssize_t n;
	int fd;

	free(allowed);
	allowed = xasprintf(
	    "%s/.config/librechat/code/test-worker.json", w->home);
	fd = open(allowed, O_RDONLY);
	assert_int_not_equal(fd, -1);
	n = read(fd, text, 65535);
	close(fd);
	assert_true(n > 0);
	j = json_parse(text, (size_t)n, &error);
	assert_non_null(j);
	look_for(json_get_str(j, "credential"));
	/* The seed part of the base64 text alone. */
	key = strchr(json_get_str(j, "privateKey"), '\n') + 1;
	free(text);
	text = xstrdup(key + 22);
	end = strchr(text, '\n');
	assert_non_null(end);
	*end = '\0';
	look_for(text);
	free(text);
	json_free(j);
}

static void
a_working_worker_shows_none(void **state)
{
	struct world w;
	struct pending p;
	struct json *j;
	char *body, *path;

	(void)state;
	world_init(&w, 0);
	world_server(&w, NULL);
	world_pair(&w);
	look_for_identity(&w);
	world_worker(&w, "--allow-workspace-writes",
	    "--allow-workspace-commands", "-vvv", NULL);
	assert_true(world_wait(&w, "leasing", 20000));
	/* Of the work only the workspace may know: not the log or a marker. */
	assert_int_equal(world_call(&w,
			     "{\"protocolVersion\":1,\"operation\":"
			     "\"write_file\",\"workspaceId\":\"primary\","
			     "\"path\":\"planted-path-name-1\",\"content\":"
			     "\"planted-content-of-a-file\"}",
			     &j),
	    200);
	json_free(j);
	assert_int_equal(
	    world_run(
		&w, "rm planted-path-name-1; echo planted-command-text", &j),
	    200);
	json_free(j);
	look_for("planted-content-of-a-file");
	look_for("planted-command-text");
	look_for("planted-path-name-1");
	look_for("Authorization: Bri");
	body = world_command_body("touch begun; sleep 97435", 60000);
	world_call_start(&w, body, &p);
	free(body);
	path = xasprintf("%s/begun", w.project);
	assert_true(world_file_wait(path, 20000));
	free(path);
	/* monitor, bridge, executor, keeper, files, init, shell at least */
	assert_true(check_process(w.worker) >= 6);
	assert_int_equal(world_markers(&w), 1);
	check_files(&w);
	assert_true(looked_at > 20);
	world_signal(&w, SIGTERM);
	(void)world_worker_end(&w, 20000);
	world_call_abort(&p);
	check_files(&w);
	forget();
	world_free(&w);
}

static void
a_code_on_the_command_line_is_overwritten(void **state)
{
	struct world w;
	struct json *j;
	char *code;
	double end;
	pid_t pid, list[4];
	int status;

	(void)state;
	world_init(&w, 0);
	world_server(&w, NULL);
	j = world_control(&w, "pair", "{\"workerId\":\"test-worker\"}");
	assert_non_null(j);
	code = xstrdup(json_get_str(j, "code"));
	json_free(j);
	set_faults(&w, "{\"route\":\"redeem\",\"action\":\"stall\"}");
	if ((pid = fork()) == 0)
		_exit(
		    world_command(&w, NULL, "pair", w.url, code, "-vvv", NULL));
	end = world_now() + 20000;
	while (count_requests(&w, "redeem", 0) == 0) {
		assert_true(world_now() < end);
		usleep(1000);
	}
	look_for(code);
	/* Below the fork of this test, which knows the code. */
	assert_int_equal(world_children(pid, list, 4), 1);
	assert_true(check_process(list[0]) >= 2);
	check_files(&w);
	assert_int_equal(kill(list[0], SIGTERM), 0);
	(void)waitpid(pid, &status, 0);
	assert_int_not_equal(status, 0);
	check_files(&w);
	free(code);
	forget();
	world_free(&w);
}

static void
a_token_is_taken_out_of_the_environment(void **state)
{
	static const char token[] = "planted-token-0123456789abcdef01";
	struct world w;
	char *file;
	int fd;

	(void)state;
	world_init(&w, 0);
	file = xasprintf("%s/token", w.dir);
	fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, token, 32), 32);
	close(fd);
	world_server(&w, "--auth", "static", "--token-file", file, NULL);
	setenv("LIBRECHAT_CODE_URL", w.url, 1);
	setenv("LIBRECHAT_CODE_WORKER_TOKEN", token, 1);
	world_worker(&w, "--allow-workspace-commands", "-vvv", NULL);
	unsetenv("LIBRECHAT_CODE_URL");
	unsetenv("LIBRECHAT_CODE_WORKER_TOKEN");
	assert_true(world_wait(&w, "leasing", 20000));
	look_for(token);
	allowed = file;
	assert_true(check_process(w.worker) >= 5);
	check_files(&w);
	world_signal(&w, SIGTERM);
	assert_int_equal(world_worker_end(&w, 20000), 0);
	forget();
	world_free(&w);
}

/* Core files in the places where one of the daemon could be left. */
static int
cores(struct world *w)
{
	const char *dirs[3];
	struct dirent *de;
	size_t i;
	DIR *d;
	int n = 0;

	dirs[0] = "/";
	dirs[1] = ".";
	dirs[2] = w->dir;
	for (i = 0; i < 3; i++) {
		if ((d = opendir(dirs[i])) == NULL)
			continue;
		while ((de = readdir(d)) != NULL)
			n += strncmp(de->d_name, "core", 4) == 0;
		closedir(d);
	}
	return n;
}

static void
no_core_limit(pid_t pid)
{
	char path[64], text[4096];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/limits", pid);
	assert_int_not_equal(fd = open(path, O_RDONLY | O_CLOEXEC), -1);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_true(n > 0);
	text[n] = '\0';
	assert_non_null(
	    strstr(text, "Max core file size        0                    0 "));
}

static void
a_crash_shows_none(void **state)
{
	struct world w;
	pid_t list[8], victim;
	size_t n, i, k;
	int r, before;

	(void)state;
	/* The monitor, then each of its children. */
	for (i = 0, n = 1; i <= n; i++) {
		world_init(&w, 0);
		before = cores(&w);
		world_server(&w, NULL);
		world_pair(&w);
		look_for_identity(&w);
		world_worker(&w, "--allow-workspace-commands", "-vvv", NULL);
		assert_true(world_wait(&w, "leasing", 20000));
		n = world_children(w.worker, list, 8);
		assert_int_equal(n, 2);
		no_core_limit(w.worker);
		for (k = 0; k < n; k++)
			no_core_limit(list[k]);
		victim = i == 0 ? w.worker : list[i - 1];
		assert_int_equal(kill(victim, SIGSEGV), 0);
		r = world_worker_end(&w, 20000);
		assert_int_not_equal(r, -1);
		assert_int_not_equal(r, 0);
		assert_false(WIFSIGNALED(r) && WCOREDUMP(r));
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		check_files(&w);
		assert_int_equal(cores(&w), before);
		forget();
		world_free(&w);
	}
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_working_worker_shows_none),
		cmocka_unit_test(a_code_on_the_command_line_is_overwritten),
		cmocka_unit_test(a_token_is_taken_out_of_the_environment),
		cmocka_unit_test(a_crash_shows_none),
	};

	log_init("test", 0);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) == -1)
		fatal("subreaper");
	return cmocka_run_group_tests_name("secrets", tests, NULL, NULL);
}
