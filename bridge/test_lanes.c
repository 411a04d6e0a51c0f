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
 * Several lease slots (protocol 11): the built program between a fake
 * monitor, a fake executor and a fake Code API, which fail the test when a
 * lane is polled twice at a time or a root used by two. Everything waits for
 * conditions.
 */

#define READ(root)                                            \
	"{\"protocolVersion\":1,\"operation\":\"read_file\"," \
	"\"workspaceId\":\"" root "\",\"path\":\"f\"}"
#define WRITE(root)                                            \
	"{\"protocolVersion\":1,\"operation\":\"write_file\"," \
	"\"workspaceId\":\"" root "\",\"path\":\"a\",\"content\":\"xyz\"}"
#define COMMAND(root)                                               \
	"{\"protocolVersion\":1,\"operation\":\"execute_command\"," \
	"\"workspaceId\":\"" root "\",\"command\":\"make\","        \
	"\"timeoutMs\":30000}"
#define LONG 60000

static unsigned int wanted; /* what a condition compares with */
static const char *suffix;

static int
all_lease(struct fake *f)
{
	return fake_leasing(f) == wanted;
}

static int
has_requests(struct fake *f)
{
	return fake_count(f, suffix) >= wanted;
}

static int
has_executed(struct fake *f)
{
	return f->executed >= wanted;
}

static void
wait_leasing(struct fake *f, unsigned int n)
{
	wanted = n;
	fake_wait(f, all_lease, "lanes that lease");
}

static void
wait_requests(struct fake *f, const char *path, unsigned int n)
{
	wanted = n;
	suffix = path;
	fake_wait(f, has_requests, path);
}

static void
wait_executed(struct fake *f, unsigned int n)
{
	wanted = n;
	fake_wait(f, has_executed, "execution");
}

