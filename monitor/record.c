#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "error.h"
#include "identity.h"
#include "record.h"

#define RECORD_MAX 65536

static char *
record_path(const char *identity_path)
{
	return xasprintf("%s.state", identity_path);
}

static enum storage_result
load(const char *path, struct secret *text, char **error)
{
	enum storage_result r;
	int fd;

	r = storage_open(path, "Record of the state directories",
	    "Inspect the workspaces, then remove it.", &fd, error);
	if (r != STORAGE_OK)
		return r;
	if (storage_read(fd, RECORD_MAX, text) == -1) {
		error_errno(error, "read %s", path);
		r = STORAGE_ERROR;
	}
	close(fd);
	return r;
}

/* The next line, terminated, or NULL. */
static char *
next_line(char **p)
{
	char *line = *p, *end;

	if (*line == '\0')
		return NULL;
	end = line + strcspn(line, "\n");
	*p = *end == '\0' ? end : end + 1;
	*end = '\0';
	return line;
}

static int
check_dir(const char *path, const char *dir, char **error)
{
	struct stat st;

	if (stat(dir, &st) == 0 && S_ISDIR(st.st_mode))
		return 0;
	return errorf(error,
	    "the state directory %s is not there, and with it may be "
	    "quarantine markers. Mount or restore it; if it is lost, inspect "
	    "the workspaces, then remove %s",
	    dir, path);
}

int
record_check(const char *identity_path, char **error)
{
	struct secret text;
	enum storage_result r;
	char *path, *p, *line, *why = NULL;
	int status = 0;

	if (identity_path == NULL)
		return 0;
	path = record_path(identity_path);
	r = load(path, &text, &why);
	if (r == STORAGE_ERROR)
		status = errorf(error, "%s", why);
	else if (r == STORAGE_OK) {
		p = text.data;
		while (status == 0 && (line = next_line(&p)) != NULL)
			if (*line != '\0')
				status = check_dir(path, line, error);
		secret_free(&text);
	}
	free(why);
	free(path);
	return status;
}

static int
has_line(const struct secret *text, const char *dir)
{
	const char *p = text->data;
	size_t n = strlen(dir);

	for (;;) {
		if (strncmp(p, dir, n) == 0 && (p[n] == '\n' || p[n] == '\0'))
			return 1;
		if ((p = strchr(p, '\n')) == NULL)
			return 0;
		p++;
	}
}

int
record_add(
    const char *identity_path, const char *dir, int mountinfo, char **error)
{
	struct secret text, next;
	enum storage_result r;
	struct buf b;
	char *path, *why = NULL;
	int status = 0;

	memset(&text, 0, sizeof(text));
	path = record_path(identity_path);
	r = load(path, &text, &why);
	if (r == STORAGE_ERROR)
		status = errorf(error, "%s", why);
	else if (r == STORAGE_MISSING || !has_line(&text, dir)) {
		buf_init(&b);
		if (r == STORAGE_OK)
			buf_add(&b, text.data, text.len);
		buf_addf(&b, "%s\n", dir);
		secret_set(&next, b.data, b.len);
		buf_free(&b);
		status = identity_save(path, &next, mountinfo, error);
		secret_free(&next);
	}
	secret_free(&text);
	free(why);
	free(path);
	return status;
}
