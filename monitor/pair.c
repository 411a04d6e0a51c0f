#include "config.h"

#include <sys/types.h>
#include <sys/wait.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "buf.h"
#include "commands.h"
#include "confine.h"
#include "error.h"
#include "identity.h"
#include "leftover.h"
#include "lock.h"
#include "log.h"
#include "mountinfo.h"
#include "msg.h"
#include "names.h"
#include "proc.h"
#include "record.h"
#include "roots.h"
#include "settings.h"
#include "times.h"

#define READY_LIMIT_MS  10000
#define REDEEM_LIMIT_MS 90000
#define CODE_MAX        1024

static volatile sig_atomic_t interrupted;

static void
on_interrupt(int sig)
{
	interrupted = sig;
}

/* One pairing: what it has made so far. */
struct pairing {
	struct settings *s;
	struct secret code;
	struct key key;
	struct reservation rv;
	struct proc bridge;
	int mountinfo;
};

static void
install_handlers(void)
{
	struct sigaction sa;

	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = on_interrupt;
	sigemptyset(&sa.sa_mask);
	(void)sigaction(SIGINT, &sa, NULL);
	(void)sigaction(SIGTERM, &sa, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
}

/*
 * The code from the command line, where it is then overwritten, or with "-"
 * one line of standard input.
 */
static int
read_code(char *arg, struct secret *code, char **error)
{
	char line[CODE_MAX + 2], *t;
	size_t n = 0;
	ssize_t r = 1;

	if (strcmp(arg, "-") != 0) {
		t = trimmed(arg);
		sodium_memzero(arg, strlen(arg));
	} else {
		while (n <= CODE_MAX && memchr(line, '\n', n) == NULL) {
			r = read(STDIN_FILENO, line + n, CODE_MAX + 1 - n);
			if (r <= 0)
				break;
			n += (size_t)r;
		}
		if (r == -1)
			return error_errno(error, "standard input");
		line[n] = '\0';
		line[strcspn(line, "\n")] = '\0';
		t = trimmed(line);
		sodium_memzero(line, sizeof(line));
	}
	n = strlen(t);
	if (n == 0)
		errorf(error, "one-time pairing code is required");
	else if (n > CODE_MAX)
		errorf(error, "the one-time pairing code is too long");
	else
		secret_set(code, t, n);
	sodium_memzero(t, n);
	free(t);
	return *error == NULL ? 0 : -1;
}

static void
send_config(struct pairing *p)
{
	struct bridge_config c;
	struct buf b;

	memset(&c, 0, sizeof(c));
	c.role = ROLE_PAIR;
	c.auth = AUTH_PAIRED;
	c.verbose = (uint8_t)(p->s->verbose > 255 ? 255 : p->s->verbose);
	c.base_url = p->s->url.base;
	c.worker_id = p->s->worker;
	c.code = p->code.data;
	c.public_key = key_public_pem(&p->key);
	c.lease_slots = 1;
	c.ca_file = p->s->ca_file;
	c.https_proxy = p->s->https_proxy;
	c.http_proxy = p->s->http_proxy;
	c.all_proxy = p->s->all_proxy;
	c.no_proxy = p->s->no_proxy;
	buf_init(&b);
	bridge_config_build(&b, &c);
	free(c.public_key);
	imsg_compose(&p->bridge.ib, MSG_CONFIG, 0, -1, b.data, b.len);
	buf_wipe(&b);
}

static int
start_bridge(struct pairing *p, char **error)
{
	struct account as;
	int r, root = geteuid() == 0;

	memset(&as, 0, sizeof(as));
	if (root && account_privsep(&as, error) == -1)
		return -1;
	r = proc_start(
	    &p->bridge, "librechat-code-bridge", root ? &as : NULL, error);
	if (root)
		account_free(&as);
	if (r == -1)
		p->bridge.pid = 0;
	return r;
}

/*
 * The next message, of this type. MSG_FAILED and MSG_ENDED become the error.
 */
static int
expect(struct pairing *p, uint32_t type, int64_t limit, struct imsg *im,
    char **error)
{
	int64_t end = time_mono_ms() + limit;
	struct ended e;
	int r;

	if (imsg_flush_blocking(&p->bridge.ib) == -1)
		return error_errno(error, "bridge");
	do {
		if (interrupted)
			return errorf(error,
			    "interrupted; the code may be "
			    "used up: make a new one");
		r = imsg_get_blocking(&p->bridge.ib, im, 200);
	} while (r == -1 && errno == ETIMEDOUT && time_mono_ms() < end);
	if (r == 0)
		return errorf(error, "the bridge ended unexpectedly");
	if (r == -1)
		return error_errno(error, "answer of the bridge");
	if (im->type == type)
		return 0;
	if ((im->type == MSG_FAILED || im->type == MSG_ENDED) &&
	    ended_parse(im, &e) == 0) {
		errorf(error, "%s",
		    e.text != NULL ? e.text : "the bridge gave up");
		free(e.text);
	} else
		errorf(error, "the bridge sent %s instead of %s",
		    msg_name(im->type), msg_name(type));
	imsg_free(im);
	return -1;
}

static int
save(struct pairing *p, struct imsg *im, char **error)
{
	struct credential c;
	struct secret text;
	struct buf b;
	int64_t when;
	int r;

	if (credential_parse(im, &c) == -1)
		return errorf(error, "the bridge sent a malformed credential");
	if (!credential_valid(c.credential) ||
	    time_parse_iso(c.expires_text, &when) == -1) {
		credential_free(&c);
		return errorf(error,
		    "the server sent a credential that is not acceptable");
	}
	identity_format(&text, p->s->worker, c.credential, c.expires_text,
	    p->s->url_text, &p->key);
	credential_free(&c);
	r = identity_save(p->s->identity_path, &text, p->mountinfo, error);
	secret_free(&text);
	buf_init(&b);
	verdict_build(&b, *error);
	imsg_compose(
	    &p->bridge.ib, MSG_CREDENTIAL_STORED, im->id, -1, b.data, b.len);
	buf_free(&b);
	(void)imsg_flush_blocking(&p->bridge.ib);
	return r;
}

static int
redeem(struct pairing *p, char **error)
{
	const char *dirs[1];
	struct imsg im;
	int r;

	if (start_bridge(p, error) == -1)
		return -1;
	dirs[0] = p->rv.place.dir;
	if (confine(dirs, 1, NULL, error) == -1)
		return -1;
	send_config(p);
	if (expect(p, MSG_READY, READY_LIMIT_MS, &im, error) == -1)
		return -1;
	imsg_free(&im);
	imsg_compose(&p->bridge.ib, MSG_START, 0, -1, NULL, 0);
	if (expect(p, MSG_PAIRED, REDEEM_LIMIT_MS, &im, error) == -1)
		return -1;
	r = save(p, &im, error);
	imsg_free(&im);
	return r;
}

static void
end_bridge(struct pairing *p)
{
	if (p->bridge.pid <= 0)
		return;
	imsg_clear(&p->bridge.ib);
	(void)kill(p->bridge.pid, SIGKILL);
	while (waitpid(p->bridge.pid, NULL, 0) == -1 && errno == EINTR)
		;
}

static int
pair(struct settings *s, const struct options *o, char **error)
{
	struct pairing p;
	int r = -1;

	memset(&p, 0, sizeof(p));
	p.s = s;
	p.rv.place.fd = -1;
	p.bridge.ib.fd = -1;
	if (read_code(o->code, &p.code, error) == -1)
		return -1;
	install_handlers();
	p.mountinfo = mountinfo_open();
	if (identity_reserve(s->identity_path, p.mountinfo, &p.rv, error) ==
	    0) {
		(void)leftovers_remove(&p.rv.place);
		key_generate(&p.key);
		if ((r = redeem(&p, error)) == -1)
			identity_release(&p.rv);
		else
			identity_reservation_done(&p.rv);
		end_bridge(&p);
	}
	if (p.mountinfo != -1)
		close(p.mountinfo);
	key_free(&p.key);
	secret_free(&p.code);
	return r;
}

/*
 * Takes the locks of the worker at the new URL and, where an identity is to
 * be replaced, at its old one: a running worker would write its own key back.
 */
static int
take_locks(const struct settings *s, int locks[2], char **error)
{
	struct identity old;
	struct base_url url;
	char *dir, *why = NULL;
	enum lock_result r;

	locks[0] = locks[1] = -1;
	r = lock_worker(s->state_dir, &locks[0], error);
	if (r == LOCK_TAKEN &&
	    identity_load(s->identity_path, &old, &why) == STORAGE_OK) {
		if (base_url_parse(old.url, &url, &why) == 0) {
			dir = state_dir(s->home, url.canonical, old.worker);
			if (strcmp(dir, s->state_dir) != 0)
				r = lock_worker(dir, &locks[1], error);
			free(dir);
			base_url_free(&url);
		}
		identity_free(&old);
	}
	free(why);
	if (r == LOCK_TAKEN)
		return STATUS_OK;
	if (locks[0] != -1)
		close(locks[0]);
	return r == LOCK_BUSY ? STATUS_TRYAGAIN : STATUS_ERROR;
}

int
command_pair(const struct options *o)
{
	struct settings s;
	char *error = NULL;
	int locks[2], status;

	if (settings_pair(&s, o, &error) == -1 ||
	    record_check(s.identity_path, &error) == -1)
		status = STATUS_CONFIG;
	else if ((status = take_locks(&s, locks, &error)) == STATUS_OK) {
		if (pair(&s, o, &error) == -1)
			status = STATUS_ERROR;
		close(locks[0]);
		if (locks[1] != -1)
			close(locks[1]);
	}
	if (status == STATUS_OK)
		printf("Paired worker %s. Identity saved to %s\n", s.worker,
		    s.identity_path);
	else
		log_warnx("%s%s", error,
		    status == STATUS_TRYAGAIN ? ": stop the worker first" : "");
	free(error);
	settings_free(&s);
	return status;
}
