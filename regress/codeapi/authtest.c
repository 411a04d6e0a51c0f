/*
 * The server refuses what the real one refuses: transport, authentication,
 * pairing and registration (code-api-server chapters 3 to 7 and the first
 * half of the list in chapter 22).
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "client.h"
#include "tap.h"

static struct child server;

static void
expect(int status, const char *code, int wanted, const char *wanted_code,
    const char *name)
{
	tap_number(status, wanted, "%s", name);
	tap_same(code, wanted_code, "%s: code", name);
}

static int
control(const char *route, const char *body)
{
	char path[64];

	snprintf(path, sizeof(path), "/control/%s", route);
	return http_status(server.port, "POST", path, NULL, body);
}

static void
test_transport(void)
{
	char *big;
	int fd;

	tap_number(http_status(server.port, "GET", "/v1/health", NULL, NULL),
	    200, "health");
	tap_number(http_status(server.port, "POST",
		       "/v1/bridge/pairings/redeem", NULL, "{\"a\":"),
	    400, "malformed JSON");
	tap_number(http_status(server.port, "POST",
		       "/v1/bridge/pairings/redeem", NULL, "7"),
	    400, "a scalar");
	tap_number(http_status(server.port, "POST",
		       "/v1/bridge/workers/register", NULL, "[]"),
	    401, "an array passes the parser");
	tap_number(
	    http_status(server.port, "POST", "/v1/bridge/unknown", NULL, "{}"),
	    401, "an unknown bridge route");
	tap_number(http_status(server.port, "POST",
		       "/v1/bridge/workers/%zz/"
		       "lease",
		       NULL, "{}"),
	    400, "an undecodable escape");
	tap_number(http_status(server.port, "POST",
		       "/V1/Bridge/Workers/w/LEASE/", NULL, "{}"),
	    401, "letter case and a final slash do not matter");
	big = malloc(3001);
	memset(big, ' ', 3000);
	big[0] = '[';
	big[2999] = ']';
	big[3000] = '\0';
	tap_number(http_status(server.port, "POST",
		       "/v1/bridge/pairings/redeem", NULL, big),
	    413, "a body above the limit");
	free(big);
	fd = http_send(server.port, "POST", "/v1/bridge/pairings/redeem",
	    "X-CodeAPI-Expected-Profile: default\r\n", "{}");
	tap_ok(fd != -1 && http_pending(fd, 5000), "another profile");
	close(fd);
}

static void
test_administrator(void)
{
	struct answer a;
	char header[256];

	snprintf(header, sizeof(header), "Authorization: bearer  %s \r\n",
	    server.token);
	tap_number(http_status(server.port, "POST", "/v1/bridge/pairings", NULL,
		       "{\"workerId\":\"w\"}"),
	    401, "no administrator token");
	tap_number(http_status(server.port, "POST", "/v1/bridge/pairings",
		       header, "{\"workerId\":\"other\"}"),
	    400, "a worker that is not configured");
	tap_number(http_status(server.port, "POST", "/v1/bridge/pairings",
		       header, "{\"workerId\":\"w\",\"binding\":null}"),
	    400, "a null binding");
	http_receive(http_send(server.port, "POST", "/v1/bridge/pairings",
			 header, "{\"workerId\":\"w\"}"),
	    &a);
	tap_number(a.status, 200, "a pairing code");
	tap_number((long long)strlen(answer_text(&a, "code")), 32,
	    "length of a pairing code");
	answer_free(&a);
	http_receive(http_send(server.port, "GET",
			 "/v1/bridge/workers/w/status", header, NULL),
	    &a);
	tap_same(a.body,
	    "{\"protocolVersion\":1,\"workerId\":\"w\",\"online\":false,"
	    "\"ready\":false}",
	    "status of a worker that is offline");
	answer_free(&a);
}

static int
redeem(const char *id, const char *code, const char *pem, char *out)
{
	struct answer a;
	char *body;
	const char *text;
	int status;

	body = xasprintf("{\"protocolVersion\":1,\"workerId\":\"%s\","
			 "\"code\":\"%s\",\"publicKey\":%s}",
	    id, code, pem);
	http_receive(http_send(server.port, "POST",
			 "/v1/bridge/pairings/redeem", NULL, body),
	    &a);
	free(body);
	status = a.status;
	text = answer_text(&a, "code");
	snprintf(out, 64, "%s", text == NULL ? "" : text);
	answer_free(&a);
	return status;
}

static void
new_code(char *code, size_t size)
{
	struct answer a;

	http_receive(http_send(server.port, "POST", "/control/pair", NULL,
			 "{\"workerId\":\"w\"}"),
	    &a);
	snprintf(
	    code, size, "%s", a.status == 200 ? answer_text(&a, "code") : "");
	answer_free(&a);
}

static void
test_redeem(struct client *c)
{
	char code[64], old[64], got[64];

	new_code(old, sizeof(old));
	new_code(code, sizeof(code));
	expect(redeem("w", old, client_pem(c), got), got, 401,
	    "PAIRING_INVALID", "a superseded code");
	expect(redeem("w", code, "\"nonsense\"", got), got, 400,
	    "PUBLIC_KEY_INVALID", "a bad key");
	expect(redeem("w", "short", client_pem(c), got), got, 400, "",
	    "a short code");
	expect(redeem("w", code, client_pem(c), got), got, 200, "",
	    "the code survives a bad key");
	expect(redeem("w", code, client_pem(c), got), got, 401,
	    "PAIRING_INVALID", "a used code");
	new_code(code, sizeof(code));
	control("revoke", "{\"workerId\":\"w\"}");
	expect(redeem("w", code, client_pem(c), got), got, 401,
	    "PAIRING_INVALID", "a code from before a revoke");
	control("clock", "{\"offsetMs\":-600001}");
	new_code(code, sizeof(code));
	control("clock", "{\"offsetMs\":0}");
	expect(redeem("w", code, client_pem(c), got), got, 401,
	    "PAIRING_INVALID", "an expired code");
}

#define EMPTY_LEASE                                              \
	"{\"protocolVersion\":1,\"waitMs\":0,\"incarnationId\":" \
	"\"0123456789abcdef\"}"

static int
signed_status(
    struct client *c, const char *body, const char *hashed, char *code)
{
	struct answer a;
	const char *text;
	int status;

	http_receive(
	    client_send_as(c, client_path(c, "lease"), body, hashed), &a);
	status = a.status;
	text = answer_text(&a, "code");
	snprintf(code, 64, "%s", text == NULL ? "" : text);
	answer_free(&a);
	return status;
}

static void
test_proof(struct client *c)
{
	static const struct {
		const char *name;
		const char *sent;
		const char *hashed;
		int status;
	} bodies[] = {
		{ "the form of a serialiser", EMPTY_LEASE, EMPTY_LEASE, 200 },
		{ "white space, hashed as sent",
		    "{\"protocolVersion\":1, \"waitMs\":0,\"incarnationId\":"
		    "\"0123456789abcdef\"}",
		    "{\"protocolVersion\":1, \"waitMs\":0,\"incarnationId\":"
		    "\"0123456789abcdef\"}",
		    401 },
		{ "white space, hashed without",
		    "{\"protocolVersion\":1, \"waitMs\":0,\"incarnationId\":"
		    "\"0123456789abcdef\"}",
		    EMPTY_LEASE, 200 },
		{ "a float, hashed as sent",
		    "{\"protocolVersion\":1,\"waitMs\":0.0,\"incarnationId\":"
		    "\"0123456789abcdef\"}",
		    "{\"protocolVersion\":1,\"waitMs\":0.0,\"incarnationId\":"
		    "\"0123456789abcdef\"}",
		    401 },
		{ "upper-case escape, hashed as sent",
		    "{\"protocolVersion\":1,\"x\":\"\\u001B\"}",
		    "{\"protocolVersion\":1,\"x\":\"\\u001B\"}", 401 },
		{ "lower-case escape",
		    "{\"protocolVersion\":1,\"x\":\"\\u001b\"}",
		    "{\"protocolVersion\":1,\"x\":\"\\u001b\"}", 400 },
		{ "an escaped slash, hashed as sent",
		    "{\"protocolVersion\":1,\"x\":\"\\/\"}",
		    "{\"protocolVersion\":1,\"x\":\"\\/\"}", 401 },
		{ "digits as member names, hashed as sent",
		    "{\"protocolVersion\":1,\"1\":2}",
		    "{\"protocolVersion\":1,\"1\":2}", 401 },
	};
	char code[64];
	size_t i;

	for (i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		tap_number(
		    signed_status(c, bodies[i].sent, bodies[i].hashed, code),
		    bodies[i].status, "%s", bodies[i].name);
	}
	snprintf(c->nonce, sizeof(c->nonce), "once");
	tap_number(signed_status(c, EMPTY_LEASE, EMPTY_LEASE, code), 200,
	    "a nonce once");
	snprintf(c->nonce, sizeof(c->nonce), "once");
	expect(signed_status(c, EMPTY_LEASE, EMPTY_LEASE, code), code, 401,
	    "PROOF_REPLAYED", "a nonce twice");
	snprintf(c->nonce, sizeof(c->nonce), "again");
	signed_status(c, EMPTY_LEASE, "{}", code);
	snprintf(c->nonce, sizeof(c->nonce), "again");
	tap_number(signed_status(c, EMPTY_LEASE, EMPTY_LEASE, code), 200,
	    "a bad signature does not burn its nonce");
	c->skew = 62000;
	expect(signed_status(c, EMPTY_LEASE, EMPTY_LEASE, code), code, 401,
	    "PROOF_INVALID", "a clock 62 s ahead");
	c->skew = -62000;
	expect(signed_status(c, EMPTY_LEASE, EMPTY_LEASE, code), code, 401,
	    "PROOF_INVALID", "a clock 62 s behind");
	c->skew = 58000;
	tap_number(signed_status(c, EMPTY_LEASE, EMPTY_LEASE, code), 200,
	    "a clock 58 s ahead");
	c->skew = 0;
	tap_number(http_status(server.port, "POST", client_path(c, "lease"),
		       NULL, "{}"),
	    401, "no proof at all");
}

static void
test_rotation(struct client *c)
{
	struct answer a;
	char code[64], old[64];

	memcpy(old, c->credential, sizeof(old));
	client_call(c, client_path(c, "credentials/refresh"),
	    "{\"protocolVersion\":1}", &a);
	tap_number(a.status, 200, "refresh");
	tap_ok(answer_text(&a, "credential") != NULL &&
		strcmp(answer_text(&a, "credential"), old) != 0,
	    "refresh gives another credential");
	tap_number(signed_status(c, EMPTY_LEASE, EMPTY_LEASE, code), 200,
	    "the old credential stays valid");
	snprintf(c->credential, sizeof(c->credential), "%s",
	    answer_text(&a, "credential"));
	answer_free(&a);
	tap_number(signed_status(c, EMPTY_LEASE, EMPTY_LEASE, code), 200,
	    "so is the new one");
	client_call(c, client_path(c, "credentials/refresh"),
	    "{\"protocolVersion\":1}", &a);
	tap_number(a.status, 200, "refresh again");
	answer_free(&a);
	tap_number(client_pair(c), 1, "a new pairing");
	memcpy(code, c->credential, sizeof(code));
	memcpy(c->credential, old, sizeof(old));
	memcpy(old, code, sizeof(old));
	expect(signed_status(c, EMPTY_LEASE, EMPTY_LEASE, code), code, 401,
	    "CREDENTIAL_INVALID", "a credential of the previous pairing");
	memcpy(c->credential, old, sizeof(old));
	control("expire-credentials", "{}");
	expect(signed_status(c, EMPTY_LEASE, EMPTY_LEASE, code), code, 401,
	    "CREDENTIAL_INVALID", "an expired credential");
	client_pair(c);
}

static int
register_with(struct client *c, const char *capabilities, char *code)
{
	char *body;
	int status;

	body = xasprintf("{\"protocolVersion\":1,\"workerId\":\"%s\","
			 "\"incarnationId\":\"%s\",\"capabilities\":%s}",
	    c->id, c->incarnation, capabilities);
	status = client_status(c, "/v1/bridge/workers/register", body, code);
	free(body);
	return status;
}

#define CAPS                                                     \
	"{\"statefulWorkspace\":false,\"sandboxProfile\":\"x\"," \
	"\"runtimes\":[]"

static void
test_registration(struct client *c)
{
	struct client foreign;
	char code[64], old[32];

	client_incarnate(c);
	expect(client_ready(c, 1, code), code, 409, "WORKER_OFFLINE",
	    "readiness before registration");
	expect(register_with(c, CAPS "}", code), code, 200, "",
	    "the least registration");
	expect(register_with(c, CAPS ",\"policyDigest\":null}", code), code,
	    400, "", "null is not absent");
	expect(register_with(c, CAPS ",\"workspaceLeaseSlots\":1}", code), code,
	    409, "WORKER_MISMATCH", "slots without confirmation");
	foreign = *c;
	foreign.id = "other";
	expect(register_with(&foreign, CAPS "}", code), code, 401,
	    "CREDENTIAL_INVALID", "another worker's credential");
	memcpy(old, c->incarnation, sizeof(old));
	control("fence", "{\"workerId\":\"w\"}");
	expect(register_with(c, CAPS "}", code), code, 409, "WORKER_FENCED",
	    "a replaced incarnation");
	client_incarnate(c);
	expect(register_with(c, CAPS "}", code), code, 200, "",
	    "a fresh incarnation");
	control("revoke", "{\"workerId\":\"w\"}");
	expect(register_with(c, CAPS "}", code), code, 401,
	    "CREDENTIAL_INVALID", "a revoked worker");
	client_pair(c);
	expect(register_with(c, CAPS "}", code), code, 409, "WORKER_FENCED",
	    "the incarnation that was revoked");
	client_incarnate(c);
	expect(register_with(c, CAPS "}", code), code, 200, "",
	    "after a new pairing");
	control("clock", "{\"offsetMs\":59000}");
	expect(register_with(c, CAPS "}", code), code, 200, "",
	    "a heartbeat renews the registration");
	control("clock", "{\"offsetMs\":0}");
}

static void
test_static(void)
{
	static const char *const args[] = { "--worker", "w", "--auth", "static",
		"--unknown-route", "404", NULL };
	static const char body[] =
	    "{\"protocolVersion\":1,\"workerId\":\"w\",\"incarnationId\":"
	    "\"0123456789abcdef\",\"capabilities\":" CAPS "}}";
	struct answer a;
	char header[256];

	child_start(&server, args);
	snprintf(header, sizeof(header), "Authorization: Bearer %s\r\n",
	    server.token);
	http_receive(http_send(server.port, "POST",
			 "/v1/bridge/workers/register", header, body),
	    &a);
	tap_number(a.status, 200, "static: registration");
	tap_number(answer_number(&a, "workspaceLeaseSlots"), 1,
	    "static: the slot member is there, also as 1");
	answer_free(&a);
	tap_number(http_status(server.port, "POST",
		       "/v1/bridge/workers/register", NULL, body),
	    401, "static: no token");
	tap_number(http_status(server.port, "POST", "/v1/bridge/pairings",
		       header, "{\"workerId\":\"w\"}"),
	    409, "static: no pairing");
	tap_number(http_status(server.port, "POST",
		       "/v1/bridge/pairings/redeem", NULL, "{}"),
	    409, "static: no redemption");
	tap_number(
	    http_status(server.port, "POST",
		"/v1/bridge/workers/w/credentials/refresh", header, "{}"),
	    401, "static: no rotation");
	tap_number(
	    http_status(server.port, "POST", "/v1/bridge/x", header, "{}"), 404,
	    "static: an unknown route as in local mode");
	tap_number(http_status(server.port, "POST",
		       "/v1/bridge/workers/v/lease", header, EMPTY_LEASE),
	    403, "static: a worker that is not configured");
	tap_number(child_stop(&server), 0, "static: clean end");
}

static void
test_old_server(void)
{
	static const char *const args[] = { "--worker", "w", "--old-server",
		NULL };
	struct client c;
	struct answer a;
	char *body;

	child_start(&server, args);
	client_init(&c, server.port, "w");
	client_pair(&c);
	body = xasprintf("{\"protocolVersion\":1,\"workerId\":\"w\","
			 "\"incarnationId\":\"%s\",\"capabilities\":" CAPS
			 ",\"workspaceLeaseSlots\":2,"
			 "\"requiresReadyConfirmation\":true}}",
	    c.incarnation);
	client_call(&c, "/v1/bridge/workers/register", body, &a);
	tap_number(a.status, 200, "old server: registration");
	tap_ok(json_get(a.json, "workspaceLeaseSlots") == NULL &&
		json_get(a.json, "supportedWorkspaceToolOperations") == NULL,
	    "old server: neither slots nor supported operations");
	answer_free(&a);
	tap_number(
	    client_status(&c,
		client_path(&c, "assignments/x/workspace-cleanup"), "{}", NULL),
	    401, "old server: no receipts");
	tap_number(child_stop(&server), 0, "old server: clean end");
	free(body);
}

/* Any worker id is served, and callers of its tenant only. */
static void
test_dynamic(void)
{
	static const char *const args[] = { "--dynamic", NULL };
	static const char read[] =
	    "\"request\":{\"protocolVersion\":1,\"operation\":"
	    "\"read_file\",\"workspaceId\":\"primary\",\"path\":\"a\"}";
	struct client c;
	char header[256], body[512];
	int fd;

	child_start(&server, args);
	snprintf(header, sizeof(header), "Authorization: Bearer %s\r\n",
	    server.token);
	tap_number(http_status(server.port, "POST", "/v1/bridge/pairings",
		       header, "{\"workerId\":\"any\"}"),
	    400, "dynamic: no pairing without a binding");
	tap_number(
	    http_status(server.port, "POST", "/v1/bridge/pairings", header,
		"{\"workerId\":\"any\",\"binding\":{\"tenantId\":"
		"\"t\",\"principal\":{\"type\":\"robot\",\"id\":"
		"\"i\"}}}"),
	    400, "dynamic: no pairing with an invalid binding");
	client_init(&c, server.port, "any:id");
	c.escaped = "any%3Aid";
	tap_ok(client_pair(&c), "dynamic: pairing");
	tap_number(client_start(&c, 0), 200,
	    "dynamic: the path is signed with its escapes");
	snprintf(body, sizeof(body),
	    "{\"workerId\":\"any:id\",\"tenantId\":\"foreign\",%s}", read);
	tap_number(control("execute", body), 403,
	    "dynamic: a caller of another tenant");
	snprintf(body, sizeof(body), "{\"workerId\":\"any:id\",%s}", read);
	fd = http_send(server.port, "POST", "/control/execute", NULL, body);
	tap_ok(!http_pending(fd, 100), "dynamic: a caller of the tenant");
	close(fd);
	fd = http_send(server.port, "POST", "/v1/workspace-tools/execute", NULL,
	    strchr(read, '{'));
	tap_ok(http_pending(fd, 5000), "dynamic: no worker without a claim");
	close(fd);
	tap_number(child_stop(&server), 0, "dynamic: clean end");
}

int
main(void)
{
	static const char *const args[] = { "--worker", "w", "--body-max",
		"2900", NULL };
	struct client c;

	if (sodium_init() == -1)
		return 1;
	child_start(&server, args);
	client_init(&c, server.port, "w");
	test_transport();
	test_administrator();
	test_redeem(&c);
	tap_ok(client_pair(&c), "pairing");
	test_proof(&c);
	test_rotation(&c);
	test_registration(&c);
	tap_number(child_stop(&server), 0, "clean end");
	test_static();
	test_old_server();
	test_dynamic();
	return tap_done();
}
