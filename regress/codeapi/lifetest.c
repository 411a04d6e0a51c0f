/*
 * Drives one whole life of a worker (code-api-server chapter 21) and its
 * variants against the server, with a client of its own.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "client.h"
#include "tap.h"

#define COMMAND                                                     \
	"{\"protocolVersion\":1,\"operation\":\"execute_command\"," \
	"\"workspaceId\":\"second\",\"command\":\"make -j4 test\""
#define READ                                                  \
	"{\"protocolVersion\":1,\"operation\":\"read_file\"," \
	"\"workspaceId\":\"primary\",\"path\":\"a\"}"
#define COMMAND_RESULT                                                   \
	"\"result\":{\"protocolVersion\":1,\"operation\":"               \
	"\"execute_command\",\"workspaceId\":\"second\",\"exitCode\":0," \
	"\"stdout\":\"\\u001b[32mok\\n\",\"stderr\":\"\",\"truncated\":" \
	"false,\"timedOut\":false}"
#define READ_RESULT                                                      \
	"\"result\":{\"protocolVersion\":1,\"operation\":\"read_file\"," \
	"\"workspaceId\":\"primary\",\"path\":\"a\",\"content\":\"\","   \
	"\"startLine\":1,\"endLine\":1,\"truncated\":false}"

static struct child server;
static struct client worker;

static void
expect_caller(int fd, int status, const char *code, const char *name)
{
	struct answer a;

	http_receive(fd, &a);
	tap_number(a.status, status, "%s: caller's status", name);
	tap_same(answer_text(&a, "code"), code, "%s: caller's code", name);
	answer_free(&a);
}

/* Leases on a lane, which must bring work, and acknowledges it. */
static void
take(int slot, struct job *j, const char *name)
{
	client_lease(&worker, slot, 5000, j);
	tap_ok(*j->id != '\0', "%s: the lane brings the work", name);
	tap_number(client_ack(&worker, j, NULL), 200, "%s: ack", name);
}

/* Steps 1 to 5. */
static void
begin(void)
{
	char code[64];

	tap_ok(client_pair(&worker), "pairing and redemption");
	tap_number(client_register(&worker, 2, NULL), 200, "registration");
	expect_caller(caller_send(server.port, COMMAND "}"), 503,
	    "WORKER_OFFLINE", "before ready");
	tap_number(client_ready(&worker, 2, code), 409, "wrong generation");
	tap_same(code, "WORKER_FENCED", "wrong generation: code");
	tap_number(client_ready(&worker, 1, NULL), 200, "readiness");
}

/* Steps 6 to 9. */
static void
normal(void)
{
	struct job j, other, third;
	int lane, caller, second, primary;

	lane = client_lease_send(&worker, 0, 5000);
	tap_ok(
	    !http_pending(lane, 200), "a lease waits while there is no work");
	caller = caller_send(server.port, COMMAND "}");
	tap_number(client_lease_receive(lane, &j), 200, "lane 0 is answered");
	tap_number(j.slot, 0, "the lowest free slot");
	tap_number((long long)strlen(j.id), 24, "length of an assignment id");
	tap_number((long long)strlen(j.token), 43, "length of a lease token");
	tap_ok(j.remaining > 34000 && j.remaining <= 35000, "remaining time");
	tap_same(j.request, COMMAND ",\"timeoutMs\":30000}",
	    "timeoutMs is filled in");
	tap_number(client_ack(&worker, &j, NULL), 200, "ack");
	tap_number(client_ack(&worker, &j, NULL), 200, "ack again");
	tap_number(client_cancelled(&worker, &j), 0, "not cancelled");
	tap_number(
	    client_settle(&worker, &j, "fulfilled", COMMAND_RESULT, NULL), 200,
	    "settlement");
	expect_caller(caller, 200, NULL, "fulfilled");
	tap_number(
	    client_cancelled(&worker, &j), 1, "cancelled after completion");

	second = caller_send(server.port, COMMAND "}");
	primary = caller_send(server.port, READ);
	take(1, &other, "other root");
	tap_number(client_lease(&worker, 0, 0, &third), 200,
	    "the root waits for the cleanup");
	tap_same(third.id, "", "nothing on lane 0 before the cleanup");
	tap_number(
	    client_receipt(&worker, &j, "workspace-cleanup", "clean", NULL),
	    200, "workspace-cleanup");
	tap_number(
	    client_receipt(&worker, &j, "workspace-cleanup", "clean", NULL),
	    200, "workspace-cleanup again");
	take(0, &third, "the waiting request");
	tap_ok(third.generation > j.generation, "a higher generation");
	tap_number(client_receipt(&worker, &j, "quarantine", "late", NULL), 200,
	    "a late quarantine has no effect");
	client_settle(&worker, &third, "fulfilled", COMMAND_RESULT, NULL);
	expect_caller(second, 200, NULL, "second command");
	client_receipt(&worker, &third, "workspace-cleanup", "clean", NULL);
	client_settle(&worker, &other, "fulfilled", READ_RESULT, NULL);
	expect_caller(primary, 200, NULL, "read");
	client_receipt(&worker, &other, "workspace-cleanup", "clean", NULL);
	job_free(&j);
	job_free(&other);
	job_free(&third);
}

