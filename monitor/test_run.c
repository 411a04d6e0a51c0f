#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pwd.h>
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

#include "buf.h"
#include "names.h"

/*
 * The program as a whole with fake helpers, in a tree of its own that looks
 * like an installation. As root the program is started as an ordinary
 * account, so that the promises are the same for both.
 */

#define OTHER 65534

struct world {
	char *dir;
	char *program;
	char *root;
	char *home;
	int as_root; /* do not become an ordinary account */
};

/* Environment of the next start; NULL-terminated. */
static char *environment[64];
static size_t nenv;

static void __attribute__((__format__(__printf__, 1, 2)))
set(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	environment[nenv++] = xstrdup(text);
	environment[nenv] = NULL;
}

static void
unset_all(void)
{
	while (nenv > 0)
		free(environment[--nenv]);
	environment[0] = NULL;
}

static void
copy(const char *from, const char *to)
{
	static char block[65536];
	ssize_t n;
	int in, out;

	in = open(from, O_RDONLY | O_CLOEXEC);
	out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	assert_true(in != -1 && out != -1);
	while ((n = read(in, block, sizeof(block))) > 0)
		assert_int_equal(write(out, block, (size_t)n), n);
	assert_int_equal(fchmod(out, 0755), 0);
	close(in);
	close(out);
}

static void
make_dirs(const char *path)
{
	char *p = xstrdup(path), *s;

	for (s = p + 1; (s = strchr(s, '/')) != NULL; s++) {
		*s = '\0';
		(void)mkdir(p, 0755);
		*s = '/';
	}
	(void)mkdir(p, 0755);
	free(p);
}

static int
give_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return lchown(path, OTHER, OTHER);
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

/* The built programs; libtool is not used, so they are plain files. */
static int
set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));
	char dir[] = "/tmp/librechat-code-test.XXXXXX", *path;
	mode_t mask = umask(022);

	assert_non_null(mkdtemp(dir));
	w->dir = xstrdup(dir);
	assert_int_equal(chmod(dir, 0755), 0);
	path = xasprintf("%s%s", dir, BINDIR);
	make_dirs(path);
	w->program = xasprintf("%s/librechat-code", path);
	free(path);
	copy("./librechat-code", w->program);
	path = xasprintf("%s%s", dir, PKGLIBEXECDIR);
	make_dirs(path);
	free(path);
	path = xasprintf("%s%s/librechat-code-bridge", dir, PKGLIBEXECDIR);
	copy("./fake_helper", path);
	free(path);
	path = xasprintf("%s%s/librechat-code-executor", dir, PKGLIBEXECDIR);
	copy("./fake_helper", path);
	free(path);
	w->root = xasprintf("%s/work", dir);
	w->home = xasprintf("%s/home", dir);
	make_dirs(w->root);
	make_dirs(w->home);
	if (geteuid() == 0)
		assert_int_equal(nftw(dir, give_one, 16, FTW_PHYS), 0);
	umask(mask);
	*state = w;
	return 0;
}

static int
tear_down(void **state)
{
	struct world *w = *state;

	unset_all();
	(void)nftw(w->dir, remove_one, 16, FTW_PHYS | FTW_DEPTH);
	free(w->dir);
	free(w->program);
	free(w->root);
	free(w->home);
	free(w);
	return 0;
}

struct child {
	pid_t pid;
	int fd;
	struct buf out; /* standard output and error together */
};

static void
start(struct world *w, struct child *c, const char *const *args)
{
	char *argv[16];
	int p[2], i;

	argv[0] = w->program;
	for (i = 0; args[i] != NULL; i++)
		argv[i + 1] = xstrdup(args[i]);
	argv[i + 1] = NULL;
	set("HOME=%s", w->home);
	set("SECRET=not-for-commands");
#ifdef SANITIZERS
	/* The leak check needs calls that the monitor has given up. */
	set("ASAN_OPTIONS=detect_leaks=0");
#endif
	assert_int_equal(pipe(p), 0);
	buf_init(&c->out);
	if ((c->pid = fork()) == 0) {
		dup2(p[1], 1);
		dup2(p[1], 2);
		close(p[0]);
		close(p[1]);
		if (geteuid() == 0 && !w->as_root &&
		    (setgid(OTHER) == -1 || setuid(OTHER) == -1))
			_exit(99);
		execve(argv[0], argv, environment);
		_exit(98);
	}
	close(p[1]);
	c->fd = p[0];
	for (i = 1; argv[i] != NULL; i++)
		free(argv[i]);
}

