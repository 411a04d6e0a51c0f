#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "log.h"
#include "msg.h"
#include "proc.h"

/*
 * Stands in for the bridge and the executor in test_run. What it does after
 * the start is named by a value of its configuration: the sandbox profile
 * for the bridge, the variable LC_SCENARIO for the executor.
 */

static struct imsgbuf ib;
static int channel = -1;
static char *scenario;

static void
send_buf(uint32_t type, uint32_t id, struct buf *b)
{
	imsg_compose(&ib, type, id, -1, b->data, b->len);
	buf_free(b);
	if (imsg_flush_blocking(&ib) == -1)
		exit(4);
}

static void
send_empty(uint32_t type)
{
	struct buf b;

	buf_init(&b);
	send_buf(type, 0, &b);
}

static void
send_end(uint32_t type, uint8_t status, const char *text)
{
	struct buf b;

	buf_init(&b);
	ended_build(&b, status, text);
	send_buf(type, 0, &b);
}

static void
next(struct imsg *im)
{
	int r;

	if ((r = imsg_get_blocking(&ib, im, 20000)) != 1) {
		log_warnx("no message: %d", r);
		exit(5);
	}
}

static void
expect(uint32_t type, struct imsg *im)
{
	next(im);
	if (im->type != type) {
		log_warnx(
		    "got %s instead of %s", msg_name(im->type), msg_name(type));
		exit(6);
	}
}

static void
expect_empty(uint32_t type)
{
	struct imsg im;

	expect(type, &im);
	imsg_free(&im);
}

static void
expect_verdict(uint32_t type)
{
	struct imsg im;
	struct verdict v;

	expect(type, &im);
	if (verdict_parse(&im, &v) == -1)
		exit(7);
	log_warnx("%s: %s", msg_name(type), v.error == NULL ? "ok" : v.error);
	free(v.error);
	imsg_free(&im);
}

static void
send_assignment(uint32_t type, uint32_t id, uint32_t root, const char *a)
{
	struct buf b;

	buf_init(&b);
	assignment_ref_build(&b, root, a);
	send_buf(type, id, &b);
}

static void
ask_sign(const char *path)
{
	struct sign_request q;
	struct sign_answer a;
	struct buf b;
	struct imsg im;

	memset(&q, 0, sizeof(q));
	q.path = xstrdup(path);
	buf_init(&b);
	sign_request_build(&b, &q);
	send_buf(MSG_SIGN, 21, &b);
	free(q.path);
	expect(MSG_SIGNED, &im);
	if (im.id != 21 || sign_answer_parse(&im, &a) == -1)
		exit(8);
	log_warnx("signed %zu %zu %zu", strlen(a.timestamp), strlen(a.nonce),
	    strlen(a.signature));
	sign_answer_free(&a);
	imsg_free(&im);
}

static void
store(void)
{
	struct credential c;
	struct buf b;

	c.credential = xstrdup("rotated_credential_0123456789abcdef");
	c.expires_text = xstrdup("2031-01-02T03:04:05.678Z");
	c.expires = 1925089445678;
	buf_init(&b);
	credential_build(&b, &c);
	send_buf(MSG_STORE_CREDENTIAL, 22, &b);
	credential_free(&c);
	expect_verdict(MSG_CREDENTIAL_STORED);
}

static void
say_state(enum bridge_state state, const char *text)
{
	struct buf b;

	buf_init(&b);
	state_build(&b, state, text);
	send_buf(MSG_STATE, 0, &b);
}

static int
is(const char *name)
{
	return strcmp(scenario, name) == 0;
}

/* Arms, lets the executor run it, and clears at once. */
static void
mutate(int clear)
{
	send_assignment(MSG_ARM, 31, 0, "asg_1");
	expect_verdict(MSG_ARMED);
	if (is("arm-twice")) {
		send_assignment(MSG_ARM, 32, 0, "asg_2");
		expect_verdict(MSG_ARMED);
	}
	if (!clear)
		return;
	send_assignment(MSG_CLEAR, 33, 0, "asg_1");
	if (!is("clear-early") && write(channel, "g", 1) != 1)
		exit(9);
	expect_verdict(MSG_CLEARED);
}

static void __attribute__((__noreturn__))
bridge_pair(const struct bridge_config *c)
{
	struct credential cr;
	struct buf b;

	if (strcmp(c->code, "REFUSED") == 0) {
		send_end(MSG_ENDED, 1, "the server refused the code");
		exit(1);
	}
	cr.credential = xstrdup("paired_credential_0123456789abcdefgh");
	cr.expires_text = xstrdup("2031-01-02T03:04:05.678Z");
	cr.expires = 1925089445678;
	buf_init(&b);
	credential_build(&b, &cr);
	send_buf(MSG_PAIRED, 1, &b);
	credential_free(&cr);
	expect_verdict(MSG_CREDENTIAL_STORED);
	send_end(MSG_ENDED, 0, NULL);
	exit(0);
}