/* Variants B and C. */
static void
lost_answers(void)
{
	struct job j, again;
	char code[64];
	int caller;

	caller = caller_send(server.port, COMMAND "}");
	client_lease(&worker, 0, 5000, &j);
	client_lease(&worker, 0, 5000, &again);
	tap_same(again.id, j.id, "B: the same assignment again");
	tap_ok(again.remaining <= j.remaining, "B: with less time");
	tap_number(client_ack(&worker, &j, NULL), 200, "B: ack");
	job_free(&again);
	client_lease(&worker, 0, 5000, &again);
	tap_same(again.id, j.id, "B: and again after ack");
	client_settle(&worker, &j, "fulfilled", COMMAND_RESULT, NULL);
	tap_number(
	    client_settle(&worker, &j, "fulfilled", COMMAND_RESULT, NULL), 200,
	    "C: the same bytes again");
	tap_number(
	    client_settle(&worker, &j, "rejected", "\"error\":\"x\"", code),
	    409, "C: another settlement");
	tap_same(code, "ASSIGNMENT_FENCED", "C: another settlement: code");
	tap_number(client_ack(&worker, &j, code), 409, "ack after settlement");
	expect_caller(caller, 200, NULL, "C");
	client_receipt(&worker, &j, "workspace-cleanup", "clean", NULL);
	job_free(&j);
	job_free(&again);
}

/* Variant E. */
static void
disconnect(void)
{
	struct job j;
	char code[64];
	int caller, tries;

	caller = caller_send(server.port, COMMAND "}");
	take(0, &j, "E");
	close(caller);
	for (tries = 0; tries < 100 && !client_cancelled(&worker, &j); tries++)
		usleep(10000);
	tap_number(client_cancelled(&worker, &j), 1, "E: cancelled");
	tap_number(
	    client_settle(&worker, &j, "fulfilled", COMMAND_RESULT, code), 409,
	    "E: fulfilled is too late");
	tap_same(code, "ASSIGNMENT_EXPIRED", "E: fulfilled: code");
	tap_number(client_settle(
		       &worker, &j, "rejected", "\"error\":\"stopped\"", NULL),
	    200, "E: rejected is not");
	tap_number(
	    client_receipt(&worker, &j, "workspace-cleanup", "clean", NULL),
	    200, "E: workspace-cleanup");
	job_free(&j);
	caller = caller_send(server.port, COMMAND "}");
	take(0, &j, "E: the root is usable");
	client_settle(&worker, &j, "fulfilled", COMMAND_RESULT, NULL);
	expect_caller(caller, 200, NULL, "E: the root is usable");
	client_receipt(&worker, &j, "workspace-cleanup", "clean", NULL);
	job_free(&j);
}

static int
reset(const char *name, char *code)
{
	char body[512];

	snprintf(body, sizeof(body),
	    "{\"protocolVersion\":1,\"incarnationId\":\"%s\","
	    "\"runtimeSessionId\":\"%s\",\"confirmDiscarded\":true}",
	    worker.incarnation, name);
	return client_status(
	    &worker, client_path(&worker, "workspaces/reset"), body, code);
}

