#include "config.h"

#include <sys/types.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "harness.h"
#include "log.h"

/*
 * Several roots in one executor: which sandboxes are kept, and that the loss
 * of one concerns its own root only.
 */

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

#define FILES_CHANNEL 4 /* of a file process: the second that a keeper has */

#define WAIT_S        40 /* for what must happen, on a machine with other work */

static double
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

#define WAIT_UNTIL(condition)                                   \
	do {                                                    \
		double end_ = now() + WAIT_S;                   \
                                                                \
		while (!(condition)) {                          \
			if (now() > end_)                       \
				fail_msg("never: " #condition); \
			usleep(1000);                           \
		}                                               \
	} while (0)

static int
exists(pid_t pid)
{
	return kill(pid, 0) == 0 || errno != ESRCH;
}

static void
begin(struct harness *h, size_t nroots, uint8_t slots)
{
	harness_init(h, nroots);
	h->slots = slots;
	if (harness_start(h) == -1)
		fail_msg("%s", h->failed);
}

static void
expect(struct harness *h, uint32_t root, const char *command, const char *out)
{
	struct answer a;

	assert_int_equal(harness_run(h, root, command, &a), 0);
	if (!a.ok)
		fail_msg("root %u: %s: %s: %s", root, command,
		    error_code_name(a.error.code), a.error.text);
	if (a.result.out.len != strlen(out) ||
	    memcmp(a.result.out.data, out, strlen(out)) != 0)
		fail_msg("root %u: %s: output is <%.*s>, errors <%.*s>", root,
		    command, (int)a.result.out.len, (char *)a.result.out.data,
		    (int)a.result.err.len, (char *)a.result.err.data);
	answer_free(&a);
}

/* Sends a command and waits until it runs: its id. */
static uint32_t
run_long(struct harness *h, uint32_t root, const char *command)
{
	struct request q;
	char *cmd, *file;
	uint32_t id;

	file = xasprintf("%s/begun", h->roots[root]);
	cmd = xasprintf("touch begun; %s", command);
	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	q.root = root;
	text_set(&q.command, cmd, strlen(cmd));
	q.timeout_ms = 300000;
	q.max_output = 4096;
	id = harness_send(h, &q);
	request_free(&q);
	WAIT_UNTIL(access(file, F_OK) == 0);
	assert_int_equal(unlink(file), 0);
	free(cmd);
	free(file);
	return id;
}

/* Lets a command go on that waits for the file "go". */
#define UNTIL_GO "while [ ! -e go ]; do sleep 0.01; done; rm go; "

static void
go(struct harness *h, uint32_t root)
{
	put_file(h, h->roots[root], "go", "", 0, 0644);
}

static void
expect_later(struct harness *h, uint32_t id, const char *out)
{
	struct answer a;

	assert_int_equal(harness_wait(h, id, &a), 0);
	if (!a.ok)
		fail_msg("%s: %s", error_code_name(a.error.code), a.error.text);
	assert_int_equal(a.result.out.len, strlen(out));
	assert_memory_equal(a.result.out.data, out, strlen(out));
	answer_free(&a);
}

static void
expect_error(struct harness *h, uint32_t id, enum error_code code,
    enum certainty certainty)
{
	struct answer a;

	assert_int_equal(harness_wait(h, id, &a), 0);
	assert_false(a.ok);
	assert_int_equal(a.error.code, code);
	assert_int_equal(a.error.certainty, certainty);
	/* No host path in a message. */
	assert_null(strchr(a.error.text, '/'));
	answer_free(&a);
}

static uint32_t
send_file(struct harness *h, uint32_t root, enum operation op)
{
	struct request q;
	uint32_t id;

	memset(&q, 0, sizeof(q));
	q.operation = (uint8_t)op;
	q.root = root;
	text_set(&q.path, "file", 4);
	q.start_line = 1;
	q.max = 10;
	if (op == OP_WRITE_FILE)
		text_set(&q.content, "x", 1);
	id = harness_send(h, &q);
	request_free(&q);
	return id;
}

/*
 * Returns when the executor has taken what was sent before for this root: it
 * refuses a second request. (Not a mutation: to allow that would take back
 * what was allowed before.)
 */
static void
wait_busy(struct harness *h, uint32_t root)
{
	expect_error(h, send_file(h, root, OP_READ_FILE),
	    EC_COMMAND_UNAVAILABLE, NOT_COMMITTED);
}

/* ---- processes ---- */

/* State letter and parent of a process; -1 if there is none. */
static int
look_at(pid_t pid, char *state, pid_t *parent)
{
	char path[64], text[512], *p;
	ssize_t n;
	int fd;

	(void)xsnprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	if ((p = strrchr(text, ')')) == NULL || strlen(p) < 5)
		return -1;
	*state = p[2];
	*parent = (pid_t)strtol(p + 4, NULL, 10);
	return 0;
}

static pid_t
parent_of(pid_t pid)
{
	pid_t parent;
	char state;

	return look_at(pid, &state, &parent) == -1 ? -1 : parent;
}

static int
is_stopped(pid_t pid)
{
	pid_t parent;
	char state;

	return look_at(pid, &state, &parent) == 0 && state == 'T';
}

static void
stop_process(pid_t pid)
{
	assert_true(pid > 0);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	WAIT_UNTIL(is_stopped(pid));
}

/* A process with this text in its arguments, or 0. */
static pid_t
find_marked(const char *mark)
{
	char path[300], line[4096];
	struct dirent *de;
	pid_t found = 0;
	ssize_t n;
	DIR *d;
	int fd;

	if ((d = opendir("/proc")) == NULL)
		return 0;
	while (found == 0 && (de = readdir(d)) != NULL) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9')
			continue;
		(void)xsnprintf(
		    path, sizeof(path), "/proc/%s/cmdline", de->d_name);
		if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
			continue;
		n = read(fd, line, sizeof(line));
		close(fd);
		/* sleep itself, not the shell that has it in a script */
		if (n > 6 && memcmp(line, "sleep", 6) == 0 &&
		    memmem(line, (size_t)n, mark, strlen(mark)) != NULL)
			found = (pid_t)strtol(de->d_name, NULL, 10);
	}
	closedir(d);
	return found;
}