/* Reads until the text appears or everything ended; 1 if it did. */
static int
wait_for(struct child *c, const char *text)
{
	struct pollfd pfd = { c->fd, POLLIN, 0 };
	ssize_t n;

	while (text == NULL || c->out.len == 0 ||
	    strstr(buf_cstr(&c->out), text) == NULL) {
		if (poll(&pfd, 1, 20000) != 1)
			fail_msg("no output: %s", buf_cstr(&c->out));
		n = read(c->fd, buf_reserve(&c->out, 4096), 4096);
		if (n <= 0)
			return text != NULL &&
			    strstr(buf_cstr(&c->out), text) != NULL;
		c->out.len += (size_t)n;
	}
	return 1;
}

static void
has(struct child *c, const char *text)
{
	if (!wait_for(c, text))
		fail_msg("\"%s\" is not in: %s", text, buf_cstr(&c->out));
}

static int
finish(struct child *c)
{
	int status;

	(void)wait_for(c, NULL);
	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	close(c->fd);
	unset_all();
	if (WIFSIGNALED(status))
		return 128 + WTERMSIG(status);
	return WEXITSTATUS(status);
}

static void
ends(struct child *c, int status)
{
	int got = finish(c);

	if (got != status)
		fail_msg("status %d: %s", got, buf_cstr(&c->out));
	buf_free(&c->out);
}

static int64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static char *
marker(const struct world *w)
{
	char *dir, *name, *path;

	dir = state_dir(w->home, "http://127.0.0.1:9/v1", "my-vm");
	name = marker_name(w->root);
	path = xasprintf("%s/%s", dir, name);
	free(dir);
	free(name);
	return path;
}

static int
quarantined(const struct world *w)
{
	char *path = marker(w);
	int r = access(path, F_OK) == 0 || geteuid() != 0;
	struct stat st;

	r = lstat(path, &st) == 0;
	free(path);
	return r;
}

static void
static_worker(const char *bridge, const char *executor)
{
	set("LIBRECHAT_CODE_WORKER_ID=my-vm");
	set("LIBRECHAT_CODE_WORKER_TOKEN=static-token-for-the-test");
	set("LIBRECHAT_CODE_URL=http://127.0.0.1:9/v1/");
	set("LIBRECHAT_CODE_SANDBOX_PROFILE=%s", bridge);
	set("LC_SCENARIO=%s", executor);
}

static void
run(struct world *w, struct child *c, const char *bridge, const char *executor)
{
	const char *const args[] = { "run", "--worker-dir", w->root,
		"--allow-workspace-writes", NULL };

	static_worker(bridge, executor);
	start(w, c, args);
}

static void
test_orderly_stop(void **state)
{
	struct world *w = *state;
	struct child c;

	run(w, &c, "idle", "ok");
	has(&c, "bridge idle");
	has(&c, "registered as my-vm at http://127.0.0.1:9/v1\n");
	kill(c.pid, SIGTERM);
	ends(&c, 0);
	assert_false(quarantined(w));
}

static void
test_second_signal(void **state)
{
	struct world *w = *state;
	struct child c;
	int64_t began;

	run(w, &c, "ignore-stop", "ok");
	has(&c, "bridge idle");
	kill(c.pid, SIGTERM);
	has(&c, "stopping");
	began = now_ms();
	kill(c.pid, SIGTERM);
	ends(&c, 1);
	assert_true(now_ms() - began < 1500);
}

static void
test_environment(void **state)
{
	struct world *w = *state;
	struct child c;

	set("LD_PRELOAD_X=1");
	set("LC_ALL=C.UTF-8");
	set("PATH=/opt/bin:/usr/bin");
	run(w, &c, "idle", "ok");
	has(&c, "bridge idle");
	has(&c, "env LC_ALL=C.UTF-8\n");
	has(&c, "env PATH=/opt/bin:/usr/bin\n");
	has(&c, "hidden /home\n");
	has(&c, "hidden /root\n");
	has(&c, "hidden /run\n");
	kill(c.pid, SIGINT);
	(void)wait_for(&c, NULL);
	assert_null(strstr(buf_cstr(&c.out), "SECRET"));
	assert_null(strstr(buf_cstr(&c.out), "env LIBRECHAT"));
	assert_null(strstr(buf_cstr(&c.out), "env LD_PRELOAD"));
	ends(&c, 0);
}

