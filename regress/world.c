#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>

#include "harness.h"
#include "log.h"
#include "world.h"

#define ARGS_MAX 32
#define WORKER   "test-worker"

double
world_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static void
pause_ms(long ms)
{
	struct timespec ts = { ms / 1000, (ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

static const char *
program(const char *name)
{
	const char *v;

	if ((v = getenv(name)) == NULL)
		fatalx("the variable %s must name the program", name);
	return v;
}

void
world_init(struct world *w, uid_t owner)
{
	char template[] = "/tmp/librechat-code-world.XXXXXX";

	memset(w, 0, sizeof(*w));
	if (mkdtemp(template) == NULL)
		fatal("mkdtemp");
	if (chmod(template, 0755) == -1)
		fatal("chmod");
	w->dir = xstrdup(template);
	w->home = xasprintf("%s/home", w->dir);
	w->project = xasprintf("%s/project", w->dir);
	if (mkdir(w->home, 0700) == -1 || mkdir(w->project, 0755) == -1)
		fatal("mkdir");
	if (owner != 0 && getuid() == 0) {
		w->owner = owner;
		if (chown(w->project, owner, owner) == -1)
			fatal("chown");
	}
}

static void
redirect(const char *path, int fd)
{
	int f;

	f = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (f == -1 || dup2(f, fd) == -1)
		fatal("%s", path);
	if (f != fd)
		close(f);
}

/* Environment of the worker: nothing of the test's own gets in. */
static void
worker_environment(struct world *w)
{
	/* What a test wants the worker to have. */
	static const char *const names[] = { "ASAN_OPTIONS",
		"LIBRECHAT_CODE_URL", "LIBRECHAT_CODE_WORKER_TOKEN",
		"LIBRECHAT_CODE_CA_FILE", "LIBRECHAT_CODE_MEMORY_LIMIT",
		"LIBRECHAT_CODE_PROCESS_LIMIT", "NOTIFY_SOCKET",
		"WATCHDOG_USEC", "HTTPS_PROXY", "http_proxy", "ALL_PROXY",
		"NO_PROXY" };
	char *keep[sizeof(names) / sizeof(names[0])];
	size_t i;
	int anonymous = getenv("WITHOUT_WORKER_ID") != NULL;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		keep[i] = getenv(names[i]);
		if (keep[i] != NULL)
			keep[i] = xstrdup(keep[i]);
	}

	if (clearenv() != 0)
		fatal("clearenv");
	setenv("HOME", w->home, 1);
	setenv("PATH",
	    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:"
	    "/sbin:/bin",
	    1);
	setenv("LANG", "C.UTF-8", 1);
	if (!anonymous)
		setenv("LIBRECHAT_CODE_WORKER_ID", WORKER, 1);
	setenv("PLANTED_SECRET", "must-not-arrive", 1);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (keep[i] != NULL)
			setenv(names[i], keep[i], 1);
		free(keep[i]);
	}
}

static void
collect_args(const char **argv, size_t n, va_list ap)
{
	const char *a;

	while ((a = va_arg(ap, const char *)) != NULL) {
		if (n == ARGS_MAX - 1)
			fatalx("too many arguments");
		argv[n++] = a;
	}
	argv[n] = NULL;
}

static pid_t
spawn(struct world *w, const char *path, const char **argv, const char *log,
    int worker)
{
	char *file = xasprintf("%s/%s", w->dir, log);
	pid_t pid;

	if ((pid = fork()) == -1)
		fatal("fork");
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		redirect("/dev/null", STDIN_FILENO);
		redirect(file, STDOUT_FILENO);
		redirect(file, STDERR_FILENO);
		if (worker)
			worker_environment(w);
		(void)execv(path, (char *const *)(uintptr_t)argv);
		fatal("%s", path);
	}
	free(file);
	return pid;
}