/* A command that sleeps: the process and the id of the request. */
static pid_t
run_sleep(struct harness *h, uint32_t root, uint32_t *id)
{
	const char *mark = new_mark();
	char *cmd = with_mark(mark, "sleep $M; true");
	pid_t pid = 0;

	*id = run_long(h, root, cmd);
	WAIT_UNTIL((pid = find_marked(mark)) != 0);
	free(cmd);
	return pid;
}

static pid_t
keeper_above(const struct harness *h, pid_t pid)
{
	pid_t parent;

	while ((parent = parent_of(pid)) != h->pid && parent > 1)
		pid = parent;
	assert_int_equal(parent, h->pid);
	return pid;
}

/* Runs a command to see which process is the keeper of a root. */
static pid_t
keeper_of(struct harness *h, uint32_t root)
{
	uint32_t id;
	pid_t pid;

	pid = keeper_above(h, run_sleep(h, root, &id));
	harness_cancel(h, id);
	expect_error(h, id, EC_EXECUTION_ABORTED, NOT_COMMITTED);
	return pid;
}

/* Number of children of the executor with this name. */
static size_t
count_children(const struct harness *h, const char *name)
{
	char path[300], text[64];
	struct dirent *de;
	size_t found = 0;
	ssize_t n;
	DIR *d;
	int fd;

	if ((d = opendir("/proc")) == NULL)
		fail_msg("/proc");
	while ((de = readdir(d)) != NULL) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9' ||
		    parent_of((pid_t)strtol(de->d_name, NULL, 10)) != h->pid)
			continue;
		(void)xsnprintf(
		    path, sizeof(path), "/proc/%s/comm", de->d_name);
		if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
			continue;
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
		text[n > 0 ? n : 0] = '\0';
		text[strcspn(text, "\n")] = '\0';
		found += strcmp(text, name) == 0;
	}
	closedir(d);
	return found;
}

/* ---- which sandboxes are kept ---- */

static void
least_recently_used_is_evicted(void **state)
{
	struct harness h;
	pid_t a, b;

	(void)state;
	begin(&h, 3, 2);
	a = keeper_of(&h, 0);
	b = keeper_of(&h, 1);
	expect(&h, 0, "echo a >/tmp/m; echo a >~/m", "");
	expect(&h, 1, "echo b >/tmp/m; echo b >~/m", "");
	expect(&h, 0, "cat /tmp/m", "a\n");
	assert_true(exists(a) && exists(b));
	expect(&h, 2, "echo c >/tmp/m", "");
	WAIT_UNTIL(!exists(b));
	assert_true(exists(a));
	expect(&h, 0, "cat /tmp/m ~/m", "a\na\n");
	expect(&h, 2, "cat /tmp/m", "c\n");
	expect(&h, 1, "ls /tmp/m ~/m 2>/dev/null", "");
	harness_stop(&h);
}

