#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
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
#include "harness.h"
#include "hogtool.h"
#include "log.h"
#include "memory.h"

/*
 * The control group of a command: it begins there, and when the group's limit
 * ends it, the result says so.
 */
static void
events(const char *text, uint64_t limit, uint64_t killed)
{
	char name[] = "/tmp/lc-limits-XXXXXX";
	struct memory_events e;
	int fd, i;

	fd = mkstemp(name);
	assert_true(fd != -1);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	/* Again and again from its start. */
	for (i = 0; i < 2; i++) {
		assert_int_equal(memory_read(fd, &e), 0);
		assert_int_equal(e.limit, limit);
		assert_int_equal(e.killed, killed);
	}
	close(fd);
}

static void
events_of_a_group_are_told_apart(void **state)
{
	static const struct {
		struct memory_events before, after;
		enum memory_end end;
	} rows[] = {
		{ { 0, 0 }, { 0, 0 }, MEMORY_FINE },
		{ { 3, 2 }, { 3, 2 }, MEMORY_FINE },
		/* Reached, but enough could be taken back. */
		{ { 3, 2 }, { 4, 2 }, MEMORY_FINE },
		{ { 3, 2 }, { 4, 3 }, MEMORY_LIMIT },
		{ { 3, 2 }, { 9, 8 }, MEMORY_LIMIT },
		{ { 3, 2 }, { 3, 3 }, MEMORY_MACHINE },
	};
	struct memory_events e;
	char *line;
	size_t i;

	(void)state;
	events("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n",
	    3, 2);
	events("oom_kill 7\noom 8\n", 8, 7);
	events("max 12\n", 0, 0);
	events("", 0, 0);
	assert_int_equal(memory_read(-1, &e), 0);
	assert_int_equal(e.limit + e.killed, 0);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(
		    memory_compare(&rows[i].before, &rows[i].after),
		    rows[i].end);
	line = memory_line(MEMORY_LIMIT, 512U << 20);
	assert_string_equal(line,
	    "librechat-code: the command was ended: it exceeded the memory "
	    "limit of 512 MiB\n");
	free(line);
	line = memory_line(MEMORY_MACHINE, 512U << 20);
	assert_string_equal(line,
	    "librechat-code: the command was ended: the machine or the "
	    "service ran out of memory\n");
	free(line);
}

/* A delegated group as the monitor divides it. */
struct group {
	char *path;
	char *daemon;
	char *workspace;
	char *enter;
	int controllers; /* memory and pids are there */
};

static const char *
cgroup_top(void)
{
	static const char *const tops[] = { "/sys/fs/cgroup",
		"/sys/fs/cgroup/unified" };
	struct statfs sf;
	size_t i;

	for (i = 0; i < 2; i++)
		if (statfs(tops[i], &sf) == 0 && sf.f_type == 0x63677270)
			return tops[i];
	return NULL;
}

