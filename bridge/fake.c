#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <sodium.h>

#include "fake.h"
#include "peer.h"
#include "proc.h"
#include "times.h"

#define WAIT_SECONDS 20
#define INCARNATION  "AAECAwQFBgcICQoLDA0ODxAR"

/* ---- the Code API ---- */

static int
ends_with(const char *path, const char *suffix)
{
	size_t n = strlen(path), m = strlen(suffix);

	return n >= m && strcmp(path + n - m, suffix) == 0;
}

static void
hex_digest(const void *p, size_t n, char out[65])
{
	unsigned char sum[32];

	(void)crypto_hash_sha256(sum, p, n);
	(void)sodium_bin2hex(out, 65, sum, sizeof(sum));
}

/* The fake monitor signs by naming what it signed. */
static void
check_proof(struct fake *f, struct evhttp_request *req, const char *path,
    const char *body)
{
	struct evkeyvalq *h = evhttp_request_get_input_headers(req);
	const char *stamp, *proof;
	char digest[65], *want, *used;

	proof = evhttp_find_header(h, "X-LibreChat-Code-Signature");
	stamp = evhttp_find_header(h, "X-LibreChat-Code-Timestamp");
	assert_non_null(proof);
	assert_non_null(stamp);
	hex_digest(body, strlen(body), digest);
	assert_string_equal(proof, digest);
	assert_string_equal(
	    evhttp_find_header(h, "X-LibreChat-Code-Nonce"), path);
	want = xasprintf(" %s ", stamp);
	assert_null(strstr(f->used, want));
	used = xasprintf("%s%s", f->used, want);
	free(f->used);
	f->used = used;
	free(want);
}

static void
reply(struct evhttp_request *req, int status, const char *body)
{
	struct evbuffer *b = evbuffer_new();

	evbuffer_add(b, body, strlen(body));
	evhttp_send_reply(req, status, "x", b);
	evbuffer_free(b);
}

static void
reply_register(struct fake *f, struct evhttp_request *req)
{
	char now[TIME_ISO_SIZE], *body, slots[40] = "", generation[40] = "";

	time_format_iso(time_wall_ms(), now);
	if (f->grant != 0)
		xsnprintf(slots, sizeof(slots), "\"workspaceLeaseSlots\":%d,",
		    f->grant);
	if (f->generation != 0)
		xsnprintf(generation, sizeof(generation),
		    "\"registrationGeneration\":%d,", f->generation);
	body = xasprintf(
	    "{\"protocolVersion\":1,\"incarnationId\":\"%s\","
	    "\"registeredAt\":\"%s\",\"leaseTtlMs\":%lld,"
	    "%s%s"
	    "\"supportedWorkspaceToolOperations\":[\"read_file\","
	    "\"search_text\",\"list_files\",\"write_file\","
	    "\"preview_edit\",\"edit_file\",\"execute_command\"],"
	    "\"supportedWorkspaceWriteFileModes\":[\"replace\",\"create\"],"
	    "\"supportedWorkspaceEditFileModes\":[\"single\",\"batch\"],"
	    "\"supportedWorkspaceEditFileFeatures\":"
	    "[\"expected_base_sha256\"],"
	    "\"supportedWorkspaceListFileFeatures\":[\"after_path\"]}",
	    INCARNATION, now, (long long)f->ttl, slots, generation);
	reply(req, 200, body);
	free(body);
}

/* Where the open lease of a lane is kept. */
static struct evhttp_request **
lease_of(struct fake *f, int lane)
{
	return lane == 0 ? &f->lease : &f->leases[lane];
}

/*
 * Forgets a lease whose connection was closed, which libevent does not notice
 * while the request is unanswered.
 */