static void
root_without_commands_makes_room_first(void **state)
{
	struct harness h;

	(void)state;
	harness_init(&h, 3);
	h.slots = 2;
	h.without[1] = OP_BIT(OP_EXECUTE_COMMAND);
	put_file(&h, h.roots[1], "file", "text\n", 5, 0644);
	assert_int_equal(harness_start(&h), 0);
	expect(&h, 0, "echo a >/tmp/m", "");
	expect_later(&h, send_file(&h, 1, OP_READ_FILE), "");
	expect(&h, 2, "echo c >/tmp/m", "");
	expect(&h, 0, "cat /tmp/m", "a\n");
	expect_later(&h, send_file(&h, 1, OP_READ_FILE), "");
	harness_stop(&h);
}

static void
busy_sandbox_is_never_evicted(void **state)
{
	struct harness h;
	uint32_t ids[3], i;

	(void)state;
	begin(&h, 3, 1);
	ids[0] = run_long(&h, 0, "echo a >/tmp/m; " UNTIL_GO "cat /tmp/m");
	for (i = 1; i < 3; i++) {
		expect(&h, i, "echo $((1 + 1))", "2\n");
		ids[i] = run_long(
		    &h, i, "echo b >/tmp/m; " UNTIL_GO "cat /tmp/m");
	}
	/* More of them than are kept when they are idle. */
	assert_int_equal(count_children(&h, "sandbox"), 3);
	for (i = 0; i < 3; i++)
		go(&h, i);
	for (i = 0; i < 3; i++)
		expect_later(&h, ids[i], i == 0 ? "a\n" : "b\n");
	WAIT_UNTIL(count_children(&h, "sandbox") == 1);
	harness_stop(&h);
}

static void
eight_roots_start_and_work(void **state)
{
	static const uint8_t slots[] = { 1, 3, 8 };
	struct harness h;
	uint32_t r;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(slots); i++) {
		begin(&h, 8, slots[i]);
		WAIT_UNTIL(count_children(&h, "sandbox") == slots[i]);
		for (r = 0; r < 8; r++)
			expect(&h, r, "echo ok", "ok\n");
		WAIT_UNTIL(count_children(&h, "sandbox") == slots[i]);
		harness_stop(&h);
	}
}

static void
root_that_does_not_work_is_a_start_error_with_any_capacity(void **state)
{
	static const uint8_t slots[] = { 1, 8 };
	struct harness h;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(slots); i++) {
		harness_init(&h, 4);
		h.slots = slots[i];
		assert_int_equal(chmod(h.roots[1], 0), 0);
		assert_int_equal(harness_start(&h), -1);
		assert_non_null(strstr(h.failed, "workspace root1"));
		assert_non_null(strstr(h.failed, "may not enter it"));
		harness_kill(&h);
		assert_int_equal(chmod(h.roots[1], 0755), 0);
		harness_remove(&h);
	}
}

