#include "config.h"

#include <sys/types.h>

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake.h"

/*
 * Answers that a server, or whatever stands in front of it, should not give
 * (protocol 2.2, 7.1): each is an error that is said and repeated, none costs
 * memory that stays.
 */
#define READ_REQUEST                                          \
	"{\"protocolVersion\":1,\"operation\":\"read_file\"," \
	"\"workspaceId\":\"primary\",\"path\":\"a\"}"
#define INCARNATION "\"incarnationId\":\"AAECAwQFBgcICQoLDA0ODxAR\""
#define MIB         ((size_t)1 << 20)

static int
is_leasing(struct fake *f)
{
	return f->lease != NULL && f->assignments[0] == NULL;
}

static unsigned int wanted;

static int
is_settled(struct fake *f)
{
	return fake_count(f, "/settle") >= wanted && f->lease != NULL;
}

static int
is_reconnecting(struct fake *f)
{
	return f->reconnecting;
}

static struct fake *
worker(void)
{
	struct fake *f = fake_new(ROLE_WORKER);

	f->result.start_line = 1;
	f->result.end_line = 1;
	text_set(&f->result.content, "x", 1);
	fake_start(f);
	fake_wait(f, is_leasing, "lease");
	return f;
}

static void
stop_cleanly(struct fake *f)
{
	fake_stop(f);
	assert_int_equal(fake_exit_status(f), 0);
	fake_free(f);
}

/* A number of /proc/PID/status in KiB. */
static long
memory(struct fake *f, const char *name)
{
	char path[64], text[4096], *p;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)f->pid);
	if ((fd = open(path, O_RDONLY)) == -1)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	p = strstr(text, name);
	return p == NULL ? 0 : strtol(p + strlen(name) + 1, NULL, 10);
}

/* count copies of a piece between a head and a tail. */
static char *
repeated(const char *head, const char *piece, size_t count, const char *tail)
{
	size_t h = strlen(head), p = strlen(piece), t = strlen(tail), i;
	char *s;

	s = malloc(h + p * count + t + 1);
	assert_non_null(s);
	memcpy(s, head, h);
	for (i = 0; i < count; i++)
		memcpy(s + h + i * p, piece, p);
	memcpy(s + h + p * count, tail, t + 1);
	return s;
}

/* None of them is a JSON object: a settlement is repeated after each. */
static const char *const shapeless[] = {
	"",
	" ",
	"<!DOCTYPE html><title>502</title>",
	"{",
	"{\"accepted\":tr",
	"{\"accepted\":true}}",
	"{\"accepted\":true}{\"accepted\":true}",
	"{'accepted':true}",
	"{\"accepted\":NaN}",
	"{\"accepted\":true,}",
	"{accepted:true}",
	"[]",
	"[{\"accepted\":true}]",
	"null",
	"true",
	"1",
	"\"accepted\"",
	"{\"a\":\"\x01\"}", /* a bare control character */
	"\xff\xfe{\0}\0",
};
#define SHAPELESS (sizeof(shapeless) / sizeof(shapeless[0]))
#define LARGE     6

static char *large[LARGE];
static const char *const names[LARGE] = { "a0", "a1", "a2", "a3", "a4", "a5" };

static void
make_large(void)
{
	large[0] = repeated("{\"a\":\"", "xxxxxxxx", 2 * MIB, "\"}");
	large[1] = repeated("{\"a\":\"", "xxxxxxxx", 3 * MIB, "\"}");
	large[2] = repeated("", "[", 4 * MIB, "");
	large[3] = repeated("{\"a\":[1", ",1", 7 * MIB, "]}");
	large[4] = repeated("{\"a\":0", ",\"a\":0", 2 * MIB, "}");
	large[5] = repeated("", "{\"a\":", MIB, "");
}