static void
forget_closed(struct fake *f, int lane)
{
	struct evhttp_request **lease = lease_of(f, lane);
	struct bufferevent *bev;
	char c;

	if (*lease == NULL)
		return;
	bev = evhttp_connection_get_bufferevent(
	    evhttp_request_get_connection(*lease));
	if (recv(bufferevent_getfd(bev), &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		*lease = NULL;
}

static void
hand_out(struct fake *f, int lane)
{
	struct evhttp_request **lease = lease_of(f, lane);
	char *body;

	if (*lease == NULL || f->assignments[lane] == NULL)
		return;
	body = xasprintf("{\"protocolVersion\":1,\"serverElapsedMs\":0,"
			 "\"assignment\":%s}",
	    f->assignments[lane]);
	reply(*lease, 200, body);
	*lease = NULL;
	free(f->assignments[lane]);
	f->assignments[lane] = NULL;
	free(body);
}

static void on_lease_closed(struct evhttp_connection *, void *);

static void
open_lease(struct fake *f, struct evhttp_request *req, const char *body)
{
	const char *slot = strstr(body, "\"workspaceLeaseSlot\":");
	int lane = slot == NULL ? 0 : atoi(slot + 21) + 1;

	assert_true(lane < FAKE_LANES);
	forget_closed(f, lane);
	/* One poll of a lane at a time. */
	assert_null(*lease_of(f, lane));
	*lease_of(f, lane) = req;
	evhttp_connection_set_closecb(
	    evhttp_request_get_connection(req), on_lease_closed, f);
	hand_out(f, lane);
}

static void
reply_credential(struct fake *f, struct evhttp_request *req)
{
	char at[TIME_ISO_SIZE], *body;

	time_format_iso(time_wall_ms() + f->credential_life, at);
	body = xasprintf("{\"protocolVersion\":1,\"workerId\":\"%s\","
			 "\"credential\":\"second_credential_0123456789"
			 "abcdefgh\",\"expiresAt\":\"%s\"}",
	    f->config.worker_id, at);
	reply(req, 200, body);
	free(body);
}

/* Not from within the server's own callback. */
static void
close_connection(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	evhttp_connection_free(arg);
}

static int
take_fault(struct fake *f, struct evhttp_request *req, const char *path)
{
	struct fake_fault *p;
	int status;

	TAILQ_FOREACH (p, &f->faults, entry)
		if (ends_with(path, p->suffix))
			break;
	if (p == NULL)
		return 0;
	status = p->status;
	if (status == 0)
		(void)event_base_once(f->base, -1, EV_TIMEOUT, close_connection,
		    evhttp_request_get_connection(req), NULL);
	else if (status > 0 && f->date != NULL)
		(void)evhttp_add_header(
		    evhttp_request_get_output_headers(req), "Date", f->date);
	if (status > 0)
		reply(req, status, p->body);
	if (--p->times == 0) {
		TAILQ_REMOVE(&f->faults, p, entry);
		free(p);
	}
	return 1;
}

static void
on_lease_closed(struct evhttp_connection *c, void *arg)
{
	struct fake *f = arg;
	struct evhttp_request **lease;
	int lane;

	for (lane = 0; lane < FAKE_LANES; lane++) {
		lease = lease_of(f, lane);
		if (*lease != NULL &&
		    evhttp_request_get_connection(*lease) == c)
			*lease = NULL;
	}
}

static void
on_http(struct evhttp_request *req, void *arg)
{
	struct fake *f = arg;
	struct fake_request *r;
	struct evbuffer *in = evhttp_request_get_input_buffer(req);
	struct evkeyvalq *h = evhttp_request_get_input_headers(req);
	size_t n = evbuffer_get_length(in);
	const char *v;

	r = xcalloc(1, sizeof(*r));
	r->path = xstrdup(evhttp_request_get_uri(req));
	r->body = xcalloc(1, n + 1);
	(void)evbuffer_remove(in, r->body, n);
	if ((v = evhttp_find_header(h, "Authorization")) != NULL)
		r->authorization = xstrdup(v);
	TAILQ_INSERT_TAIL(&f->requests, r, entry);
	assert_int_equal(evhttp_request_get_command(req), EVHTTP_REQ_POST);
	assert_string_equal(
	    evhttp_find_header(h, "Content-Type"), "application/json");
	assert_null(evhttp_find_header(h, "Expect"));
	assert_null(evhttp_find_header(h, "Accept-Encoding"));
	if (ends_with(r->path, "/pairings/redeem"))
		assert_null(r->authorization);
	else if (f->config.auth == AUTH_PAIRED)
		check_proof(f, req, r->path, r->body);

	if (take_fault(f, req, r->path))
		return;
	if (ends_with(r->path, "/register"))
		reply_register(f, req);
	else if (ends_with(r->path, "/lease"))
		open_lease(f, req, r->body);
	else if (ends_with(r->path, "/cancellation"))
		reply(req, 200,
		    f->cancelled ? "{\"cancelled\":true}"
				 : "{\"cancelled\":false}");
	else if (ends_with(r->path, "/redeem") ||
	    ends_with(r->path, "/credentials/refresh"))
		reply_credential(f, req);
	else
		reply(req, 200, "{\"protocolVersion\":1,\"accepted\":true}");
}

/* ---- the monitor ---- */

static int
on_ready(struct peer *p, struct imsg *im, void *arg)
{
	struct fake *f = arg;

	(void)im;
	/* Nothing may have been sent before it is allowed. */
	assert_true(TAILQ_EMPTY(&f->requests));
	f->started = 1;
	peer_send(p, MSG_START, 0, -1, NULL);
	return 0;
}

static int
on_end(struct peer *p, struct imsg *im, void *arg)
{
	struct fake *f = arg;
	struct ended e;

	(void)p;
	if (ended_parse(im, &e) == -1)
		return -1;
	f->failed = im->type == MSG_FAILED;
	f->ended = 1;
	f->end_status = e.status;
	free(f->end_text);
	f->end_text = e.text;
	return 0;
}

static int
on_sign(struct peer *p, struct imsg *im, void *arg)
{
	struct fake *f = arg;
	struct sign_request q;
	struct sign_answer a;
	char stamp[32], digest[65];
	struct buf b;

	if (sign_request_parse(im, &q) == -1)
		return -1;
	xsnprintf(stamp, sizeof(stamp), "T%u", ++f->proofs);
	(void)sodium_bin2hex(digest, sizeof(digest), q.sha256, 32);
	a.timestamp = stamp;
	a.nonce = q.path;
	a.signature = digest;
	buf_init(&b);
	sign_answer_build(&b, &a);
	peer_send(p, MSG_SIGNED, im->id, -1, &b);
	sign_request_free(&q);
	return 0;
}

static void
verdict(struct peer *p, uint32_t type, uint32_t id, const char *error)
{
	struct buf b;

	buf_init(&b);
	verdict_build(&b, error);
	peer_send(p, type, id, -1, &b);
}

static int
on_store(struct peer *p, struct imsg *im, void *arg)
{
	struct fake *f = arg;
	struct credential c;

	if (credential_parse(im, &c) == -1)
		return -1;
	if (im->type == MSG_PAIRED)
		f->paired = xstrdup(c.credential);
	else {
		f->stores++;
		verdict(p, MSG_CREDENTIAL_STORED, im->id, NULL);
	}
	credential_free(&c);
	return 0;
}

static int
on_marker(struct peer *p, struct imsg *im, void *arg)
{
	struct fake *f = arg;
	struct assignment_ref ref;

	if (assignment_ref_parse(im, &ref) == -1)
		return -1;
	free(ref.assignment);
	if (im->type == MSG_ARM) {
		f->arms++;
		verdict(p, MSG_ARMED, im->id, f->arm_error);
	} else {
		f->clears++;
		verdict(p, MSG_CLEARED, im->id, f->clear_error);
	}
	return 0;
}

static int
on_state(struct peer *p, struct imsg *im, void *arg)
{
	struct fake *f = arg;
	enum bridge_state state;
	char *text;

	(void)p;
	if (state_parse(im, &state, &text) == -1)
		return -1;
	f->registered += state == BS_REGISTERED;
	f->reconnecting += state == BS_RECONNECTING;
	if (state == BS_RECONNECTING) {
		free(f->trouble);
		f->trouble = text;
	} else
		free(text);
	return 0;
}

static void
on_gone(struct peer *p, void *arg)
{
	struct fake *f = arg;

	(void)p;
	f->gone = 1;
}

static const struct peer_handler monitor_table[] = {
	{ MSG_READY, PEER_ANY_STATE, 0, on_ready },
	{ MSG_FAILED, PEER_ANY_STATE, 0, on_end },
	{ MSG_ENDED, PEER_ANY_STATE, 0, on_end },
	{ MSG_SIGN, PEER_ANY_STATE, 0, on_sign },
	{ MSG_STORE_CREDENTIAL, PEER_ANY_STATE, 0, on_store },
	{ MSG_PAIRED, PEER_ANY_STATE, 0, on_store },
	{ MSG_ARM, PEER_ANY_STATE, 0, on_marker },
	{ MSG_CLEAR, PEER_ANY_STATE, 0, on_marker },
	{ MSG_STATE, PEER_ANY_STATE, 0, on_state },
	{ 0, 0, 0, NULL },
};

/* ---- the executor ---- */

static void
not_running(struct fake *f, uint32_t id)
{
	size_t i;

	for (i = 0; i < FAKE_ROOTS; i++)
		if (f->running[i] == id)
			f->running[i] = 0;
}

static void
send_result(struct fake *f, uint32_t id)
{
	struct buf b;

	not_running(f, id);
	buf_init(&b);
	result_build(&b, &f->result);
	peer_send(f->executor, MSG_RESULT, id, -1, &b);
}

static void
send_error(struct fake *f, uint32_t id, enum error_code code, enum certainty c)
{
	struct buf b;

	not_running(f, id);
	buf_init(&b);
	tool_error_build(&b, code, c, "as the test said");
	peer_send(f->executor, MSG_ERROR, id, -1, &b);
}

static int
on_request(struct peer *p, struct imsg *im, void *arg)
{
	struct fake *f = arg;
	struct request q;

	(void)p;
	if (request_parse(im, &q) == -1)
		return -1;
	f->executed++;
	f->result.operation = q.operation;
	/* One user of a root at a time. */
	assert_true(q.root < FAKE_ROOTS);
	assert_int_equal(f->running[q.root], 0);
	f->running[q.root] = im->id;
	f->operation[q.root] = q.operation;
	request_free(&q);
	if (f->behaviour == FE_ANSWER)
		send_result(f, im->id);
	else if (f->behaviour == FE_ERROR)
		send_error(f, im->id, f->error, f->certainty);
	return 0;
}

static int
on_cancel(struct peer *p, struct imsg *im, void *arg)
{
	struct fake *f = arg;

	(void)p;
	f->cancels++;
	if (f->behaviour == FE_HOLD)
		send_error(f, im->id, EC_EXECUTION_ABORTED, NOT_COMMITTED);
	else if (f->behaviour == FE_LATE)
		send_result(f, im->id);
	return 0;
}

static void
on_executor_gone(struct peer *p, void *arg)
{
	(void)p;
	(void)arg;
}

static const struct peer_handler executor_table[] = {
	{ MSG_REQUEST, PEER_ANY_STATE, 0, on_request },
	{ MSG_CANCEL, PEER_ANY_STATE, 0, on_cancel },
	{ 0, 0, 0, NULL },
};

/* ---- life ---- */

static void
spawn(struct fake *f, int channel)
{
	int fd;

	if ((f->pid = fork()) == -1)
		fail_msg("fork");
	if (f->pid != 0) {
		close(channel);
		return;
	}
	if ((fd = fcntl(channel, F_DUPFD, 10)) == -1 ||
	    dup2(fd, PROC_CHANNEL) == -1)
		_exit(120);
	proc_close_from(PROC_CHANNEL + 1);
	(void)execl("./librechat-code-bridge", "librechat-code-bridge", NULL);
	_exit(121);
}

struct fake *
fake_new(enum bridge_role role)
{
	struct evhttp_bound_socket *bound;
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	struct bridge_config *c;
	struct fake *f;

	assert_int_not_equal(sodium_init(), -1);
	f = xcalloc(1, sizeof(*f));
	TAILQ_INIT(&f->requests);
	TAILQ_INIT(&f->faults);
	f->ttl = 60000;
	f->grant = 1;
	f->generation = 41;
	f->credential_life = 900000;
	f->used = xstrdup("");
	f->base = event_base_new();
	f->http = evhttp_new(f->base);
	assert_non_null(f->http);
	evhttp_set_gencb(f->http, on_http, f);
	bound = evhttp_bind_socket_with_handle(f->http, "127.0.0.1", 0);
	assert_non_null(bound);
	assert_int_equal(getsockname(evhttp_bound_socket_get_fd(bound),
			     (struct sockaddr *)&sin, &len),
	    0);
	f->port = ntohs(sin.sin_port);

	c = &f->config;
	c->role = (uint8_t)role;
	c->auth = AUTH_PAIRED;
	c->base_url = xasprintf("http://127.0.0.1:%u/v1", f->port);
	c->worker_id = xstrdup("lab:vm");
	c->expires = time_wall_ms() + 900000;
	c->lease_slots = 1;
	if (role == ROLE_PAIR) {
		c->code = xstrdup("ISgvNj1ES1JZYGdudXyDipGYn6attLvC");
		c->public_key = xstrdup("-----BEGIN PUBLIC KEY-----\nx\n");
		return f;
	}
	c->incarnation = xstrdup(INCARNATION);
	c->credential = xstrdup("first_credential_0123456789abcdefghij");
	c->sandbox_profile = xstrdup("namespaces");
	c->nworkspaces = 1;
	c->workspaces = xcalloc(1, sizeof(*c->workspaces));
	c->workspaces[0].id = xstrdup("primary");
	c->workspaces[0].operations = (1U << OP_MAX) - 1;
	return f;
}

void
fake_start(struct fake *f)
{
	int sv[2], ev[2] = { -1, -1 };
	struct buf b;

	assert_int_equal(proc_socketpair(sv), 0);
	if (f->config.role == ROLE_WORKER)
		assert_int_equal(proc_socketpair(ev), 0);
	spawn(f, sv[1]);
	f->monitor = peer_new(
	    f->base, "bridge", sv[0], monitor_table, &f->state, on_gone, f);
	if (ev[0] != -1)
		f->executor = peer_new(f->base, "bridge", ev[0], executor_table,
		    &f->state, on_executor_gone, f);
	buf_init(&b);
	bridge_config_build(&b, &f->config);
	peer_send(f->monitor, MSG_CONFIG, 0, ev[1], &b);
}

void
fake_free(struct fake *f)
{
	struct fake_request *r;
	struct fake_fault *p;
	int lane;

	if (f->pid > 0) {
		(void)kill(f->pid, SIGKILL);
		(void)waitpid(f->pid, NULL, 0);
	}
	peer_free(f->monitor);
	peer_free(f->executor);
	for (lane = 0; lane < FAKE_LANES; lane++) {
		*lease_of(f, lane) = NULL;
		free(f->assignments[lane]);
	}
	evhttp_free(f->http);
	event_base_free(f->base);
	while ((r = TAILQ_FIRST(&f->requests)) != NULL) {
		TAILQ_REMOVE(&f->requests, r, entry);
		free(r->path);
		free(r->body);
		free(r->authorization);
		free(r);
	}
	while ((p = TAILQ_FIRST(&f->faults)) != NULL) {
		TAILQ_REMOVE(&f->faults, p, entry);
		free(p);
	}
	bridge_config_free(&f->config);
	result_free(&f->result);
	free(f->used);
	free(f->paired);
	free(f->trouble);
	free(f->end_text);
	free(f);
}

void
fake_wait(struct fake *f, int (*done)(struct fake *), const char *what)
{
	int64_t end = time_mono_ms() + WAIT_SECONDS * 1000;
	const struct timeval step = { 1, 0 };

	while (!done(f)) {
		if (f->gone && !f->ended)
			fail_msg("the bridge died while waiting for %s", what);
		if (time_mono_ms() > end)
			fail_msg("no %s within %d s", what, WAIT_SECONDS);
		(void)event_base_loopexit(f->base, &step);
		(void)event_base_loop(f->base, EVLOOP_ONCE);
	}
}

static int
is_gone(struct fake *f)
{
	return f->gone;
}

int
fake_exit_status(struct fake *f)
{
	int status;

	fake_wait(f, is_gone, "end of the process");
	assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
	f->pid = 0;
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

void
fake_stop(struct fake *f)
{
	peer_send(f->monitor, MSG_STOP, 0, -1, NULL);
}

void
fake_fault(
    struct fake *f, const char *suffix, int status, const char *body, int times)
{
	struct fake_fault *p;

	p = xcalloc(1, sizeof(*p));
	p->suffix = suffix;
	p->status = status;
	p->body = body;
	p->times = times;
	TAILQ_INSERT_TAIL(&f->faults, p, entry);
}

void
fake_offer(struct fake *f, int lane, char *assignment)
{
	free(f->assignments[lane]);
	f->assignments[lane] = assignment;
	hand_out(f, lane);
}

void
fake_assign_raw(struct fake *f, char *assignment)
{
	fake_offer(f, 0, assignment);
}

void
fake_assign_slot(struct fake *f, int slot, const char *id, int64_t remaining,
    const char *request)
{
	char at[TIME_ISO_SIZE], member[40] = "";

	if (slot >= 0)
		xsnprintf(
		    member, sizeof(member), "\"workspaceLeaseSlot\":%d,", slot);
	time_format_iso(time_wall_ms() + remaining, at);
	fake_offer(f, slot + 1,
	    xasprintf("{\"protocolVersion\":1,\"assignmentId\":\"%s\","
		      "\"workerId\":\"lab:vm\",\"incarnationId\":\"%s\","
		      "\"generation\":7,\"leaseToken\":\"token\",%s"
		      "\"expiresAt\":\"%s\",\"remainingMs\":%lld,"
		      "\"executionKind\":\"workspace_tool\",\"request\":%s}",
		id, INCARNATION, member, at, (long long)remaining, request));
}

void
fake_assign(
    struct fake *f, const char *id, int64_t remaining, const char *request)
{
	fake_assign_slot(f, -1, id, remaining, request);
}

void
fake_slots(struct fake *f, unsigned int slots, unsigned int roots)
{
	struct bridge_config *c = &f->config;
	unsigned int i;

	f->grant = (int)slots;
	c->lease_slots = (uint8_t)slots;
	free(c->workspaces[0].id);
	free(c->workspaces);
	c->nworkspaces = roots;
	c->workspaces = xcalloc(roots, sizeof(*c->workspaces));
	for (i = 0; i < roots; i++) {
		c->workspaces[i].id = xasprintf("r%u", i);
		c->workspaces[i].operations = (1U << OP_MAX) - 1;
	}
}

void
fake_release(struct fake *f, unsigned int root)
{
	assert_int_not_equal(f->running[root], 0);
	f->result.operation = (uint8_t)f->operation[root];
	send_result(f, f->running[root]);
}

unsigned int
fake_leasing(struct fake *f)
{
	unsigned int n = 0;
	int lane;

	for (lane = 0; lane < FAKE_LANES; lane++) {
		forget_closed(f, lane);
		n += *lease_of(f, lane) != NULL;
	}
	return n;
}

unsigned int
fake_count(struct fake *f, const char *suffix)
{
	struct fake_request *r;
	unsigned int n = 0;

	TAILQ_FOREACH (r, &f->requests, entry)
		n += (unsigned int)ends_with(r->path, suffix);
	return n;
}

const char *
fake_body(struct fake *f, const char *suffix)
{
	struct fake_request *r;
	const char *body = "";

	TAILQ_FOREACH (r, &f->requests, entry)
		if (ends_with(r->path, suffix))
			body = r->body;
	return body;
}