static size_t
count_descriptors(pid_t pid)
{
	char path[64];
	size_t n = 0;
	DIR *d;

	(void)xsnprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	if ((d = opendir(path)) == NULL)
		return 0;
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static void
nothing_is_left_of_a_hundred_evictions(void **state)
{
	struct harness h;
	size_t before[2];
	pid_t spawner;
	uint32_t i;

	(void)state;
	begin(&h, 2, 1);
	spawner = find_below(h.pid, "spawner", 1);
	assert_true(spawner > 0);
	expect(&h, 0, "true", "");
	WAIT_UNTIL(count_children(&h, "sandbox") == 1);
	before[0] = count_descriptors(h.pid);
	before[1] = count_descriptors(spawner);
	for (i = 1; i <= 100; i++)
		expect(&h, i & 1, "touch /tmp/m", "");
	WAIT_UNTIL(count_children(&h, "sandbox") == 1);
	/* Nor one of its helpers, nor a child that nobody waited for. */
	assert_int_equal(count_children(&h, "spawner"), 1);
	/* The last one may still be on its way out. */
	WAIT_UNTIL(count_descriptors(h.pid) <= before[0]);
	WAIT_UNTIL(count_descriptors(spawner) <= before[1]);
	harness_stop(&h);
}

/* A detached mount can be attached once only, a sandbox made many times. */
static void
detached_root_outlives_its_sandbox(void **state)
{
	struct harness h;
	uint32_t i;

	(void)state;
	if (getuid() != 0) {
		print_message("only root can detach a mount\n");
		skip();
	}
	harness_init(&h, 2);
	h.slots = 1;
	h.detached[0] = 1;
	put_file(&h, h.roots[0], "file", "text\n", 5, 0644);
	if (harness_start(&h) == -1)
		fail_msg("%s", h.failed);
	for (i = 0; i < 3; i++) {
		expect(&h, 0,
		    "cat file; echo text >>file; ls /tmp/0 2>/dev/null",
		    i == 0       ? "text\n"
			: i == 1 ? "text\ntext\n"
				 : "text\ntext\ntext\n");
		/* The other sandboxes do not see it. */
		expect(&h, 1, "ls /tmp/0 /tmp/1 ../root0 2>/dev/null", "");
	}
	harness_stop(&h);
}

/* ---- a sandbox is lost ---- */

static const char *const parts[] = { "sandbox", "files", "supervisor" };

static void
kill_part(pid_t keeper, const char *part)
{
	pid_t pid = keeper;

	if (strcmp(part, "sandbox") != 0)
		pid = find_below(keeper, part, 1);
	assert_true(pid > 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
}

static void
command_is_uncertain_when_its_sandbox_dies(void **state)
{
	struct harness h;
	pid_t pid, keeper;
	uint32_t id, other;
	size_t i;

	(void)state;
	begin(&h, 2, 2);
	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		other = run_long(
		    &h, 1, "echo b >/tmp/m; " UNTIL_GO "cat /tmp/m");
		expect(&h, 0, "touch /tmp/m", "");
		pid = run_sleep(&h, 0, &id);
		keeper = keeper_above(&h, pid);
		h.outcome = COMMITTED;
		kill_part(keeper, parts[i]);
		expect_error(&h, id, EC_COMMAND_UNAVAILABLE, UNCERTAIN);
		assert_int_equal(h.outcome, UNCERTAIN);
		/* Every process of it ends, and a new one takes its place. */
		expect(&h, 0, "ls /tmp/m 2>/dev/null; echo new", "new\n");
		WAIT_UNTIL(!exists(pid));
		WAIT_UNTIL(!exists(keeper));
		/* The other root noticed nothing. */
		go(&h, 1);
		expect_later(&h, other, "b\n");
	}
	harness_stop(&h);
}

/* The file process is stopped, so that it cannot answer before. */
static void
lose_file_request(struct harness *h, enum operation op, enum error_code code,
    enum certainty certainty)
{
	pid_t keeper, files;
	uint32_t id;
	size_t i;

	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		keeper = keeper_of(h, 0);
		files = find_below(keeper, "files", 1);
		stop_process(files);
		id = send_file(h, 0, op);
		wait_busy(h, 0);
		h->outcome = COMMITTED;
		kill_part(keeper, parts[i]);
		expect_error(h, id, code, certainty);
		if (certainty == UNCERTAIN)
			assert_int_equal(h->outcome, UNCERTAIN);
		expect(h, 0, "echo new", "new\n");
		WAIT_UNTIL(!exists(keeper));
		WAIT_UNTIL(!exists(files));
	}
}

static void
file_request_is_fenced_when_its_sandbox_dies(void **state)
{
	struct harness h;

	(void)state;
	begin(&h, 2, 2);
	put_file(&h, h.roots[0], "file", "text\n", 5, 0644);
	expect(&h, 1, "echo b >/tmp/m", "");
	lose_file_request(&h, OP_READ_FILE, EC_NONE, NOT_COMMITTED);
	lose_file_request(&h, OP_WRITE_FILE, EC_WRITE_UNAVAILABLE, UNCERTAIN);
	expect(&h, 1, "cat /tmp/m", "b\n");
	harness_stop(&h);
}

