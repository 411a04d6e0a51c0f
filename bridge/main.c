#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <event2/event.h>
#include <sodium.h>

#include "api.h"
#include "assignment.h"
#include "bridge.h"
#include "clock.h"
#include "confine.h"
#include "credential.h"
#include "http.h"
#include "lanes.h"
#include "log.h"
#include "maintain.h"
#include "peer.h"
#include "proc.h"
#include "registration.h"
#include "roots.h"
#include "times.h"

#ifdef SANITIZERS
/* The leak check needs ptrace, which a restricted process does not have. */
const char *__asan_default_options(void);
const char *
__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

void
failure_set(struct failure *f, enum failure_class class, const char *fmt, ...)
{
	char text[FAILURE_TEXT]; /* an argument may be the text of f */
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	f->class = class;
	f->status = 0;
	memcpy(f->text, text, sizeof(text));
}

uint32_t
bridge_id(struct bridge *b)
{
	if (++b->last_id == 0)
		b->last_id = 1;
	return b->last_id;
}

void
bridge_report(struct bridge *b, enum bridge_state state, const char *text)
{
	struct buf m;

	if (b->reported == (int)state)
		return;
	b->reported = (int)state;
	buf_init(&m);
	state_build(&m, state, text);
	peer_send(b->monitor, MSG_STATE, 0, -1, &m);
	buf_free(&m);
}

void
bridge_end(struct bridge *b, enum end_status status, const char *text)
{
	char fenced[2 * FAILURE_TEXT];
	struct buf m;

	if (status == END_GENERAL && b->fenced) {
		status = END_FENCED;
		xsnprintf(fenced, sizeof(fenced),
		    "%s: another start with this identity, on this machine or "
		    "a copy of it, has taken over; only one may run. Pair "
		    "each machine as a worker of its own",
		    text != NULL ? text : "WORKER_FENCED");
		text = fenced;
	}
	buf_init(&m);
	ended_build(&m, (uint8_t)status, text);
	peer_send(b->monitor, MSG_ENDED, 0, -1, &m);
	peer_drain(b->monitor);
	credentials_free(b->credentials);
	bridge_config_free(&b->config);
	/* A resolver thread may hang; exit handlers have nothing to save. */
	_exit((int)status);
}

static void __attribute__((__noreturn__))
fail_start(struct imsgbuf *ib, const char *what, const char *error)
{
	char *text = xasprintf("%s: %s", what, error);
	struct buf m;

	buf_init(&m);
	ended_build(&m, END_GENERAL, text);
	imsg_compose(ib, MSG_FAILED, 0, -1, m.data, m.len);
	(void)imsg_flush_blocking(ib);
	_exit(END_GENERAL);
}

/* ---- messages ---- */

static int
on_start(struct peer *p, struct imsg *im, void *arg)
{
	struct bridge *b = arg;

	(void)p;
	if (im->data.len != 0)
		return -1;
	b->state = PS_RUNNING;
	switch (b->config.role) {
	case ROLE_PAIR:
		pair_start(b);
		return 0;
	case ROLE_RESET:
		reset_start(b);
		return 0;
	case ROLE_REACH:
		reach_start(b);
		return 0;
	default:
		break;
	}
	clock_watch(b);
	bridge_report(b, BS_CONNECTING, NULL);
	lanes_start(b);
	return 0;
}

static int
on_stop(struct peer *p, struct imsg *im, void *arg)
{
	struct bridge *b = arg;
	unsigned int was = b->state;

	(void)p;
	if (im->data.len != 0)
		return -1;
	b->state = PS_STOPPING;
	b->stopped_at = time_mono_ms();
	if (was == PS_WAITING)
		bridge_end(b, END_CLEAN, NULL);
	if (b->config.role == ROLE_PAIR)
		bridge_end(b, END_GENERAL, "pairing: interrupted");
	if (b->config.role != ROLE_WORKER)
		bridge_end(b, END_GENERAL, "interrupted");
	lanes_stop(b);
	return 0;
}

/* An answer of either peer to the assignment that waits for it. */
static int
on_answer(struct peer *p, struct imsg *im, void *arg)
{
	struct bridge *b = arg;
	struct assignment *as = lanes_awaiting(b, im->type, im->id);

	(void)p;
	return as == NULL ? -1 : assignment_message(as, im);
}

#define WAITING  (1U << PS_WAITING)
#define RUNNING  (1U << PS_RUNNING)
#define STOPPING (1U << PS_STOPPING)

static const struct peer_handler monitor_table[] = {
	{ MSG_START, WAITING, 0, on_start },
	{ MSG_STOP, WAITING | RUNNING, 0, on_stop },
	{ MSG_SIGNED, RUNNING | STOPPING, 0, api_signed },
	{ MSG_CREDENTIAL_STORED, RUNNING | STOPPING, 0, credential_stored },
	{ MSG_ARMED, RUNNING | STOPPING, 0, on_answer },
	{ MSG_CLEARED, RUNNING | STOPPING, 0, on_answer },
	{ 0, 0, 0, NULL },
};

