#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "buf.h"
#include "error.h"
#include "log.h"
#include "monitor.h"
#include "msg.h"
#include "peer.h"
#include "sign.h"
#include "status.h"
#include "times.h"

/* What bridge and executor may ask of the monitor, one function each. */

#define IN(state) (1U << (state))

static void
answer(struct peer *p, uint32_t type, uint32_t id, char *error)
{
	struct buf b;

	buf_init(&b);
	verdict_build(&b, error);
	peer_send(p, type, id, -1, &b);
	free(error);
}

static struct helper *
helper_of(struct monitor *m, const struct peer *p)
{
	return p == m->bridge.peer ? &m->bridge : &m->executor;
}

static int
handle_ready(struct peer *p, struct imsg *im, void *arg)
{
	struct monitor *m = arg;
	struct helper *h = helper_of(m, p);

	if (im->data.len != 0 || h->ready)
		return -1;
	h->ready = 1;
	monitor_advance(m);
	return 0;
}

/* MSG_FAILED and MSG_ENDED: remembered until the process is gone. */
static int
handle_ended(struct peer *p, struct imsg *im, void *arg)
{
	struct monitor *m = arg;
	struct helper *h = helper_of(m, p);
	struct ended e;

	if (h->ended || ended_parse(im, &e) == -1)
		return -1;
	h->ended = 1;
	h->status = e.status;
	h->text = e.text;
	monitor_advance(m);
	return 0;
}

static int
handle_sign(struct peer *p, struct imsg *im, void *arg)
{
	struct monitor *m = arg;
	struct settings *s = m->settings;
	unsigned char nonce[NONCE_BYTES];
	struct sign_request q;
	struct sign_answer a;
	struct buf b;

	if (!s->paired || sign_request_parse(im, &q) == -1)
		return -1;
	if (!sign_path_permitted(s->url.path, s->worker, q.path)) {
		log_warnx("the bridge asked to sign a path that is not of "
			  "this worker");
		sign_request_free(&q);
		return -1;
	}
	randombytes_buf(nonce, sizeof(nonce));
	sign_request(&s->identity.key, s->identity.credential.data, &q,
	    time_wall_ms(), nonce, &a);
	buf_init(&b);
	sign_answer_build(&b, &a);
	peer_send(p, MSG_SIGNED, im->id, -1, &b);
	sign_answer_free(&a);
	sign_request_free(&q);
	return 0;
}

static int
handle_store(struct peer *p, struct imsg *im, void *arg)
{
	struct monitor *m = arg;
	struct credential c;
	char *error = NULL;
	int64_t when;

	if (!m->settings->paired || credential_parse(im, &c) == -1)
		return -1;
	if (!credential_valid(c.credential) ||
	    time_parse_iso(c.expires_text, &when) == -1 || when != c.expires) {
		credential_free(&c);
		return -1;
	}
	if (identity_rotate(&m->settings->identity, c.credential,
		c.expires_text, c.expires, m->mountinfo, &error) == -1)
		log_warnx("the new credential was not stored: %s", error);
	credential_free(&c);
	answer(p, MSG_CREDENTIAL_STORED, im->id, error);
	return 0;
}

static struct guard *
guard_of(struct monitor *m, uint32_t root)
{
	return root < m->roots->n ? &m->guards[root] : NULL;
}

/* Who arms: one guard is the incarnation's, of several each names its work. */
static char *
owner_of(const struct monitor *m, const char *assignment)
{
	if (m->roots->n == 1 && m->settings->lease_slots == 1)
		return xstrdup(m->incarnation);
	return xasprintf("%s:%s", m->incarnation, assignment);
}

static int
handle_arm(struct peer *p, struct imsg *im, void *arg)
{
	struct monitor *m = arg;
	struct assignment_ref ref;
	struct guard *g;
	struct buf b;
	char *owner, *error = NULL;

	if (assignment_ref_parse(im, &ref) == -1)
		return -1;
	g = guard_of(m, ref.root);
	if (g == NULL || (g->root->operations & OPS_MUTATION) == 0 ||
	    *ref.assignment == '\0') {
		free(ref.assignment);
		return -1;
	}
	owner = owner_of(m, ref.assignment);
	if (m->state != MS_RUN || m->executor.peer == NULL)
		errorf(&error, "the worker is stopping");
	else if (guard_arm(g, m->settings->worker, owner, ref.assignment,
		     im->id, &error) == 0) {
		buf_init(&b);
		assignment_ref_build(&b, ref.root, ref.assignment);
		peer_send(m->executor.peer, MSG_ALLOW, im->id, -1, &b);
	}
	if (error != NULL) {
		log_warnx("workspace %s was not armed: %s", g->root->id, error);
		answer(p, MSG_ARMED, im->id, error);
	}
	free(owner);
	free(ref.assignment);
	return 0;
}

static int
handle_allowed(struct peer *p, struct imsg *im, void *arg)
{
	struct monitor *m = arg;
	struct assignment_ref ref;
	struct guard *g;
	int r;

	(void)p;
	if (assignment_ref_parse(im, &ref) == -1)
		return -1;
	g = guard_of(m, ref.root);
	r = g == NULL ? -1 : guard_allowed(g, ref.assignment);
	free(ref.assignment);
	if (r == -1)
		return -1;
	if (m->bridge.peer != NULL)
		answer(m->bridge.peer, MSG_ARMED, g->request, NULL);
	return 0;
}