/* Variant A. */
static void
quarantine(void)
{
	struct job j;
	struct answer a;
	char code[64], old[32];
	int caller;

	caller = caller_send(server.port, COMMAND "}");
	take(0, &j, "A");
	tap_number(reset("native-workspace:second", code), 503,
	    "A: no reset during work");
	tap_same(code, "WORKER_BUSY", "A: no reset during work: code");
	tap_number(client_receipt(&worker, &j, "quarantine", "uncertain", NULL),
	    200, "A: quarantine");
	http_receive(caller, &a);
	tap_number(a.status, 422, "A: caller's status");
	tap_same(answer_text(&a, "error"), "uncertain", "A: caller's text");
	tap_same(answer_text(&a, "code"), "WORKSPACE_TOOL_REJECTED",
	    "A: caller's code");
	answer_free(&a);
	tap_number(client_receipt(&worker, &j, "quarantine", "uncertain", NULL),
	    200, "A: quarantine again");
	tap_number(
	    client_receipt(&worker, &j, "workspace-cleanup", "clean", code),
	    409, "A: no cleanup after quarantine");
	expect_caller(caller_send(server.port, COMMAND "}"), 409,
	    "WORKSPACE_QUARANTINED", "A: the root is fenced");

	memcpy(old, worker.incarnation, sizeof(old));
	client_incarnate(&worker);
	tap_number(client_register(&worker, 0, NULL), 200,
	    "A: maintenance registration");
	tap_number(reset("native-workspace:second", NULL), 200, "A: reset");
	tap_number(client_receipt(&worker, &j, "quarantine", "x", code), 409,
	    "A: no receipt after the reset");
	client_incarnate(&worker);
	tap_number(client_register(&worker, 2, NULL), 200, "A: normal start");
	tap_number(client_ready(&worker, 3, NULL), 200,
	    "A: each start raised the generation");
	job_free(&j);
	caller = caller_send(server.port, COMMAND "}");
	take(0, &j, "A: after the reset");
	client_settle(&worker, &j, "fulfilled", COMMAND_RESULT, NULL);
	expect_caller(caller, 200, NULL, "A: after the reset");
	client_receipt(&worker, &j, "workspace-cleanup", "clean", NULL);
	job_free(&j);
	memcpy(worker.incarnation, old, sizeof(old));
	tap_number(client_register(&worker, 2, code), 409,
	    "A: a replaced incarnation never comes back");
	tap_same(code, "WORKER_FENCED", "A: a replaced incarnation: code");
}

/* A rejection is only half of what ends a fence; a reset ends receipts. */
static void
halves(void)
{
	struct job j, next;
	char code[64];
	int caller;

	client_incarnate(&worker);
	tap_number(client_start(&worker, 2), 200, "halves: start");
	caller = caller_send(server.port, COMMAND "}");
	take(0, &j, "halves");
	tap_number(client_settle(
		       &worker, &j, "rejected", "\"error\":\"not run\"", NULL),
	    200, "halves: rejected");
	expect_caller(caller, 422, "WORKSPACE_TOOL_REJECTED", "halves");
	caller = caller_send(server.port, COMMAND "}");
	client_lease(&worker, 0, 300, &next);
	tap_same(next.id, "", "halves: the root is taken until the cleanup");
	client_receipt(&worker, &j, "workspace-cleanup", "clean", NULL);
	take(0, &next, "halves: after the cleanup");
	job_free(&j);

	tap_number(
	    client_receipt(&worker, &next, "workspace-cleanup", "clean", NULL),
	    200, "halves: cleanup before the settlement");
	tap_number(
	    client_settle(&worker, &next, "fulfilled", COMMAND_RESULT, NULL),
	    200, "halves: then the settlement");
	expect_caller(caller, 200, NULL, "halves: cleanup first");
	job_free(&next);

	caller = caller_send(server.port, COMMAND "}");
	take(0, &j, "halves: the fence has gone");
	tap_number(client_receipt(&worker, &j, "quarantine", "unsure", NULL),
	    200, "halves: quarantine");
	expect_caller(
	    caller, 422, "WORKSPACE_TOOL_REJECTED", "halves: quarantine");
	tap_number(reset("native-workspace:second", NULL), 200,
	    "halves: reset by the same incarnation");
	tap_number(client_receipt(&worker, &j, "quarantine", "unsure", code),
	    409, "halves: no receipt from before a reset");
	tap_same(code, "ASSIGNMENT_FENCED", "halves: such a receipt: code");
	job_free(&j);

	caller = caller_send(server.port, COMMAND "}");
	take(0, &j, "halves: invalid result");
	client_settle(&worker, &j, "fulfilled", "\"result\":{}", NULL);
	expect_caller(caller, 502, "RESULT_INVALID", "halves: invalid result");
	tap_number(
	    client_receipt(&worker, &j, "workspace-cleanup", "clean", NULL),
	    200, "halves: cleanup of an invalid result");
	tap_number(reset("native-workspace:second", code), 503,
	    "halves: an invalid result locks the root");
	tap_number(client_receipt(&worker, &j, "quarantine", "unsure", NULL),
	    200, "halves: quarantine frees the slot");
	tap_number(reset("native-workspace:second", NULL), 200,
	    "halves: reset at last");
	job_free(&j);
}

