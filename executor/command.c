#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "buf.h"
#include "command.h"
#include "keeper.h"
#include "log.h"
#include "output.h"
#include "packet.h"
#include "sys.h"

/*
 * After the shell's end, a background process may still be writing (for
 * example the last stage of a process substitution): wait until the pipes
 * are quiet for DRAIN_IDLE, at most DRAIN_MAX, then kill what is left.
 */
#define DRAIN_IDLE_MS 100
#define DRAIN_MAX_MS  1000
#define READ_SIZE     65536
/*
 * A killed namespace ends at once unless one of its processes sits in the
 * kernel (a dead network mount). Then nobody can say what it still does.
 */
#define KILL_MAX_MS 5000

struct stream {
	struct command *command;
	int fd; /* -1 at end of file */
	struct event *ev;
	struct output output;
};

struct command {
	struct event_base *base;
	int control;
	const struct memory *memory;
	struct memory_events before;
	size_t budget;
	uint32_t timeout_ms;
	struct stream out;
	struct stream err;
	int status;
	struct event *status_ev;
	int pidfd; /* -1 until the keeper answered */
	struct event *pid_ev;
	struct event *timeout;
	struct event *drain_idle;
	struct event *drain_max;
	struct event *watchdog; /* after a kill */
	int sent; /* the keeper may have it */
	int cancelled;
	int timed_out;
	int started;
	int shell_ended;
	int wait_status;
	int failed_step; /* or -1 */
	int failed_errno;
	int finished;
	void (*done)(struct command *, enum command_end, struct result *,
	    const char *, void *);
	void *arg;
};

static void
add_timer(struct event *ev, int ms)
{
	struct timeval tv = { ms / 1000, (ms % 1000) * 1000 };

	if (event_add(ev, &tv) == -1)
		fatalx("command: no timer");
}

static void
kill_all(struct command *c)
{
	if (!event_pending(c->watchdog, EV_TIMEOUT, NULL))
		add_timer(c->watchdog, KILL_MAX_MS);
	if (c->pidfd != -1 && sys_pidfd_kill(c->pidfd, SIGKILL) == -1 &&
	    errno != ESRCH)
		log_warn("command: kill");
}

static void
on_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct command *c = arg;

	(void)fd;
	(void)what;
	if (c->shell_ended)
		return;
	c->timed_out = 1;
	kill_all(c);
}

static void
on_drained(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	kill_all(arg);
}

/* Reads what is there, at most max times; 0 at end of file. */
static int
stream_read(struct stream *s, int max)
{
	static uint8_t chunk[READ_SIZE];
	ssize_t n;
	int i;

	if (s->fd == -1)
		return 0;
	for (i = 0; i < max; i++) {
		if ((n = read(s->fd, chunk, sizeof(chunk))) > 0) {
			output_add(&s->output, chunk, (size_t)n);
			continue;
		}
		if (n == -1 && errno == EINTR)
			continue;
		if (n == -1 && errno == EAGAIN)
			return 1;
		if (n == -1)
			log_warn("command: read of its output");
		event_del(s->ev);
		close(s->fd);
		s->fd = -1;
		return 0;
	}
	return 1;
}

static void
on_output(evutil_socket_t fd, short what, void *arg)
{
	struct stream *s = arg;
	struct command *c = s->command;

	(void)fd;
	(void)what;
	(void)stream_read(s, 1);
	if (!c->shell_ended)
		return;
	if (c->out.fd == -1 && c->err.fd == -1)
		kill_all(c);
	else
		add_timer(c->drain_idle, DRAIN_IDLE_MS);
}

static void
read_status(struct command *c)
{
	struct run_status st;
	ssize_t n;

	for (;;) {
		do {
			n = read(c->status, &st, sizeof(st));
		} while (n == -1 && errno == EINTR);
		if (n == -1 && errno == EAGAIN)
			return;
		if (n != (ssize_t)sizeof(st)) {
			event_del(c->status_ev);
			return;
		}
		if (st.event == RUN_FAILED) {
			c->failed_step = st.value;
			c->failed_errno = st.error;
		} else if (st.event == RUN_STARTED) {
			c->started = 1;
		} else if (st.event == RUN_ENDED) {
			c->shell_ended = 1;
			c->wait_status = st.value;
		}
	}
}

static void
on_status(evutil_socket_t fd, short what, void *arg)
{
	struct command *c = arg;

	(void)fd;
	(void)what;
	read_status(c);
	if (!c->shell_ended)
		return;
	event_del(c->timeout);
	if (c->out.fd == -1 && c->err.fd == -1)
		kill_all(c);
	else {
		add_timer(c->drain_idle, DRAIN_IDLE_MS);
		add_timer(c->drain_max, DRAIN_MAX_MS);
	}
}

