#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "elsewhere.h"
#include "error.h"
#include "launch.h"
#include "lock.h"
#include "log.h"
#include "monitor.h"
#include "msg.h"
#include "record.h"
#include "reset.h"
#include "status.h"

static int
fail(int status, char *error)
{
	log_warnx("%s", error);
	free(error);
	return status;
}

/* 0 if the root is not in doubt, 1 if it is, with *error, or -1. */
static int
check_marker(const struct monitor *m, const struct root *r, char **error)
{
	struct marker_info info;

	switch (marker_load(&r->marker, &info, error)) {
	case STORAGE_OK:
		break;
	case STORAGE_MISSING:
		return elsewhere_check(
			   m->settings->state_dir, r->path, r->id, error) == -1;
	case STORAGE_ERROR:
	default:
		return 1;
	}
	errorf(error,
	    "Workspace mutations are quarantined since %s: %s. "
	    "Inspect or restore %s, then run: librechat-code "
	    "clear-workspace-quarantine --worker-dir %s --workspace-id %s",
	    info.since, info.reason, r->path, r->path, r->id);
	marker_info_free(&info);
	return 1;
}

/*
 * Makes the marker directories and refuses to start over a marker; with lease
 * slots only the root is refused (protocol 12.3). A worker that cannot mutate
 * anything with a single root does not look (7.5).
 */
static int
check_markers(struct monitor *m, char **error)
{
	struct root *r;
	size_t i;

	for (i = 0; i < m->roots->n; i++) {
		r = &m->roots->list[i];
		if (marker_open(&r->marker, r->marker_path, 1, error) !=
		    STORAGE_OK)
			return -1;
		if (m->roots->n == 1 && (r->operations & OPS_MUTATION) == 0)
			continue;
		if (check_marker(m, r, error) == 0)
			continue;
		if (m->settings->lease_slots == 1)
			return -1;
		r->quarantined = 1;
		log_warnx("workspace %s is not served: %s", r->id, *error);
		free(*error);
		*error = NULL;
	}
	return 0;
}

/* Starts both and queues their configuration; the loop sends it. */
static int
start_helpers(struct monitor *m, char **error)
{
	int sv[2], status;

	if (proc_socketpair(sv) == -1) {
		error_errno(error, "channel between bridge and executor");
		return STATUS_ERROR;
	}
	if ((status = launch_executor(m, sv[0], error)) != STATUS_OK) {
		close(sv[1]);
		return status;
	}
	return launch_bridge(m, ROLE_WORKER, sv[1], NULL, error);
}

/* Before anything can be armed: where the markers will be. */
static int
record(struct monitor *m, char **error)
{
	struct root *r;
	size_t i;

	for (i = 0; m->settings->paired && i < m->roots->n; i++) {
		r = &m->roots->list[i];
		if ((r->operations & OPS_MUTATION) != 0 &&
		    record_add(m->settings->identity_path, r->marker.place.dir,
			m->mountinfo, error) == -1)
			return -1;
	}
	return 0;
}

/* From the checked settings to the end of the daemon. */
static int
run_worker(struct monitor *m)
{
	char *error = NULL;
	int status;

	if (check_markers(m, &error) == -1 || launch_prepare(m, &error) == -1 ||
	    roots_account(m->roots, m->settings, &m->account, &error) == -1)
		return fail(STATUS_CONFIG, error);
	if (record(m, &error) == -1)
		return fail(STATUS_ERROR, error);
	launch_limits(m, 0);
	if ((status = start_helpers(m, &error)) != STATUS_OK)
		return fail(status, error);
	m->report = status_new(1);
	return monitor_loop(m);
}

int
command_run(const struct options *o)
{
	struct settings s;
	struct monitor m;
	struct roots roots;
	char *error = NULL;
	int lock = -1, status = STATUS_CONFIG;

	memset(&m, 0, sizeof(m));
	memset(&roots, 0, sizeof(roots));
	m.mountinfo = -1;
	m.settings = &s;
	m.roots = &roots;
	if (settings_common(&s, o, &error) == -1 ||
	    settings_run(&s, o, &error) == -1 ||
	    record_check(s.identity_path, &error) == -1 ||
	    roots_make(&roots, &s, o, &error) == -1)
		status = fail(STATUS_CONFIG, error);
	else {
		switch (lock_worker(s.state_dir, &lock, &error)) {
		case LOCK_TAKEN:
			status = o->reset != NULL ? reset_root(&m, o->reset)
						  : run_worker(&m);
			close(lock);
			break;
		case LOCK_BUSY:
			status = fail(STATUS_TRYAGAIN, error);
			break;
		case LOCK_ERROR:
		default:
			status = fail(STATUS_CONFIG, error);
			break;
		}
	}
	launch_free(&m);
	roots_free(&roots);
	settings_free(&s);
	return status;
}
