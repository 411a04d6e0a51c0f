#include "config.h"

#include <sys/types.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake.h"
#include "times.h"

/*
 * The built program between a fake monitor, a fake executor and a fake Code
 * API. Everything waits for conditions.
 */

#define READ_REQUEST                                          \
	"{\"protocolVersion\":1,\"operation\":\"read_file\"," \
	"\"workspaceId\":\"primary\",\"path\":\"caf\xc3\xa9.txt\"}"
#define WRITE_REQUEST                                          \
	"{\"protocolVersion\":1,\"operation\":\"write_file\"," \
	"\"workspaceId\":\"primary\",\"path\":\"a\",\"content\":\"xyz\"}"
#define COMMAND_REQUEST                                             \
	"{\"protocolVersion\":1,\"operation\":\"execute_command\"," \
	"\"workspaceId\":\"primary\",\"command\":\"make\","         \
	"\"timeoutMs\":30000}"

static int
is_registered(struct fake *f)
{
	return f->registered > 0;
}

static int
is_leasing(struct fake *f)
{
	return f->lease != NULL;
}

static int
is_settled(struct fake *f)
{
	return fake_count(f, "/settle") > 0;
}

static int
is_ended(struct fake *f)
{
	return f->ended;
}

static int
is_executing(struct fake *f)
{
	return f->executed > 0;
}

static int
is_cleared(struct fake *f)
{
	return f->clears > 0 && f->lease != NULL;
}

static struct fake *
worker(void)
{
	struct fake *f = fake_new(ROLE_WORKER);

	fake_start(f);
	fake_wait(f, is_leasing, "lease");
	return f;
}

static void
stop_cleanly(struct fake *f)
{
	fake_stop(f);
	assert_int_equal(fake_exit_status(f), 0);
	assert_int_equal(f->end_status, 0);
	fake_free(f);
}

static void
read_result(struct fake *f, const char *content)
{
	text_set(&f->result.content, content, strlen(content));
	f->result.start_line = 1;
	f->result.end_line = 1;
}

static void
write_result(struct fake *f)
{
	f->result.created = 1;
	f->result.bytes_written = 3;
}

static void
pairs(void **state)
{
	struct fake *f = fake_new(ROLE_PAIR);

	(void)state;
	fake_start(f);
	assert_int_equal(fake_exit_status(f), 0);
	assert_non_null(f->paired);
	assert_string_equal(f->paired, "second_credential_0123456789abcdefgh");
	assert_int_equal(fake_count(f, "/redeem"), 1);
	fake_free(f);
}

static void
pairing_refused_is_not_repeated(void **state)
{
	struct fake *f = fake_new(ROLE_PAIR);

	(void)state;
	fake_fault(f, "/redeem", 401,
	    "{\"error\":\"unknown code\",\"code\":\"PAIRING_INVALID\"}", 5);
	fake_start(f);
	assert_int_equal(fake_exit_status(f), 1);
	assert_null(f->paired);
	assert_non_null(strstr(f->end_text, "unknown code"));
	assert_int_equal(fake_count(f, "/redeem"), 1);
	fake_free(f);
}

static void
registers_in_two_rounds(void **state)
{
	struct fake *f = worker();

	(void)state;
	fake_wait(f, is_registered, "registration");
	assert_int_equal(fake_count(f, "/register"), 2);
	assert_non_null(
	    strstr(fake_body(f, "/register"), "\"execute_command\""));
	assert_non_null(strstr(TAILQ_FIRST(&f->requests)->body,
	    "\"operations\":[\"read_file\",\"search_text\"],\"workspaces\":"
	    "[{\"id\":\"primary\"}]}"));
	stop_cleanly(f);
}

static void
settles_a_read(void **state)
{
	struct fake *f = worker();

	(void)state;
	read_result(f, "\x1b[32mok\xe2\x80\xa8");
	fake_assign(f, "a/1", 30000, READ_REQUEST);
	fake_wait(f, is_settled, "settlement");
	assert_string_equal(fake_body(f, "/assignments/a%2F1/settle"),
	    "{\"protocolVersion\":1,\"generation\":7,\"leaseToken\":\"token\","
	    "\"incarnationId\":\"AAECAwQFBgcICQoLDA0ODxAR\",\"status\":"
	    "\"fulfilled\",\"result\":{\"protocolVersion\":1,\"operation\":"
	    "\"read_file\",\"workspaceId\":\"primary\",\"path\":"
	    "\"caf\xc3\xa9.txt\",\"content\":\"\\u001b[32mok\xe2\x80\xa8\","
	    "\"startLine\":1,\"endLine\":1,\"truncated\":false}}");
	assert_int_equal(fake_count(f, "/ack"), 1);
	assert_int_equal(f->arms, 0);
	fake_wait(f, is_leasing, "next lease");
	/* The promoted set is remembered: one registration a turn. */
	assert_int_equal(fake_count(f, "/register"), 3);
	stop_cleanly(f);
}