/* So many slots and roots, leasing; what runs is held. */
static struct fake *
worker(unsigned int slots, unsigned int roots)
{
	struct fake *f = fake_new(ROLE_WORKER);

	fake_slots(f, slots, roots);
	f->behaviour = FE_HOLD;
	text_set(&f->result.content, "x", 1);
	f->result.start_line = f->result.end_line = 1;
	f->result.created = 1;
	f->result.bytes_written = 3;
	fake_start(f);
	wait_leasing(f, slots + 1);
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
ends(struct fake *f, int status, const char *text)
{
	assert_int_equal(fake_exit_status(f), status);
	assert_non_null(f->end_text);
	if (strstr(f->end_text, text) == NULL)
		fail_msg("it ends with: %s", f->end_text);
	fake_free(f);
}

/* The root answers a quarantine receipt to a read, and nothing is run. */
static void
refuses(struct fake *f, int slot, const char *id, const char *request)
{
	unsigned int executed = f->executed;
	char *path = xasprintf("/%s/quarantine", id);

	fake_assign_slot(f, slot, id, LONG, request);
	wait_requests(f, path, 1);
	free(path);
	path = xasprintf("/%s/settle", id);
	assert_int_equal(fake_count(f, path), 0);
	assert_int_equal(f->executed, executed);
	free(path);
}

/* A read in the root, by the usual way. */
static void
serves(struct fake *f, int slot, const char *id, const char *request)
{
	enum fake_executor before = f->behaviour;
	char *path = xasprintf("/%s/workspace-cleanup", id);

	f->behaviour = FE_ANSWER;
	fake_assign_slot(f, slot, id, LONG, request);
	wait_requests(f, path, 1);
	f->behaviour = before;
	free(path);
	path = xasprintf("/%s/settle", id);
	assert_non_null(strstr(fake_body(f, path), "\"fulfilled\""));
	free(path);
}

/* ---- registration and lanes ---- */

static void
every_slot_has_a_lane_after_ready(void **state)
{
	struct fake *f = worker(3, 2);
	struct fake_request *r;
	unsigned int leases = 0;

	(void)state;
	assert_non_null(strstr(fake_body(f, "/register"),
	    "\"requiresReadyConfirmation\":true,\"workspaceLeaseSlots\":3,"));
	assert_int_equal(fake_count(f, "/register"), 2);
	assert_int_equal(fake_count(f, "/ready"), 1);
	assert_string_equal(fake_body(f, "/workers/lab%3Avm/ready"),
	    "{\"protocolVersion\":1,\"incarnationId\":"
	    "\"AAECAwQFBgcICQoLDA0ODxAR\",\"registrationGeneration\":41}");
	TAILQ_FOREACH (r, &f->requests, entry) {
		if (strstr(r->path, "/ready") != NULL)
			assert_int_equal(leases, 0);
		leases += strstr(r->path, "/lease") != NULL;
	}
	assert_int_equal(leases, 4);
	assert_non_null(f->lease);
	assert_non_null(f->leases[1]);
	assert_non_null(f->leases[3]);
	stop_cleanly(f);
}

static void
a_server_without_slots_is_served_in_series(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_slots(f, 3, 2);
	f->grant = 0;
	f->behaviour = FE_ANSWER;
	text_set(&f->result.content, "x", 1);
	f->result.start_line = f->result.end_line = 1;
	fake_start(f);
	wait_leasing(f, 1);
	assert_string_equal(fake_body(f, "/lease"),
	    "{\"protocolVersion\":1,\"waitMs\":25000,\"incarnationId\":"
	    "\"AAECAwQFBgcICQoLDA0ODxAR\"}");
	fake_assign(f, "a1", LONG, READ("r1"));
	wait_requests(f, "/lease", 2);
	wait_leasing(f, 1);
	assert_int_equal(fake_count(f, "/a1/settle"), 1);
	assert_int_equal(fake_count(f, "/workspace-cleanup"), 0);
	/* Each turn registers, and each registration is confirmed. */
	assert_int_equal(fake_count(f, "/register"), 3);
	assert_int_equal(fake_count(f, "/ready"), 2);
	stop_cleanly(f);
}

static void
a_server_without_generation_is_too_old(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_slots(f, 2, 2);
	f->generation = 0;
	fake_start(f);
	wait_requests(f, "/register", 3);
	assert_int_equal(fake_count(f, "/ready"), 0);
	assert_int_equal(fake_count(f, "/lease"), 0);
	assert_non_null(f->trouble);
	assert_non_null(strstr(f->trouble, "too old for lease slots"));
	f->generation = 3;
	wait_leasing(f, 3);
	stop_cleanly(f);
}

static void
nothing_is_leased_until_readiness_is_confirmed(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_slots(f, 2, 2);
	fake_fault(f, "/ready", 503, "{}", 1);
	fake_fault(f, "/ready", 409, "{\"code\":\"WORKER_OFFLINE\"}", 1);
	fake_start(f);
	wait_requests(f, "/ready", 2);
	assert_int_equal(fake_count(f, "/lease"), 0);
	wait_leasing(f, 3);
	assert_int_equal(fake_count(f, "/ready"), 3);
	stop_cleanly(f);
}

static void
a_fenced_worker_ends_at_readiness(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_slots(f, 2, 2);
	fake_fault(f, "/ready", 409, "{\"code\":\"WORKER_FENCED\"}", 1);
	fake_start(f);
	ends(f, 76, "WORKER_FENCED");
}

static void
more_slots_than_asked_for_are_an_end(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_slots(f, 2, 2);
	f->grant = 3;
	fake_start(f);
	ends(f, 1, "not asked for");
}

static void
a_change_of_capacity_is_followed_when_idle(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_slots(f, 4, 2);
	f->grant = 2;
	f->ttl = 400;
	fake_start(f);
	wait_leasing(f, 3);
	f->grant = 4;
	wait_leasing(f, 5);
	f->grant = 3;
	wait_leasing(f, 4);
	assert_null(f->leases[4]);
	f->grant = 1;
	wait_leasing(f, 1);
	assert_non_null(f->lease);
	stop_cleanly(f);
}

static int
is_in_trouble(struct fake *f)
{
	return f->trouble != NULL;
}

static void
a_change_of_capacity_is_refused_during_work(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_slots(f, 3, 2);
	f->behaviour = FE_HOLD;
	f->ttl = 8000;
	f->result.created = 1;
	f->result.bytes_written = 3;
	fake_start(f);
	wait_leasing(f, 4);
	fake_assign_slot(f, 1, "a1", LONG, WRITE("r0"));
	wait_executed(f, 1);
	f->grant = 2;
	fake_wait(f, is_in_trouble, "refusal");
	assert_non_null(strstr(f->trouble, "while work is in progress"));
	assert_int_equal(f->cancels, 0);
	fake_release(f, 0);
	wait_requests(f, "/a1/workspace-cleanup", 1);
	wait_leasing(f, 3);
	stop_cleanly(f);
}

/* ---- work ---- */

static void
roots_run_at_the_same_time(void **state)
{
	struct fake *f = worker(3, 3);

	(void)state;
	fake_assign_slot(f, 0, "a0", LONG, WRITE("r0"));
	fake_assign_slot(f, 1, "a1", LONG, READ("r1"));
	fake_assign_slot(f, 2, "a2", LONG, WRITE("r2"));
	wait_executed(f, 3);
	/* None of the three is polled while it works. */
	assert_int_equal(fake_leasing(f), 1);
	fake_release(f, 1);
	wait_requests(f, "/a1/workspace-cleanup", 1);
	fake_release(f, 2);
	wait_requests(f, "/a2/workspace-cleanup", 1);
	fake_release(f, 0);
	wait_requests(f, "/a0/workspace-cleanup", 1);
	wait_leasing(f, 4);
	assert_int_equal(fake_count(f, "/settle"), 3);
	assert_int_equal(f->arms, 2);
	assert_int_equal(f->clears, 2);
	stop_cleanly(f);
}

static void
the_receipt_comes_after_the_marker_is_gone(void **state)
{
	struct fake *f = worker(2, 2);

	(void)state;
	f->behaviour = FE_ANSWER;
	fake_assign_slot(f, 1, "a/1", LONG, WRITE("r0"));
	wait_requests(f, "/workspace-cleanup", 1);
	assert_int_equal(f->clears, 1);
	assert_string_equal(fake_body(f, "/a%2F1/workspace-cleanup"),
	    "{\"protocolVersion\":1,\"incarnationId\":"
	    "\"AAECAwQFBgcICQoLDA0ODxAR\",\"generation\":7,"
	    "\"leaseToken\":\"token\",\"status\":\"rejected\","
	    "\"error\":\"local cleanup done\"}");
	stop_cleanly(f);
}

static void
one_root_is_used_by_one_at_a_time(void **state)
{
	struct fake *f = worker(3, 2);

	(void)state;
	fake_assign_slot(f, 0, "a0", LONG, READ("r0"));
	wait_executed(f, 1);
	fake_assign_slot(f, 1, "a1", LONG, WRITE("r0"));
	wait_requests(f, "/a1/ack", 1);
	fake_assign_slot(f, 2, "a2", LONG, READ("r0"));
	wait_requests(f, "/a2/ack", 1);
	assert_int_equal(f->executed, 1);
	fake_release(f, 0);
	wait_executed(f, 2);
	/* The order of arrival. */
	assert_int_equal(f->operation[0], OP_WRITE_FILE);
	fake_release(f, 0);
	wait_executed(f, 3);
	fake_release(f, 0);
	wait_requests(f, "/workspace-cleanup", 3);
	stop_cleanly(f);
}

static void
waiting_for_a_root_ends_with_the_deadline(void **state)
{
	struct fake *f = worker(2, 1);

	(void)state;
	fake_assign_slot(f, 0, "a0", LONG, READ("r0"));
	wait_executed(f, 1);
	fake_assign_slot(f, 1, "a1", 300, WRITE("r0"));
	wait_requests(f, "/a1/workspace-cleanup", 1);
	assert_non_null(strstr(
	    fake_body(f, "/a1/settle"), "\"assignment was not executed\""));
	fake_release(f, 0);
	wait_leasing(f, 3);
	assert_int_equal(f->executed, 1);
	stop_cleanly(f);
}

static void
an_unanswered_acknowledgement_is_rejected_with_receipt(void **state)
{
	struct fake *f = worker(2, 1);

	(void)state;
	fake_fault(f, "/ack", 0, NULL, 1);
	fake_assign_slot(f, 1, "a1", LONG, WRITE("r0"));
	wait_requests(f, "/a1/workspace-cleanup", 1);
	assert_int_equal(fake_count(f, "/ack"), 1);
	assert_int_equal(f->executed, 0);
	assert_non_null(strstr(fake_body(f, "/a1/settle"), "\"rejected\""));
	stop_cleanly(f);
}

/* An assignment with this member, which may be empty. */
static char *
with_slot(const char *member)
{
	return xasprintf("{\"assignmentId\":\"a1\",\"incarnationId\":"
			 "\"AAECAwQFBgcICQoLDA0ODxAR\",\"generation\":1,"
			 "\"leaseToken\":\"t\",\"remainingMs\":5000,"
			 "%s\"expiresAt\":\"x\","
			 "\"executionKind\":\"workspace_tool\",\"request\":%s}",
	    member, READ("r0"));
}

static void
another_slot_in_the_assignment_is_an_error(void **state)
{
	struct fake *f = worker(2, 1);

	(void)state;
	fake_offer(f, 0, with_slot("\"workspaceLeaseSlot\":1,"));
	fake_offer(f, 1, with_slot("\"workspaceLeaseSlot\":1,"));
	fake_offer(f, 2, with_slot(""));
	wait_requests(f, "/lease", 6);
	fake_offer(f, 2, with_slot("\"workspaceLeaseSlot\":null,"));
	wait_requests(f, "/lease", 7);
	assert_int_equal(fake_count(f, "/ack"), 0);
	wait_leasing(f, 3);
	stop_cleanly(f);
}

static void
one_assignment_in_two_lanes_is_an_end(void **state)
{
	struct fake *f = worker(2, 2);

	(void)state;
	fake_assign_slot(f, 0, "a1", LONG, READ("r0"));
	wait_executed(f, 1);
	fake_assign_slot(f, 1, "a1", LONG, READ("r0"));
	ends(f, 1, "another lane");
}

static void
sandbox_work_has_no_receipt(void **state)
{
	struct fake *f = worker(2, 1);

	(void)state;
	fake_assign_raw(f,
	    strdup("{\"assignmentId\":\"s1\",\"incarnationId\":"
		   "\"AAECAwQFBgcICQoLDA0ODxAR\",\"generation\":1,"
		   "\"leaseToken\":\"t\",\"remainingMs\":5000,"
		   "\"expiresAt\":\"x\",\"request\":{\"body\":{}}}"));
	wait_requests(f, "/lease", 4);
	wait_leasing(f, 3);
	assert_int_equal(fake_count(f, "/s1/settle"), 1);
	assert_int_equal(fake_count(f, "/workspace-cleanup"), 0);
	stop_cleanly(f);
}

/* ---- fences ---- */

static void
an_uncertain_mutation_fences_its_root_only(void **state)
{
	struct fake *f = worker(2, 2);

	(void)state;
	f->behaviour = FE_ERROR;
	f->error = EC_COMMAND_UNAVAILABLE;
	f->certainty = UNCERTAIN;
	fake_assign_slot(f, 0, "a0", LONG, COMMAND("r0"));
	wait_requests(f, "/a0/quarantine", 1);
	assert_string_equal(fake_body(f, "/a0/quarantine"),
	    "{\"protocolVersion\":1,\"incarnationId\":"
	    "\"AAECAwQFBgcICQoLDA0ODxAR\",\"generation\":7,"
	    "\"leaseToken\":\"token\",\"status\":\"rejected\","
	    "\"error\":\"the workspace is quarantined on the worker\"}");
	assert_int_equal(fake_count(f, "/settle"), 0);
	assert_int_equal(f->clears, 0);
	wait_leasing(f, 3);
	refuses(f, 1, "a1", READ("r0"));
	serves(f, 0, "a2", WRITE("r1"));
	wait_leasing(f, 3);
	stop_cleanly(f);
}

static void
an_invalid_result_fences_its_root_only(void **state)
{
	struct fake *f = worker(2, 2);

	(void)state;
	f->behaviour = FE_ANSWER;
	f->result.bytes_written = 4;
	fake_assign_slot(f, 0, "a0", LONG, WRITE("r0"));
	wait_requests(f, "/a0/quarantine", 1);
	assert_int_equal(fake_count(f, "/settle"), 0);
	f->result.bytes_written = 3;
	wait_leasing(f, 3);
	refuses(f, 0, "a1", WRITE("r0"));
	serves(f, 1, "a2", WRITE("r1"));
	stop_cleanly(f);
}

static void
a_refused_mutation_settlement_fences_its_root_only(void **state)
{
	struct fake *f = worker(2, 2);

	(void)state;
	f->behaviour = FE_ANSWER;
	fake_fault(f, "/settle", 409, "{\"code\":\"ASSIGNMENT_EXPIRED\"}", 1);
	fake_assign_slot(f, 0, "a0", LONG, WRITE("r0"));
	wait_requests(f, "/a0/quarantine", 1);
	assert_int_equal(fake_count(f, "/settle"), 1);
	assert_int_equal(f->clears, 0);
	wait_leasing(f, 3);
	refuses(f, 0, "a1", READ("r0"));
	serves(f, 1, "a2", READ("r1"));
	stop_cleanly(f);
}

static void
a_marker_that_cannot_be_made_or_removed_fences(void **state)
{
	struct fake *f = worker(2, 3);

	(void)state;
	f->behaviour = FE_ANSWER;
	f->arm_error = "disk full";
	fake_assign_slot(f, 0, "a0", LONG, WRITE("r0"));
	wait_requests(f, "/a0/quarantine", 1);
	assert_int_equal(f->executed, 0);
	f->arm_error = NULL;
	f->clear_error = "read-only file system";
	fake_assign_slot(f, 1, "a1", LONG, WRITE("r1"));
	wait_requests(f, "/a1/quarantine", 1);
	f->clear_error = NULL;
	assert_int_equal(fake_count(f, "/a1/settle"), 1);
	assert_int_equal(fake_count(f, "/workspace-cleanup"), 0);
	wait_leasing(f, 3);
	refuses(f, 0, "a2", READ("r0"));
	refuses(f, 1, "a3", READ("r1"));
	wait_leasing(f, 3);
	serves(f, 0, "a4", WRITE("r2"));
	stop_cleanly(f);
}

static void
a_lost_cleanup_receipt_fences_the_root(void **state)
{
	struct fake *f = worker(2, 2);

	(void)state;
	f->behaviour = FE_ANSWER;
	fake_fault(f, "/workspace-cleanup", 503, "{}", 2);
	fake_assign_slot(f, 0, "a0", LONG, WRITE("r0"));
	wait_requests(f, "/a0/workspace-cleanup", 3);
	wait_leasing(f, 3);
	/* Two lost ones are none. */
	assert_int_equal(fake_count(f, "/quarantine"), 0);
	fake_fault(f, "/workspace-cleanup", 503, "{}", 2);
	fake_fault(f, "/workspace-cleanup", 0, NULL, 1);
	fake_assign_slot(f, 0, "a1", LONG, WRITE("r0"));
	wait_requests(f, "/a1/quarantine", 1);
	assert_int_equal(fake_count(f, "/a1/workspace-cleanup"), 3);
	wait_leasing(f, 3);
	refuses(f, 0, "a2", READ("r0"));
	serves(f, 1, "a3", READ("r1"));
	stop_cleanly(f);
}

static void
a_refused_cleanup_receipt_is_not_repeated(void **state)
{
	struct fake *f = worker(2, 2);

	(void)state;
	f->behaviour = FE_ANSWER;
	fake_fault(f, "/workspace-cleanup", 409,
	    "{\"code\":\"ASSIGNMENT_FENCED\"}", 1);
	fake_assign_slot(f, 0, "a0", LONG, READ("r0"));
	wait_requests(f, "/a0/quarantine", 1);
	assert_int_equal(fake_count(f, "/workspace-cleanup"), 1);
	wait_leasing(f, 3);
	refuses(f, 0, "a1", READ("r0"));
	stop_cleanly(f);
}

static void
an_owed_quarantine_receipt_is_sent_when_handed_out_again(void **state)
{
	struct fake *f = worker(2, 2);

	(void)state;
	f->behaviour = FE_ERROR;
	f->certainty = UNCERTAIN;
	fake_fault(f, "/quarantine", 503, "{}", 5);
	fake_assign_slot(f, 0, "a0", LONG, WRITE("r0"));
	wait_requests(f, "/a0/quarantine", 3);
	fake_assign_slot(f, 0, "a0", LONG, WRITE("r0"));
	wait_requests(f, "/a0/quarantine", 6);
	wait_leasing(f, 3);
	assert_int_equal(fake_count(f, "/a0/ack"), 1);
	assert_int_equal(f->executed, 1);
	serves(f, 0, "a1", READ("r1"));
	stop_cleanly(f);
}

static void
a_terminal_answer_to_a_quarantine_receipt_ends(void **state)
{
	struct fake *f = worker(2, 2);

	(void)state;
	f->behaviour = FE_ERROR;
	f->certainty = UNCERTAIN;
	fake_fault(f, "/quarantine", 401, "{}", 1);
	fake_assign_slot(f, 0, "a0", LONG, WRITE("r0"));
	ends(f, 1, "401");
}

static void
a_refused_read_is_rejected_so_that_its_root_is_free(void **state)
{
	struct fake *f = worker(2, 2);

	(void)state;
	f->behaviour = FE_ANSWER;
	fake_fault(f, "/settle", 409, "{\"code\":\"ASSIGNMENT_EXPIRED\"}", 1);
	fake_assign_slot(f, 0, "a0", LONG, READ("r0"));
	wait_requests(f, "/a0/workspace-cleanup", 1);
	assert_int_equal(fake_count(f, "/a0/settle"), 2);
	assert_non_null(strstr(fake_body(f, "/a0/settle"), "\"rejected\""));
	wait_leasing(f, 3);
	serves(f, 0, "a1", READ("r0"));
	stop_cleanly(f);
}

static int
slot_0_leases(struct fake *f)
{
	return f->leases[1] != NULL;
}

static void
a_read_refused_for_good_holds_up_its_lane_only(void **state)
{
	struct fake *f = worker(2, 2);
	int64_t start;

	(void)state;
	f->behaviour = FE_ANSWER;
	fake_fault(f, "/settle", 404, "{}", 2);
	fake_assign_slot(f, 0, "a0", LONG, READ("r0"));
	wait_requests(f, "/a0/settle", 2);
	serves(f, 1, "a1", READ("r1"));
	assert_int_equal(fake_count(f, "/a0/workspace-cleanup"), 0);
	/* Handed out again it is settled, not run, and not in a hurry. */
	fake_fault(f, "/settle", 404, "{}", 1);
	fake_assign_slot(f, 0, "a0", LONG, READ("r0"));
	wait_requests(f, "/a0/settle", 3);
	start = time_mono_ms();
	fake_wait(f, slot_0_leases, "another lease");
	assert_true(time_mono_ms() - start >= 400);
	fake_assign_slot(f, 0, "a0", LONG, READ("r0"));
	wait_requests(f, "/a0/workspace-cleanup", 1);
	assert_int_equal(fake_count(f, "/a0/settle"), 4);
	assert_int_equal(fake_count(f, "/a0/ack"), 1);
	assert_int_equal(f->executed, 2);
	wait_leasing(f, 3);
	serves(f, 0, "a2", READ("r0"));
	stop_cleanly(f);
}

static void
a_marker_from_before_fences_its_root_only(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_slots(f, 2, 2);
	f->config.workspaces[1].quarantined = 1;
	text_set(&f->result.content, "x", 1);
	f->result.start_line = f->result.end_line = 1;
	fake_start(f);
	wait_leasing(f, 3);
	refuses(f, 0, "a0", READ("r1"));
	serves(f, 1, "a1", READ("r0"));
	stop_cleanly(f);
}

static void
a_marker_from_before_and_one_slot_are_an_end(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_slots(f, 2, 2);
	f->grant = 1;
	f->config.workspaces[1].quarantined = 1;
	fake_start(f);
	ends(f, 78, "clear-workspace-quarantine");
}

/* ---- heartbeat ---- */

static void
there_is_one_heartbeat_for_all(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);
	unsigned int n;
	int64_t start;

	(void)state;
	fake_slots(f, 8, 8);
	f->behaviour = FE_HOLD;
	f->ttl = 4000;
	fake_start(f);
	wait_leasing(f, 9);
	fake_assign_slot(f, 0, "a0", LONG, COMMAND("r0"));
	fake_assign_slot(f, 1, "a1", LONG, COMMAND("r1"));
	fake_assign_slot(f, 2, "a2", LONG, COMMAND("r2"));
	wait_executed(f, 3);
	n = fake_count(f, "/register");
	start = time_mono_ms();
	wait_requests(f, "/register", n + 3);
	/* Two whole intervals at least: no lane beats beside it. */
	assert_true(time_mono_ms() - start >= 2 * 2000 - 50);
	/* Two rounds at the start, and each heartbeat is confirmed. */
	wait_requests(f, "/ready", n + 2);
	stop_cleanly(f);
}