/* Speaks for the file process, as whoever has taken it over could. */
static void
file_process_that_breaks_the_protocol_loses_its_root_only(void **state)
{
	uint8_t noise[64];
	struct harness h;
	pid_t files, keeper;
	int pidfd, fd;
	uint32_t id;

	(void)state;
	if (getuid() != 0) {
		print_message("only root can take its descriptor\n");
		skip();
	}
	begin(&h, 2, 2);
	expect(&h, 1, "echo b >/tmp/m", "");
	keeper = keeper_of(&h, 0);
	files = find_below(keeper, "files", 1);
	stop_process(files);
	id = send_file(&h, 0, OP_WRITE_FILE);
	wait_busy(&h, 0);
	memset(noise, 0xff, sizeof(noise));
	pidfd = (int)syscall(SYS_pidfd_open, files, 0);
	assert_int_not_equal(pidfd, -1);
	fd = (int)syscall(SYS_pidfd_getfd, pidfd, FILES_CHANNEL, 0);
	assert_int_not_equal(fd, -1);
	assert_int_equal(write(fd, noise, sizeof(noise)), sizeof(noise));
	close(fd);
	close(pidfd);
	expect_error(&h, id, EC_WRITE_UNAVAILABLE, UNCERTAIN);
	expect(&h, 0, "echo new", "new\n");
	WAIT_UNTIL(!exists(keeper));
	expect(&h, 1, "cat /tmp/m", "b\n");
	harness_stop(&h);
}

static void
idle_sandbox_that_died_is_made_anew(void **state)
{
	struct harness h;
	pid_t keeper;
	size_t i;

	(void)state;
	begin(&h, 2, 2);
	expect(&h, 1, "echo b >/tmp/m", "");
	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		expect(&h, 0, "touch /tmp/m", "");
		keeper = keeper_of(&h, 0);
		kill_part(keeper, parts[i]);
		WAIT_UNTIL(!exists(keeper));
		expect(&h, 0, "ls /tmp/m 2>/dev/null; echo new", "new\n");
	}
	expect(&h, 1, "cat /tmp/m", "b\n");
	harness_stop(&h);
}

/*
 * A process that somebody traces is not gone when it is killed: it stays
 * until the tracer has taken notice, like one that sits in the kernel.
 */
static void
root_with_a_process_that_does_not_end_is_fenced(void **state)
{
	struct harness h;
	struct answer a;
	uint32_t id;
	pid_t pid;
	int st;

	(void)state;
	begin(&h, 2, 2);
	pid = run_sleep(&h, 0, &id);
	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) == -1) {
		print_message("no tracing here: %s\n", strerror(errno));
		harness_stop(&h);
		skip();
	}
	harness_cancel(&h, id);
	expect(&h, 1, "echo other", "other\n");
	expect_error(&h, id, EC_COMMAND_UNAVAILABLE, UNCERTAIN);
	assert_int_equal(h.outcome, UNCERTAIN);
	/* The next request waits for its end, but not for ever. */
	assert_int_equal(harness_run(&h, 0, "touch overlap", &a), 0);
	assert_false(a.ok);
	assert_int_equal(a.error.code, EC_COMMAND_UNAVAILABLE);
	assert_int_equal(a.error.certainty, NOT_COMMITTED);
	answer_free(&a);
	assert_int_equal(h.outcome, NOT_COMMITTED);
	expect(&h, 1, "echo other", "other\n");
	/* From now on it is refused at once. */
	expect_error(
	    &h, send_file(&h, 0, OP_READ_FILE), EC_NONE, NOT_COMMITTED);
	assert_int_equal(waitpid(pid, &st, __WALL), pid);
	WAIT_UNTIL(harness_run(&h, 0, "ls", &a) == 0 &&
	    (a.ok || (answer_free(&a), 0)));
	assert_int_equal(a.result.out.len, 0);
	answer_free(&a);
	harness_stop(&h);
}

/* ---- a sandbox is being made ---- */

