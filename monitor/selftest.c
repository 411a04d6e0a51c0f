#include "config.h"

#include <sys/types.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "cgroup.h"
#include "commands.h"
#include "error.h"
#include "launch.h"
#include "lock.h"
#include "log.h"
#include "monitor.h"
#include "msg.h"
#include "primitives.h"
#include "record.h"
#include "roots.h"
#include "settings.h"
#include "size.h"
#include "storage.h"
#include "times.h"

/*
 * librechat-code selftest: what this machine has of what a worker needs, one
 * line each on standard output, and the remedy for what is missing.
 */

#define REACH_MS 20000

static int failures;

enum verdict_kind { PASS, FAIL, NOTE };

/* "name: ok", "name: FAILED: why", "name: missing, not needed: why". */
static void
line(const char *name, enum verdict_kind kind, const char *text)
{
	static const char *const words[] = { "ok", "FAILED",
		"missing, but not needed" };
	int some = text != NULL && *text != '\0';

	if (kind == FAIL)
		failures++;
	printf("%s: %s%s%s\n", name, words[kind],
	    !some              ? ""
		: kind == PASS ? ", "
			       : ": ",
	    some ? text : "");
	(void)fflush(stdout);
}

static void
line_error(const char *name, char *error)
{
	line(name, FAIL, error);
	free(error);
}

static int
choose_account(const struct options *o, struct account *a, char **error)
{
	if (o->user == NULL)
		return account_privsep(a, error);
	if (account_by_name(o->user, a, error) == -1)
		return -1;
	if (a->uid == 0)
		return errorf(
		    error, "--user %s: commands never run as root", o->user);
	return 0;
}

static void
test_primitives(const struct options *o)
{
	struct account a;
	char text[1024], *error = NULL;
	size_t i;
	int r, root = geteuid() == 0;

	memset(&a, 0, sizeof(a));
	if (root) {
		if (choose_account(o, &a, &error) == -1) {
			line_error("account", error);
			return;
		}
		line("account", PASS, a.name);
	}
	for (i = 0; i < nprimitives; i++) {
		r = primitive_run(
		    &primitives[i], root ? &a : NULL, text, sizeof(text));
		line(primitives[i].name,
		    r == 0                     ? PASS
			: primitives[i].needed ? FAIL
					       : NOTE,
		    text);
	}
	account_free(&a);
}

/* What commands of one workspace may use up, and whether that is in force. */
static void
test_limits(const struct options *o)
{
	struct settings s;
	char *error = NULL, *text, *why = NULL;

	memset(&s, 0, sizeof(s));
	if (settings_limits(&s, o, &error) == -1) {
		line_error("limits", error);
		return;
	}
	text = size_text(s.tmp_bytes);
	line("/tmp size", PASS, text);
	free(text);
	text = s.processes == 0 ? xstrdup("none")
				: xasprintf("%lu", (unsigned long)s.processes);
	line("process limit", PASS, text);
	free(text);
	text = s.memory_bytes == 0 ? xstrdup("none")
				   : size_text(s.memory_bytes);
	if (s.memory_bytes == 0 || cgroup_check(&cgroup_here, &why) == 0)
		line("memory limit", PASS, text);
	else {
		error = xasprintf("%s is not in force: %s", text, why);
		line("memory limit", NOTE, error);
	}
	free(text);
	free(error);
	free(why);
}

/* A file can be made, synced and removed where markers will be. */
static int
try_directory(const char *dir, char **error)
{
	struct place p;
	char *path, *name;
	int fd, r = -1;

	path = xasprintf("%s/restricted", dir);
	name = storage_sibling("restricted", ".probe");
	if (place_open(path, PLACE_CREATE | PLACE_DURABLE, &p, error) ==
	    STORAGE_OK) {
		if ((fd = place_create(&p, name, error)) != -1) {
			if (storage_write(fd, "probe\n", 6) == -1 ||
			    fsync(fd) == -1)
				error_errno(error, "write in %s", dir);
			else
				r = place_sync(&p, error);
			close(fd);
			(void)unlinkat(p.fd, name, 0);
		}
		place_close(&p);
	}
	free(path);
	free(name);
	return r;
}

