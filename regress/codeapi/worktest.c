/*
 * The rows of chapter 22 about leases, settlements, admission, sandbox work
 * and the switches for faults, beyond what one life shows.
 */
#include "config.h"

#include <sys/socket.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include "client.h"
#include "tap.h"

#define RUN(root)                                                   \
	"{\"protocolVersion\":1,\"operation\":\"execute_command\"," \
	"\"workspaceId\":\"" root "\",\"command\":\"true\"}"
#define READ                                                  \
	"{\"protocolVersion\":1,\"operation\":\"read_file\"," \
	"\"workspaceId\":\"primary\",\"path\":\"a\"}"
#define RAN                                                               \
	"\"result\":{\"protocolVersion\":1,\"operation\":"                \
	"\"execute_command\",\"workspaceId\":\"primary\",\"exitCode\":0," \
	"\"stdout\":\"\",\"stderr\":\"\",\"truncated\":false,"            \
	"\"timedOut\":false}"
#define ENTRIES 32

static struct child server;
static struct client worker;

static int
control(const char *route, const char *body)
{
	char path[64];

	snprintf(path, sizeof(path), "/control/%s", route);
	return http_status(server.port, "POST", path, NULL, body);
}

static void
expect(int status, const char *code, int wanted, const char *wanted_code,
    const char *name)
{
	tap_number(status, wanted, "%s", name);
	tap_same(code, wanted_code, "%s: code", name);
}

static void
expect_caller(int fd, int status, const char *code, const char *name)
{
	struct answer a;
	const char *got;

	http_receive(fd, &a);
	got = answer_text(&a, "code");
	expect(a.status, got == NULL ? "" : got, status, code, name);
	answer_free(&a);
}

static void
take(struct job *j, const char *name)
{
	client_lease(&worker, -1, 5000, j);
	tap_ok(*j->id != '\0', "%s: leased", name);
	tap_number(client_ack(&worker, j, NULL), 200, "%s: ack", name);
}

/* Every row of the settlement's field rules and decisions. */
static void
test_settlement(void)
{
	struct job j, bad;
	char code[64], *text;
	int caller;

	caller = caller_send(server.port, RUN("primary"));
	take(&j, "settlement");
	tap_number(j.slot, -1, "no slot in serial work");
	bad = j;
	snprintf(bad.token, sizeof(bad.token), "short");
	expect(client_settle(&worker, &bad, "fulfilled", RAN, code), code, 400,
	    "", "a short token");
	memset(bad.token, 'x', 43);
	bad.token[43] = '\0';
	expect(client_settle(&worker, &bad, "fulfilled", RAN, code), code, 409,
	    "ASSIGNMENT_FENCED", "a wrong token");
	expect(client_ack(&worker, &bad, code), code, 409, "ASSIGNMENT_FENCED",
	    "an ack with a wrong token");
	bad = j;
	bad.generation++;
	expect(client_settle(&worker, &bad, "fulfilled", RAN, code), code, 409,
	    "ASSIGNMENT_FENCED", "a wrong generation");
	snprintf(bad.id, sizeof(bad.id), "unknown");
	expect(client_settle(&worker, &bad, "fulfilled", RAN, code), code, 404,
	    "ASSIGNMENT_NOT_FOUND", "an unknown assignment");
	expect(client_settle(&worker, &j, "fulfilled", "\"result\":null", code),
	    code, 400, "", "a null result");
	expect(client_settle(&worker, &j, "rejected",
		   "\"error\":\"x\",\"errorCode\":\"NOT_FOUND\"", code),
	    code, 400, "", "an unknown errorCode");
	expect(client_settle(&worker, &j, "rejected",
		   "\"error\":\"x\",\"errorCode\":null", code),
	    code, 400, "", "a null errorCode");
	text = malloc(4200);
	memset(text, 'e', 4199);
	memcpy(text, "\"error\":\"", 9);
	snprintf(text + 9 + 4097, 2, "\"");
	expect(client_settle(&worker, &j, "rejected", text, code), code, 400,
	    "", "a long error");
	free(text);
	expect(client_receipt(&worker, &j, "workspace-cleanup", "x", code),
	    code, 409, "ASSIGNMENT_FENCED", "no receipts for serial work");
	expect(client_settle(&worker, &j, "rejected",
		   "\"error\":\"no\",\"errorCode\":\"EDIT_CONFLICT\"", code),
	    code, 200, "", "a rejection");
	expect_caller(caller, 409, "EDIT_CONFLICT", "the rejection's code");
	job_free(&j);
	caller = caller_send(server.port, RUN("primary"));
	take(&j, "invalid result");
	expect(client_settle(&worker, &j, "fulfilled", "\"result\":{}", code),
	    code, 200, "", "an invalid result is taken");
	expect_caller(caller, 502, "RESULT_INVALID", "but not passed on");
	job_free(&j);
}