static void
test_helper_fails(void **state)
{
	struct world *w = *state;
	struct child c;

	run(w, &c, "fail", "ok");
	has(&c, "librechat-code: no certificate authorities\n");
	ends(&c, 1);
	run(w, &c, "idle", "fail");
	has(&c, "librechat-code: AppArmor forbids user namespaces\n");
	ends(&c, 1);
}

static void
test_helper_dies(void **state)
{
	struct world *w = *state;
	struct child c;
	int64_t began;

	began = now_ms();
	run(w, &c, "die", "ok");
	has(&c, "the bridge ended unexpectedly with status 3");
	ends(&c, 1);
	run(w, &c, "ended", "ok");
	has(&c, "the server does not know the worker");
	ends(&c, 75);
	assert_true(now_ms() - began < 4000);
}

static void
test_clear_waits_for_outcome(void **state)
{
	struct world *w = *state;
	struct child c;

	run(w, &c, "mutate", "ok");
	has(&c, "ARMED: ok");
	has(&c, "CLEARED: ok");
	has(&c, "bridge idle");
	assert_false(quarantined(w));
	kill(c.pid, SIGTERM);
	ends(&c, 0);
}

static void
test_uncertain_stays(void **state)
{
	const char *const again[] = { "clear-workspace-quarantine",
		"--worker-dir", NULL, NULL };
	const char *args[4];
	struct world *w = *state;
	struct child c;

	run(w, &c, "mutate", "uncertain");
	has(&c,
	    "CLEARED: the outcome of the mutation of workspace primary is "
	    "uncertain");
	has(&c, "bridge idle");
	assert_true(quarantined(w));

	/* The operator's command refuses while the worker runs. */
	memcpy(args, again, sizeof(again));
	args[2] = w->root;
	{
		struct child k;

		unset_all();
		static_worker("idle", "ok");
		start(w, &k, args);
		has(&k, "stop the worker first");
		ends(&k, 75);
	}
	kill(c.pid, SIGTERM);
	ends(&c, 0);
	assert_true(quarantined(w));

	/* The next start refuses. */
	run(w, &c, "idle", "ok");
	has(&c, "Workspace mutations are quarantined since 2");
	has(&c, "clear-workspace-quarantine --worker-dir");
	ends(&c, 78);

	static_worker("idle", "ok");
	start(w, &c, args);
	has(&c, "cleared workspace mutation quarantine for primary");
	has(&c, "removing the quarantine of workspace primary");
	ends(&c, 0);
	assert_false(quarantined(w));
	run(w, &c, "idle", "ok");
	has(&c, "bridge idle");
	kill(c.pid, SIGTERM);
	ends(&c, 0);
}

static void
test_clear_without_outcome(void **state)
{
	struct world *w = *state;
	struct child c;

	run(w, &c, "clear-early", "ok");
	has(&c, "CLEARED: the executor did not report the outcome");
	assert_true(quarantined(w));
	kill(c.pid, SIGKILL);
	assert_int_equal(finish(&c), 128 + SIGKILL);
	buf_free(&c.out);
	assert_true(quarantined(w));
}

static void
test_arm_twice(void **state)
{
	struct world *w = *state;
	struct child c;

	run(w, &c, "arm-twice", "ok");
	has(&c, "ARMED: ok");
	has(&c, "ARMED: workspace primary is armed for another assignment");
	has(&c, "CLEARED: ok");
	kill(c.pid, SIGTERM);
	ends(&c, 0);
}

static void
test_executor_dies_armed(void **state)
{
	struct world *w = *state;
	struct child c;

	run(w, &c, "arm", "abort");
	has(&c, "the executor was killed by signal 6");
	ends(&c, 1);
	assert_true(quarantined(w));
}

static void
test_broken_bridge(void **state)
{
	static const char *const scenarios[] = { "no-such-root", "malformed",
		"not-permitted" };
	struct world *w = *state;
	struct child c;
	size_t i;

	for (i = 0; i < 3; i++) {
		run(w, &c, scenarios[i], "ok");
		has(&c, "bridge sent");
		ends(&c, 1);
		assert_false(quarantined(w));
	}
}

static void
test_read_only_cannot_arm(void **state)
{
	struct world *w = *state;
	const char *const args[] = { "run", "--worker-dir", w->root, NULL };
	struct child c;

	static_worker("arm", "ok");
	start(w, &c, args);
	has(&c, "malformed ARM");
	ends(&c, 1);
	assert_false(quarantined(w));
}

