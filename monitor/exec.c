#include "config.h"

#include <sys/types.h>
#include <sys/wait.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "commands.h"
#include "confine.h"
#include "error.h"
#include "launch.h"
#include "log.h"
#include "monitor.h"
#include "msg.h"
#include "times.h"

/*
 * librechat-code exec: one command in the sandbox of one directory, without
 * any Code API. The executor is the one that a worker has; this process
 * speaks to it as the monitor and as the bridge.
 */

#define ASSIGNMENT  "exec"
#define REQUEST_ID  1
#define OUTPUT_MAX  (1U << 20) /* both streams together */
#define COMMAND_MAX 32768 /* as a Code API may send */
#define START_MS    60000
#define SLICE_MS    100 /* a signal is noticed after that */

static volatile sig_atomic_t interrupted;

static void
on_interrupt(int sig)
{
	interrupted = sig;
}

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

/* The words as one line for the shell, each quoted. */
static char *
quote(char *const *words, size_t n)
{
	struct buf b;
	const char *p;
	size_t i;

	buf_init(&b);
	for (i = 0; i < n; i++) {
		if (i > 0)
			buf_addc(&b, ' ');
		buf_addc(&b, '\'');
		for (p = words[i]; *p != '\0'; p++) {
			if (*p == '\'')
				buf_adds(&b, "'\\''");
			else
				buf_addc(&b, (uint8_t)*p);
		}
		buf_addc(&b, '\'');
	}
	return buf_steal(&b);
}

/* 1 and a message, 0 if there was none in a slice of time, -1. */
static int
receive(struct imsgbuf *ib, struct imsg *im, int ms, char **error)
{
	int r;

	if ((r = imsg_get_blocking(ib, im, ms)) == 1)
		return 1;
	if (r == -1 && errno == ETIMEDOUT)
		return 0;
	if (r == 0)
		return errorf(error, "the executor ended unexpectedly");
	return error_errno(error, "answer of the executor");
}

/* Waits for one type from the executor; MSG_FAILED becomes the error. */
static int
expect(struct monitor *m, uint32_t type, char **error)
{
	int64_t end = time_mono_ms() + START_MS;
	struct ended e;
	struct imsg im;
	int r;

	if (imsg_flush_blocking(&m->executor.proc.ib) == -1)
		return error_errno(error, "executor");
	do {
		if (interrupted)
			return errorf(error, "interrupted");
		r = receive(&m->executor.proc.ib, &im, SLICE_MS, error);
	} while (r == 0 && time_mono_ms() < end);
	if (r == 0)
		return errorf(error, "the executor was not ready in time");
	if (r == -1)
		return -1;
	if (im.type != type) {
		if (im.type == MSG_FAILED && ended_parse(&im, &e) == 0) {
			errorf(error, "%s",
			    e.text != NULL ? e.text : "the executor gave up");
			free(e.text);
		} else
			errorf(error, "the executor sent %s instead of %s",
			    msg_name(im.type), msg_name(type));
	}
	imsg_free(&im);
	return *error == NULL ? 0 : -1;
}

static int
start(struct monitor *m, struct imsgbuf *channel, char **error)
{
	struct buf b;
	int sv[2];

	if (proc_socketpair(sv) == -1)
		return error_errno(error, "channel to the executor");
	imsg_init(channel, sv[1], IMSG_MESSAGE_MAX, 0);
	if (launch_executor(m, sv[0], error) != STATUS_OK ||
	    expect(m, MSG_READY, error) == -1 ||
	    confine(NULL, 0, m->cgroups.path, error) == -1)
		return -1;
	imsg_compose(&m->executor.proc.ib, MSG_START, 0, -1, NULL, 0);
	buf_init(&b);
	assignment_ref_build(&b, 0, ASSIGNMENT);
	imsg_compose(
	    &m->executor.proc.ib, MSG_ALLOW, REQUEST_ID, -1, b.data, b.len);
	buf_free(&b);
	return expect(m, MSG_ALLOWED, error);
}

static int
send_command(struct imsgbuf *channel, const char *command, uint32_t timeout_ms,
    char **error)
{
	static char assignment[] = ASSIGNMENT;
	struct request q;
	struct buf b;

	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	q.assignment = assignment;
	text_set(&q.command, command, strlen(command));
	q.timeout_ms = timeout_ms;
	q.max_output = OUTPUT_MAX;
	buf_init(&b);
	request_build(&b, &q);
	text_free(&q.command);
	imsg_compose(channel, MSG_REQUEST, REQUEST_ID, -1, b.data, b.len);
	buf_free(&b);
	if (imsg_flush_blocking(channel) == -1)
		return error_errno(error, "executor");
	return 0;
}