/* A serial caller that goes away takes the record with it. */
static void
test_serial_disconnect(void)
{
	struct job j;
	char code[64];
	int caller, tries;

	caller = caller_send(server.port, RUN("primary"));
	take(&j, "serial disconnect");
	close(caller);
	for (tries = 0; tries < 100 && !client_cancelled(&worker, &j); tries++)
		usleep(10000);
	expect(client_settle(&worker, &j, "rejected", "\"error\":\"x\"", code),
	    code, 404, "ASSIGNMENT_NOT_FOUND",
	    "a serial record is dropped at once");
	job_free(&j);
}

static int64_t
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* Nothing on the way of one request waits for a timer. */
static void
test_latency(void)
{
	struct job j;
	int64_t start, best;
	int caller, lease, i;

	best = 1000000;
	for (i = 0; i < 10; i++) {
		lease = client_lease_send(&worker, -1, 5000);
		control("wait", "{\"event\":\"leasing\"}");
		start = now_us();
		caller = caller_send(server.port, RUN("primary"));
		client_lease_receive(lease, &j);
		client_ack(&worker, &j, NULL);
		client_settle(&worker, &j, "fulfilled", RAN, NULL);
		expect_caller(caller, 200, "", "quick");
		if (now_us() - start < best)
			best = now_us() - start;
		job_free(&j);
	}
	tap_ok(best < 50000, "dispatch to settled in less than 50 ms: %lld us",
	    (long long)best);
}

static void
test_queue(void)
{
	struct job j;
	int callers[ENTRIES + 1], i;

	for (i = 0; i < ENTRIES; i++) {
		callers[i] = caller_send(server.port, RUN("primary"));
		tap_ok(!http_pending(callers[i], 2), "admitted %d", i);
	}
	callers[i] = caller_send(server.port, RUN("primary"));
	expect_caller(callers[i], 429, "WORKER_QUEUE_FULL", "the 33rd");
	for (i = 1; i < ENTRIES; i++)
		close(callers[i]);
	take(&j, "the first of 32");
	client_settle(&worker, &j, "fulfilled", RAN, NULL);
	expect_caller(callers[0], 200, "", "the first of 32");
	tap_number(control("wait", "{\"event\":\"idle\"}"), 200,
	    "those who left are not executed");
	job_free(&j);
}

/* 1 as soon as the server holds no lease request any more. */
static int
no_polls(void)
{
	struct answer a;
	int tries, none;

	for (none = tries = 0; tries < 100 && !none; tries++) {
		http_receive(http_send(server.port, "GET",
				 "/control/state?worker=w", NULL, NULL),
		    &a);
		none = a.status == 200 && strstr(a.body, "\"polls\":[]");
		answer_free(&a);
		usleep(10000);
	}
	return none;
}

