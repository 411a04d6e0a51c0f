#include "config.h"

#include <sys/socket.h>
#include <sys/wait.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <err.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include "client.h"

#define ANSWER_WAIT 20000 /* ms until a test gives up */
#define ARGS_MAX    32

void
child_start(struct child *c, const char *const *args)
{
	const char *argv[ARGS_MAX + 3];
	char line[256];
	int fds[2];
	size_t n;
	FILE *f;

	argv[0] = "codeapi";
	argv[1] = "--exit-with-parent";
	for (n = 0; args[n] != NULL && n < ARGS_MAX; n++)
		argv[n + 2] = args[n];
	argv[n + 2] = NULL;
	if (pipe(fds) == -1)
		err(1, "pipe");
	if ((c->pid = fork()) == -1)
		err(1, "fork");
	if (c->pid == 0) {
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		execv("./codeapi", (char *const *)(uintptr_t)argv);
		err(127, "./codeapi");
	}
	close(fds[1]);
	if ((f = fdopen(fds[0], "r")) == NULL)
		err(1, "fdopen");
	c->port = -1;
	while (c->port == -1 && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "token %127s", c->token) == 1)
			continue;
		sscanf(line, "listening http://127.0.0.1:%d", &c->port);
	}
	if (c->port == -1)
		errx(1, "the server did not start");
	fclose(f);
}

