#include "config.h"

#include <sys/types.h>
#include <sys/wait.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "buf.h"
#include "confine.h"
#include "error.h"
#include "log.h"
#include "monitor.h"
#include "msg.h"
#include "peer.h"
#include "status.h"
#include "times.h"

#define START_LIMIT_MS 60000 /* until both helpers are ready */
#define STOP_LIMIT_MS  30000 /* below the 35 s of a service manager */
#define GRACE_MS       300 /* last words; end of file before SIGKILL */
#define TICK_MS        50

/* The process is gone and its last words have been read, or will not come. */
static int
over(const struct helper *h)
{
	if (!h->started)
		return 1;
	return h->exited &&
	    (h->peer == NULL || time_mono_ms() - h->exit_time > GRACE_MS);
}

/* A helper that this daemon has is there and has said that it is ready. */
static int
is_ready(const struct helper *h)
{
	return !h->started || (h->ready && h->peer != NULL);
}

static void
signal_helper(const struct helper *h, int sig)
{
	if (h->started && !h->exited)
		(void)kill(h->proc.pid, sig);
}

static void
set_state(struct monitor *m, enum monitor_state state, int64_t limit)
{
	m->state = state;
	m->deadline = limit == 0 ? 0 : time_mono_ms() + limit;
}

/* End of file is the sign for a helper to end; SIGKILL follows. */
static void
close_channel(struct helper *h)
{
	peer_free(h->peer);
	h->peer = NULL;
}

/* Everything ends now, with this status. */
static void
end_all(struct monitor *m, int status)
{
	if (m->state == MS_END)
		return;
	status_stopping(m->report);
	set_state(m, MS_END, GRACE_MS);
	m->status = status;
	close_channel(&m->bridge);
	close_channel(&m->executor);
}

static void
reap(struct monitor *m)
{
	struct helper *hs[2] = { &m->bridge, &m->executor };
	int i, status;

	for (i = 0; i < 2; i++) {
		if (!hs[i]->started || hs[i]->exited)
			continue;
		if (waitpid(hs[i]->proc.pid, &status, WNOHANG) !=
		    hs[i]->proc.pid)
			continue;
		hs[i]->exited = 1;
		hs[i]->wait_status = status;
		hs[i]->exit_time = time_mono_ms();
	}
}

/* Whoever has closed its channel and still lives is no use any more. */
static void
kill_mute(const struct helper *h)
{
	if (h->gone_time != 0 && time_mono_ms() - h->gone_time > GRACE_MS)
		signal_helper(h, SIGKILL);
}

/* One line that says how a helper came to its end, and the exit status. */
static int
report_end(const struct helper *h)
{
	int ws = h->wait_status;

	if (h->ended && h->text != NULL)
		log_warnx("%s", h->text);
	else if (WIFSIGNALED(ws))
		log_warnx("the %s was killed by signal %d (%s)", h->name,
		    WTERMSIG(ws), strsignal(WTERMSIG(ws)));
	else
		log_warnx("the %s ended unexpectedly with status %d", h->name,
		    WEXITSTATUS(ws));
	if (h->ended && h->status != STATUS_OK)
		return h->status;
	return STATUS_ERROR;
}

static void
send_start(struct monitor *m)
{
	char *error = NULL;

	if (confine((const char *const *)m->dirs, m->ndirs, m->cgroups.path,
		&error) == -1) {
		log_warnx("%s", error);
		free(error);
		end_all(m, STATUS_ERROR);
		return;
	}
	set_state(m, MS_RUN, 0);
	if (m->executor.peer != NULL)
		peer_send(m->executor.peer, MSG_START, 0, -1, NULL);
	peer_send(m->bridge.peer, MSG_START, 0, -1, NULL);
	log_debug("the helpers are ready");
}

/* The orderly stop: the next helper is asked when the one before is gone. */
static void
advance_stop(struct monitor *m)
{
	struct helper *next;

	next = over(&m->bridge) ? &m->executor : &m->bridge;
	/* Something could not be delivered, or it was killed over it. */
	if (next == &m->executor && m->status == STATUS_OK &&
	    !(m->bridge.ended && m->bridge.status == STATUS_OK))
		m->status = report_end(&m->bridge);
	if (over(next)) {
		end_all(m, m->status);
		return;
	}
	if (!next->stop_sent && next->peer != NULL) {
		next->stop_sent = 1;
		peer_send(next->peer, MSG_STOP, 0, -1, NULL);
	}
}

/* A helper that ended by itself takes the daemon with it. */
static void
check_helpers(struct monitor *m)
{
	if (m->state == MS_START && (m->bridge.ended || m->executor.ended)) {
		end_all(m,
		    report_end(m->executor.ended ? &m->executor : &m->bridge));
		return;
	}
	if (m->state == MS_STOP) {
		/* The executor has to outlive the bridge. */
		if (!over(&m->bridge) && over(&m->executor))
			end_all(m, report_end(&m->executor));
		return;
	}
	if (m->state == MS_END)
		return;
	if (m->maintenance && over(&m->bridge) && m->bridge.ended &&
	    m->bridge.status == STATUS_OK)
		end_all(m, STATUS_OK);
	else if (over(&m->bridge))
		end_all(m, report_end(&m->bridge));
	else if (!m->maintenance && over(&m->executor))
		end_all(m, report_end(&m->executor));
}