static void
test_lock(const char *dir)
{
	char *error = NULL;
	int fd;

	switch (lock_worker(dir, &fd, &error)) {
	case LOCK_TAKEN:
		close(fd);
		line("lock", PASS, "no worker is running");
		break;
	case LOCK_BUSY:
		free(error);
		line("lock", PASS, "held by a running worker");
		break;
	case LOCK_ERROR:
	default:
		line_error("lock", error);
		break;
	}
}

/* Takes messages of the bridge until it says how it went. */
static void
wait_reached(struct imsgbuf *ib, const char *url)
{
	int64_t left, end = time_mono_ms() + REACH_MS;
	struct imsg im;
	struct ended e;
	char *text;
	int done = 0;

	while (!done && (left = end - time_mono_ms()) > 0) {
		if (imsg_flush_blocking(ib) == -1 ||
		    imsg_get_blocking(ib, &im, (int)left) != 1)
			break;
		if (im.type == MSG_READY)
			imsg_compose(ib, MSG_START, 0, -1, NULL, 0);
		else if ((im.type == MSG_ENDED || im.type == MSG_FAILED) &&
		    ended_parse(&im, &e) == 0) {
			text = xasprintf("%s %s", url,
			    e.text != NULL ? e.text : "cannot be reached");
			line("connection",
			    im.type == MSG_ENDED && e.status == STATUS_OK
				? PASS
				: FAIL,
			    text);
			free(text);
			free(e.text);
			done = 1;
		}
		imsg_free(&im);
	}
	if (!done)
		line("connection", FAIL, "the bridge gave no answer");
}

static void
test_connection(struct settings *s)
{
	struct monitor m;
	struct roots none;
	char *error = NULL;

	memset(&m, 0, sizeof(m));
	memset(&none, 0, sizeof(none));
	m.settings = s;
	m.roots = &none;
	(void)signal(SIGPIPE, SIG_IGN);
	if (settings_network(s, &error) == -1 ||
	    launch_bridge(&m, ROLE_REACH, -1, NULL, &error) != STATUS_OK) {
		line_error("connection", error);
		return;
	}
	wait_reached(&m.bridge.proc.ib, s->url.base);
	imsg_clear(&m.bridge.proc.ib);
	(void)kill(m.bridge.proc.pid, SIGKILL);
	while (waitpid(m.bridge.proc.pid, NULL, 0) == -1 && errno == EINTR)
		;
}

static int
has_identity_setting(void)
{
	static const char *const names[] = { "LIBRECHAT_CODE_WORKER_ID",
		"LIBRECHAT_CODE_IDENTITY_FILE" };
	const char *v;
	size_t i;

	for (i = 0; i < 2; i++)
		if ((v = getenv(names[i])) != NULL && *v != '\0')
			return 1;
	return 0;
}

static void
test_storage(const char *dir, const char *identity, int token)
{
	char *error = NULL;

	if (record_check(identity, &error) == -1 ||
	    try_directory(dir, &error) == -1)
		line_error("state directory", error);
	else {
		line("state directory", PASS, dir);
		if (identity != NULL || token)
			test_lock(dir);
	}
}

static void
test_worker(const struct options *o)
{
	struct settings s;
	char *home, *dir, *error = NULL;

	if (!has_identity_setting()) {
		if ((home = settings_home(&error)) == NULL) {
			line_error("state directory", error);
			return;
		}
		dir = xasprintf(
		    "%s/.local/state/librechat/code/quarantines", home);
		test_storage(dir, NULL, 0);
		line("lock and connection", NOTE,
		    "LIBRECHAT_CODE_WORKER_ID is not set, so there is no "
		    "worker to look for");
		free(dir);
		free(home);
		return;
	}
	memset(&s, 0, sizeof(s));
	if (settings_common(&s, o, &error) == -1)
		line_error("identity", error);
	else {
		line("identity", PASS, s.paired ? s.identity_path : "token");
		test_storage(s.state_dir, s.identity_path, !s.paired);
		test_connection(&s);
	}
	settings_free(&s);
}

int
command_selftest(const struct options *o)
{
	if (o->user != NULL && geteuid() != 0) {
		log_warnx("--user needs a start as root");
		return STATUS_CONFIG;
	}
	failures = 0;
	test_primitives(o);
	test_limits(o);
	test_worker(o);
	return failures == 0 ? STATUS_OK : STATUS_ERROR;
}