static void
test_lease_disconnect(void)
{
	struct job j;
	int lease, caller;

	lease = client_lease_send(&worker, -1, 20000);
	tap_number(control("wait", "{\"event\":\"leasing\"}"), 200, "leasing");
	close(lease);
	tap_ok(no_polls(), "a lease whose connection closed is forgotten");
	caller = caller_send(server.port, RUN("primary"));
	take(&j, "after a lost lease");
	client_settle(&worker, &j, "fulfilled", RAN, NULL);
	expect_caller(caller, 200, "", "after a lost lease");
	job_free(&j);
	tap_number(control("wait", "{\"event\":\"leasing\",\"timeoutMs\":50}"),
	    408, "no lease waits");
}

/* A connection that is kept open, and closed by a restart. */
static void
test_keep_alive(void)
{
	static const char get[] = "GET /v1/health HTTP/1.1\r\nHost: a\r\n\r\n";
	char text[512];
	ssize_t n;
	int fd;

	fd = http_connect(server.port);
	tap_ok(send(fd, get, strlen(get), 0) > 0 && http_pending(fd, 5000) &&
		recv(fd, text, sizeof(text), 0) > 0,
	    "keep-alive: first request");
	tap_ok(send(fd, get, strlen(get), 0) > 0 && http_pending(fd, 5000) &&
		recv(fd, text, sizeof(text), 0) > 0,
	    "keep-alive: second request");
	tap_ok(!http_pending(fd, 100), "keep-alive: stays open");
	control("restart", "{\"memory\":true}");
	n = http_pending(fd, 5000) ? recv(fd, text, sizeof(text), 0) : 1;
	tap_ok(n <= 0, "keep-alive: closed by a restart");
	close(fd);
}

static int
send_sandbox(const char *session, const char *more)
{
	char body[512];

	snprintf(body, sizeof(body),
	    "{\"workerId\":\"w\",\"body\":{\"language\":\"bash\",\"n\":1.5},"
	    "\"headers\":{\"Content-Type\":\"application/json\"}%s%s%s%s}",
	    session == NULL ? "" : ",\"runtimeSessionId\":\"",
	    session == NULL ? "" : session, session == NULL ? "" : "\"", more);
	return http_send(server.port, "POST", "/control/sandbox", NULL, body);
}

static void
test_sandbox(void)
{
	struct job j;
	char code[64];
	int caller;

	caller = send_sandbox(NULL, "");
	take(&j, "sandbox");
	tap_same(j.request,
	    "{\"body\":{\"language\":\"bash\",\"n\":1.5},\"headers\":"
	    "{\"Content-Type\":\"application/json\"}}",
	    "sandbox: request");
	expect_caller(send_sandbox(NULL, ""), 503, "WORKER_BUSY",
	    "sandbox work does not wait");
	client_settle(&worker, &j, "fulfilled", "\"result\":{\"any\":1}", NULL);
	expect_caller(caller, 200, "", "sandbox: result");
	job_free(&j);

	caller = send_sandbox("s-1", "");
	take(&j, "session");
	client_settle(&worker, &j, "rejected", "\"error\":\"x\"", NULL);
	expect_caller(caller, 422, "WORKSPACE_TOOL_REJECTED", "session");
	job_free(&j);
	caller = send_sandbox("s-1", ",\"timeoutMs\":200");
	take(&j, "a rejection leaves no session fence");
	expect_caller(caller, 504, "ASSIGNMENT_EXPIRED", "session: no answer");
	expect_caller(send_sandbox("s-1", ""), 409, "WORKSPACE_QUARANTINED",
	    "session: fenced");
	expect(client_settle(&worker, &j, "fulfilled", "\"result\":{}", code),
	    code, 409, "ASSIGNMENT_EXPIRED", "session: fulfilled too late");
	expect(client_settle(&worker, &j, "rejected", "\"error\":\"x\"", code),
	    code, 200, "", "session: rejected late");
	job_free(&j);
	caller = send_sandbox("s-1", ",\"failFinaliser\":true");
	take(&j, "session: usable again");
	client_settle(&worker, &j, "fulfilled", "\"result\":{}", NULL);
	expect_caller(caller, 502, "RESULT_INVALID", "failed finaliser");
	expect(client_register(&worker, 0, code), code, 409,
	    "WORKER_QUARANTINED", "a quarantined incarnation");
	client_incarnate(&worker);
	tap_number(client_start(&worker, 0), 200, "a new incarnation");
	expect_caller(send_sandbox("s-1", ""), 409, "WORKSPACE_QUARANTINED",
	    "the session stays fenced");
	job_free(&j);
}