static int
put(int fd, const struct text *t)
{
	size_t done = 0;
	ssize_t n;

	while (done < t->len) {
		n = write(fd, t->data + done, t->len - done);
		if (n == -1 && errno == EINTR)
			continue;
		if (n == -1)
			return -1;
		done += (size_t)n;
	}
	return 0;
}

/* Passes a result through: the exit status. */
static int
show(const struct result *r)
{
	if (put(STDOUT_FILENO, &r->out) == -1) {
		log_warn("standard output");
		return STATUS_EXEC_FAILED;
	}
	(void)put(STDERR_FILENO, &r->err);
	if (r->truncated)
		log_warnx("the output was cut at %u bytes", OUTPUT_MAX);
	if (r->timed_out) {
		log_warnx("the time limit was reached; the command and all "
			  "its processes were ended");
		return STATUS_EXEC_TIMEOUT;
	}
	return r->exit_code < 0 ? STATUS_EXEC_FAILED : r->exit_code & 255;
}

static int
answer(struct imsg *im, char **error)
{
	struct tool_error e;
	struct result r;
	int status = STATUS_EXEC_FAILED;

	if (im->type == MSG_RESULT && result_parse(im, &r) == 0) {
		status = show(&r);
		result_free(&r);
	} else if (im->type == MSG_ERROR && tool_error_parse(im, &e) == 0) {
		if (interrupted)
			status = 128 + interrupted;
		else
			errorf(error, "%s", e.text);
		tool_error_free(&e);
	} else
		errorf(error, "the executor sent %s", msg_name(im->type));
	return status;
}

/* Waits for the end of the command; the first signal cancels it. */
static int
wait_answer(struct imsgbuf *channel, char **error)
{
	struct imsg im;
	int r, cancelled = 0, status;

	for (;;) {
		if (interrupted && !cancelled) {
			cancelled = 1;
			imsg_compose(
			    channel, MSG_CANCEL, REQUEST_ID, -1, NULL, 0);
			(void)imsg_flush_blocking(channel);
		}
		if ((r = receive(channel, &im, SLICE_MS, error)) == -1)
			return STATUS_EXEC_FAILED;
		if (r == 0)
			continue;
		status = answer(&im, error);
		imsg_free(&im);
		return status;
	}
}

static void
end_executor(struct monitor *m)
{
	if (!m->executor.started)
		return;
	imsg_clear(&m->executor.proc.ib);
	(void)kill(m->executor.proc.pid, SIGKILL);
	while (waitpid(m->executor.proc.pid, NULL, 0) == -1 && errno == EINTR)
		;
}

static int
run(struct monitor *m, const struct options *o, char **error)
{
	struct imsgbuf channel;
	char *command;
	int status = STATUS_EXEC_FAILED;

	memset(&channel, 0, sizeof(channel));
	imsg_init(&channel, -1, IMSG_MESSAGE_MAX, 0);
	install_handlers();
	command = quote(o->words, o->nwords);
	if (strlen(command) > COMMAND_MAX)
		errorf(
		    error, "the command is longer than %d bytes", COMMAND_MAX);
	else if (start(m, &channel, error) == 0 &&
	    send_command(&channel, command, m->settings->timeout_ms, error) ==
		0)
		status = wait_answer(&channel, error);
	free(command);
	end_executor(m);
	imsg_clear(&channel);
	return status;
}

int
command_exec(const struct options *o)
{
	struct settings s;
	struct monitor m;
	struct roots roots;
	char *error = NULL;
	int status = STATUS_CONFIG;

	memset(&m, 0, sizeof(m));
	memset(&roots, 0, sizeof(roots));
	m.settings = &s;
	m.roots = &roots;
	if (settings_exec(&s, o, &error) == 0 &&
	    roots_make(&roots, &s, o, &error) == 0 &&
	    roots_account(&roots, &s, &m.account, &error) == 0) {
		launch_limits(&m, 1);
		status = run(&m, o, &error);
		cgroup_stop(&m.cgroups);
	}
	if (error != NULL)
		log_warnx("%s", error);
	free(error);
	account_free(&m.account);
	roots_free(&roots);
	settings_free(&s);
	return status;
}
