#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "error.h"
#include "json.h"
#include "marker.h"
#include "times.h"

#define MARKER_MAX 65536

enum storage_result
marker_open(struct marker *m, const char *path, int create, char **error)
{
	memset(m, 0, sizeof(*m));
	return place_open(
	    path, create ? PLACE_CREATE | PLACE_DURABLE : 0, &m->place, error);
}

void
marker_close(struct marker *m)
{
	if (m->place.path != NULL)
		place_close(&m->place);
	free(m->owner);
	m->owner = NULL;
}

static int
invalid(const struct marker *m, char **error)
{
	return errorf(error,
	    "Invalid workspace quarantine file: %s. Inspect the workspace, "
	    "then run librechat-code clear-workspace-quarantine.",
	    m->place.path);
}

static char *
copy(const char *s)
{
	return s == NULL ? NULL : xstrdup(s);
}

static int
parse(const struct marker *m, const struct secret *text,
    struct marker_info *info, char **error)
{
	const struct json *owner;
	const char *why, *since, *reason, *workspace;
	struct json *j;
	int64_t version, when;
	int r = -1;

	if ((j = json_parse(text->data, text->len, &why)) == NULL)
		return invalid(m, error);
	owner = json_get(j, "ownerId");
	since = json_get_str(j, "quarantinedAt");
	reason = json_get_str(j, "reason");
	workspace = json_get_str(j, "workspaceId");
	if (json_get_integer(j, "version", &version) == -1 || version != 1 ||
	    json_get_str(j, "workerId") == NULL || workspace == NULL ||
	    (owner != NULL && owner->type != JSON_NULL &&
		json_get_str(j, "ownerId") == NULL) ||
	    since == NULL || time_parse_iso(since, &when) == -1 ||
	    reason == NULL || *reason == '\0')
		invalid(m, error);
	else {
		info->workspace = xstrdup(workspace);
		info->owner = copy(json_get_str(j, "ownerId"));
		info->since = xstrdup(since);
		info->reason = xstrdup(reason);
		r = 0;
	}
	json_free(j);
	return r;
}

enum storage_result
marker_load(const struct marker *m, struct marker_info *info, char **error)
{
	struct secret text;
	char *why = NULL;
	int fd, r;

	memset(info, 0, sizeof(*info));
	if (place_recheck(&m->place, error) == -1)
		return STORAGE_ERROR;
	fd = place_read(&m->place, "Workspace quarantine",
	    "Inspect the workspace, then clear the quarantine.", &why);
	if (fd == -1) {
		if (errno == ENOENT) {
			free(why);
			return STORAGE_MISSING;
		}
		errorf(error, "%s", why);
		free(why);
		return STORAGE_ERROR;
	}
	if (storage_read(fd, MARKER_MAX, &text) == -1) {
		close(fd);
		invalid(m, error);
		return STORAGE_ERROR;
	}
	close(fd);
	r = parse(m, &text, info, error);
	secret_free(&text);
	return r == 0 ? STORAGE_OK : STORAGE_ERROR;
}

void
marker_info_free(struct marker_info *i)
{
	free(i->workspace);
	free(i->owner);
	free(i->since);
	free(i->reason);
	memset(i, 0, sizeof(*i));
}

static void
add_member(struct buf *b, const char *name, const char *value, const char *tail)
{
	struct jwriter w;

	buf_addf(b, "  \"%s\": ", name);
	jw_init(&w, b);
	jw_str(&w, value);
	buf_adds(b, tail);
}

static void
format(struct buf *b, const char *worker, const char *workspace,
    const char *owner, const char *reason)
{
	char now[TIME_ISO_SIZE];

	time_format_iso(time_wall_ms(), now);
	buf_adds(b, "{\n  \"version\": 1,\n");
	add_member(b, "workerId", worker, ",\n");
	add_member(b, "workspaceId", workspace, ",\n");
	add_member(b, "ownerId", owner, ",\n");
	add_member(b, "quarantinedAt", now, ",\n");
	add_member(b, "reason", reason, "\n}\n");
}

/* Takes back a marker that could not be completed. */
static int
disarm(struct marker *m, int fd)
{
	close(fd);
	(void)unlinkat(m->place.fd, m->place.leaf, 0);
	(void)fsync(m->place.fd);
	return -1;
}

int
marker_arm(struct marker *m, const char *worker, const char *workspace,
    const char *owner, const char *reason, char **error)
{
	struct stat st;
	struct buf b;
	int fd, r;

	if (place_recheck(&m->place, error) == -1)
		return -1;
	if ((fd = place_create(&m->place, NULL, error)) == -1)
		return -1;
	buf_init(&b);
	format(&b, worker, workspace, owner, reason);
	r = storage_write(fd, b.data, b.len);
	buf_free(&b);
	if (r == -1 || fsync(fd) == -1 || fstat(fd, &st) == -1) {
		error_errno(error, "write %s", m->place.path);
		return disarm(m, fd);
	}
	close(fd);
	free(m->owner);
	m->owner = xstrdup(owner);
	m->dev = st.st_dev;
	m->ino = st.st_ino;
	/* When this fails the marker stays: nobody knows what is on disk. */
	return place_sync(&m->place, error);
}

int
marker_clear(struct marker *m, char **error)
{
	struct marker_info info;
	struct stat st;
	enum storage_result r;
	int mine;

	if ((r = marker_load(m, &info, error)) == STORAGE_ERROR)
		return -1;
	mine = r == STORAGE_OK && m->owner != NULL && info.owner != NULL &&
	    strcmp(m->owner, info.owner) == 0 &&
	    fstatat(m->place.fd, m->place.leaf, &st, AT_SYMLINK_NOFOLLOW) ==
		0 &&
	    st.st_dev == m->dev && st.st_ino == m->ino;
	marker_info_free(&info);
	if (!mine)
		return errorf(error,
		    "Workspace quarantine is owned by another worker "
		    "incarnation");
	if (unlinkat(m->place.fd, m->place.leaf, 0) == -1)
		return error_errno(error, "remove %s", m->place.path);
	if (place_sync(&m->place, error) == -1)
		return -1;
	free(m->owner);
	m->owner = NULL;
	return 0;
}

int
marker_remove(struct marker *m, char **error)
{
	if (unlinkat(m->place.fd, m->place.leaf, 0) == -1) {
		if (errno == ENOENT)
			return 0;
		return error_errno(error, "remove %s", m->place.path);
	}
	return place_sync(&m->place, error) == -1 ? -1 : 1;
}