static void
others_go_on_while_a_sandbox_is_made(void **state)
{
	struct harness h;
	struct request q;
	uint32_t id, cancelled;
	pid_t spawner;

	(void)state;
	begin(&h, 3, 1);
	expect(&h, 0, "echo a >/tmp/m", "");
	spawner = find_below(h.pid, "spawner", 1);
	/* The spawner does not answer until it is told to. */
	id = run_long(&h, 0, UNTIL_GO "cat /tmp/m");
	stop_process(spawner);
	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	q.root = 1;
	text_set(&q.command, "touch ran", 9);
	q.timeout_ms = 300000;
	q.max_output = 100;
	cancelled = harness_send(&h, &q);
	q.root = 2;
	text_free(&q.command);
	text_set(&q.command, "echo waited", 11);
	q.root = 2;
	{
		uint32_t waiting = harness_send(&h, &q);

		wait_busy(&h, 2);
		h.outcome = COMMITTED;
		harness_cancel(&h, cancelled);
		expect_error(
		    &h, cancelled, EC_EXECUTION_ABORTED, NOT_COMMITTED);
		assert_int_equal(h.outcome, NOT_COMMITTED);
		go(&h, 0);
		expect_later(&h, id, "a\n");
		assert_int_equal(kill(spawner, SIGCONT), 0);
		expect_later(&h, waiting, "waited\n");
	}
	expect(&h, 1, "ls", "");
	request_free(&q);
	harness_stop(&h);
}

static void
failing_set_up_is_a_clean_error(void **state)
{
	struct harness h;
	struct answer a;

	(void)state;
	begin(&h, 2, 1);
	expect(&h, 1, "true", "");
	assert_int_equal(chmod(h.roots[0], 0), 0);
	h.outcome = COMMITTED;
	assert_int_equal(harness_run(&h, 0, "true", &a), 0);
	assert_false(a.ok);
	assert_int_equal(a.error.code, EC_COMMAND_UNAVAILABLE);
	assert_int_equal(a.error.certainty, NOT_COMMITTED);
	assert_int_equal(h.outcome, NOT_COMMITTED);
	answer_free(&a);
	expect_error(
	    &h, send_file(&h, 0, OP_READ_FILE), EC_NONE, NOT_COMMITTED);
	expect_error(&h, send_file(&h, 0, OP_WRITE_FILE), EC_WRITE_UNAVAILABLE,
	    NOT_COMMITTED);
	expect(&h, 1, "echo fine", "fine\n");
	assert_int_equal(chmod(h.roots[0], 0755), 0);
	expect(&h, 0, "echo again", "again\n");
	harness_stop(&h);
}

static void
executor_ends_with_its_spawner(void **state)
{
	struct harness h;
	pid_t spawner, keeper;
	int st;

	(void)state;
	begin(&h, 2, 2);
	keeper = keeper_of(&h, 0);
	spawner = find_below(h.pid, "spawner", 1);
	assert_true(spawner > 0);
	assert_int_equal(kill(spawner, SIGKILL), 0);
	WAIT_UNTIL(waitpid(h.pid, &st, WNOHANG) == h.pid);
	assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 1);
	h.pid = 0;
	WAIT_UNTIL(!exists(keeper));
	harness_stop(&h);
}

static void
spawner_ends_with_its_executor(void **state)
{
	struct harness h;
	pid_t spawner;

	(void)state;
	begin(&h, 1, 1);
	spawner = find_below(h.pid, "spawner", 1);
	assert_true(spawner > 0);
	harness_kill(&h);
	WAIT_UNTIL(!exists(spawner));
	harness_remove(&h);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(least_recently_used_is_evicted),
		cmocka_unit_test(root_without_commands_makes_room_first),
		cmocka_unit_test(busy_sandbox_is_never_evicted),
		cmocka_unit_test(eight_roots_start_and_work),
		cmocka_unit_test(
		    root_that_does_not_work_is_a_start_error_with_any_capacity),
		cmocka_unit_test(nothing_is_left_of_a_hundred_evictions),
		cmocka_unit_test(detached_root_outlives_its_sandbox),
		cmocka_unit_test(command_is_uncertain_when_its_sandbox_dies),
		cmocka_unit_test(file_request_is_fenced_when_its_sandbox_dies),
		cmocka_unit_test(
		    file_process_that_breaks_the_protocol_loses_its_root_only),
		cmocka_unit_test(idle_sandbox_that_died_is_made_anew),
		cmocka_unit_test(
		    root_with_a_process_that_does_not_end_is_fenced),
		cmocka_unit_test(others_go_on_while_a_sandbox_is_made),
		cmocka_unit_test(failing_set_up_is_a_clean_error),
		cmocka_unit_test(executor_ends_with_its_spawner),
		cmocka_unit_test(spawner_ends_with_its_executor),
	};

	log_init("test", 0);
	return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