static int
no_fault_is_left(struct fake *f)
{
	return TAILQ_EMPTY(&f->faults);
}

static void
a_failed_heartbeat_stops_nothing(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);
	unsigned int n;

	(void)state;
	fake_slots(f, 2, 2);
	f->behaviour = FE_HOLD;
	f->ttl = 8000;
	f->result.created = 1;
	f->result.bytes_written = 3;
	fake_start(f);
	wait_leasing(f, 3);
	fake_assign_slot(f, 0, "a0", LONG, WRITE("r0"));
	wait_executed(f, 1);
	n = fake_count(f, "/register");
	fake_fault(f, "/register", 502, "<html>", 1);
	fake_wait(f, no_fault_is_left, "failed heartbeat");
	serves(f, 1, "a1", WRITE("r1"));
	wait_requests(f, "/register", n + 2);
	assert_int_equal(f->cancels, 0);
	fake_release(f, 0);
	wait_requests(f, "/a0/workspace-cleanup", 1);
	stop_cleanly(f);
}

static int
two_cancelled(struct fake *f)
{
	return f->cancels == 2;
}

static void
the_end_of_the_registration_cancels_all_work(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_slots(f, 2, 2);
	f->behaviour = FE_HOLD;
	f->ttl = 1000;
	fake_start(f);
	wait_leasing(f, 3);
	fake_assign_slot(f, 0, "a0", LONG, COMMAND("r0"));
	fake_assign_slot(f, 1, "a1", LONG, COMMAND("r1"));
	wait_executed(f, 2);
	fake_fault(f, "/register", 502, "<html>", 6);
	fake_wait(f, two_cancelled, "cancellation");
	fake_wait(f, no_fault_is_left, "end of the faults");
	wait_requests(f, "/workspace-cleanup", 2);
	wait_leasing(f, 3);
	stop_cleanly(f);
}

