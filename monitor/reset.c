#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "commands.h"
#include "error.h"
#include "launch.h"
#include "lock.h"
#include "log.h"
#include "monitor.h"
#include "msg.h"
#include "names.h"
#include "record.h"
#include "reset.h"
#include "utf8.h"

#define SESSION_MAX 512 /* UTF-16 units; code-api-server 16 */

static int
fail(int status, char *error)
{
	log_warnx("%s", error);
	free(error);
	return status;
}

/* Starts the bridge in its reset role and watches it until the end. */
static int
reset_session(struct monitor *m, const char *session)
{
	char *error = NULL;
	int status;

	m->maintenance = 1;
	if (launch_prepare(m, &error) == -1)
		return fail(STATUS_CONFIG, error);
	status = launch_bridge(m, ROLE_RESET, -1, session, &error);
	if (status != STATUS_OK)
		return fail(status, error);
	return monitor_loop(m);
}

/* The marker of the root must be gone (protocol 12.5 step 3). */
static int
check_marker(struct root *r, char **error)
{
	struct marker_info info;

	switch (marker_open(&r->marker, r->marker_path, 1, error)) {
	case STORAGE_OK:
		break;
	default:
		return -1;
	}
	switch (marker_load(&r->marker, &info, error)) {
	case STORAGE_MISSING:
		return 0;
	case STORAGE_OK:
		marker_info_free(&info);
		errorf(error,
		    "workspace %s has a local quarantine. Inspect or restore "
		    "%s, run librechat-code clear-workspace-quarantine "
		    "--worker-dir %s, then this command again",
		    r->id, r->path, r->path);
		break;
	case STORAGE_ERROR:
	default:
		break;
	}
	return -1;
}

int
reset_root(struct monitor *m, const char *id)
{
	char *session, *error = NULL;
	size_t i;
	int status;

	for (i = 0; i < m->roots->n; i++)
		if (strcmp(m->roots->list[i].id, id) == 0)
			break;
	if (i == m->roots->n)
		errorf(&error,
		    "--reset-workspace-quarantine: there is no workspace %s "
		    "on the command line",
		    id);
	else
		(void)check_marker(&m->roots->list[i], &error);
	if (error != NULL)
		return fail(STATUS_CONFIG, error);
	session = xasprintf("native-workspace:%s", id);
	status = reset_session(m, session);
	free(session);
	if (status == STATUS_OK)
		printf("librechat-code: reset acknowledged for native "
		       "workspace %s\n",
		    id);
	return status;
}

static char *
session_id(const char *arg, char **error)
{
	char *t = trimmed(arg == NULL ? "" : arg);
	size_t n = strlen(t);

	if (n > 0 && utf8_valid(t, n) && !utf8_blank(t, n) &&
	    utf8_units(t, n) <= SESSION_MAX)
		return t;
	free(t);
	errorf(error,
	    "Usage: librechat-code reset-workspace <runtime-session-id>");
	return NULL;
}

int
command_reset(const struct options *o)
{
	struct settings s;
	struct monitor m;
	struct roots none;
	char *session, *error = NULL;
	int lock = -1, status = STATUS_CONFIG;

	memset(&m, 0, sizeof(m));
	memset(&none, 0, sizeof(none));
	memset(&s, 0, sizeof(s));
	m.mountinfo = -1;
	m.settings = &s;
	m.roots = &none;
	if ((session = session_id(o->session, &error)) != NULL &&
	    settings_common(&s, o, &error) == 0 &&
	    settings_reset(&s, &error) == 0 &&
	    record_check(s.identity_path, &error) == 0) {
		switch (lock_worker(s.state_dir, &lock, &error)) {
		case LOCK_TAKEN:
			status = reset_session(&m, session);
			close(lock);
			break;
		case LOCK_BUSY:
			status = STATUS_TRYAGAIN;
			break;
		case LOCK_ERROR:
		default:
			break;
		}
	}
	if (error != NULL)
		log_warnx("%s%s", error,
		    status == STATUS_TRYAGAIN ? ": stop the worker first" : "");
	else if (status == STATUS_OK)
		printf("librechat-code: reset acknowledged for %s\n", session);
	free(error);
	free(session);
	launch_free(&m);
	settings_free(&s);
	return status;
}