static char *
read_file(const char *path)
{
	struct buf b;
	ssize_t n;
	int fd;

	if ((fd = open(path, O_RDONLY)) == -1)
		return xstrdup("");
	buf_init(&b);
	while ((n = read(fd, buf_reserve(&b, 65536), 65536)) > 0)
		b.len += (size_t)n;
	close(fd);
	return buf_steal(&b);
}

int
world_file_wait(const char *path, int timeout_ms)
{
	double end = world_now() + timeout_ms;
	struct stat st;

	while (stat(path, &st) == -1) {
		if (world_now() > end)
			return 0;
		pause_ms(1);
	}
	return 1;
}

void
world_server(struct world *w, ...)
{
	const char *argv[ARGS_MAX];
	char *file, *p;
	va_list ap;

	file = xasprintf("%s/url", w->dir);
	(void)unlink(file);
	argv[0] = "codeapi";
	argv[1] = "--worker";
	argv[2] = WORKER;
	argv[3] = "--port-file";
	argv[4] = file;
	argv[5] = "--exit-with-parent";
	va_start(ap, w);
	collect_args(argv, 6, ap);
	va_end(ap);
	w->server = spawn(w, program("CODEAPI"), argv, "server.log", 0);
	if (!world_file_wait(file, 20000))
		fatalx("the server did not start");
	free(w->url);
	free(w->control);
	w->url = read_file(file);
	if ((p = strchr(w->url, '\n')) != NULL)
		*p = '\0';
	/* .../v1 -> .../control */
	w->control = xasprintf("%.*scontrol", (int)strlen(w->url) - 2, w->url);
	free(file);
}

void
world_server_stop(struct world *w)
{
	if (w->server > 0) {
		(void)kill(w->server, SIGTERM);
		(void)waitpid(w->server, NULL, 0);
	}
	w->server = 0;
}

/* ---- HTTP ---- */

static size_t
collect(char *p, size_t size, size_t n, void *arg)
{
	buf_add(arg, p, size * n);
	return size * n;
}

static long
http(const char *url, const char *body, struct buf *answer)
{
	struct curl_slist *headers = NULL;
	long status = 0;
	CURL *c;

	if ((c = curl_easy_init()) == NULL)
		fatalx("curl");
	headers = curl_slist_append(headers, "Content-Type: application/json");
	headers = curl_slist_append(headers, "Expect:");
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_PROXY, "");
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_TIMEOUT, 120L);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	if (body != NULL) {
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, body);
		curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)strlen(body));
	}
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, answer);
	if (curl_easy_perform(c) == CURLE_OK)
		curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_cleanup(c);
	curl_slist_free_all(headers);
	return status;
}

static long
http_json(const char *url, const char *body, struct json **j)
{
	struct buf answer;
	const char *error;
	long status;

	buf_init(&answer);
	status = http(url, body, &answer);
	*j = json_parse(answer.data, answer.len, &error);
	buf_free(&answer);
	return status;
}

struct json *
world_control(struct world *w, const char *path, const char *body)
{
	char *url = xasprintf("%s/%s", w->control, path);
	struct json *j;
	long status;

	status = http_json(url, body, &j);
	free(url);
	if (status != 200) {
		json_free(j);
		return NULL;
	}
	return j;
}

struct json *
world_state(struct world *w)
{
	return world_control(w, "state?worker=" WORKER, NULL);
}

int
world_wait(struct world *w, const char *event, int timeout_ms)
{
	char *body;
	struct json *j;

	body = xasprintf("{\"event\":\"%s\",\"workerId\":\"" WORKER "\","
			 "\"timeoutMs\":%d}",
	    event, timeout_ms);
	j = world_control(w, "wait", body);
	free(body);
	json_free(j);
	return j != NULL;
}

long
world_call(struct world *w, const char *body, struct json **j)
{
	char *url = xasprintf("%s/workspace-tools/execute", w->url);
	long status;

	status = http_json(url, body, j);
	free(url);
	return status;
}

