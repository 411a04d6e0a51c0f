#include "config.h"

#include <sys/types.h>
#include <sys/mman.h>

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "clock.h"
#include "fake.h"
#include "log.h"

/* A machine that sleeps, and a wall clock that is set. */

/* Of main.c, which has a main() of its own; nothing here calls them. */
void
failure_set(struct failure *f, enum failure_class class, const char *fmt, ...)
{
	(void)f;
	(void)class;
	(void)fmt;
}

uint32_t
bridge_id(struct bridge *b)
{
	return ++b->last_id;
}

void
bridge_report(struct bridge *b, enum bridge_state s, const char *text)
{
	(void)b;
	(void)s;
	(void)text;
}

void
bridge_end(struct bridge *b, enum end_status status, const char *text)
{
	(void)b;
	(void)text;
	exit((int)status);
}

#define READ_REQUEST                                          \
	"{\"protocolVersion\":1,\"operation\":\"read_file\"," \
	"\"workspaceId\":\"primary\",\"path\":\"a\"}"
#define COMMAND_REQUEST                                             \
	"{\"protocolVersion\":1,\"operation\":\"execute_command\"," \
	"\"workspaceId\":\"primary\",\"command\":\"make\","         \
	"\"timeoutMs\":30000}"

static void
readings_are_told_apart(void **state)
{
	static const struct {
		struct clocks now;
		int64_t slept, step;
	} rows[] = {
		{ { 6000, 16000, 106000 }, 0, 0 },
		{ { 6000, 16900, 106900 }, 0, 0 }, /* coarse clocks */
		{ { 6000, 17000, 107000 }, 1000, 0 },
		{ { 6000, 3616000, 3706000 }, 3600000, 0 },
		{ { 6000, 16000, 108000 }, 0, 2000 },
		{ { 6000, 16000, 104001 }, 0, 0 },
		{ { 6000, 16000, 104000 }, 0, -2000 },
		{ { 6000, 16000, 7306000 }, 0, 7200000 },
		/* asleep, and the clock stood still meanwhile */
		{ { 6000, 76000, 106000 }, 60000, -60000 },
	};
	static const struct clocks was = { 1000, 11000, 101000 };
	int64_t slept, step;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(
		    clock_compare(&was, &rows[i].now, &slept, &step),
		    rows[i].slept != 0 || rows[i].step != 0);
		assert_int_equal(slept, rows[i].slept);
		assert_int_equal(step, rows[i].step);
	}
}

static int64_t *shift;
static char file[] = "/tmp/librechat-code-clock.XXXXXX";

static int
prepare(void **state)
{
	int fd;

	(void)state;
	if ((fd = mkstemp(file)) == -1 || ftruncate(fd, 4096) == -1)
		return -1;
	shift = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return shift == MAP_FAILED ? -1 : 0;
}

static int
remove_file(void **state)
{
	(void)state;
	return unlink(file);
}

static unsigned int registers, leases;
static int64_t life_added; /* to that of the credential, ms */

static int
is_leasing(struct fake *f)
{
	return f->lease != NULL && fake_count(f, "/lease") > leases;
}

static int
is_registering(struct fake *f)
{
	return fake_count(f, "/register") > registers;
}

static int
is_executing(struct fake *f)
{
	return f->executed > 0;
}

static int
is_settled(struct fake *f)
{
	return fake_count(f, "/settle") > 0;
}

static struct fake *
worker(void)
{
	struct fake *f;

	shift[0] = shift[1] = 0;
	leases = registers = 0;
	f = fake_new(ROLE_WORKER);
	f->config.expires += life_added;
	setenv("LD_PRELOAD", "./clock_shim.so", 1);
	setenv("CLOCK_SHIM", file, 1);
	fake_start(f);
	unsetenv("LD_PRELOAD");
	unsetenv("CLOCK_SHIM");
	fake_wait(f, is_leasing, "lease");
	leases = fake_count(f, "/lease");
	registers = fake_count(f, "/register");
	return f;
}

static void
skip_if_sanitized(void)
{
#ifdef SANITIZERS
	print_message("sanitizers have to be loaded first\n");
	skip();
#endif
}

static void
stop_cleanly(struct fake *f)
{
	fake_stop(f);
	assert_int_equal(fake_exit_status(f), 0);
	fake_free(f);
}