/* Variant D, with short times. */
static void
killed(void)
{
	struct job j;
	char code[64];
	int caller, tries, status;

	http_status(server.port, "POST", "/control/budgets", NULL,
	    "{\"recordGraceMs\":1000,\"commandGraceMs\":100,\"queueMs\":500}");
	client_incarnate(&worker);
	tap_number(client_start(&worker, 2), 200, "D: start");
	caller = caller_send(server.port, COMMAND ",\"timeoutMs\":300}");
	take(0, &j, "D");
	expect_caller(caller, 504, "ASSIGNMENT_EXPIRED", "D: no settlement");
	client_incarnate(&worker);
	tap_number(client_register(&worker, 2, code), 503,
	    "D: a restarted worker is told to wait");
	tap_same(code, "WORKER_BUSY", "D: a restarted worker: code");
	status = 0;
	for (tries = 0; tries < 100 && status != 200; tries++) {
		status = client_start(&worker, 2);
		usleep(100000);
	}
	tap_number(status, 200, "D: until the reservation has expired");
	expect_caller(caller_send(server.port, COMMAND "}"), 409,
	    "WORKSPACE_QUARANTINED", "D: the root is still fenced");
	tap_number(reset("native-workspace:second", NULL), 200, "D: reset");
	job_free(&j);
}

/* What is refused while work is active: other slots, another identity. */
static void
during_work(void)
{
	struct job j;
	char code[64];
	int caller;

	caller = caller_send(server.port, COMMAND "}");
	take(0, &j, "during work");
	tap_number(
	    client_register(&worker, 2, NULL), 200, "during work: heartbeat");
	tap_number(client_register(&worker, 0, code), 503,
	    "during work: another number of slots");
	tap_same(code, "WORKER_BUSY", "during work: another number: code");
	tap_ok(client_pair(&worker), "during work: a new pairing");
	tap_number(
	    client_settle(&worker, &j, "fulfilled", COMMAND_RESULT, code), 409,
	    "during work: a settlement of another identity");
	tap_same(code, "ASSIGNMENT_FENCED", "during work: settlement: code");
	tap_number(client_receipt(&worker, &j, "quarantine", "x", code), 409,
	    "during work: a receipt of another identity");
	close(caller);
	job_free(&j);
}

int
main(void)
{
	static const char *const args[] = { "--worker", "lab-vm-3", "--slots",
		"2", NULL };

	if (sodium_init() == -1)
		return 1;
	child_start(&server, args);
	client_init(&worker, server.port, "lab-vm-3");
	begin();
	normal();
	lost_answers();
	disconnect();
	quarantine();
	halves();
	killed();
	during_work();
	tap_number(child_stop(&server), 0, "SIGTERM ends the server cleanly");
	return tap_done();
}