void
world_call_start(struct world *w, const char *body, struct pending *p)
{
	static int count;
	char *url = xasprintf("%s/workspace-tools/execute", w->url);
	struct buf b;
	long status;
	int fd;

	p->file = xasprintf("%s/answer.%d", w->dir, count++);
	if ((p->pid = fork()) == -1)
		fatal("fork");
	if (p->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		buf_init(&b);
		status = http(url, body, &b);
		fd = open(p->file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		if (fd == -1 ||
		    dprintf(fd, "%ld\n%s", status, buf_cstr(&b)) < 0)
			_exit(1);
		_exit(0);
	}
	free(url);
}

long
world_call_end(struct pending *p, struct json **j)
{
	const char *error;
	char *text, *body;
	long status = 0;

	(void)waitpid(p->pid, NULL, 0);
	text = read_file(p->file);
	*j = NULL;
	if ((body = strchr(text, '\n')) != NULL) {
		status = strtol(text, NULL, 10);
		body++;
		*j = json_parse(body, strlen(body), &error);
	}
	free(text);
	free(p->file);
	p->file = NULL;
	return status;
}

void
world_call_abort(struct pending *p)
{
	(void)kill(p->pid, SIGKILL);
	(void)waitpid(p->pid, NULL, 0);
	free(p->file);
	p->file = NULL;
}

char *
world_command_body(const char *command, int timeout_ms)
{
	struct jwriter w;
	struct buf b;

	buf_init(&b);
	jw_init(&w, &b);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_member_str(&w, "operation", "execute_command");
	jw_member_str(&w, "workspaceId", "primary");
	jw_member_str(&w, "command", command);
	if (timeout_ms > 0)
		jw_member_int(&w, "timeoutMs", timeout_ms);
	jw_object_end(&w);
	return buf_steal(&b);
}

long
world_run(struct world *w, const char *command, struct json **j)
{
	char *body = world_command_body(command, 0);
	long status;

	status = world_call(w, body, j);
	free(body);
	return status;
}

/* ---- the worker ---- */

int
world_command(struct world *w, const char *input, ...)
{
	const char *argv[ARGS_MAX];
	const char *path = program("PROGRAM");
	char *file = xasprintf("%s/command.log", w->dir);
	int fds[2], status;
	va_list ap;
	pid_t pid;

	argv[0] = "librechat-code";
	va_start(ap, input);
	collect_args(argv, 1, ap);
	va_end(ap);
	if (pipe2(fds, O_CLOEXEC) == -1)
		fatal("pipe");
	if ((pid = fork()) == -1)
		fatal("fork");
	if (pid == 0) {
		if (dup2(fds[0], STDIN_FILENO) == -1)
			fatal("dup2");
		redirect(file, STDOUT_FILENO);
		redirect(file, STDERR_FILENO);
		worker_environment(w);
		(void)execv(path, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	/* While we can read it too, an early end of the other is no SIGPIPE. */
	if (input != NULL &&
	    write(fds[1], input, strlen(input)) != (ssize_t)strlen(input))
		fatal("write");
	close(fds[0]);
	close(fds[1]);
	(void)waitpid(pid, &status, 0);
	free(file);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void
world_pair(struct world *w)
{
	struct json *j;
	char *code;

	j = world_control(w, "pair", "{\"workerId\":\"" WORKER "\"}");
	if (j == NULL || json_get_str(j, "code") == NULL)
		fatalx("no pairing code");
	code = xasprintf("%s\n", json_get_str(j, "code"));
	json_free(j);
	if (world_command(w, code, "pair", w->url, "-", NULL) != 0)
		fatalx("pairing failed, see %s/command.log", w->dir);
	free(code);
}

void
world_worker(struct world *w, ...)
{
	const char *argv[ARGS_MAX];
	va_list ap;

	argv[0] = "librechat-code";
	argv[1] = "run";
	argv[2] = "--worker-dir";
	argv[3] = w->project;
	va_start(ap, w);
	collect_args(argv, 4, ap);
	va_end(ap);
	w->worker = spawn(w, program("PROGRAM"), argv, "worker.log", 1);
}

void
world_start(struct world *w)
{
	char *log;

	world_pair(w);
	world_worker(
	    w, "--allow-workspace-writes", "--allow-workspace-commands", NULL);
	if (!world_wait(w, "leasing", 30000)) {
		log = world_log(w);
		fatalx("the worker does not lease: %s", log);
	}
}

void
world_signal(struct world *w, int sig)
{
	if (w->worker > 0)
		(void)kill(w->worker, sig);
}

int
world_worker_end(struct world *w, int timeout_ms)
{
	double end = world_now() + timeout_ms;

	if (w->worker <= 0)
		return w->status;
	while (waitpid(w->worker, &w->status, WNOHANG) != w->worker) {
		if (world_now() > end)
			return -1;
		pause_ms(1);
	}
	w->worker = 0;
	return w->status;
}

void
world_free(struct world *w)
{
	if (w->worker > 0) {
		world_signal(w, SIGKILL);
		(void)world_worker_end(w, 10000);
	}
	world_server_stop(w);
	remove_tree(w->dir);
	free(w->dir);
	free(w->home);
	free(w->project);
	free(w->url);
	free(w->control);
	memset(w, 0, sizeof(*w));
}

char *
world_log(struct world *w)
{
	char *file = xasprintf("%s/worker.log", w->dir), *text;

	text = read_file(file);
	free(file);
	return text;
}

int
world_log_has(struct world *w, const char *s)
{
	char *text = world_log(w);
	int r = strstr(text, s) != NULL;

	free(text);
	return r;
}

int
world_log_wait(struct world *w, const char *s, int timeout_ms)
{
	double end = world_now() + timeout_ms;

	while (!world_log_has(w, s)) {
		if (world_now() > end)
			return 0;
		pause_ms(2);
	}
	return 1;
}

static int files_found;

static int
count_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path;
	(void)st;
	(void)ftw;
	if (type == FTW_F && strstr(path, ".json") != NULL)
		files_found++;
	return 0;
}

int
world_markers(struct world *w)
{
	char *dir;

	dir = xasprintf("%s/.local/state/librechat/code/quarantines", w->home);
	files_found = 0;
	(void)nftw(dir, count_file, 16, FTW_PHYS);
	free(dir);
	return files_found;
}

size_t
world_children(pid_t parent, pid_t *list, size_t n)
{
	char path[300], text[512], *p;
	struct dirent *de;
	size_t found = 0;
	ssize_t len;
	DIR *d;
	int fd;

	if ((d = opendir("/proc")) == NULL)
		return 0;
	while (found < n && (de = readdir(d)) != NULL) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/stat", de->d_name);
		if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
			continue;
		len = read(fd, text, sizeof(text) - 1);
		close(fd);
		if (len <= 0)
			continue;
		text[len] = '\0';
		if ((p = strrchr(text, ')')) == NULL || strlen(p) < 4)
			continue;
		if (strtol(p + 4, NULL, 10) == parent)
			list[found++] = (pid_t)strtol(de->d_name, NULL, 10);
	}
	closedir(d);
	return found;
}

pid_t
world_helper(struct world *w, const char *name)
{
	pid_t list[16];
	char path[64], text[256];
	size_t n, i;
	ssize_t len;
	int fd;

	n = world_children(w->worker, list, 16);
	for (i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/proc/%d/cmdline", list[i]);
		if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
			continue;
		len = read(fd, text, sizeof(text) - 1);
		close(fd);
		if (len <= 0)
			continue;
		text[len] = '\0';
		if (strcmp(text, name) == 0)
			return list[i];
	}
	fatalx("the worker has no %s", name);
}