static void
clears_the_marker_after_acceptance_only(void **state)
{
	struct fake *f = worker();

	(void)state;
	write_result(f);
	fake_fault(f, "/settle", 503, "{}", 2);
	fake_assign(f, "a1", 30000, WRITE_REQUEST);
	fake_wait(f, is_cleared, "cleared marker");
	assert_int_equal(f->arms, 1);
	assert_int_equal(f->executed, 1);
	assert_int_equal(fake_count(f, "/settle"), 3);
	stop_cleanly(f);
}

static void
a_lost_settlement_answer_is_repeated_with_a_new_proof(void **state)
{
	struct fake *f = worker();

	(void)state;
	write_result(f);
	fake_fault(f, "/settle", 0, NULL, 1);
	fake_assign(f, "a1", 30000, WRITE_REQUEST);
	fake_wait(f, is_cleared, "cleared marker");
	assert_int_equal(fake_count(f, "/settle"), 2);
	stop_cleanly(f);
}

/* The server closes a kept-alive connection instead of answering on it. */
static void
a_post_is_never_repeated_by_the_library(void **state)
{
	struct fake *f = worker();

	(void)state;
	read_result(f, "x");
	fake_fault(f, "/ack", 0, NULL, 1);
	fake_assign(f, "a1", 30000, READ_REQUEST);
	fake_wait(f, is_settled, "rejection");
	assert_int_equal(fake_count(f, "/ack"), 1);
	assert_int_equal(f->executed, 0);
	assert_non_null(strstr(fake_body(f, "/settle"), "\"rejected\""));
	stop_cleanly(f);
}

static void
a_refused_mutation_settlement_quarantines(void **state)
{
	struct fake *f = worker();

	(void)state;
	write_result(f);
	fake_fault(f, "/settle", 409, "{\"code\":\"ASSIGNMENT_EXPIRED\"}", 1);
	fake_assign(f, "a1", 30000, WRITE_REQUEST);
	assert_int_equal(fake_exit_status(f), 1);
	assert_int_equal(f->clears, 0);
	assert_non_null(strstr(f->end_text, "ASSIGNMENT_EXPIRED"));
	fake_free(f);
}

static void
an_uncertain_mutation_is_not_settled(void **state)
{
	struct fake *f = worker();

	(void)state;
	f->behaviour = FE_ERROR;
	f->error = EC_WRITE_UNAVAILABLE;
	f->certainty = UNCERTAIN;
	fake_assign(f, "a1", 30000, WRITE_REQUEST);
	assert_int_equal(fake_exit_status(f), 1);
	assert_int_equal(fake_count(f, "/settle"), 0);
	assert_int_equal(f->clears, 0);
	fake_free(f);
}

static void
an_invalid_mutation_result_is_uncertain(void **state)
{
	struct fake *f = worker();

	(void)state;
	write_result(f);
	f->result.bytes_written = 4;
	fake_assign(f, "a1", 30000, WRITE_REQUEST);
	assert_int_equal(fake_exit_status(f), 1);
	assert_int_equal(fake_count(f, "/settle"), 0);
	fake_free(f);
}

static void
a_clean_failure_is_rejected_and_cleared(void **state)
{
	struct fake *f = worker();

	(void)state;
	f->behaviour = FE_ERROR;
	f->error = EC_EDIT_CONFLICT;
	f->certainty = NOT_COMMITTED;
	fake_assign(f, "a1", 30000, WRITE_REQUEST);
	fake_wait(f, is_cleared, "cleared marker");
	assert_non_null(strstr(fake_body(f, "/settle"),
	    "\"status\":\"rejected\",\"errorCode\":\"EDIT_CONFLICT\","
	    "\"error\":\"as the test said\"}"));
	stop_cleanly(f);
}

