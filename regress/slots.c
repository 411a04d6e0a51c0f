#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "log.h"
#include "slots.h"

#define PATIENCE 60000 /* ms */

void
place_make(struct place *p, size_t roots, unsigned int slots)
{
	size_t i;

	memset(p, 0, sizeof(*p));
	p->n = roots;
	p->slots = slots;
	world_init(&p->w, 0);
	for (i = 0; i < roots; i++) {
		p->dirs[i] = i == 0 ? xstrdup(p->w.project)
				    : xasprintf("%s/root%zu", p->w.dir, i);
		p->ids[i] = i == 0 ? xstrdup("primary") : xasprintf("r%zu", i);
		if (i == 0)
			continue;
		if (mkdir(p->dirs[i], 0755) == -1)
			fatal("%s", p->dirs[i]);
		p->args[i - 1] = xasprintf(
		    "--workspace=%s=%s", p->ids[i], p->dirs[i]);
	}
}

void
place_init(struct place *p, size_t roots, unsigned int slots)
{
	place_make(p, roots, slots);
	world_server(&p->w, "--slots", "8", NULL);
	world_pair(&p->w);
	place_start(p);
}

void
place_free(struct place *p)
{
	size_t i;

	world_free(&p->w);
	for (i = 0; i < PLACE_ROOTS; i++) {
		free(p->dirs[i]);
		free(p->ids[i]);
		free(p->args[i]);
	}
	memset(p, 0, sizeof(*p));
}

static const char *
slots_option(const struct place *p)
{
	static char text[40];

	xsnprintf(text, sizeof(text), "--workspace-lease-slots=%u", p->slots);
	return text;
}

void
place_launch(struct place *p)
{
	char **a = p->args, *log;

	log = xasprintf("%s/worker.log", p->w.dir);
	if (truncate(log, 0) == -1 && errno != ENOENT)
		fatal("%s", log);
	free(log);
	world_worker(&p->w, "--allow-workspace-writes",
	    "--allow-workspace-commands", slots_option(p), a[0], a[1], a[2],
	    a[3], a[4], a[5], a[6], NULL);
}

void
place_start(struct place *p)
{
	char *log;

	place_launch(p);
	if (place_lanes(p, p->slots > 1 ? p->slots + 1 : 1, PATIENCE))
		return;
	log = world_log(&p->w);
	fatalx("the worker does not lease: %s", log);
}

int
place_lanes(struct place *p, unsigned int lanes, int timeout_ms)
{
	struct json *j;
	char *body;

	body = xasprintf("{\"event\":\"leasing\",\"workerId\":\"test-worker\","
			 "\"count\":%u,\"timeoutMs\":%d}",
	    lanes, timeout_ms);
	j = world_control(&p->w, "wait", body);
	free(body);
	json_free(j);
	return j != NULL;
}

int
place_reset(struct place *p, size_t root)
{
	char **a = p->args;

	return world_command(&p->w, NULL, "run", "--worker-dir", p->w.project,
	    "--allow-workspace-writes", "--allow-workspace-commands",
	    slots_option(p), "--reset-workspace-quarantine", p->ids[root], a[0],
	    a[1], a[2], a[3], a[4], a[5], a[6], NULL);
}