static void
an_idle_worker_begins_anew_after_a_suspend(void **state)
{
	struct fake *f;

	(void)state;
	skip_if_sanitized();
	life_added = 86400000; /* as long as the suspend, and more */
	f = worker();
	life_added = 0;
	f->lease = NULL; /* as if nothing on that connection arrived */
	shift[0] = shift[1] = 3600000;
	fake_wait(f, is_registering, "registration");
	fake_wait(f, is_leasing, "lease");
	f->result.start_line = f->result.end_line = 1;
	text_set(&f->result.content, "x", 1);
	fake_assign(f, "a1", 30000, READ_REQUEST);
	fake_wait(f, is_settled, "settlement");
	stop_cleanly(f);
}

static void
a_clock_that_is_set_is_measured_anew(void **state)
{
	struct fake *f;

	(void)state;
	skip_if_sanitized();
	f = worker();
	shift[1] = -7200000;
	fake_wait(f, is_registering, "registration");
	fake_wait(f, is_leasing, "lease");
	stop_cleanly(f);
}

/* A credential of 15 min is neither over nor renewed too soon for that. */
static void
a_clock_set_forward_ends_no_credential(void **state)
{
	struct fake *f;

	(void)state;
	skip_if_sanitized();
	f = worker();
	shift[1] = 7200000;
	fake_wait(f, is_registering, "registration");
	fake_wait(f, is_leasing, "lease");
	assert_int_equal(fake_count(f, "/credentials/refresh"), 0);
	stop_cleanly(f);
}

static void
a_busy_worker_sends_a_heartbeat_and_goes_on(void **state)
{
	struct fake *f;

	(void)state;
	skip_if_sanitized();
	life_added = 86400000;
	f = worker();
	life_added = 0;
	f->behaviour = FE_HOLD;
	fake_assign(f, "a1", 300000, COMMAND_REQUEST);
	fake_wait(f, is_executing, "execution");
	shift[0] = shift[1] = 600000;
	fake_wait(f, is_registering, "heartbeat");
	assert_int_equal(f->cancels, 0);
	assert_int_equal(fake_count(f, "/settle"), 0);
	f->cancelled = 1;
	fake_wait(f, is_settled, "settlement");
	assert_int_equal(f->executed, 1);
	stop_cleanly(f);
}

/* ---- time that passes quickly ---- */

#define SPEED    500
#define ATTEMPTS 160 /* an hour of them, one every 15 to 30 s */
#define LINES    100

static unsigned int attempts;

static int
has_tried(struct fake *f)
{
	return fake_count(f, "/register") >= attempts;
}

static int
count_lines(int fd)
{
	static char text[1 << 18];
	ssize_t n = pread(fd, text, sizeof(text), 0), i;
	int lines = 0;

	for (i = 0; i < n; i++)
		lines += text[i] == '\n';
	return lines;
}

/*
 * What the service manager's log gets; test_life.c has the part that the
 * monitor writes.
 */
static void
an_hour_of_a_dead_server_is_a_few_lines(void **state)
{
	char log[] = "/tmp/librechat-code-log.XXXXXX";
	struct fake *f;
	int fd, saved, lines;

	(void)state;
	skip_if_sanitized();
	fd = mkstemp(log);
	assert_int_not_equal(fd, -1);
	assert_int_equal(unlink(log), 0);
	saved = dup(STDERR_FILENO);
	assert_int_not_equal(saved, -1);
	fflush(stderr);
	f = fake_new(ROLE_WORKER);
	fake_fault(f, "/register", 503, "", 1000000);
	shift[0] = shift[1] = 0;
	shift[2] = SPEED;
	setenv("LD_PRELOAD", "./clock_shim.so", 1);
	setenv("CLOCK_SHIM", file, 1);
	(void)dup2(fd, STDERR_FILENO);
	fake_start(f);
	(void)dup2(saved, STDERR_FILENO);
	close(saved);
	unsetenv("LD_PRELOAD");
	unsetenv("CLOCK_SHIM");
	for (attempts = 1; attempts <= ATTEMPTS; attempts++)
		fake_wait(f, has_tried, "attempt");
	lines = count_lines(fd);
	close(fd);
	stop_cleanly(f);
	shift[2] = 0;
	if (lines > LINES)
		fail_msg("%d lines", lines);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(readings_are_told_apart),
		cmocka_unit_test(an_idle_worker_begins_anew_after_a_suspend),
		cmocka_unit_test(a_clock_that_is_set_is_measured_anew),
		cmocka_unit_test(a_clock_set_forward_ends_no_credential),
		cmocka_unit_test(a_busy_worker_sends_a_heartbeat_and_goes_on),
		cmocka_unit_test(an_hour_of_a_dead_server_is_a_few_lines),
	};

	log_init("test", 0);
	return cmocka_run_group_tests_name(
	    "clock", tests, prepare, remove_file);
}