static void
finish(struct command *c, enum command_end end, struct result *res,
    const char *text)
{
	if (c->finished)
		return;
	c->finished = 1;
	event_del(c->out.ev);
	event_del(c->err.ev);
	event_del(c->status_ev);
	event_del(c->timeout);
	event_del(c->drain_idle);
	event_del(c->drain_max);
	event_del(c->watchdog);
	if (c->pid_ev != NULL)
		event_del(c->pid_ev);
	c->done(c, end, res, text, c->arg);
}

static void
on_watchdog(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	log_warnx("command: a killed process does not end");
	finish(arg, COMMAND_LOST, NULL, "command did not end when killed");
}

/*
 * The kernel has ended the command, or a process of it, for want of memory.
 * The line is the last of standard error, and output_compose keeps the end.
 */
static int
add_memory_line(struct command *c)
{
	struct memory_events after;
	enum memory_end end;
	char *line;

	if (memory_read(c->memory->events, &after) == -1)
		log_warn("command: memory.events");
	end = memory_compare(&c->before, &after);
	if (end == MEMORY_FINE)
		return 0;
	if (!output_at_line_start(&c->err.output))
		output_add(&c->err.output, "\n", 1);
	line = memory_line(end, c->memory->limit);
	output_add(&c->err.output, line, strlen(line));
	free(line);
	return 1;
}

static void
finish_result(struct command *c)
{
	struct result res;
	int memory;

	memset(&res, 0, sizeof(res));
	res.operation = OP_EXECUTE_COMMAND;
	res.exit_code = -1;
	memory = add_memory_line(c);
	if (c->timed_out) {
		res.timed_out = 1;
		res.signal = xstrdup("SIGKILL");
	} else if (!c->shell_ended && memory) {
		/* Its process 1 was ended with all others. */
		res.exit_code = 128 + SIGKILL;
	} else if (!c->shell_ended) {
		/* Process 1 was killed from outside. */
		res.signal = xstrdup("SIGKILL");
	} else if (WIFSIGNALED(c->wait_status))
		res.exit_code = 128 + WTERMSIG(c->wait_status);
	else
		res.exit_code = WEXITSTATUS(c->wait_status);
	res.truncated = (uint8_t)output_compose(
	    &c->out.output, &c->err.output, c->budget, &res.out, &res.err);
	finish(c, COMMAND_RESULT, &res, NULL);
	result_free(&res);
}

static const char *const step_text[RUN_STEP_MAX] = {
	[RUN_STEP_PROC] = "sandbox set-up failed: /proc",
	[RUN_STEP_DESCRIPTORS] = "sandbox set-up failed: descriptors",
	[RUN_STEP_PRIVILEGES] = "sandbox set-up failed: privileges",
	[RUN_STEP_CWD] = "invalid workspace path: working directory",
	[RUN_STEP_FENCE] = "sandbox set-up failed: Landlock",
	[RUN_STEP_FILTER] = "sandbox set-up failed: system call filter",
	[RUN_STEP_FORK] = "sandbox set-up failed: fork",
	[RUN_STEP_SHELL] = "shell is unavailable",
};

/*
 * Process 1 is dead and so is every process of the namespace: nobody can
 * write any more, so the pipes are read to their end.
 */
static void
on_pid(evutil_socket_t fd, short what, void *arg)
{
	struct command *c = arg;
	const char *text = "sandbox set-up failed";

	(void)fd;
	(void)what;
	while (stream_read(&c->out, 64))
		;
	while (stream_read(&c->err, 64))
		;
	read_status(c);
	if (c->failed_step != -1) {
		if (c->failed_step >= 0 && c->failed_step < RUN_STEP_MAX)
			text = step_text[c->failed_step];
		errno = c->failed_errno;
		if (c->failed_step != RUN_STEP_CWD)
			log_warn("%s", text);
		finish(c,
		    c->failed_step == RUN_STEP_CWD ? COMMAND_BAD_CWD
						   : COMMAND_NOT_STARTED,
		    NULL, text);
	} else if (c->cancelled)
		finish(c, COMMAND_ABORTED, NULL, "execution aborted");
	else if (!c->started && !c->timed_out) {
		/* Killed from outside before there was a shell. */
		log_warnx("sandbox set-up failed: it was killed");
		finish(c, COMMAND_NOT_STARTED, NULL,
		    "sandbox set-up failed: it was killed");
	} else
		finish_result(c);
}

static int
make_pipe(int fds[2])
{
	if (pipe2(fds, O_CLOEXEC) == -1)
		return -1;
	if (fcntl(fds[0], F_SETFL, O_NONBLOCK) == -1) {
		close(fds[0]);
		close(fds[1]);
		return -1;
	}
	return 0;
}

static int
send_packet(int control, const struct request *q, const int fds[3])
{
	struct run_packet rp;
	struct iovec iov[3];

	rp.cwd_len = (uint32_t)q->cwd.len;
	rp.command_len = (uint32_t)q->command.len;
	iov[0].iov_base = &rp;
	iov[0].iov_len = sizeof(rp);
	iov[1].iov_base = q->cwd.data;
	iov[1].iov_len = q->cwd.len;
	iov[2].iov_base = q->command.data;
	iov[2].iov_len = q->command.len;
	return packet_send(control, iov, 3, fds, 3);
}