static void
round_of(struct fake *f, const char *id)
{
	size_t i;

	for (i = 0; i < SHAPELESS; i++)
		fake_fault(f, "/settle", 200, shapeless[i], 1);
	for (i = 0; i < LARGE; i++)
		fake_fault(f, "/settle", 200, large[i], 1);
	wanted = fake_count(f, "/settle") + SHAPELESS + LARGE + 1;
	fake_assign(f, id, 60000, READ_REQUEST);
	fake_wait(f, is_settled, "settlement");
	assert_int_equal(fake_count(f, "/settle"), wanted);
}

/* Sanitizers keep what was freed. */
#ifdef SANITIZERS
#define MEASURED 0
#else
#define MEASURED 1
#endif

/*
 * The bridge has freed what it took when it leases again, but the kernel may
 * count a little later on a busy machine: waits until memory is below.
 */
static int
memory_falls_below(struct fake *f, long kib)
{
	int i;

	if (!MEASURED)
		return 1;
	for (i = 0; i < 2000; i++) {
		if (memory(f, "VmRSS") <= kib)
			return 1;
		usleep(10000);
	}
	return 0;
}

static void
no_answer_costs_memory_for_long(void **state)
{
	struct fake *f = worker();
	long first;
	size_t i;

	(void)state;
	make_large();
	first = memory(f, "VmRSS");
	for (i = 0; i < LARGE; i++) {
		fake_fault(f, "/settle", 200, large[i], 1);
		wanted = fake_count(f, "/settle") + 2;
		fake_assign(f, names[i], 60000, READ_REQUEST);
		fake_wait(f, is_settled, "settlement");
		if (!memory_falls_below(f, first + 2048))
			fail_msg("after large answer %zu: memory was %ld and "
				 "stays at %ld KiB",
			    i, first, memory(f, "VmRSS"));
	}
	round_of(f, "all");
	if (!memory_falls_below(f, first + 2048))
		fail_msg("memory was %ld and stays at %ld KiB", first,
		    memory(f, "VmRSS"));
	/* A body of 16 MiB, its copy and what is made of it. */
	if (MEASURED && memory(f, "VmHWM") > 160 * 1024)
		fail_msg("as much as %ld KiB", memory(f, "VmHWM"));
	assert_int_equal(f->executed, LARGE + 1);
	stop_cleanly(f);
	for (i = 0; i < LARGE; i++)
		free(large[i]);
}

#define ASSIGNMENT(members)                                             \
	"{\"protocolVersion\":1,\"serverElapsedMs\":0,\"assignment\":{" \
	"\"protocolVersion\":1,\"assignmentId\":\"bad\",\"workerId\":"  \
	"\"lab:vm\"," members ",\"executionKind\":\"workspace_tool\","  \
	"\"request\":" READ_REQUEST "}}"
#define REST "\"leaseToken\":\"t\",\"generation\":7,\"remainingMs\":30000"

static const char *const bad_leases[] = {
	"{}",
	"{\"error\":\"please log in\"}",
	"{\"protocolVersion\":1,\"serverElapsedMs\":0,\"assignment\":7}",
	"{\"protocolVersion\":1,\"serverElapsedMs\":0,\"assignment\":[]}",
	ASSIGNMENT("\"incarnationId\":null," REST),
	/* Bytes that are not UTF-8 are read as U+FFFD, as a browser does. */
	ASSIGNMENT("\"incarnationId\":\"AAECAwQFBgcICQoLDA0ODxA\xff\"," REST),
	ASSIGNMENT(INCARNATION ",\"workspaceLeaseSlot\":null," REST),
	ASSIGNMENT(INCARNATION ",\"leaseToken\":\"t\",\"generation\":7,"
			       "\"remainingMs\":9007199254740993"),
	ASSIGNMENT(INCARNATION ",\"leaseToken\":\"t\",\"generation\":7,"
			       "\"remainingMs\":1e400"),
	ASSIGNMENT(INCARNATION ",\"leaseToken\":\"t\",\"generation\":7,"
			       "\"remainingMs\":\"30000\""),
	ASSIGNMENT(INCARNATION ",\"leaseToken\":\"t\","
			       "\"generation\":99999999999999999999,"
			       "\"remainingMs\":30000"),
	ASSIGNMENT(INCARNATION ",\"leaseToken\":5,\"generation\":7,"
			       "\"remainingMs\":30000"),
	/* Of duplicate members the last counts. */
	ASSIGNMENT(INCARNATION "," REST ",\"remainingMs\":-1"),
};

