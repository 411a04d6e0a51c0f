#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "commands.h"
#include "error.h"
#include "lock.h"
#include "log.h"
#include "marker.h"
#include "names.h"
#include "record.h"
#include "roots.h"
#include "settings.h"

static int
fail(int status, char *error)
{
	log_warnx("%s", error);
	free(error);
	return status;
}

/* The marker's path as run derives it (10.1 steps 3, 4). */
static char *
marker_path(const struct settings *s, char **error)
{
	char *root = NULL, *name, *path;

	if (s->worker_dir != NULL || s->default_workspace) {
		if ((root = roots_primary(s, 0, error)) == NULL)
			return NULL;
	} else if (s->marker_file == NULL) {
		errorf(error,
		    "workspace directory is required: use --worker-dir DIR or "
		    "--default-workspace");
		return NULL;
	}
	if (s->marker_file != NULL)
		path = xstrdup(s->marker_file);
	else {
		name = marker_name(root);
		path = xasprintf("%s/%s", s->state_dir, name);
		free(name);
	}
	free(root);
	return path;
}

/* Says on standard error what is removed. */
static void
describe(const struct marker *m)
{
	struct marker_info info;
	char *why = NULL;

	switch (marker_load(m, &info, &why)) {
	case STORAGE_OK:
		log_info("removing the quarantine of workspace %s, armed %s "
			 "by %s: %s",
		    info.workspace, info.since,
		    info.owner == NULL ? "an older version" : info.owner,
		    info.reason);
		marker_info_free(&info);
		break;
	case STORAGE_ERROR:
		log_info("removing an unreadable quarantine: %s", why);
		break;
	case STORAGE_MISSING:
	default:
		break;
	}
	free(why);
}

static int
clear(const struct settings *s)
{
	struct marker m;
	char *path, *error = NULL;
	enum storage_result r;
	int removed = 0;

	if ((path = marker_path(s, &error)) == NULL)
		return fail(STATUS_CONFIG, error);
	r = marker_open(&m, path, 0, &error);
	if (r == STORAGE_OK) {
		describe(&m);
		removed = marker_remove(&m, &error);
		marker_close(&m);
	}
	if (r == STORAGE_ERROR || removed == -1) {
		free(path);
		return fail(STATUS_ERROR, error);
	}
	if (removed)
		log_info("removed %s", path);
	else
		log_info("there was no quarantine at %s", path);
	free(error);
	free(path);
	printf("librechat-code: cleared workspace mutation quarantine for "
	       "%s\n",
	    s->workspace_id);
	return STATUS_OK;
}

int
command_clear(const struct options *o)
{
	struct settings s;
	char *error = NULL;
	int lock, status;

	if (settings_common(&s, o, &error) == -1 ||
	    record_check(s.identity_path, &error) == -1)
		status = fail(STATUS_CONFIG, error);
	else {
		switch (lock_worker(s.state_dir, &lock, &error)) {
		case LOCK_TAKEN:
			status = clear(&s);
			close(lock);
			break;
		case LOCK_BUSY:
			log_warnx("%s: stop the worker first", error);
			free(error);
			status = STATUS_TRYAGAIN;
			break;
		case LOCK_ERROR:
		default:
			status = fail(STATUS_ERROR, error);
			break;
		}
	}
	settings_free(&s);
	return status;
}