static void
test_second_start(void **state)
{
	struct world *w = *state;
	struct child c, d;

	run(w, &c, "idle", "ok");
	has(&c, "bridge idle");
	unset_all();
	run(w, &d, "idle", "ok");
	has(&d, "another process of this worker is running");
	ends(&d, 75);
	kill(c.pid, SIGTERM);
	ends(&c, 0);
}

static void
pair(struct world *w, struct child *c, const char *code)
{
	const char *const args[] = { "pair", "http://127.0.0.1:9/v1/", code,
		"--worker-id=my-vm", NULL };

	start(w, c, args);
}

static void
paired_worker(struct world *w, struct child *c, const char *bridge)
{
	const char *const args[] = { "run", "--worker-dir", w->root, NULL };

	set("LIBRECHAT_CODE_WORKER_ID=my-vm");
	set("LIBRECHAT_CODE_SANDBOX_PROFILE=%s", bridge);
	start(w, c, args);
}

static void
read_identity(const struct world *w, struct buf *b)
{
	char *path = identity_default_path(w->home, "my-vm");
	struct stat st;
	ssize_t n;
	int fd;

	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_true((fd = open(path, O_RDONLY | O_CLOEXEC)) != -1);
	buf_init(b);
	n = read(fd, buf_reserve(b, 4096), 4096);
	assert_true(n > 0);
	b->len = (size_t)n;
	close(fd);
	free(path);
}

static void
test_pair_and_rotate(void **state)
{
	struct world *w = *state;
	struct child c;
	struct buf a, b;
	char *text, *at;

	pair(w, &c, "K7QF-93TD");
	has(&c, "Paired worker my-vm. Identity saved to ");
	ends(&c, 0);
	read_identity(w, &a);
	assert_non_null(
	    strstr(buf_cstr(&a), "\"codeApiUrl\": \"http://127.0.0.1:9/v1\""));

	paired_worker(w, &c, "sign");
	has(&c, "signed 24 24 86");
	kill(c.pid, SIGTERM);
	ends(&c, 0);

	paired_worker(w, &c, "sign-foreign");
	has(&c, "not of this worker");
	ends(&c, 1);

	paired_worker(w, &c, "store");
	has(&c, "CREDENTIAL_STORED: ok");
	kill(c.pid, SIGTERM);
	ends(&c, 0);
	read_identity(w, &b);
	text = xstrdup(buf_cstr(&a));
	at = strstr(text, "paired_credential_0123456789abcdefgh");
	assert_non_null(at);
	assert_non_null(
	    strstr(buf_cstr(&b), "rotated_credential_0123456789abcdef"));
	/* What follows the expiry has not changed. */
	at = strstr(text, "\"codeApiUrl\"");
	assert_non_null(strstr(buf_cstr(&b), at));
	free(text);
	buf_free(&a);
	buf_free(&b);
}

static void
test_pair_refused(void **state)
{
	struct world *w = *state;
	struct child c;
	struct stat st;
	char *path = identity_default_path(w->home, "my-vm");

	pair(w, &c, "REFUSED");
	has(&c, "the server refused the code");
	ends(&c, 1);
	assert_int_equal(lstat(path, &st), -1);
	free(path);
}

/* Re-pairing or another spelling of the worker does not free a directory. */
static void
test_marker_of_another_worker(void **state)
{
	struct world *w = *state;
	struct child c;
	char *dir, *name, *path;

	run(w, &c, "mutate", "uncertain");
	has(&c, "CLEARED: ");
	kill(c.pid, SIGTERM);
	ends(&c, 0);
	assert_true(quarantined(w));
	run(w, &c, "idle", "ok");
	(void)finish(&c);
	buf_free(&c.out);
	{
		const char *const args[] = { "run", "--worker-dir", w->root,
			"--allow-workspace-writes", NULL };

		set("LIBRECHAT_CODE_WORKER_ID=your-vm");
		set("LIBRECHAT_CODE_WORKER_TOKEN=static-token-for-the-test");
		set("LIBRECHAT_CODE_URL=https://code.example.com");
		set("LIBRECHAT_CODE_SANDBOX_PROFILE=idle");
		start(w, &c, args);
	}
	has(&c, "there is a quarantine of this workspace at ");
	ends(&c, 78);

	/* The older name, by workspace id, in the worker's own directory. */
	path = marker(w);
	assert_int_equal(unlink(path), 0);
	free(path);
	dir = state_dir(w->home, "http://127.0.0.1:9/v1", "my-vm");
	name = marker_name("primary");
	path = xasprintf("%s/%s", dir, name);
	copy("/dev/null", path);
	run(w, &c, "idle", "ok");
	has(&c, "there is a quarantine of this workspace at ");
	ends(&c, 78);
	free(dir);
	free(name);
	free(path);
}