static void
a_lease_of_the_wrong_shape_is_not_taken(void **state)
{
	struct fake *f = worker();
	char id[16];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad_leases) / sizeof(bad_leases[0]); i++) {
		/* The waiting poll gets an assignment, the next the fault. */
		fake_fault(f, "/lease", 200, bad_leases[i], 1);
		f->reconnecting = 0;
		(void)snprintf(id, sizeof(id), "a%zu", i);
		fake_assign(f, id, 30000, READ_REQUEST);
		fake_wait(f, is_reconnecting, "word of the bad answer");
		fake_wait(f, is_leasing, "another lease");
		assert_int_equal(f->executed, i + 1);
		assert_int_equal(fake_count(f, "/assignments/bad/ack"), 0);
	}
	assert_int_equal(fake_count(f, "/ack"), i);
	stop_cleanly(f);
}

static void
the_last_of_duplicate_members_counts(void **state)
{
	struct fake *f = worker();

	(void)state;
	fake_fault(f, "/lease", 200,
	    ASSIGNMENT("\"incarnationId\":\"other\",\"remainingMs\":\"x\"," REST
		       "," INCARNATION),
	    1);
	wanted = 2;
	fake_assign(f, "a1", 30000, READ_REQUEST);
	fake_wait(f, is_settled, "both settlements");
	assert_int_equal(f->executed, 2);
	stop_cleanly(f);
}

static void
a_registration_of_the_wrong_shape_is_repeated(void **state)
{
	static const char *const bodies[] = {
		"{\"protocolVersion\":1}",
		"{\"incarnationId\":7}",
		"{\"incarnationId\":\"AAECAwQFBgcICQoLDA0ODxA\"}",
	};
	struct fake *f = fake_new(ROLE_WORKER);
	size_t i;

	(void)state;
	for (i = 0; i < 3; i++)
		fake_fault(f, "/register", 200, bodies[i], 1);
	fake_start(f);
	fake_wait(f, is_reconnecting, "word of the bad answer");
	fake_wait(f, is_leasing, "lease");
	stop_cleanly(f);
}

/* Nonsense in what is optional is as good as nothing (protocol 5.5). */
static void
nonsense_in_a_registration_is_survived(void **state)
{
	static const char body[] =
	    "{" INCARNATION ",\"leaseTtlMs\":1e300,\"registeredAt\":\"soon\","
	    "\"supportedWorkspaceToolOperations\":{\"a\":[1e999,null]},"
	    "\"workspaceLeaseSlots\":null,\"registrationGeneration\":-5}";
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	f->result.start_line = 1;
	f->result.end_line = 1;
	text_set(&f->result.content, "x", 1);
	fake_fault(f, "/register", 200, body, 1);
	fake_start(f);
	fake_wait(f, is_leasing, "lease");
	wanted = 1;
	fake_assign(f, "a1", 30000, READ_REQUEST);
	fake_wait(f, is_settled, "settlement");
	stop_cleanly(f);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_answer_costs_memory_for_long),
		cmocka_unit_test(a_lease_of_the_wrong_shape_is_not_taken),
		cmocka_unit_test(the_last_of_duplicate_members_counts),
		cmocka_unit_test(a_registration_of_the_wrong_shape_is_repeated),
		cmocka_unit_test(nonsense_in_a_registration_is_survived),
	};

	return cmocka_run_group_tests_name("answers", tests, NULL, NULL);
}