static void
a_terminal_heartbeat_ends(void **state)
{
	struct fake *f = fake_new(ROLE_WORKER);

	(void)state;
	fake_slots(f, 2, 2);
	f->ttl = 600;
	fake_start(f);
	wait_leasing(f, 3);
	fake_fault(f, "/register", 403, "{}", 1);
	ends(f, 1, "403");
}

/* ---- stop ---- */

static void
a_stop_settles_and_reports_what_runs(void **state)
{
	struct fake *f = worker(4, 4);

	(void)state;
	fake_assign_slot(f, 0, "a0", LONG, COMMAND("r0"));
	fake_assign_slot(f, 1, "a1", LONG, READ("r1"));
	fake_assign_slot(f, 2, "a2", LONG, WRITE("r2"));
	wait_executed(f, 3);
	fake_assign_slot(f, 3, "a3", LONG, WRITE("r2"));
	wait_requests(f, "/a3/ack", 1);
	/* The answer has been seen when this is done. */
	fake_assign_raw(f,
	    strdup("{\"assignmentId\":\"s1\",\"incarnationId\":"
		   "\"AAECAwQFBgcICQoLDA0ODxAR\",\"generation\":1,"
		   "\"leaseToken\":\"t\",\"remainingMs\":50000,"
		   "\"expiresAt\":\"x\",\"request\":{\"body\":{}}}"));
	wait_requests(f, "/s1/settle", 1);
	fake_stop(f);
	assert_int_equal(fake_exit_status(f), 0);
	assert_int_equal(fake_count(f, "/settle"), 5);
	assert_int_equal(fake_count(f, "/workspace-cleanup"), 4);
	assert_non_null(
	    strstr(fake_body(f, "/a0/settle"), "\"EXECUTION_ABORTED\""));
	assert_int_equal(f->executed, 3);
	assert_int_equal(f->arms, 2);
	assert_int_equal(f->clears, 2);
	fake_free(f);
}