/* A rule, what a lease then gives: status, code, and whether it is JSON. */
static const struct {
	const char *rule;
	int status;
	const char *code;
	int json;
} faults[] = {
	{ "\"action\":\"drop-before\"", 0, "", 0 },
	{ "\"action\":\"drop-after\"", 0, "", 0 },
	{ "\"action\":\"reset\"", 0, "", 0 },
	{ "\"action\":\"reset-after\"", 0, "", 0 },
	{ "\"action\":\"status\",\"status\":503,\"code\":\"WORKER_BUSY\"", 503,
	    "WORKER_BUSY", 1 },
	{ "\"action\":\"status\",\"status\":500,\"body\":\"oops\"", 500, "",
	    0 },
	{ "\"action\":\"garbage\"", 200, "", 0 },
	{ "\"action\":\"html\"", 200, "", 0 },
	{ "\"action\":\"empty\"", 200, "", 0 },
	{ "\"action\":\"half-json\"", 200, "", 0 },
	{ "\"action\":\"delay\",\"ms\":50", 200, "", 1 },
	{ "\"action\":\"slow-headers\",\"ms\":1", 200, "", 1 },
	{ "\"action\":\"slow-body\",\"ms\":1", 200, "", 1 },
};

static void
test_faults(void)
{
	struct answer a;
	const char *code;
	char rules[256];
	size_t i;
	int fd;

	for (i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		snprintf(rules, sizeof(rules),
		    "{\"rules\":[{\"route\":\"lease\",\"skip\":1,\"count\":1,"
		    "%s}]}",
		    faults[i].rule);
		tap_number(
		    control("faults", rules), 200, "rule %s", faults[i].rule);
		http_receive(client_lease_send(&worker, -1, 0), &a);
		tap_number(a.status, 200, "skipped");
		answer_free(&a);
		http_receive(client_lease_send(&worker, -1, 0), &a);
		code = answer_text(&a, "code");
		tap_number(
		    a.status, faults[i].status, "status of %s", faults[i].rule);
		tap_same(code == NULL ? "" : code, faults[i].code, "code of %s",
		    faults[i].rule);
		tap_number(a.json != NULL, faults[i].json, "JSON of %s",
		    faults[i].rule);
		answer_free(&a);
		http_receive(client_lease_send(&worker, -1, 0), &a);
		tap_number(a.status, 200, "counted");
		answer_free(&a);
	}
	control(
	    "faults", "{\"rules\":[{\"route\":\"any\",\"action\":\"stall\"}]}");
	fd = client_lease_send(&worker, -1, 0);
	tap_ok(!http_pending(fd, 200), "stall never answers");
	close(fd);
	tap_number(control("faults",
		       "{\"rules\":[{\"route\":\"lease\","
		       "\"action\":\"fly\"}]}"),
	    400, "an unknown action");
	control("faults", "{\"rules\":[]}");
}