static void
an_unarmed_marker_stops_the_worker(void **state)
{
	struct fake *f = worker();

	(void)state;
	f->arm_error = "disk full";
	fake_assign(f, "a1", 30000, WRITE_REQUEST);
	assert_int_equal(fake_exit_status(f), 1);
	assert_int_equal(f->executed, 0);
	assert_int_equal(fake_count(f, "/settle"), 0);
	fake_free(f);
}

static void
a_cancelled_command_is_a_clean_rejection(void **state)
{
	struct fake *f = worker();

	(void)state;
	f->behaviour = FE_HOLD;
	f->cancelled = 1;
	fake_assign(f, "a1", 30000, COMMAND_REQUEST);
	fake_wait(f, is_cleared, "cleared marker");
	assert_int_equal(f->cancels, 1);
	assert_non_null(
	    strstr(fake_body(f, "/settle"), "\"EXECUTION_ABORTED\""));
	stop_cleanly(f);
}

static void
a_write_made_in_spite_of_cancellation_quarantines(void **state)
{
	struct fake *f = worker();

	(void)state;
	write_result(f);
	f->behaviour = FE_LATE;
	f->cancelled = 1;
	fake_assign(f, "a1", 30000, WRITE_REQUEST);
	assert_int_equal(fake_exit_status(f), 1);
	assert_int_equal(fake_count(f, "/settle"), 0);
	fake_free(f);
}

static void
the_deadline_cancels_a_command(void **state)
{
	struct fake *f = worker();

	(void)state;
	f->behaviour = FE_HOLD;
	fake_assign(f, "a1", 300, COMMAND_REQUEST);
	fake_wait(f, is_cleared, "cleared marker");
	assert_int_equal(f->cancels, 1);
	stop_cleanly(f);
}

static void
a_stop_during_a_command_settles_and_clears(void **state)
{
	struct fake *f = worker();

	(void)state;
	f->behaviour = FE_HOLD;
	fake_assign(f, "a1", 30000, COMMAND_REQUEST);
	fake_wait(f, is_executing, "execution");
	fake_stop(f);
	assert_int_equal(fake_exit_status(f), 0);
	assert_int_equal(fake_count(f, "/settle"), 1);
	assert_int_equal(f->clears, 1);
	fake_free(f);
}

static void
a_stop_during_a_read_settles_nothing(void **state)
{
	struct fake *f = worker();

	(void)state;
	f->behaviour = FE_HOLD;
	fake_assign(f, "a1", 30000, READ_REQUEST);
	fake_wait(f, is_executing, "execution");
	fake_stop(f);
	assert_int_equal(fake_exit_status(f), 0);
	assert_int_equal(fake_count(f, "/settle"), 0);
	fake_free(f);
}

static int
has_three_beats(struct fake *f)
{
	return fake_count(f, "/register") >= 5;
}

static int
beats_after_faults(struct fake *f)
{
	return TAILQ_EMPTY(&f->faults) && f->registered >= 2;
}

static void
the_heartbeat_goes_on_and_survives_failures(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	f->ttl = 2000;
	f->behaviour = FE_HOLD;
	fake_start(f);
	fake_wait(f, is_leasing, "lease");
	fake_assign(f, "a1", 30000, COMMAND_REQUEST);
	fake_wait(f, has_three_beats, "heartbeats");
	fake_fault(f, "/register", 502, "<html>", 2);
	fake_wait(f, beats_after_faults, "heartbeats after failures");
	assert_int_equal(f->cancels, 0);
	assert_int_equal(f->reconnecting, 1);
	f->cancelled = 1;
	fake_wait(f, is_cleared, "cleared marker");
	stop_cleanly(f);
}

static int
has_two_beats(struct fake *f)
{
	return fake_count(f, "/register") >= 4; /* two rounds at the start */
}

/* One request may take long, but not all of a registration's life. */
static void
a_heartbeat_that_hangs_leaves_time_for_another(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	f->ttl = 3000;
	f->behaviour = FE_HOLD;
	fake_start(f);
	fake_wait(f, is_leasing, "lease");
	fake_fault(f, "/register", -1, NULL, 1);
	fake_assign(f, "a1", 30000, COMMAND_REQUEST);
	fake_wait(f, has_two_beats, "another heartbeat");
	assert_int_equal(f->cancels, 0);
	f->cancelled = 1;
	fake_wait(f, is_cleared, "cleared marker");
	stop_cleanly(f);
}