static void
cleared(struct monitor *m, struct guard *g, uint32_t id, enum clear_result r,
    char *error)
{
	if (r == CLEAR_LATER)
		return;
	if (r == CLEAR_FAILED)
		log_warnx(
		    "workspace %s stays in quarantine: %s", g->root->id, error);
	if (m->bridge.peer != NULL)
		answer(m->bridge.peer, MSG_CLEARED, id, error);
	else
		free(error);
}

static int
handle_clear(struct peer *p, struct imsg *im, void *arg)
{
	struct monitor *m = arg;
	struct assignment_ref ref;
	struct guard *g;
	enum clear_result r;
	char *error = NULL;

	(void)p;
	if (assignment_ref_parse(im, &ref) == -1)
		return -1;
	if ((g = guard_of(m, ref.root)) == NULL) {
		free(ref.assignment);
		return -1;
	}
	r = guard_clear(g, ref.assignment, im->id, time_mono_ms(), &error);
	free(ref.assignment);
	cleared(m, g, im->id, r, error);
	if (r == CLEAR_LATER)
		monitor_advance(m);
	return 0;
}

void
requests_tick(struct monitor *m)
{
	struct guard *g;
	enum clear_result r;
	char *error;
	size_t i;

	for (i = 0; i < m->roots->n; i++) {
		g = &m->guards[i];
		if (!g->clearing)
			continue;
		error = NULL;
		r = guard_settle(g, time_mono_ms(), &error);
		cleared(m, g, g->clear_request, r, error);
	}
}

static int
handle_outcome(struct peer *p, struct imsg *im, void *arg)
{
	struct monitor *m = arg;
	struct assignment_ref ref;
	enum certainty outcome;
	struct guard *g;

	(void)p;
	if (outcome_parse(im, &ref, &outcome) == -1)
		return -1;
	if ((g = guard_of(m, ref.root)) == NULL) {
		free(ref.assignment);
		return -1;
	}
	guard_outcome(g, ref.assignment, outcome);
	free(ref.assignment);
	requests_tick(m);
	return 0;
}

static int
handle_state(struct peer *p, struct imsg *im, void *arg)
{
	struct monitor *m = arg;
	enum bridge_state state;
	char *text, *line;

	(void)p;
	if (state_parse(im, &state, &text) == -1)
		return -1;
	switch (state) {
	case BS_REGISTERED:
		line = xasprintf("registered as %s at %s", m->settings->worker,
		    m->settings->url.base);
		break;
	case BS_RECONNECTING:
		line = xasprintf("%s%s",
		    m->maintenance ? "" : "reconnecting after ",
		    text == NULL ? "unknown bridge error" : text);
		break;
	case BS_CONNECTING:
	case BS_MAX:
	default:
		log_debug("connecting to %s", m->settings->url.base);
		free(text);
		return 0;
	}
	free(text);
	status_tell(m->report, line, state == BS_REGISTERED);
	free(line);
	return 0;
}

/*
 * Requests that need the executor or storage end when the stop begins to be
 * carried out; signing, clearing and storing go on until the bridge is gone.
 */
const struct peer_handler bridge_table[] = {
	{ MSG_READY, IN(MS_START), 0, handle_ready },
	{ MSG_FAILED, IN(MS_START) | IN(MS_END), 0, handle_ended },
	{ MSG_ENDED, IN(MS_RUN) | IN(MS_STOP) | IN(MS_END), 0, handle_ended },
	{ MSG_SIGN, IN(MS_RUN) | IN(MS_STOP) | IN(MS_END), 0, handle_sign },
	{ MSG_STORE_CREDENTIAL, IN(MS_RUN) | IN(MS_STOP) | IN(MS_END), 0,
	    handle_store },
	{ MSG_ARM, IN(MS_RUN) | IN(MS_STOP) | IN(MS_END), 0, handle_arm },
	{ MSG_CLEAR, IN(MS_RUN) | IN(MS_STOP) | IN(MS_END), 0, handle_clear },
	{ MSG_STATE, IN(MS_RUN) | IN(MS_STOP) | IN(MS_END), 0, handle_state },
	{ 0, 0, 0, NULL },
};

const struct peer_handler executor_table[] = {
	{ MSG_READY, IN(MS_START), 0, handle_ready },
	{ MSG_FAILED, IN(MS_START) | IN(MS_END), 0, handle_ended },
	{ MSG_ENDED, IN(MS_RUN) | IN(MS_STOP) | IN(MS_END), 0, handle_ended },
	{ MSG_ALLOWED, IN(MS_RUN) | IN(MS_STOP) | IN(MS_END), 0,
	    handle_allowed },
	{ MSG_OUTCOME, IN(MS_RUN) | IN(MS_STOP) | IN(MS_END), 0,
	    handle_outcome },
	{ 0, 0, 0, NULL },
};
