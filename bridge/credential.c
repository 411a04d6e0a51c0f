#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "api.h"
#include "credential.h"
#include "flight.h"
#include "json.h"
#include "log.h"
#include "peer.h"
#include "times.h"
#include "utf8.h"

#define INITIAL_OFFSET 60000
#define CREDENTIAL_MIN 32 /* UTF-16 units */
#define CREDENTIAL_MAX 4096 /* bytes; it goes into a header line */

struct credentials {
	struct bridge *b;
	char *value; /* sodium_malloc */
	int64_t expires;
	int64_t offset;
	struct flight flight;
	struct call *call;
	uint32_t store_id; /* of MSG_STORE_CREDENTIAL, or 0 */
	struct credential next; /* while the monitor stores it */
};

static void
abandon(void *arg)
{
	struct credentials *cr = arg;

	/* What the monitor already stores is adopted in any case. */
	call_cancel(&cr->call);
}

static void
set_value(struct credentials *cr, const char *value)
{
	size_t len = strlen(value);
	char *copy;

	if ((copy = sodium_malloc(len + 1)) == NULL)
		fatalx("no guarded memory for the credential; is the limit of "
		       "locked memory (RLIMIT_MEMLOCK) 0?");
	memcpy(copy, value, len + 1);
	(void)sodium_mprotect_readonly(copy);
	sodium_free(cr->value);
	cr->value = copy;
}

struct credentials *
credentials_new(struct bridge *b)
{
	struct credentials *cr;

	cr = xcalloc(1, sizeof(*cr));
	cr->b = b;
	cr->offset = INITIAL_OFFSET;
	cr->expires = b->config.expires;
	flight_init(&cr->flight, b->base, abandon, cr);
	if (b->config.credential != NULL) {
		set_value(cr, b->config.credential);
		explicit_bzero(
		    b->config.credential, strlen(b->config.credential));
		free(b->config.credential);
		b->config.credential = NULL;
	}
	return cr;
}

void
credentials_free(struct credentials *cr)
{
	call_cancel(&cr->call);
	sodium_free(cr->value);
	credential_free(&cr->next);
	free(cr);
}

const char *
credential_value(const struct credentials *cr)
{
	return cr->value != NULL ? cr->value : "";
}

void
credential_set_offset(struct credentials *cr, int64_t offset)
{
	cr->offset = offset;
}

int64_t
credential_life(const struct credentials *cr)
{
	return cr->expires - time_wall_ms() - cr->offset;
}

int
credential_due(const struct credentials *cr)
{
	return cr->b->config.auth == AUTH_PAIRED &&
	    credential_life(cr) <= CREDENTIAL_WINDOW;
}

int64_t
credential_due_in(const struct credentials *cr)
{
	int64_t left;

	if (cr->b->config.auth != AUTH_PAIRED)
		return -1;
	left = credential_life(cr) - CREDENTIAL_WINDOW;
	return left > 0 ? left : 0;
}

const char *
credential_response(
    const struct json *j, const char *worker_id, struct credential *c)
{
	const char *id, *value, *expires, *p;
	int64_t version, ms;
	size_t len;

	if (json_get_integer(j, "protocolVersion", &version) == -1 ||
	    version != 1)
		return "the protocol version is not 1";
	id = json_get_str(j, "workerId");
	if (id == NULL || strcmp(id, worker_id) != 0)
		return "it is for another worker";
	value = json_get_str(j, "credential");
	len = value == NULL ? 0 : strlen(value);
	if (value == NULL || !utf8_valid(value, len) ||
	    utf8_units(value, len) < CREDENTIAL_MIN || len > CREDENTIAL_MAX)
		return "the credential is missing, too short or too long";
	for (p = value; *p != '\0'; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			return "the credential has a character that cannot "
			       "be sent";
	expires = json_get_str(j, "expiresAt");
	if (expires == NULL || time_parse_iso(expires, &ms) == -1)
		return "expiresAt is not a time";
	c->credential = xstrdup(value);
	c->expires_text = xstrdup(expires);
	c->expires = ms;
	return NULL;
}

static void
fail(struct credentials *cr, enum failure_class class, int status,
    const char *why)
{
	struct failure f;

	failure_set(&f, class, "%s", why);
	f.status = status;
	flight_land(&cr->flight, &f);
}

static void
on_refreshed(const struct reply *r, void *arg)
{
	struct credentials *cr = arg;
	struct bridge *b = cr->b;
	const char *wrong;
	char text[FAILURE_TEXT];
	struct buf m;

	cr->call = NULL;
	if (r->outcome != API_OK) {
		if (r->terminal)
			fail(cr, FAIL_TERMINAL, r->status, r->text);
		else
			fail(cr, FAIL_RETRY, 0, r->text);
		return;
	}
	wrong = credential_response(r->json, b->config.worker_id, &cr->next);
	if (wrong == NULL &&
	    cr->next.expires <=
		time_wall_ms() + cr->offset + CREDENTIAL_WINDOW) {
		credential_free(&cr->next);
		wrong = "the new credential ends too soon";
	}
	if (wrong != NULL) {
		xsnprintf(text, sizeof(text), "credential refresh: %s", wrong);
		fail(cr, FAIL_RETRY, 0, text);
		return;
	}
	api_hold(b->api);
	cr->store_id = bridge_id(b);
	buf_init(&m);
	credential_build(&m, &cr->next);
	peer_send(b->monitor, MSG_STORE_CREDENTIAL, cr->store_id, -1, &m);
	buf_wipe(&m);
}

int
credential_stored(struct peer *p, struct imsg *im, void *arg)
{
	struct bridge *b = arg;
	struct credentials *cr = b->credentials;
	struct failure f;
	struct verdict v;

	(void)p;
	if (cr->store_id == 0 || im->id != cr->store_id ||
	    verdict_parse(im, &v) == -1)
		return -1;
	cr->store_id = 0;
	if (v.error == NULL) {
		set_value(cr, cr->next.credential);
		cr->expires = cr->next.expires;
		log_debug("credential renewed until %s", cr->next.expires_text);
		failure_set(&f, FAIL_NONE, " ");
	} else
		failure_set(&f, FAIL_RETRY,
		    "credential refresh: cannot be "
		    "stored: %s",
		    v.error);
	free(v.error);
	credential_free(&cr->next);
	api_release(b->api);
	flight_land(&cr->flight, &f);
	return 0;
}

struct waiter *
credential_refresh(struct credentials *cr, int64_t limit,
    void (*done)(const struct failure *, void *), void *arg)
{
	struct jwriter w;
	struct buf body;
	char *target;

	if (cr->call == NULL && cr->store_id == 0) {
		buf_init(&body);
		jw_init(&w, &body);
		jw_object(&w);
		jw_member_int(&w, "protocolVersion", 1);
		jw_object_end(&w);
		target = api_worker_target(cr->b, "credentials/refresh");
		cr->call = api_call(cr->b, "credential refresh", target, &body,
		    CREDENTIAL_LIMIT, 0, on_refreshed, cr);
		free(target);
	}
	return flight_join(&cr->flight, limit,
	    "credential refresh: not done in time", done, arg);
}