/* Nothing has begun: when it is handed out again it is taken. */
static void
a_refused_acknowledgement_is_no_end(void **state)
{
	struct fake *f = worker();

	(void)state;
	read_result(f, "x");
	fake_fault(f, "/ack", 404, "{}", 1);
	fake_assign(f, "a1", 30000, READ_REQUEST);
	fake_wait(f, is_leasing, "another lease");
	assert_int_equal(f->executed, 0);
	assert_int_equal(fake_count(f, "/settle"), 0);
	fake_assign(f, "a1", 30000, READ_REQUEST);
	fake_wait(f, is_settled, "settlement");
	assert_int_equal(f->executed, 1);
	stop_cleanly(f);
}

static void
a_fenced_worker_ends(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_fault(f, "/register", 409, "{\"code\":\"WORKER_FENCED\"}", 1);
	fake_start(f);
	assert_int_equal(fake_exit_status(f), 76);
	assert_non_null(strstr(f->end_text, "WORKER_FENCED"));
	fake_free(f);
}

static void
odd_answers_are_retried(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_fault(f, "/register", 200, "<html>welcome</html>", 1);
	fake_start(f);
	fake_wait(f, is_leasing, "lease");
	assert_true(f->reconnecting >= 1);
	stop_cleanly(f);
}

static int
is_refreshed(struct fake *f)
{
	return f->stores > 0 && f->lease != NULL;
}

static void
the_credential_is_renewed_before_use(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);
	struct fake_request *r;

	(void)state;
	f->config.expires = time_wall_ms() + 30000;
	fake_start(f);
	fake_wait(f, is_refreshed, "refresh");
	assert_int_equal(f->stores, 1);
	r = TAILQ_FIRST(&f->requests);
	assert_non_null(strstr(r->path, "/workers/lab%3Avm/credentials/"));
	assert_string_equal(
	    r->authorization, "Bridge first_credential_0123456789abcdefghij");
	r = TAILQ_LAST(&f->requests, fake_requests);
	assert_string_equal(
	    r->authorization, "Bridge second_credential_0123456789abcdefgh");
	stop_cleanly(f);
}

static void
sandbox_work_is_rejected_unrun(void **state)
{
	struct fake *f = worker();

	(void)state;
	fake_assign_raw(f,
	    strdup("{\"assignmentId\":\"s1\",\"incarnationId\":"
		   "\"AAECAwQFBgcICQoLDA0ODxAR\",\"generation\":1,"
		   "\"leaseToken\":\"t\",\"remainingMs\":5000,"
		   "\"expiresAt\":\"x\",\"request\":{\"body\":{}}}"));
	fake_wait(f, is_settled, "settlement");
	assert_non_null(strstr(fake_body(f, "/settle"),
	    "\"error\":\"this worker has no sandbox runtime\""));
	assert_int_equal(f->executed, 0);
	stop_cleanly(f);
}

static int
leases_again(struct fake *f)
{
	return f->lease != NULL && fake_count(f, "/lease") >= 3;
}

static void
a_refused_read_is_not_run_twice(void **state)
{
	struct fake *f = worker();

	(void)state;
	read_result(f, "x");
	fake_fault(f, "/settle", 400, "{}", 1);
	fake_assign(f, "a1", 30000, READ_REQUEST);
	fake_wait(f, is_settled, "settlement");
	fake_assign(f, "a1", 30000, READ_REQUEST);
	fake_wait(f, leases_again, "leases");
	assert_int_equal(f->executed, 1);
	assert_int_equal(fake_count(f, "/ack"), 1);
	stop_cleanly(f);
}

static void
a_large_command_output_arrives(void **state)
{
	struct fake *f = worker();
	char *out;
	size_t n = 262144;

	(void)state;
	out = malloc(n);
	memset(out, 0x1b, n);
	text_set(&f->result.out, out, n);
	free(out);
	fake_assign(f, "a1", 30000, COMMAND_REQUEST);
	fake_wait(f, is_cleared, "cleared marker");
	assert_true(strlen(fake_body(f, "/settle")) > 6 * n);
	stop_cleanly(f);
}