int
place_stop(struct place *p)
{
	int status;

	world_signal(&p->w, SIGTERM);
	status = world_worker_end(&p->w, PATIENCE);
	return status != -1 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char *
request(const struct place *p, size_t root, const char *operation,
    const char *name, const char *value)
{
	struct jwriter w;
	struct buf b;

	buf_init(&b);
	jw_init(&w, &b);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_member_str(&w, "operation", operation);
	jw_member_str(&w, "workspaceId", p->ids[root]);
	jw_member_str(&w, name, value);
	jw_object_end(&w);
	return buf_steal(&b);
}

char *
place_command(const struct place *p, size_t root, const char *command)
{
	return request(p, root, "execute_command", "command", command);
}

char *
place_read(const struct place *p, size_t root, const char *path)
{
	return request(p, root, "read_file", "path", path);
}

long
place_run(struct place *p, size_t root, const char *command, char code[64])
{
	char *body = place_command(p, root, command);
	struct json *j;
	const char *c;
	long status;

	status = world_call(&p->w, body, &j);
	free(body);
	c = json_get_str(j, "code");
	if (code != NULL)
		xsnprintf(code, 64, "%.63s", c == NULL ? "" : c);
	json_free(j);
	return status;
}

static char *
path_in(const struct place *p, size_t root, const char *name)
{
	return xasprintf("%s/%s", p->dirs[root], name);
}

void
place_put(const struct place *p, size_t root, const char *name)
{
	char *path = path_in(p, root, name);
	int fd;

	if ((fd = open(path, O_WRONLY | O_CREAT, 0644)) == -1)
		fatal("%s", path);
	close(fd);
	free(path);
}

int
place_wait(const struct place *p, size_t root, const char *name)
{
	char *path = path_in(p, root, name);
	int r = world_file_wait(path, PATIENCE);

	free(path);
	return r;
}

int
place_has(const struct place *p, size_t root, const char *name)
{
	char *path = path_in(p, root, name);
	int r = access(path, F_OK) == 0;

	free(path);
	return r;
}

char *
place_fence(struct place *p, size_t root)
{
	const struct json *list, *fences = NULL;
	struct json *j = world_state(&p->w);
	char *name, *value = NULL;

	if (j == NULL)
		fatalx("the server does not tell its state");
	list = json_get_type(j, "workers", JSON_ARRAY);
	if (list != NULL && list->n > 0)
		fences = json_get(list->items[0], "fences");
	name = xasprintf("native-workspace:%s", p->ids[root]);
	if (fences != NULL && json_get_str(fences, name) != NULL)
		value = xstrdup(json_get_str(fences, name));
	free(name);
	json_free(j);
	return value;
}

static const char *wanted_id;
static char *found;

/* Markers name their workspace. */
static int
look(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	char text[4096], *name;
	ssize_t n;
	int fd;

	(void)st;
	(void)ftw;
	if (type != FTW_F || strstr(path, ".json") == NULL || found != NULL)
		return 0;
	if ((fd = open(path, O_RDONLY)) == -1)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	name = xasprintf("\"workspaceId\": \"%s\"", wanted_id);
	if (strstr(text, name) != NULL)
		found = xstrdup(path);
	free(name);
	return 0;
}

char *
place_marker(const struct place *p, size_t root)
{
	char *dir;

	dir = xasprintf(
	    "%s/.local/state/librechat/code/quarantines", p->w.home);
	found = NULL;
	wanted_id = p->ids[root];
	(void)nftw(dir, look, 16, FTW_PHYS);
	free(dir);
	return found;
}

/* From /proc/PID/stat; or -1. */
static pid_t
parent_of(pid_t pid)
{
	char path[64], text[512], *p;
	ssize_t n;
	int fd;

	xsnprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	if ((p = strrchr(text, ')')) == NULL || strlen(p) < 4)
		return -1;
	return (pid_t)strtol(p + 4, NULL, 10);
}

/* The sleep itself, not a shell that has it in its script; or 0. */
static pid_t
find_sleep(const char *mark)
{
	char path[300], line[256];
	struct dirent *de;
	pid_t pid = 0;
	ssize_t n;
	DIR *d;
	int fd;

	if ((d = opendir("/proc")) == NULL)
		return 0;
	while (pid == 0 && (de = readdir(d)) != NULL) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9')
			continue;
		xsnprintf(path, sizeof(path), "/proc/%s/cmdline", de->d_name);
		if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
			continue;
		n = read(fd, line, sizeof(line) - 1);
		close(fd);
		line[n > 0 ? n : 0] = '\0';
		if (n > 6 && strcmp(line, "sleep") == 0 &&
		    strcmp(line + 6, mark) == 0)
			pid = (pid_t)strtol(de->d_name, NULL, 10);
	}
	closedir(d);
	return pid;
}

pid_t
place_sandbox(struct place *p, const char *mark)
{
	pid_t executor = world_helper(&p->w, "librechat-code-executor");
	pid_t pid, parent;
	double limit = world_now() + PATIENCE;

	while ((pid = find_sleep(mark)) == 0) {
		if (world_now() > limit)
			fatalx("there is no sleep %s", mark);
		usleep(5000);
	}
	while ((parent = parent_of(pid)) != executor) {
		if (parent <= 1)
			fatalx("sleep %s is not of the executor", mark);
		pid = parent;
	}
	return pid;
}