static struct event *
new_event(struct event_base *base, int fd, short what,
    void (*cb)(evutil_socket_t, short, void *), void *arg)
{
	struct event *ev;

	if ((ev = event_new(base, fd, what, cb, arg)) == NULL)
		fatalx("command: no event");
	return ev;
}

static void
stream_init(struct command *c, struct stream *s, int fd)
{
	s->command = c;
	s->fd = fd;
	output_init(&s->output, c->budget);
	s->ev = new_event(c->base, fd, EV_READ | EV_PERSIST, on_output, s);
	if (event_add(s->ev, NULL) == -1)
		fatalx("command: no event");
}

/* Reports the failure from the event loop, like every other end. */
static void
on_start_failed(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	finish(arg, COMMAND_NOT_STARTED, NULL, "command could not be started");
}

struct command *
command_start(struct event_base *base, int control, const struct memory *memory,
    const struct request *q,
    void (*done)(struct command *, enum command_end, struct result *,
	const char *, void *),
    void *arg)
{
	struct command *c;
	int out[2], err[2], st[2], fds[3];

	if (make_pipe(out) == -1)
		fatal("command: pipe");
	if (make_pipe(err) == -1)
		fatal("command: pipe");
	if (make_pipe(st) == -1)
		fatal("command: pipe");
	c = xcalloc(1, sizeof(*c));
	c->base = base;
	c->control = control;
	c->memory = memory;
	if (memory_read(memory->events, &c->before) == -1)
		log_warn("command: memory.events");
	c->budget = q->max_output;
	c->timeout_ms = q->timeout_ms;
	c->pidfd = -1;
	c->failed_step = -1;
	c->status = st[0];
	c->done = done;
	c->arg = arg;
	stream_init(c, &c->out, out[0]);
	stream_init(c, &c->err, err[0]);
	c->status_ev = new_event(
	    base, st[0], EV_READ | EV_PERSIST, on_status, c);
	c->timeout = new_event(base, -1, 0, on_timeout, c);
	c->drain_idle = new_event(base, -1, 0, on_drained, c);
	c->drain_max = new_event(base, -1, 0, on_drained, c);
	c->watchdog = new_event(base, -1, 0, on_watchdog, c);
	if (event_add(c->status_ev, NULL) == -1)
		fatalx("command: no event");

	fds[0] = out[1];
	fds[1] = err[1];
	fds[2] = st[1];
	if (send_packet(control, q, fds) == 0)
		c->sent = 1;
	else
		log_warn("command: hand-over to the sandbox");
	close(out[1]);
	close(err[1]);
	close(st[1]);
	if (!c->sent) {
		c->pid_ev = new_event(base, -1, 0, on_start_failed, c);
		event_active(c->pid_ev, EV_TIMEOUT, 0);
		return c;
	}
	add_timer(c->timeout, (int)c->timeout_ms);
	return c;
}

void
command_answered(struct command *c)
{
	struct run_answer ra;
	size_t got;
	ssize_t n;
	int fd;

	n = packet_receive(
	    c->control, &ra, sizeof(ra), &fd, 1, &got, MSG_DONTWAIT);
	if (n == -1 && errno == EAGAIN)
		return;
	if (n != (ssize_t)sizeof(ra) || c->pidfd != -1) {
		if (n > 0)
			packet_close(&fd, got);
		command_lost(c);
		return;
	}
	if (got == 1)
		c->pidfd = fd;
	if (ra.error != 0 || c->pidfd == -1) {
		errno = ra.error;
		log_warn("command: clone");
		finish(c, COMMAND_NOT_STARTED, NULL,
		    "command could not be started");
		return;
	}
	c->pid_ev = new_event(c->base, c->pidfd, EV_READ, on_pid, c);
	if (event_add(c->pid_ev, NULL) == -1)
		fatalx("command: no event");
	if (c->cancelled || c->timed_out)
		kill_all(c);
}

void
command_cancel(struct command *c)
{
	if (c->finished)
		return;
	c->cancelled = 1;
	kill_all(c);
}

void
command_lost(struct command *c)
{
	/* What never reached the keeper cannot have done anything. */
	finish(c, c->sent ? COMMAND_LOST : COMMAND_NOT_STARTED, NULL,
	    "the sandbox was lost");
}

static void
stream_free(struct stream *s)
{
	event_free(s->ev);
	if (s->fd != -1)
		close(s->fd);
	output_free(&s->output);
}

void
command_free(struct command *c)
{
	if (c == NULL)
		return;
	stream_free(&c->out);
	stream_free(&c->err);
	event_free(c->status_ev);
	close(c->status);
	if (c->pid_ev != NULL)
		event_free(c->pid_ev);
	if (c->pidfd != -1)
		close(c->pidfd);
	event_free(c->timeout);
	event_free(c->drain_idle);
	event_free(c->drain_max);
	event_free(c->watchdog);
	free(c);
}