static void
test_pair_while_running(void **state)
{
	struct world *w = *state;
	struct child c, d;

	pair(w, &c, "K7QF-93TD");
	ends(&c, 0);
	paired_worker(w, &c, "idle");
	has(&c, "bridge idle");
	unset_all();
	pair(w, &d, "K7QF-93TD");
	has(&d, "stop the worker first");
	ends(&d, 75);
	kill(c.pid, SIGTERM);
	ends(&c, 0);
}

static void
test_token_beside_identity(void **state)
{
	struct world *w = *state;
	struct child c;

	pair(w, &c, "K7QF-93TD");
	ends(&c, 0);
	run(w, &c, "idle", "ok");
	has(&c, "LIBRECHAT_CODE_WORKER_TOKEN is set although");
	ends(&c, 78);
}

static int
take_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return lchown(path, 0, 0);
}

/*
 * Started as root: the bridge is the dedicated account; a workspace of root
 * is the account's inside and root's on disk; another one belongs to its
 * owner, who also runs the executor.
 */
static void
test_started_as_root(void **state)
{
	struct world *w = *state;
	struct passwd *pw = getpwnam(PRIVSEP_USER);
	struct child c;
	struct stat st;
	char *text, *made;

	if (geteuid() != 0 || pw == NULL) {
		print_message("needs root and the account %s\n", PRIVSEP_USER);
		skip();
	}
	w->as_root = 1;
	assert_int_equal(nftw(w->dir, take_one, 16, FTW_PHYS), 0);
	assert_int_equal(chmod(w->dir, 0755), 0);
	made = xasprintf("%s/made", w->root);

	run(w, &c, "idle", "ok");
	text = xasprintf("bridge uid %lu ", (unsigned long)pw->pw_uid);
	has(&c, text);
	free(text);
	text = xasprintf("executor uid %lu user %s home /home/%s",
	    (unsigned long)pw->pw_uid, pw->pw_name, pw->pw_name);
	has(&c, text);
	free(text);
	text = xasprintf(
	    "root 0 primary mount 2 owner %lu ", (unsigned long)pw->pw_uid);
	has(&c, text);
	free(text);
	text = xasprintf("made owner %lu\n", (unsigned long)pw->pw_uid);
	has(&c, text);
	free(text);
	has(&c, "bridge idle");
	kill(c.pid, SIGTERM);
	ends(&c, 0);
	assert_int_equal(stat(made, &st), 0);
	assert_int_equal(st.st_uid, 0);
	assert_int_equal(st.st_gid, 0);
	assert_int_equal(unlink(made), 0);

	/* Below a directory that the owner cannot traverse. */
	assert_int_equal(chown(w->root, 4242, 4242), 0);
	assert_int_equal(chmod(w->dir, 0700), 0);
	run(w, &c, "idle", "ok");
	has(&c, "executor uid 4242 ");
	has(&c, "root 0 primary mount 1 owner 4242 ");
	has(&c, "made owner 4242\n");
	has(&c, "bridge idle");
	kill(c.pid, SIGTERM);
	ends(&c, 0);
	set("LIBRECHAT_CODE_USER=root");
	run(w, &c, "idle", "ok");
	has(&c, "commands never run as root");
	ends(&c, 78);
	free(made);
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(test_orderly_stop),
		T(test_second_signal),
		T(test_environment),
		T(test_helper_fails),
		T(test_helper_dies),
		T(test_clear_waits_for_outcome),
		T(test_uncertain_stays),
		T(test_clear_without_outcome),
		T(test_arm_twice),
		T(test_executor_dies_armed),
		T(test_broken_bridge),
		T(test_read_only_cannot_arm),
		T(test_second_start),
		T(test_pair_and_rotate),
		T(test_pair_refused),
		T(test_marker_of_another_worker),
		T(test_pair_while_running),
		T(test_token_beside_identity),
		T(test_started_as_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
