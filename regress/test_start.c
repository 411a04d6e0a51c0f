#include "config.h"

#include <sys/types.h>
#include <sys/mount.h>
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
#include "observe.h"
#include "private.h"
#include "world.h"

/*
 * Starts that must fail before anything is registered, with the cause in one
 * line (native-sandbox chapter 4, chapter 20 rows 36 to 38), and starts that
 * must not fail (field reports FS-4 to FS-8). Mounts are made in a mount
 * namespace of our own.
 */

static char no_mounts[256];

static void
need_mounts(void)
{
	if (no_mounts[0] == '\0')
		return;
	print_message("%s\n", no_mounts);
	skip();
}

#define SKIP 77

/* Mounts that one test adds are gone with the process that made them. */
static void
alone(void (*test)(void))
{
	pid_t pid;
	int st;

	need_mounts();
	(void)fflush(NULL);
	if ((pid = fork()) == -1)
		fail_msg("fork");
	if (pid == 0) {
		char why[256];

		private_again(why, sizeof(why));
		if (why[0] != '\0')
			fatalx("%s", why);
		(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
		test();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	if (WIFEXITED(st) && WEXITSTATUS(st) == SKIP)
		skip();
	if (st != 0)
		fail_msg("status %#x", (unsigned int)st);
}

/* In such a process assertions cannot be used. */
#define MUST(e)                                              \
	do {                                                 \
		if (!(e))                                    \
			fatalx("line %d: %s", __LINE__, #e); \
	} while (0)

/* ---- places that no root may have ---- */

/* The worker ended before it registered, and said so. */
static void
refused(struct world *w, const char *why)
{
	int st = world_worker_end(w, 60000);
	char *log;

	MUST(st != -1 && WIFEXITED(st));
	if (WEXITSTATUS(st) == 0 || !world_log_has(w, why)) {
		log = world_log(w);
		fatalx("status %d, not \"%s\": %s", WEXITSTATUS(st), why, log);
	}
	MUST(count_requests(w, "register", 0) == 0);
	MUST(count_requests(w, "lease", 0) == 0);
	MUST(world_markers(w) == 0);
}

static void
set_project(struct world *w, const char *path)
{
	free(w->project);
	w->project = xstrdup(path);
}

static void
places(void)
{
	static const struct {
		const char *place; /* "~": below the worker's home */
		const char *why;
	} t[] = {
		{ "~", "cannot contain the worker home directory" },
		{ "/", "cannot contain the worker home directory" },
		/* The program under test may lie there too. */
		{ "/tmp", "cannot contain" },
		{ "/var/tmp", "cannot contain" },
		{ "/dev/shm", "cannot contain worker scratch storage" },
		{ "/var", "cannot contain" },
		{ "/proc", "belongs to the kernel" },
		{ "/sys/kernel", "belongs to the kernel" },
		{ "/tmp/claude", "inherited writable path" },
		{ "/tmp/claude/project", "inherited writable path" },
		{ "~/.npm/_logs", "inherited writable path" },
		{ "~/.claude/debug", "inherited writable path" },
		{ "~/.config", "cannot contain worker control files" },
		{ "~/.config/librechat/code",
		    "cannot contain worker control files" },
		{ "~/.local/state", "cannot contain worker control files" },
		{ "/nonexistent/project", "No such file" },
		{ "/etc/passwd", "Not a directory" },
	};
	const char *server = getenv("CODEAPI");
	struct world w;
	char *path, *command;
	int shared;
	size_t i;

	/*
	 * A /tmp that is nobody else's, for /tmp/claude; not if the programs
	 * under test lie there, as they do in a build of a distribution.
	 */
	shared = getuid() == 0 && server != NULL &&
	    strncmp(server, "/tmp/", 5) == 0;
	if (getuid() == 0 && !shared)
		MUST(mount("tmp", "/tmp", "tmpfs", 0, "mode=1777") == 0);
	world_init(&w, 0);
	command = xasprintf("mkdir -p %s %s/.npm/_logs "
			    "%s/.claude/debug %s/.local/state",
	    shared ? w.dir : "/tmp/claude/project", w.home, w.home, w.home);
	MUST(system(command) == 0);
	free(command);
	world_server(&w, NULL);
	world_pair(&w);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		if (shared && strncmp(t[i].place, "/tmp/claude", 11) == 0)
			continue;
		path = t[i].place[0] == '~'
		    ? xasprintf("%s%s", w.home, t[i].place + 1)
		    : xstrdup(t[i].place);
		set_project(&w, path);
		world_worker(&w, "--allow-workspace-writes",
		    "--allow-workspace-commands", NULL);
		refused(&w, t[i].why);
		free(path);
		path = xasprintf("%s/worker.log", w.dir);
		MUST(truncate(path, 0) == 0);
		free(path);
	}
	world_free(&w);
}

static void
row_36_places_that_cannot_be_a_root(void **state)
{
	(void)state;
	alone(places);
}

static void
pairs(void)
{
	static const struct {
		const char *first;
		const char *second;
	} t[] = {
		{ "a", "a" }, /* the same */
		{ "a", "a/below" },
		{ "a/below", "a" },
		{ "a", "link" }, /* by a link */
		{ "a", "bind" }, /* by a bind mount */
		{ "a", "bind/below" },
		{ "a/below", "bind" },
	};
	struct world w;
	char *path, *option, *log;
	size_t i;

	world_init(&w, 0);
	MUST(chdir(w.dir) == 0);
	MUST(system("mkdir -p a/below bind && ln -s a link") == 0);
	MUST(mount("a", "bind", NULL, MS_BIND, NULL) == 0);
	MUST(chdir("/") == 0);
	log = xasprintf("%s/worker.log", w.dir);
	world_server(&w, NULL);
	world_pair(&w);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		path = xasprintf("%s/%s", w.dir, t[i].first);
		set_project(&w, path);
		free(path);
		option = xasprintf("second=%s/%s", w.dir, t[i].second);
		world_worker(&w, "--workspace", option,
		    "--allow-workspace-writes", "--allow-workspace-commands",
		    NULL);
		refused(&w, "must not overlap or alias one another");
		MUST(truncate(log, 0) == 0);
		free(option);
	}
	free(log);
	path = xasprintf("%s/bind", w.dir);
	MUST(umount2(path, MNT_DETACH) == 0);
	free(path);
	world_free(&w);
}

static void
row_37_roots_that_overlap(void **state)
{
	(void)state;
	alone(pairs);
}

/* ---- a machine that lacks something ---- */

/*
 * The worker is started through a script that takes the calls away; both
 * run and selftest name the cause.
 */
static void
lacks(const char *rules, const char *why, const char *line)
{
	const char *program = getenv("PROGRAM"), *tool = getenv("WITHOUT");
	struct world w;
	char *script, *text;
	int status;

	if (program == NULL || tool == NULL)
		fatalx("the variables PROGRAM and WITHOUT must name programs");
	world_init(&w, 61234); /* not id-mapped, so that the executor does it */
	world_server(&w, NULL);
	world_pair(&w);
	script = xasprintf("%s/librechat-code", w.dir);
	if (rules != NULL) {
		struct harness h = { .uid = getuid(), .gid = getgid() };

		text = xasprintf("#!/bin/sh\nexec %s %s -- %s \"$@\"\n", tool,
		    rules, program);
		put_file(&h, w.dir, "librechat-code", text, strlen(text), 0755);
		free(text);
		MUST(setenv("PROGRAM", script, 1) == 0);
	}
	world_worker(
	    &w, "--allow-workspace-writes", "--allow-workspace-commands", NULL);
	refused(&w, why);
	free(command_printed(&w));
	status = world_command(&w, NULL, "selftest", NULL);
	text = command_printed(&w);
	if (status != 1 || strstr(text, line) == NULL)
		fatalx(
		    "selftest: status %d, not \"%s\": %s", status, line, text);
	free(text);
	free(script);
	world_free(&w);
}

static void
without_user_namespaces(void)
{
	/* As in a container with the usual filter. */
	lacks("clone3=ENOSYS clone=EPERM unshare=EPERM",
	    "namespaces: Operation not permitted; ",
	    "user namespace: FAILED: unshare: Operation not permitted; ");
}

static void
without_mounts(void)
{
	lacks("fsopen=EPERM mount=EPERM", "sandbox: mount ", "mount: FAILED: ");
}

static void
without_the_mount_interface(void)
{
	lacks("mount_setattr=ENOSYS", "sandbox: root ",
	    "mount: FAILED: mount_setattr: Linux 5.12 or newer is needed");
}

static void
without_seccomp(void)
{
	lacks("seccomp=EINVAL", "seccomp", "seccomp: FAILED: ");
}

static void
without_landlock(void)
{
	lacks("landlock_create_ruleset=EOPNOTSUPP", "Landlock",
	    "Landlock: FAILED: ");
}

static void
without_bash(void)
{
	char *bash = realpath("/bin/bash", NULL);

	MUST(
	    bash != NULL && mount("/dev/null", bash, NULL, MS_BIND, NULL) == 0);
	lacks(NULL, "/bin/bash",
	    "bash: FAILED: /bin/bash cannot be run; install the package bash");
	free(bash);
}

/* As in a container whose /proc is masked in part. */
static void
with_a_masked_proc(void)
{
	MUST(mount("mask", "/proc/tty", "tmpfs", MS_RDONLY, NULL) == 0);
	lacks(NULL, "mount /proc (in a container it must not be masked)",
	    "/proc: FAILED: ");
}

static void
row_38_user_namespaces(void **state)
{
	(void)state;
	alone(without_user_namespaces);
}

static void
row_38_mounts(void **state)
{
	(void)state;
	alone(without_mounts);
}

static void
row_38_an_old_kernel(void **state)
{
	(void)state;
	alone(without_the_mount_interface);
}

static void
row_38_seccomp(void **state)
{
	(void)state;
	alone(without_seccomp);
}

static void
row_38_landlock(void **state)
{
	(void)state;
	alone(without_landlock);
}

static void
row_38_bash(void **state)
{
	(void)state;
	alone(without_bash);
}

static void
row_38_a_container(void **state)
{
	(void)state;
	alone(with_a_masked_proc);
}

/* ---- starts that succeed ---- */

static void
ran(struct harness *h, const char *command, const char *out)
{
	struct answer a;

	MUST(harness_run(h, 0, command, &a) == 0);
	if (!a.ok)
		fatalx("%s: %s", command, a.error.text);
	if (a.result.out.len != strlen(out) ||
	    memcmp(a.result.out.data, out, strlen(out)) != 0)
		fatalx("%s: <%.*s> <%.*s>", command, (int)a.result.out.len,
		    (char *)a.result.out.data, (int)a.result.err.len,
		    (char *)a.result.err.data);
	answer_free(&a);
}

/* Odd things in a root are decided once and stop nothing (FS-4). */
static void
odd_things_in_a_root_stop_nothing(void **state)
{
	static const char odd[] =
	    "ln -s missing/dir/env .env; echo gitdir: ../nowhere >.git; "
	    "ln -s .bashrc .bashrc; mkdir .profile; mkfifo .zshrc; "
	    "ln -s / .vscode; mkdir -p .claude; touch .claude/commands; "
	    "mkdir .idea";
	struct harness h;
	char *command;

	(void)state;
	harness_init(&h, 1);
	h.protection = PROTECT_STRICT;
	command = xasprintf("cd %s && { %s; } && chown -hR %u:%u . && "
			    "chmod 0 .idea",
	    h.roots[0], odd, (unsigned int)h.uid, (unsigned int)h.gid);
	assert_int_equal(system(command), 0);
	free(command);
	if (harness_start(&h) == -1)
		fail_msg("%s", h.failed);
	ran(&h, "echo ok", "ok\n");
	harness_stop(&h);
}

static void
links(void)
{
	struct harness h;
	char *command;

	/* /home is a link here, as on image-based systems (FS-5). */
	harness_init(&h, 1);
	MUST(mount("play", "/mnt", "tmpfs", 0, "mode=0755") == 0);
	command = xasprintf("mkdir -p /mnt/var/home/u/project /mnt/real; "
			    "ln -s var/home /mnt/home; "
			    "ln -s real /mnt/spelt; echo s >/mnt/real/f; "
			    "echo secret >/mnt/var/home/u/key; "
			    "mkdir /mnt/var/home/other; "
			    "echo secret >/mnt/var/home/other/key; "
			    "chown -R %u:%u /mnt/var/home/u /mnt/real",
	    (unsigned int)h.uid, (unsigned int)h.gid);
	MUST(system(command) == 0);
	free(command);
	h.hidden[h.nhidden++] = xstrdup("/mnt/home");
	free(h.home);
	h.home = xstrdup("/mnt/home/u");
	free(h.roots[0]);
	h.roots[0] = xstrdup("/mnt/real");
	if (harness_start(&h) == -1)
		fatalx("%s", h.failed);
	ran(&h,
	    "pwd -P; cd /mnt/spelt && cat f && touch t && rm t; cd && pwd; "
	    "touch here && ls -A . /mnt/var/home/u; "
	    "cat /mnt/home/*/key /mnt/var/home/*/key 2>/dev/null",
	    "/mnt/real\ns\n/mnt/home/u\n.:\nhere\n\n/mnt/var/home/u:\nhere\n");
	harness_stop(&h);

	/* A root below such a home, by its real name. */
	harness_init(&h, 1);
	h.hidden[h.nhidden++] = xstrdup("/mnt/home");
	free(h.home);
	h.home = xstrdup("/mnt/home/u");
	free(h.roots[0]);
	h.roots[0] = xstrdup("/mnt/var/home/u/project");
	if (harness_start(&h) == -1)
		fatalx("%s", h.failed);
	ran(&h, "touch t && cd ~/project && ls && rm t; ls -A ~",
	    "t\nproject\n");
	harness_stop(&h);
}

static void
links_on_the_way_work(void **state)
{
	(void)state;
	alone(links);
}

/* ---- second names, with roots as the daemon hands them over ---- */

static void
second_names(void)
{
	struct harness as = { .uid = getuid(), .gid = getgid() };
	struct world w;
	char *path, *text;

	MUST(mount("play", "/mnt", "tmpfs", 0, "mode=0755") == 0);
	world_init(&w, 61234);
	world_server(&w, NULL);
	world_pair(&w);
	MUST(chmod(w.home, 0755) == 0);
	put_file(&as, w.home, "secret", "SECRET\n", 7, 0644);
	MUST(mkdir("/mnt/tmp", 0755) == 0 && mkdir("/mnt/home", 0755) == 0);
	MUST(mount("/tmp", "/mnt/tmp", NULL, MS_BIND, NULL) == 0);
	MUST(mount(w.home, "/mnt/home", NULL, MS_BIND, NULL) == 0);
	path = xasprintf("%s/home", w.project);
	MUST(mkdir(path, 0755) == 0);
	MUST(mount(w.home, path, NULL, MS_BIND, NULL) == 0);
	free(command_printed(&w));
	MUST(world_command(&w, NULL, "exec", "--worker-dir", w.project, "--",
		 "bash", "-c",
		 "cat /mnt/home/secret /mnt/tmp/*/home/secret home/secret "
		 "2>/dev/null; ls -A /mnt/home /mnt/tmp home; echo looked",
		 NULL) == 0);
	text = command_printed(&w);
	if (strstr(text, "SECRET") != NULL ||
	    strstr(text, "/mnt/home:\n\n/mnt/tmp:\n\nhome:\nlooked\n") == NULL)
		fatalx("%s", text);
	free(text);
	MUST(umount2(path, MNT_DETACH) == 0);
	free(path);
	world_free(&w);
}

static void
second_names_are_hidden_by_the_daemon(void **state)
{
	(void)state;
	alone(second_names);
}

/* ---- dead mounts ---- */

/* A FUSE file system whose server never answers; its descriptor, or -1. */
static int
mount_dead(const char *point, const struct harness *h)
{
	char options[128];
	int fd;

	if ((fd = open("/dev/fuse", O_RDWR | O_CLOEXEC)) == -1)
		return -1;
	(void)xsnprintf(options, sizeof(options),
	    "fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other", fd,
	    getuid() == 0 ? 0U : (unsigned int)h->uid,
	    getuid() == 0 ? 0U : (unsigned int)h->gid);
	if (mkdir(point, 0755) == -1 ||
	    mount("dead", point, "fuse.test", MS_NOSUID | MS_NODEV, options) ==
		-1) {
		close(fd);
		return -1;
	}
	return fd;
}

static void
dead_file_systems(void)
{
	struct harness h;
	int one, two;

	harness_init(&h, 1);
	MUST(mount("play", "/mnt", "tmpfs", 0, "mode=0755") == 0);
	if ((one = mount_dead("/mnt/dead", &h)) == -1) {
		print_message("no FUSE: %s\n", strerror(errno));
		harness_remove(&h);
		_exit(SKIP);
	}
	MUST((two = mount_dead("/mnt/other", &h)) != -1);
	MUST(symlink("dead/home", "/mnt/link") == 0);
	/* Looking at any of these would hang. */
	h.hidden[h.nhidden++] = xstrdup("/mnt/dead/state");
	h.hidden[h.nhidden++] = xstrdup("/mnt/link");
	if (harness_start(&h) == -1)
		fatalx("%s", h.failed);
	ran(&h,
	    "ls -A /mnt/dead /mnt/other; cat /mnt/dead/x 2>/dev/null || "
	    "echo gone; df >/dev/null; find /mnt -type f",
	    "/mnt/dead:\n\n/mnt/other:\ngone\n");
	harness_stop(&h);

	/* Nothing can be done about a root on one, but it is said. */
	harness_init(&h, 1);
	free(h.roots[0]);
	h.roots[0] = xstrdup("/mnt/dead");
	MUST(harness_start(&h) == -1);
	MUST(strstr(h.failed,
		 "root /mnt/dead: the file system mounted at "
		 "/mnt/dead does not answer") != NULL);
	harness_kill(&h);
	harness_remove(&h);
	close(one);
	close(two);
}

static void
dead_file_systems_do_not_stop_a_start(void **state)
{
	(void)state;
	alone(dead_file_systems);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(row_36_places_that_cannot_be_a_root),
		cmocka_unit_test(row_37_roots_that_overlap),
		cmocka_unit_test(row_38_user_namespaces),
		cmocka_unit_test(row_38_mounts),
		cmocka_unit_test(row_38_an_old_kernel),
		cmocka_unit_test(row_38_seccomp),
		cmocka_unit_test(row_38_landlock),
		cmocka_unit_test(row_38_bash),
		cmocka_unit_test(row_38_a_container),
		cmocka_unit_test(odd_things_in_a_root_stop_nothing),
		cmocka_unit_test(links_on_the_way_work),
		cmocka_unit_test(second_names_are_hidden_by_the_daemon),
		cmocka_unit_test(dead_file_systems_do_not_stop_a_start),
	};

	log_init("test", 0);
	private_mounts(no_mounts, sizeof(no_mounts));
	return cmocka_run_group_tests_name("start", tests, NULL, NULL);
}