static const struct peer_handler executor_table[] = {
	{ MSG_RESULT, RUNNING | STOPPING, 0, on_answer },
	{ MSG_ERROR, RUNNING | STOPPING, 0, on_answer },
	{ 0, 0, 0, NULL },
};

static void
on_gone(struct peer *p, void *arg)
{
	(void)arg;
	log_warnx("%s is gone", peer_name(p));
	_exit(END_GENERAL);
}

/* ---- start ---- */

/* The first message. *channel gets the executor's end in the worker role. */
static void
read_config(struct imsgbuf *ib, struct bridge_config *c, int *channel)
{
	struct imsg im;

	*channel = -1;
	if (imsg_get_blocking(ib, &im, -1) != 1)
		fatalx("no configuration from the monitor");
	if (im.type != MSG_CONFIG || bridge_config_parse(&im, c) == -1)
		fatalx("the monitor's first message is not a configuration");
	*channel = im.fd;
	im.fd = -1;
	imsg_free(&im);
	if ((*channel != -1) != (c->role == ROLE_WORKER))
		fatalx("the configuration does not fit the descriptors");
	if (c->role == ROLE_WORKER &&
	    (c->incarnation == NULL || c->credential == NULL ||
		c->sandbox_profile == NULL))
		fatalx("the configuration of a worker is incomplete");
	if (c->role == ROLE_PAIR && (c->code == NULL || c->public_key == NULL))
		fatalx("the configuration for pairing is incomplete");
	if (c->role == ROLE_RESET &&
	    (c->incarnation == NULL || c->credential == NULL ||
		c->sandbox_profile == NULL || c->session == NULL))
		fatalx("the configuration for a reset is incomplete");
}

static void
choose_proxy(const struct bridge *b, struct http_config *hc)
{
	const struct bridge_config *c = &b->config;

	hc->ca_file = c->ca_file;
	hc->no_proxy = c->no_proxy;
	hc->proxy = b->url.https ? c->https_proxy : c->http_proxy;
	if (hc->proxy == NULL)
		hc->proxy = c->all_proxy;
}

/* Everything that needs more rights than there will be afterwards. */
static void
prepare(struct bridge *b, struct http_config *hc, struct imsgbuf *ib)
{
	const char *wrong;
	struct buf id;
	char *error;

	if (url_parse(b->config.base_url, &b->url, &wrong) == -1)
		fail_start(ib, "Code API URL", wrong);
	choose_proxy(b, hc);
	if (sodium_init() == -1)
		fail_start(ib, "libsodium", "cannot be initialised");
	/* Before there is a filter: it opens the source of randomness. */
	(void)randombytes_random();
	if ((b->base = event_base_new()) == NULL)
		fail_start(ib, "libevent", "cannot be initialised");
	if ((b->http = http_new(b->base, hc, &error)) == NULL)
		fail_start(ib, "libcurl", error);
	buf_init(&id);
	url_encode(&id, b->config.worker_id);
	b->worker = buf_steal(&id);
}

static void
make_parts(struct bridge *b)
{
	b->api = api_new(b);
	b->credentials = credentials_new(b);
	if (b->config.role == ROLE_WORKER || b->config.role == ROLE_RESET)
		b->registration = registration_new(b);
	if (b->config.role != ROLE_WORKER)
		return;
	b->roots = roots_new(&b->config);
	b->lanes = lanes_new(b);
}

int
main(void)
{
	struct http_config hc;
	struct imsgbuf ib;
	struct bridge b;
	char *error;
	int channel;

#ifdef __GLIBC__
	/* Give large bodies back at once, and share one heap. */
	(void)mallopt(M_MMAP_THRESHOLD, 128 * 1024);
	(void)mallopt(M_ARENA_MAX, 1);
#endif
	memset(&b, 0, sizeof(b));
	b.reported = -1;
	log_init("bridge", 0);
	proc_helper_init(&ib, 1);
	/* A service manager may signal the whole group; the monitor stops us.
	 */
	(void)signal(SIGTERM, SIG_IGN);
	read_config(&ib, &b.config, &channel);
	log_init("bridge", b.config.verbose);
	ib.take_fds = 0;
	prepare(&b, &hc, &ib);
	if (confine(hc.ca_file, &error) == -1)
		fail_start(&ib, "restriction of the bridge", error);
	make_parts(&b);

	b.monitor = peer_adopt(
	    b.base, "monitor", &ib, monitor_table, &b.state, on_gone, &b);
	if (channel != -1)
		b.executor = peer_new(b.base, "executor", channel,
		    executor_table, &b.state, on_gone, &b);
	peer_send(b.monitor, MSG_READY, 0, -1, NULL);
	(void)event_base_dispatch(b.base);
	fatalx("event loop: no events left");
}