static int
write_in(const char *dir, const char *name, const char *text)
{
	char *path = xasprintf("%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = -1;

	free(path);
	if (fd == -1)
		return -1;
	n = write(fd, text, strlen(text));
	close(fd);
	return n == (ssize_t)strlen(text) ? 0 : -1;
}

static void
give_procs(const char *dir, uid_t uid)
{
	char *path = xasprintf("%s/cgroup.procs", dir);

	assert_int_equal(chown(path, uid, (gid_t)-1), 0);
	free(path);
}

/* 0, or -1 if this machine does not let us. */
static int
make_group(struct group *g, uid_t uid)
{
	const char *top = cgroup_top();

	memset(g, 0, sizeof(*g));
	if (top == NULL || getuid() != 0)
		return -1;
	g->path = xasprintf("%s/lc-limits-%d", top, (int)getpid());
	if (mkdir(g->path, 0755) == -1) {
		free(g->path);
		return -1;
	}
	g->daemon = xasprintf("%s/daemon", g->path);
	g->workspace = xasprintf("%s/workspace-0", g->path);
	g->enter = xasprintf("%s/cgroup.procs", g->daemon);
	assert_int_equal(mkdir(g->daemon, 0755), 0);
	g->controllers = write_in(g->path, "cgroup.subtree_control",
			     "+memory +pids") == 0;
	assert_int_equal(mkdir(g->workspace, 0755), 0);
	if (g->controllers) {
		assert_int_equal(
		    write_in(g->workspace, "memory.max", "134217728"), 0);
		(void)write_in(g->workspace, "memory.swap.max", "0");
		assert_int_equal(
		    write_in(g->workspace, "memory.oom.group", "1"), 0);
		assert_int_equal(write_in(g->workspace, "pids.max", "50"), 0);
	}
	give_procs(g->path, uid);
	give_procs(g->workspace, uid);
	return 0;
}

static void
remove_group(struct group *g)
{
	WAIT_UNTIL(rmdir(g->workspace) == 0 || errno != EBUSY);
	WAIT_UNTIL(rmdir(g->daemon) == 0 || errno != EBUSY);
	assert_int_equal(rmdir(g->path), 0);
	free(g->path);
	free(g->daemon);
	free(g->workspace);
	free(g->enter);
}

static size_t
processes_in(const char *dir)
{
	char text[4096], *path = xasprintf("%s/cgroup.procs", dir), *p;
	size_t lines = 0;
	ssize_t n;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	free(path);
	assert_true(fd != -1);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_true(n >= 0);
	text[n] = '\0';
	for (p = text; (p = strchr(p, '\n')) != NULL; p++)
		lines++;
	return lines;
}

static void
memory_limit_is_told_apart(struct harness *h)
{
	static const char *const last =
	    "librechat-code: the command was ended: it exceeded the memory "
	    "limit of 128 MiB\n";
	struct answer a;

	assert_int_equal(harness_run(h, 0,
			     "echo before; printf start >&2; ./hog memory 200; "
			     "echo after",
			     &a),
	    0);
	assert_true(a.ok);
	assert_int_equal(a.result.exit_code, 137);
	assert_null(a.result.signal);
	assert_false(a.result.timed_out);
	assert_int_equal(a.result.out.len, 7);
	assert_memory_equal(a.result.out.data, "before\n", 7);
	if (a.result.err.len != 6 + strlen(last) ||
	    memcmp(a.result.err.data, "start\n", 6) != 0 ||
	    memcmp(a.result.err.data + 6, last, strlen(last)) != 0)
		fail_msg(
		    "%.*s", (int)a.result.err.len, (char *)a.result.err.data);
	answer_free(&a);
	/* What a killed command looks like otherwise. */
	assert_int_equal(harness_run(h, 0, "kill -KILL $$", &a), 0);
	assert_true(a.ok);
	assert_int_equal(a.result.exit_code, 137);
	assert_int_equal(a.result.err.len, 0);
	answer_free(&a);
	hog_expect(h, 0, "./hog memory 30", "30 0\n");
}

static void
commands_begin_in_their_group(void **state)
{
	struct harness h;
	struct group g;
	unsigned long n;
	uint32_t id;
	char *text, *command;

	(void)state;
	hog_begin(&h, 2, 0);
	if (make_group(&g, h.uid) == -1) {
		harness_remove(&h);
		print_message("needs root and cgroup v2\n");
		skip();
	}
	h.enter = g.enter;
	h.group = open(g.workspace, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(h.group != -1);
	h.memory_bytes = 128U << 20;
	hog_start(&h);
	/* Its own place is all that it sees. */
	hog_expect(&h, 0, "grep ^0:: /proc/self/cgroup", "0::/\n");
	assert_int_equal(processes_in(g.workspace), 0);
	id = hog_hold(&h, "mkdir begun; exec sleep 1000");
	/* process 1 and the shell; perhaps mkdir has not ended yet */
	assert_in_range(processes_in(g.workspace), 2, 3);
	hog_release(&h, id);
	assert_int_equal(processes_in(g.workspace), 0);
	command = xasprintf("for f in %s/cgroup.procs %s; do "
			    "{ echo $$ >$f; } 2>/dev/null && echo $f; done; "
			    "mkdir %s/x 2>/dev/null || echo closed",
	    g.workspace, g.enter, g.workspace);
	hog_expect(&h, 0, command, "closed\n");
	free(command);
	if (g.controllers) {
		memory_limit_is_told_apart(&h);
		text = hog_output(&h, 0, "./hog processes");
		n = hog_number(text, "EAGAIN");
		assert_in_range(n, 40, 49);
		free(text);
	}
	close(h.group);
	harness_stop(&h);
	remove_group(&g);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_of_a_group_are_told_apart),
		cmocka_unit_test(commands_begin_in_their_group),
	};

	log_init("test", 0);
	return cmocka_run_group_tests_name("groups", tests, NULL, NULL);
}