static void
a_stop_that_cannot_deliver_a_mutation_says_so(void **state)
{
	struct fake *f = worker(2, 2);

	(void)state;
	fake_assign_slot(f, 0, "a0", LONG, COMMAND("r0"));
	fake_assign_slot(f, 1, "a1", LONG, COMMAND("r1"));
	wait_executed(f, 2);
	fake_fault(f, "/a0/settle", 404, "{}", 1);
	fake_stop(f);
	assert_int_equal(fake_exit_status(f), 1);
	assert_non_null(strstr(f->end_text, "workspace r0"));
	assert_int_equal(fake_count(f, "/a0/quarantine"), 1);
	assert_int_equal(fake_count(f, "/a1/workspace-cleanup"), 1);
	assert_int_equal(f->clears, 1);
	fake_free(f);
}

#define TEST(name) cmocka_unit_test(name)

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(every_slot_has_a_lane_after_ready),
		TEST(a_server_without_slots_is_served_in_series),
		TEST(a_server_without_generation_is_too_old),
		TEST(nothing_is_leased_until_readiness_is_confirmed),
		TEST(a_fenced_worker_ends_at_readiness),
		TEST(more_slots_than_asked_for_are_an_end),
		TEST(a_change_of_capacity_is_followed_when_idle),
		TEST(a_change_of_capacity_is_refused_during_work),
		TEST(roots_run_at_the_same_time),
		TEST(the_receipt_comes_after_the_marker_is_gone),
		TEST(one_root_is_used_by_one_at_a_time),
		TEST(waiting_for_a_root_ends_with_the_deadline),
		TEST(an_unanswered_acknowledgement_is_rejected_with_receipt),
		TEST(another_slot_in_the_assignment_is_an_error),
		TEST(one_assignment_in_two_lanes_is_an_end),
		TEST(sandbox_work_has_no_receipt),
		TEST(an_uncertain_mutation_fences_its_root_only),
		TEST(an_invalid_result_fences_its_root_only),
		TEST(a_refused_mutation_settlement_fences_its_root_only),
		TEST(a_marker_that_cannot_be_made_or_removed_fences),
		TEST(a_lost_cleanup_receipt_fences_the_root),
		TEST(a_refused_cleanup_receipt_is_not_repeated),
		TEST(an_owed_quarantine_receipt_is_sent_when_handed_out_again),
		TEST(a_terminal_answer_to_a_quarantine_receipt_ends),
		TEST(a_refused_read_is_rejected_so_that_its_root_is_free),
		TEST(a_read_refused_for_good_holds_up_its_lane_only),
		TEST(a_marker_from_before_fences_its_root_only),
		TEST(a_marker_from_before_and_one_slot_are_an_end),
		TEST(there_is_one_heartbeat_for_all),
		TEST(a_failed_heartbeat_stops_nothing),
		TEST(the_end_of_the_registration_cancels_all_work),
		TEST(a_terminal_heartbeat_ends),
		TEST(a_stop_settles_and_reports_what_runs),
		TEST(a_stop_that_cannot_deliver_a_mutation_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
