#include "config.h"

#include <string.h>

#include "api.h"
#include "credential.h"
#include "json.h"
#include "peer.h"

/* The code is used up by the first attempt, so there is only one. */
#define PAIR_LIMIT 60000

static void
on_redeemed(const struct reply *r, void *arg)
{
	struct bridge *b = arg;
	struct credential c;
	const char *wrong;
	char text[2 * FAILURE_TEXT + 64];
	struct buf m;

	memset(&c, 0, sizeof(c));
	if (r->outcome != API_OK) {
		xsnprintf(text, sizeof(text), "%s%s%s%s", r->text,
		    r->error[0] != '\0' ? " (" : "", r->error,
		    r->error[0] != '\0' ? ")" : "");
		bridge_end(b, END_GENERAL, text);
	}
	wrong = credential_response(r->json, b->config.worker_id, &c);
	if (wrong != NULL) {
		xsnprintf(text, sizeof(text),
		    "pairing: the answer is not valid: %s", wrong);
		bridge_end(b, END_GENERAL, text);
	}
	buf_init(&m);
	credential_build(&m, &c);
	credential_free(&c);
	peer_send(b->monitor, MSG_PAIRED, 0, -1, &m);
	bridge_end(b, END_CLEAN, NULL);
}

void
pair_start(struct bridge *b)
{
	const struct bridge_config *c = &b->config;
	struct jwriter w;
	struct buf body;

	buf_init(&body);
	jw_init(&w, &body);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_member_str(&w, "workerId", c->worker_id);
	jw_member_str(&w, "code", c->code);
	jw_member_str(&w, "publicKey", c->public_key);
	jw_object_end(&w);
	(void)api_call(b, "pairing", "/bridge/pairings/redeem", &body,
	    PAIR_LIMIT, CALL_UNSIGNED, on_redeemed, b);
}