/* A lost answer after processing: the work is settled all the same. */
static void
test_drop_after(void)
{
	struct job j;
	struct answer a;
	int caller;

	caller = caller_send(server.port, RUN("primary"));
	take(&j, "drop-after");
	control("faults",
	    "{\"rules\":[{\"route\":\"settle\",\"count\":1,"
	    "\"action\":\"drop-after\"}]}");
	tap_number(client_settle(&worker, &j, "fulfilled", RAN, NULL), 0,
	    "drop-after: no answer");
	expect_caller(caller, 200, "", "drop-after: but settled");
	tap_number(client_settle(&worker, &j, "fulfilled", RAN, NULL), 200,
	    "drop-after: the same bytes again");
	control("faults", "{\"rules\":[]}");
	http_receive(http_send(server.port, "GET", "/control/requests?since=0",
			 NULL, NULL),
	    &a);
	tap_ok(a.json != NULL && strstr(a.body, "\"fault\":\"drop-after\""),
	    "the journal tells of the fault");
	answer_free(&a);
	job_free(&j);
}

static void
test_restart(void)
{
	char code[64];
	int lease, caller;
	struct job j;

	caller = caller_send(server.port, RUN("primary"));
	lease = client_lease_send(&worker, -1, 20000);
	client_lease_receive(lease, &j);
	lease = client_lease_send(&worker, -1, 20000);
	job_free(&j);
	client_lease_receive(lease, &j);
	client_ack(&worker, &j, NULL);
	tap_number(control("restart", "{\"memory\":true}"), 200, "restart");
	expect_caller(caller, 0, "", "restart: the caller is cut off");
	tap_number(client_settle(&worker, &j, "fulfilled", RAN, NULL), 200,
	    "restart with memory: the settlement is taken");
	tap_number(control("restart", "{\"memory\":false}"), 200,
	    "restart without memory");
	expect(client_register(&worker, 0, code), code, 401,
	    "CREDENTIAL_INVALID", "restart without memory: nothing is known");
	job_free(&j);
	client_pair(&worker);
	tap_number(client_start(&worker, 0), 200, "pairing starts anew");
}

static void
test_offline(void)
{
	struct job j;
	char code[64];
	int caller;

	caller = caller_send(server.port, RUN("primary"));
	take(&j, "offline");
	control("fence", "{\"workerId\":\"w\"}");
	expect(client_settle(&worker, &j, "fulfilled", RAN, code), code, 409,
	    "ASSIGNMENT_FENCED", "a fenced worker's settlement");
	tap_number(client_cancelled(&worker, &j), 1,
	    "a fenced worker's work is cancelled");
	job_free(&j);
	tap_number(client_lease(&worker, -1, 0, &j), 409,
	    "a fenced worker's lease, while work is there");
	close(caller);
	job_free(&j);
	control("wait", "{\"event\":\"idle\"}");
	tap_number(client_lease(&worker, -1, 0, &j), 200,
	    "a fenced worker's lease, without work");
	job_free(&j);
	client_incarnate(&worker);
	tap_number(client_start(&worker, 0), 200, "start again");
	control("clock", "{\"offsetMs\":40000}");
	expect_caller(caller_send(server.port, READ), 503, "WORKER_OFFLINE",
	    "readiness has gone after 35 s");
	control("clock", "{\"offsetMs\":0}");
	caller = http_send(server.port, "POST", "/v1/workspace-tools/execute",
	    "X-LibreChat-Code-Worker-ID: w\r\n", READ);
	expect_caller(caller, 403, "", "the header without a claim");
	expect_caller(
	    caller_send(server.port, "{}"), 400, "", "no workspace request");
}

int
main(void)
{
	static const char *const args[] = { "--worker", "w", NULL };

	if (sodium_init() == -1)
		return 1;
	child_start(&server, args);
	client_init(&worker, server.port, "w");
	tap_ok(client_pair(&worker), "pairing");
	tap_number(client_start(&worker, 0), 200, "start");
	test_settlement();
	test_serial_disconnect();
	test_latency();
	test_queue();
	test_lease_disconnect();
	test_keep_alive();
	test_sandbox();
	test_faults();
	test_drop_after();
	test_restart();
	test_offline();
	tap_number(child_stop(&server), 0, "clean end");
	return tap_done();
}