static void __attribute__((__noreturn__)) bridge(void)
{
	struct bridge_config c;
	struct imsg im;

	expect(MSG_CONFIG, &im);
	if (bridge_config_parse(&im, &c) == -1)
		exit(7);
	channel = im.fd;
	im.fd = -1;
	imsg_free(&im);
	scenario = c.sandbox_profile == NULL ? xstrdup("pair")
					     : xstrdup(c.sandbox_profile);
	log_warnx(
	    "bridge uid %lu url %s", (unsigned long)geteuid(), c.base_url);
	if (is("fail")) {
		send_end(MSG_FAILED, 1, "no certificate authorities");
		exit(1);
	}
	if (is("never-ready"))
		pause();
	send_empty(MSG_READY);
	expect_empty(MSG_START);
	if (c.role == ROLE_PAIR)
		bridge_pair(&c);
	say_state(BS_REGISTERED, NULL);
	if (is("die"))
		exit(3);
	if (is("ended")) {
		send_end(MSG_ENDED, 75, "the server does not know the worker");
		exit(75);
	}
	if (is("sign"))
		ask_sign("/v1/bridge/workers/my-vm/lease");
	if (is("sign-foreign"))
		ask_sign("/v1/bridge/workers/other/lease");
	if (is("store"))
		store();
	if (is("mutate") || is("arm-twice") || is("clear-early"))
		mutate(1);
	if (is("arm"))
		mutate(0);
	if (is("no-such-root"))
		send_assignment(MSG_ARM, 34, 7, "asg_1");
	if (is("malformed"))
		send_empty(MSG_ARM);
	if (is("not-permitted"))
		send_empty(MSG_ALLOW);
	log_warnx("bridge idle");
	if (is("ignore-stop"))
		for (;;)
			pause();
	expect_empty(MSG_STOP);
	send_end(MSG_ENDED, 0, NULL);
	exit(0);
}

static void
show_root(const struct imsg *im)
{
	struct root_config r;
	struct stat st, made;
	int fd;

	if (root_config_parse(im, &r) == -1 || im->fd == -1 ||
	    fstat(im->fd, &st) == -1)
		exit(7);
	log_warnx("root %u %s mount %u owner %lu operations %u", r.index, r.id,
	    r.mount, (unsigned long)st.st_uid, r.operations);
	fd = openat(im->fd, "made", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd != -1 && fstat(fd, &made) == 0)
		log_warnx("made owner %lu", (unsigned long)made.st_uid);
	else
		log_warn("made");
	root_config_free(&r);
}

static void __attribute__((__noreturn__)) executor(void)
{
	struct executor_config c;
	struct imsg im;
	struct assignment_ref ref;
	struct buf b;
	size_t i;
	char go;

	expect(MSG_CONFIG, &im);
	if (executor_config_parse(&im, &c) == -1)
		exit(7);
	channel = im.fd;
	im.fd = -1;
	imsg_free(&im);
	scenario = xstrdup("");
	log_warnx("executor uid %lu user %s home %s", (unsigned long)geteuid(),
	    c.user, c.home);
	for (i = 0; i < c.nenv; i++) {
		log_warnx("env %s", c.env[i]);
		if (strncmp(c.env[i], "LC_SCENARIO=", 12) == 0)
			scenario = c.env[i] + 12;
	}
	for (i = 0; i < c.nhidden; i++)
		log_warnx("hidden %s", c.hidden[i]);
	for (i = 0; i < c.nroots; i++) {
		expect(MSG_ROOT, &im);
		show_root(&im);
		imsg_free(&im);
	}
	if (is("fail")) {
		send_end(MSG_FAILED, 1, "AppArmor forbids user namespaces");
		exit(1);
	}
	send_empty(MSG_READY);
	expect_empty(MSG_START);
	for (;;) {
		next(&im);
		if (im.type == MSG_STOP)
			break;
		if (im.type != MSG_ALLOW ||
		    assignment_ref_parse(&im, &ref) == -1)
			exit(7);
		if (is("abort"))
			abort();
		send_assignment(MSG_ALLOWED, im.id, ref.root, ref.assignment);
		if (read(channel, &go, 1) != 1)
			continue;
		(void)usleep(100000);
		buf_init(&b);
		outcome_build(&b, ref.root, ref.assignment,
		    is("uncertain") ? UNCERTAIN : COMMITTED);
		send_buf(MSG_OUTCOME, 0, &b);
		free(ref.assignment);
		imsg_free(&im);
	}
	send_end(MSG_ENDED, 0, NULL);
	exit(0);
}

int
main(int argc, char **argv)
{
	(void)argc;
	log_init("fake", 0);
	proc_helper_init(&ib, 1);
	if (strcmp(argv[0], "librechat-code-bridge") == 0)
		bridge();
	executor();
}