static void
a_static_token_needs_no_proof(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	f->config.auth = AUTH_STATIC;
	fake_start(f);
	fake_wait(f, is_leasing, "lease");
	assert_string_equal(TAILQ_FIRST(&f->requests)->authorization,
	    "Bearer first_credential_0123456789abcdefghij");
	assert_int_equal(f->proofs, 0);
	stop_cleanly(f);
}

/* Names are resolved by a thread, under the restrictions. */
static void
a_host_name_is_resolved(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	free(f->config.base_url);
	f->config.base_url = xasprintf("http://localhost:%u/v1", f->port);
	fake_start(f);
	fake_wait(f, is_leasing, "lease");
	stop_cleanly(f);
}

static int
is_acknowledging(struct fake *f)
{
	return fake_count(f, "/ack") > 0;
}

static void
a_stop_during_the_acknowledgement_rejects(void **state)
{
	struct fake *f = worker();

	(void)state;
	fake_fault(f, "/ack", -1, NULL, 1);
	fake_assign(f, "a1", 30000, WRITE_REQUEST);
	fake_wait(f, is_acknowledging, "acknowledgement");
	fake_stop(f);
	assert_int_equal(fake_exit_status(f), 0);
	assert_int_equal(f->executed, 0);
	assert_int_equal(fake_count(f, "/settle"), 1);
	fake_free(f);
}

static int
two_reconnects(struct fake *f)
{
	return fake_count(f, "/register") >= 2 && f->reconnecting > 0;
}

/* decision "clock and proofs": a refused proof and a Date far away */
static void
a_wrong_clock_is_not_the_end(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	f->date = "Sun, 06 Nov 2033 08:49:37 GMT";
	fake_fault(f, "/register", 401, "{\"code\":\"PROOF_INVALID\"}", 2);
	fake_start(f);
	fake_wait(f, two_reconnects, "second attempt");
	fake_wait(f, is_leasing, "lease");
	stop_cleanly(f);
}

static void
a_refused_proof_with_a_right_clock_ends(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_fault(f, "/register", 401, "{\"code\":\"PROOF_INVALID\"}", 2);
	fake_start(f);
	assert_int_equal(fake_exit_status(f), 1);
	assert_int_equal(fake_count(f, "/register"), 1);
	fake_free(f);
}

static void
a_bad_base_url_fails_the_start(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	free(f->config.base_url);
	f->config.base_url = strdup("http://user:secret@127.0.0.1/v1");
	fake_start(f);
	fake_wait(f, is_ended, "failure");
	assert_true(f->failed);
	assert_null(strstr(f->end_text, "secret"));
	fake_free(f);
}

#define TEST(name) cmocka_unit_test(name)

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(pairs),
		TEST(pairing_refused_is_not_repeated),
		TEST(registers_in_two_rounds),
		TEST(settles_a_read),
		TEST(clears_the_marker_after_acceptance_only),
		TEST(a_lost_settlement_answer_is_repeated_with_a_new_proof),
		TEST(a_post_is_never_repeated_by_the_library),
		TEST(a_refused_mutation_settlement_quarantines),
		TEST(an_uncertain_mutation_is_not_settled),
		TEST(an_invalid_mutation_result_is_uncertain),
		TEST(a_clean_failure_is_rejected_and_cleared),
		TEST(an_unarmed_marker_stops_the_worker),
		TEST(a_cancelled_command_is_a_clean_rejection),
		TEST(a_write_made_in_spite_of_cancellation_quarantines),
		TEST(the_deadline_cancels_a_command),
		TEST(a_stop_during_a_command_settles_and_clears),
		TEST(a_stop_during_a_read_settles_nothing),
		TEST(the_heartbeat_goes_on_and_survives_failures),
		TEST(a_heartbeat_that_hangs_leaves_time_for_another),
		TEST(a_refused_acknowledgement_is_no_end),
		TEST(a_fenced_worker_ends),
		TEST(odd_answers_are_retried),
		TEST(the_credential_is_renewed_before_use),
		TEST(sandbox_work_is_rejected_unrun),
		TEST(a_refused_read_is_not_run_twice),
		TEST(a_large_command_output_arrives),
		TEST(a_static_token_needs_no_proof),
		TEST(a_bad_base_url_fails_the_start),
		TEST(a_host_name_is_resolved),
		TEST(a_stop_during_the_acknowledgement_rejects),
		TEST(a_wrong_clock_is_not_the_end),
		TEST(a_refused_proof_with_a_right_clock_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