int
child_stop(struct child *c)
{
	int status;

	kill(c->pid, SIGTERM);
	if (waitpid(c->pid, &status, 0) != c->pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

static void
send_all(int fd, const void *data, size_t len)
{
	const char *p = data;
	ssize_t n;

	for (; len > 0; p += n, len -= (size_t)n) {
		if ((n = send(fd, p, len, MSG_NOSIGNAL)) <= 0)
			return; /* the answer will tell */
	}
}

int
http_connect(int port)
{
	struct sockaddr_in sin;
	int fd;

	memset(&sin, 0, sizeof(sin));
	sin.sin_family = AF_INET;
	sin.sin_port = htons((uint16_t)port);
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if ((fd = socket(AF_INET, SOCK_STREAM, 0)) == -1 ||
	    connect(fd, (struct sockaddr *)&sin, sizeof(sin)) == -1)
		err(1, "connect");
	return fd;
}

int
http_send(int port, const char *method, const char *path, const char *headers,
    const char *body)
{
	struct buf b;
	int fd;

	fd = http_connect(port);
	buf_init(&b);
	buf_addf(&b,
	    "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
	    "Content-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n",
	    method, path, body == NULL ? 0 : strlen(body),
	    headers == NULL ? "" : headers);
	if (body != NULL)
		buf_adds(&b, body);
	send_all(fd, b.data, b.len);
	buf_free(&b);
	return fd;
}

int
http_pending(int fd, int ms)
{
	struct pollfd p;

	p.fd = fd;
	p.events = POLLIN;
	return poll(&p, 1, ms) > 0;
}

void
http_receive(int fd, struct answer *a)
{
	const char *end;
	struct buf b;
	ssize_t n;

	memset(a, 0, sizeof(*a));
	buf_init(&b);
	while (http_pending(fd, ANSWER_WAIT)) {
		buf_reserve(&b, 65536);
		if ((n = recv(fd, b.data + b.len, 65536, 0)) <= 0)
			break;
		b.len += (size_t)n;
	}
	close(fd);
	buf_cstr(&b);
	end = memmem(b.data, b.len, "\r\n\r\n", 4);
	if (end != NULL &&
	    sscanf((char *)b.data, "HTTP/1.%*d %d", &a->status) == 1) {
		end += 4;
		a->len = b.len - (size_t)(end - (char *)b.data);
		a->body = xstrndup(end, a->len);
		a->json = json_parse(a->body, a->len);
	}
	buf_free(&b);
}

void
answer_free(struct answer *a)
{
	free(a->body);
	json_free(a->json);
	memset(a, 0, sizeof(*a));
}

int
http_status(int port, const char *method, const char *path, const char *headers,
    const char *body)
{
	struct answer a;
	int status;

	http_receive(http_send(port, method, path, headers, body), &a);
	status = a.status;
	answer_free(&a);
	return status;
}

const char *
answer_text(const struct answer *a, const char *name)
{
	return json_text(json_get(a->json, name));
}

long long
answer_number(const struct answer *a, const char *name)
{
	long long n;

	return json_int(json_get(a->json, name), -1000000000000000LL,
		   1000000000000000LL, &n)
	    ? n
	    : -1;
}

static void
random_text(char *out, size_t size, size_t n)
{
	uint8_t bytes[32];

	randombytes_buf(bytes, sizeof(bytes));
	sodium_bin2base64(
	    out, size, bytes, n, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

void
client_incarnate(struct client *c)
{
	random_text(c->incarnation, sizeof(c->incarnation), 18);
}

void
client_init(struct client *c, int port, const char *id)
{
	memset(c, 0, sizeof(*c));
	c->port = port;
	c->id = c->escaped = id;
	crypto_sign_keypair(c->public_key, c->secret_key);
	client_incarnate(c);
}

const char *
client_path(const struct client *c, const char *tail)
{
	static char path[512];

	xsnprintf(
	    path, sizeof(path), "/v1/bridge/workers/%s/%s", c->escaped, tail);
	return path;
}

const char *
client_pem(const struct client *c)
{
	static const uint8_t head[] = { 0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
		0x2b, 0x65, 0x70, 0x03, 0x21, 0x00 };
	static char text[256];
	uint8_t der[sizeof(head) + 32];
	char line[64];

	memcpy(der, head, sizeof(head));
	memcpy(der + sizeof(head), c->public_key, 32);
	sodium_bin2base64(line, sizeof(line), der, sizeof(der),
	    sodium_base64_VARIANT_ORIGINAL);
	xsnprintf(text, sizeof(text),
	    "\"-----BEGIN PUBLIC KEY-----\\n%s\\n"
	    "-----END PUBLIC KEY-----\\n\"",
	    line);
	return text;
}

int
client_pair(struct client *c)
{
	struct answer a;
	char *body;
	int ok;

	body = xasprintf("{\"workerId\":\"%s\"}", c->id);
	http_receive(
	    http_send(c->port, "POST", "/control/pair", NULL, body), &a);
	free(body);
	body = xasprintf("{\"protocolVersion\":1,\"workerId\":\"%s\","
			 "\"code\":\"%s\",\"publicKey\":%s}",
	    c->id, a.status == 200 ? answer_text(&a, "code") : "",
	    client_pem(c));
	answer_free(&a);
	http_receive(http_send(c->port, "POST", "/v1/bridge/pairings/redeem",
			 NULL, body),
	    &a);
	free(body);
	ok = a.status == 200 && answer_text(&a, "credential") != NULL;
	if (ok)
		xsnprintf(c->credential, sizeof(c->credential), "%s",
		    answer_text(&a, "credential"));
	answer_free(&a);
	return ok;
}

static void
timestamp(char *out, size_t size, int64_t skew)
{
	struct timespec ts;
	struct tm tm;
	int64_t ms;
	time_t t;
	size_t n;

	clock_gettime(CLOCK_REALTIME, &ts);
	ms = (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000 + skew;
	t = (time_t)(ms / 1000);
	gmtime_r(&t, &tm);
	n = strftime(out, size, "%Y-%m-%dT%H:%M:%S", &tm);
	xsnprintf(out + n, size - n, ".%03dZ", (int)(ms % 1000));
}

int
client_send_as(
    struct client *c, const char *path, const char *body, const char *hashed)
{
	uint8_t hash[32], sig[64];
	char hex[65], nonce[32], time[40], signature[96];
	char *text, *headers;
	int fd;

	crypto_hash_sha256(hash, (const uint8_t *)hashed, strlen(hashed));
	sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
	random_text(nonce, sizeof(nonce), 18);
	if (*c->nonce != '\0') {
		xsnprintf(nonce, sizeof(nonce), "%s", c->nonce);
		c->nonce[0] = '\0';
	}
	timestamp(time, sizeof(time), c->skew);
	text = xasprintf(
	    "POST\n%s\n%s\n%s\n%s\n%s", path, time, nonce, hex, c->credential);
	crypto_sign_detached(
	    sig, NULL, (uint8_t *)text, strlen(text), c->secret_key);
	sodium_bin2base64(signature, sizeof(signature), sig, sizeof(sig),
	    sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	headers = xasprintf("Authorization: Bridge %s\r\n"
			    "X-LibreChat-Code-Timestamp: %s\r\n"
			    "X-LibreChat-Code-Nonce: %s\r\n"
			    "X-LibreChat-Code-Signature: %s\r\n",
	    c->credential, time, nonce, signature);
	fd = http_send(c->port, "POST", path, headers, body);
	free(text);
	free(headers);
	return fd;
}

int
client_send(struct client *c, const char *path, const char *body)
{
	return client_send_as(c, path, body, body);
}

void
client_call(
    struct client *c, const char *path, const char *body, struct answer *a)
{
	http_receive(client_send(c, path, body), a);
}

static int
status_and_code(struct answer *a, char *code)
{
	const char *text;
	int status;

	status = a->status;
	text = answer_text(a, "code");
	if (code != NULL)
		xsnprintf(code, 64, "%s", text == NULL ? "" : text);
	answer_free(a);
	return status;
}

int
client_status(struct client *c, const char *path, const char *body, char *code)
{
	struct answer a;

	client_call(c, path, body, &a);
	return status_and_code(&a, code);
}

int
client_register(struct client *c, int slots, char *code)
{
	char *body, member[64];
	int status;

	member[0] = '\0';
	if (slots > 0)
		xsnprintf(member, sizeof(member), "\"workspaceLeaseSlots\":%d,",
		    slots);
	body = xasprintf(
	    "{\"protocolVersion\":1,\"workerId\":\"%s\",\"incarnationId\":"
	    "\"%s\",\"capabilities\":{\"statefulWorkspace\":true,"
	    "\"sandboxProfile\":\"anthropic-srt\",\"runtimes\":[],"
	    "\"requiresReadyConfirmation\":true,%s\"workspaceTools\":{"
	    "\"protocolVersion\":1,\"operations\":[\"read_file\","
	    "\"search_text\",\"list_files\",\"write_file\",\"preview_edit\","
	    "\"edit_file\",\"execute_command\"],\"workspaces\":[{\"id\":"
	    "\"primary\",\"name\":\"app\"},{\"id\":\"second\"}],"
	    "\"writeFileModes\":[\"replace\",\"create\"],\"editFileModes\":"
	    "[\"single\",\"batch\"],\"editFileFeatures\":"
	    "[\"expected_base_sha256\"],\"listFileFeatures\":[\"after_path\"]"
	    "}}}",
	    c->id, c->incarnation, member);
	status = client_status(c, "/v1/bridge/workers/register", body, code);
	free(body);
	return status;
}

int
client_ready(struct client *c, long long generation, char *code)
{
	char *body;
	int status;

	body = xasprintf("{\"protocolVersion\":1,\"incarnationId\":\"%s\","
			 "\"registrationGeneration\":%lld}",
	    c->incarnation, generation);
	status = client_status(c, client_path(c, "ready"), body, code);
	free(body);
	return status;
}

/* The registration generation as the status of control tells it. */
static long long
generation_of(const struct client *c)
{
	struct answer a;
	const struct json *list, *v;
	long long n;

	http_receive(
	    http_send(c->port, "GET", "/control/state", NULL, NULL), &a);
	list = json_get(a.json, "workers");
	n = -1;
	if (json_is(list, JSON_ARRAY) && list->u.array.n > 0) {
		v = json_get(list->u.array.item[0], "registrationGeneration");
		json_int(v, 0, 1000000, &n);
	}
	answer_free(&a);
	return n;
}

int
client_start(struct client *c, int slots)
{
	int status;

	if ((status = client_register(c, slots, NULL)) != 200)
		return status;
	return client_ready(c, generation_of(c), NULL);
}

int
client_lease_send(struct client *c, int slot, int wait_ms)
{
	char *body, member[64];
	int fd;

	member[0] = '\0';
	if (slot >= 0)
		xsnprintf(
		    member, sizeof(member), ",\"workspaceLeaseSlot\":%d", slot);
	body = xasprintf("{\"protocolVersion\":1,\"waitMs\":%d,"
			 "\"incarnationId\":\"%s\"%s}",
	    wait_ms, c->incarnation, member);
	fd = client_send(c, client_path(c, "lease"), body);
	free(body);
	return fd;
}

static void
copy_member(char *out, size_t size, const struct json *v, const char *name)
{
	const char *s;

	s = json_text(json_get(v, name));
	xsnprintf(out, size, "%s", s == NULL ? "" : s);
}

int
client_lease_receive(int fd, struct job *j)
{
	const struct json *v;
	struct answer a;
	const char *request, *end;
	int status;

	memset(j, 0, sizeof(*j));
	http_receive(fd, &a);
	status = a.status;
	v = json_get(a.json, "assignment");
	if (v != NULL) {
		copy_member(j->id, sizeof(j->id), v, "assignmentId");
		copy_member(j->token, sizeof(j->token), v, "leaseToken");
		json_int(
		    json_get(v, "generation"), 0, 1000000000, &j->generation);
		if (!json_int(
			json_get(v, "workspaceLeaseSlot"), 0, 7, &j->slot))
			j->slot = -1;
		json_int(
		    json_get(v, "remainingMs"), 0, 1000000000, &j->remaining);
		request = strstr(a.body, "\"request\":");
		end = strstr(a.body, ",\"remainingMs\"");
		if (request != NULL && end != NULL)
			j->request = xstrndup(
			    request + 10, (size_t)(end - request - 10));
	}
	answer_free(&a);
	return status;
}

int
client_lease(struct client *c, int slot, int wait_ms, struct job *j)
{
	return client_lease_receive(client_lease_send(c, slot, wait_ms), j);
}

void
job_free(struct job *j)
{
	free(j->request);
	memset(j, 0, sizeof(*j));
}

static int
assignment_call(struct client *c, const struct job *j, const char *route,
    const char *body, char *code)
{
	char tail[128];

	xsnprintf(tail, sizeof(tail), "assignments/%s/%s", j->id, route);
	return client_status(c, client_path(c, tail), body, code);
}

int
client_ack(struct client *c, const struct job *j, char *code)
{
	char *body;
	int status;

	body = xasprintf("{\"protocolVersion\":1,\"incarnationId\":\"%s\","
			 "\"generation\":%lld,\"leaseToken\":\"%s\"}",
	    c->incarnation, j->generation, j->token);
	status = assignment_call(c, j, "ack", body, code);
	free(body);
	return status;
}

/* The body of a settlement or receipt; the caller frees it. */
static char *
settlement(const struct client *c, const struct job *j, const char *status,
    const char *member)
{
	return xasprintf("{\"protocolVersion\":1,\"generation\":%lld,"
			 "\"leaseToken\":\"%s\",\"incarnationId\":\"%s\","
			 "\"status\":\"%s\",%s}",
	    j->generation, j->token, c->incarnation, status, member);
}

int
client_settle(struct client *c, const struct job *j, const char *status,
    const char *member, char *code)
{
	char *body;
	int r;

	body = settlement(c, j, status, member);
	r = assignment_call(c, j, "settle", body, code);
	free(body);
	return r;
}

int
client_receipt(struct client *c, const struct job *j, const char *route,
    const char *text, char *code)
{
	char *body, *member;
	int r;

	member = xasprintf("\"error\":\"%s\"", text);
	body = settlement(c, j, "rejected", member);
	r = assignment_call(c, j, route, body, code);
	free(member);
	free(body);
	return r;
}

int
client_cancelled(struct client *c, const struct job *j)
{
	char tail[128], *body;
	struct answer a;
	int r;

	xsnprintf(tail, sizeof(tail), "assignments/%s/cancellation", j->id);
	body = xasprintf(
	    "{\"protocolVersion\":1,\"incarnationId\":\"%s\"}", c->incarnation);
	client_call(c, client_path(c, tail), body, &a);
	free(body);
	r = a.status == 200 ? json_true(json_get(a.json, "cancelled")) : -1;
	answer_free(&a);
	return r;
}

int
caller_send(int port, const char *body)
{
	return http_send(
	    port, "POST", "/v1/workspace-tools/execute", NULL, body);
}