static void
check_deadline(struct monitor *m)
{
	if (m->deadline == 0 || time_mono_ms() < m->deadline)
		return;
	switch (m->state) {
	case MS_START:
		log_warnx("the %s was not ready after %d seconds",
		    is_ready(&m->executor) ? m->bridge.name : m->executor.name,
		    START_LIMIT_MS / 1000);
		end_all(m, STATUS_ERROR);
		break;
	case MS_STOP:
		log_warnx("the %s did not stop in time and is killed",
		    over(&m->bridge) ? m->executor.name : m->bridge.name);
		end_all(m, STATUS_ERROR);
		break;
	case MS_END:
		signal_helper(&m->bridge, SIGKILL);
		signal_helper(&m->executor, SIGKILL);
		m->deadline = 0;
		break;
	default:
		break;
	}
}

/* Something is over that has to be looked at again soon. */
static int
is_leaving(const struct helper *h)
{
	return h->started && (h->exited || h->peer == NULL);
}

void
monitor_advance(struct monitor *m)
{
	struct timeval tick = { 0, TICK_MS * 1000 };
	size_t i;
	int wait = 0;

	if (m->state == MS_START && is_ready(&m->bridge) &&
	    is_ready(&m->executor))
		send_start(m);
	kill_mute(&m->bridge);
	kill_mute(&m->executor);
	check_helpers(m);
	if (m->state == MS_STOP)
		advance_stop(m);
	check_deadline(m);
	if (m->state == MS_END && m->bridge.exited >= m->bridge.started &&
	    m->executor.exited >= m->executor.started) {
		event_base_loopbreak(m->base);
		return;
	}
	for (i = 0; i < m->roots->n; i++)
		wait |= m->guards[i].clearing;
	if (wait || m->state != MS_RUN || is_leaving(&m->bridge) ||
	    is_leaving(&m->executor))
		event_add(m->ev_tick, &tick);
}

static void
on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct monitor *m = arg;

	(void)fd;
	(void)what;
	requests_tick(m);
	reap(m);
	monitor_advance(m);
}

static void
on_child(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	reap(arg);
	monitor_advance(arg);
}

static void
on_signal(evutil_socket_t sig, short what, void *arg)
{
	struct monitor *m = arg;

	(void)sig;
	(void)what;
	switch (m->state) {
	case MS_START:
		end_all(m, STATUS_OK);
		break;
	case MS_RUN:
		log_info("stopping");
		status_stopping(m->report);
		set_state(m, MS_STOP, STOP_LIMIT_MS);
		break;
	case MS_STOP:
		log_warnx("stopped at once; a running mutation leaves its "
			  "quarantine");
		signal_helper(&m->bridge, SIGKILL);
		signal_helper(&m->executor, SIGKILL);
		end_all(m, STATUS_ERROR);
		break;
	default:
		break;
	}
	monitor_advance(m);
}

/* The channel is closed: the process is gone or has no business any more. */
static void
on_gone(struct peer *p, void *arg)
{
	struct monitor *m = arg;
	struct helper *h = p == m->bridge.peer ? &m->bridge : &m->executor;

	h->peer = NULL;
	peer_free(p);
	h->gone_time = time_mono_ms();
	reap(m);
	monitor_advance(m);
}

static int
make_events(struct monitor *m)
{
	m->ev_term = evsignal_new(m->base, SIGTERM, on_signal, m);
	m->ev_int = evsignal_new(m->base, SIGINT, on_signal, m);
	m->ev_child = evsignal_new(m->base, SIGCHLD, on_child, m);
	m->ev_tick = evtimer_new(m->base, on_tick, m);
	if (m->ev_term == NULL || m->ev_int == NULL || m->ev_child == NULL ||
	    m->ev_tick == NULL)
		return -1;
	if (event_add(m->ev_term, NULL) == -1 ||
	    event_add(m->ev_int, NULL) == -1 ||
	    event_add(m->ev_child, NULL) == -1)
		return -1;
	return 0;
}

int
monitor_loop(struct monitor *m)
{
	(void)signal(SIGPIPE, SIG_IGN);
	if ((m->base = event_base_new()) == NULL || make_events(m) == -1)
		fatalx("the event loop cannot be made");
	if (m->report == NULL)
		m->report = status_new(0);
	status_watch(m->report, m->base);
	m->bridge.peer = peer_adopt(m->base, m->bridge.name, &m->bridge.proc.ib,
	    bridge_table, &m->state, on_gone, m);
	if (m->executor.started)
		m->executor.peer = peer_adopt(m->base, m->executor.name,
		    &m->executor.proc.ib, executor_table, &m->state, on_gone,
		    m);
	set_state(m, MS_START, START_LIMIT_MS);
	m->status = STATUS_OK;
	/* One may have ended before the handler was there. */
	reap(m);
	monitor_advance(m);
	event_base_dispatch(m->base);
	peer_free(m->bridge.peer);
	peer_free(m->executor.peer);
	event_free(m->ev_term);
	event_free(m->ev_int);
	event_free(m->ev_child);
	event_free(m->ev_tick);
	status_free(m->report);
	event_base_free(m->base);
	free(m->bridge.text);
	free(m->executor.text);
	return m->status;
}
