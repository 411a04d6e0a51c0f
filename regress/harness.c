#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "log.h"
#include "proc.h"

#define START_TIMEOUT_MS  30000
#define ANSWER_TIMEOUT_MS 60000

static double
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static void
make_dir(struct harness *h, const char *path, mode_t mode)
{
	if (mkdir(path, mode) == -1)
		fatal("mkdir %s", path);
	if (chown(path, h->uid, h->gid) == -1 || chmod(path, mode) == -1)
		fatal("chown %s", path);
}

void
harness_init(struct harness *h, size_t nroots)
{
	char template[] = "/tmp/librechat-code-test.XXXXXX";
	const char *v;
	size_t i;

	memset(h, 0, sizeof(*h));
	h->uid = getuid();
	h->gid = getgid();
	if (h->uid == 0) {
		h->uid = 61234;
		if ((v = getenv("TEST_UID")) != NULL)
			h->uid = (uid_t)strtoul(v, NULL, 10);
		h->gid = (gid_t)h->uid;
	}
	if (mkdtemp(template) == NULL)
		fatal("mkdtemp");
	h->dir = xstrdup(template);
	if (chmod(h->dir, 0755) == -1)
		fatal("chmod");
	h->home = xasprintf("%s/home", h->dir);
	make_dir(h, h->home, 0700);
	h->nroots = nroots;
	for (i = 0; i < nroots; i++) {
		h->roots[i] = xasprintf("%s/root%zu", h->dir, i);
		make_dir(h, h->roots[i], 0755);
	}
	h->tmp_bytes = 64U << 20;
	h->home_bytes = 64U << 20;
	h->env[h->nenv++] = xstrdup("PATH=/usr/local/bin:/usr/bin:/bin");
	h->env[h->nenv++] = xstrdup("LANG=C.UTF-8");
	h->hidden[h->nhidden++] = xstrdup("/home");
	h->hidden[h->nhidden++] = xstrdup("/root");
	h->hidden[h->nhidden++] = xstrdup("/run");
}

static void
child(struct harness *h, const char *program, int sock)
{
	char *argv[] = { xstrdup("librechat-code-executor"), NULL };
	char *envp[4] = { NULL, NULL, NULL, NULL };
	int exe, i = 0;

	if (getenv("ASAN_OPTIONS") != NULL)
		envp[i++] = xasprintf(
		    "ASAN_OPTIONS=%s", getenv("ASAN_OPTIONS"));
	if (h->enter != NULL) {
		if ((exe = open(h->enter, O_WRONLY | O_CLOEXEC)) == -1 ||
		    write(exe, "0", 1) != 1)
			fatal("%s", h->enter);
		close(exe);
	}
	if ((exe = open(program, O_RDONLY | O_CLOEXEC)) == -1)
		fatal("%s", program);
	if (dup2(sock, PROC_CHANNEL) == -1)
		fatal("dup2");
	if (dup2(exe, PROC_CHANNEL + 1) == -1)
		fatal("dup2");
	(void)fcntl(PROC_CHANNEL + 1, F_SETFD, FD_CLOEXEC);
	proc_close_from(PROC_CHANNEL + 2);
	if (getuid() == 0 && proc_become(h->uid, h->gid) == -1)
		fatal("become %u", h->uid);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)syscall(
	    SYS_execveat, PROC_CHANNEL + 1, "", argv, envp, AT_EMPTY_PATH);
	fatal("%s", program);
}

static void
send_config(struct harness *h, int channel)
{
	struct executor_config c;
	struct cgroup_config cg;
	struct root_config rc;
	struct buf b;
	char id[16];
	uint32_t i;
	int fd;

	memset(&c, 0, sizeof(c));
	c.verbose = getenv("VERBOSE") != NULL ? 2 : 0;
	c.uid = h->uid;
	c.gid = h->gid;
	c.user = xstrdup("tester");
	c.home = h->home;
	c.env = h->env;
	c.nenv = h->nenv;
	c.hidden = h->hidden;
	c.nhidden = h->nhidden;
	c.tmp_bytes = h->tmp_bytes;
	c.home_bytes = h->home_bytes;
	c.protection = (uint8_t)h->protection;
	c.processes = h->processes;
	c.memory_bytes = h->memory_bytes;
	c.groups = h->group != 0;
	c.slots = h->slots == 0 ? SLOTS_MAX : h->slots;
	c.nroots = (uint32_t)h->nroots;
	buf_init(&b);
	executor_config_build(&b, &c);
	imsg_compose(&h->monitor, MSG_CONFIG, 0, channel, b.data, b.len);
	buf_free(&b);
	free(c.user);
	for (i = 0; i < h->nroots; i++) {
		memset(&rc, 0, sizeof(rc));
		rc.index = i;
		(void)xsnprintf(id, sizeof(id), "root%u", i);
		rc.id = id;
		rc.path = h->roots[i];
		rc.operations = (OP_BIT(OP_MAX) - 1) & ~h->without[i];
		fd = open(h->roots[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (h->detached[i]) {
			rc.mount = ROOT_DETACHED;
			close(fd);
			fd = (int)syscall(SYS_open_tree, AT_FDCWD, h->roots[i],
			    1 /* OPEN_TREE_CLONE */ | O_CLOEXEC);
		}
		if (fd == -1)
			fatal("%s", h->roots[i]);
		root_config_build(&b, &rc);
		imsg_compose(&h->monitor, MSG_ROOT, 0, fd, b.data, b.len);
		buf_free(&b);
	}
	for (i = 0; h->group != 0 && i < h->nroots; i++) {
		cg.index = i;
		if ((fd = fcntl(h->group, F_DUPFD_CLOEXEC, 0)) == -1)
			fatal("control group");
		cgroup_config_build(&b, &cg);
		imsg_compose(&h->monitor, MSG_CGROUP, 0, fd, b.data, b.len);
		buf_free(&b);
	}
	if (imsg_flush_blocking(&h->monitor) == -1)
		fatal("configuration");
}

int
harness_start(struct harness *h)
{
	const char *program = getenv("EXECUTOR");
	struct ended e;
	struct imsg im;
	int sv[2], ch[2], r;

	if (program == NULL)
		fatalx("the variable EXECUTOR must name the program");
	if (proc_socketpair(sv) == -1 || proc_socketpair(ch) == -1)
		fatal("socketpair");
	if ((h->pid = fork()) == -1)
		fatal("fork");
	if (h->pid == 0)
		child(h, program, sv[1]);
	close(sv[1]);
	imsg_init(&h->monitor, sv[0], IMSG_MESSAGE_MAX, 0);
	imsg_init(&h->bridge, ch[0], IMSG_MESSAGE_MAX, 0);
	send_config(h, ch[1]);
	if ((r = imsg_get_blocking(&h->monitor, &im, START_TIMEOUT_MS)) != 1) {
		h->failed = xstrdup("the executor ended");
		return -1;
	}
	if (im.type == MSG_FAILED && ended_parse(&im, &e) == 0) {
		h->failed = e.text;
		imsg_free(&im);
		return -1;
	}
	if (im.type != MSG_READY)
		fatalx("unexpected %s", msg_name(im.type));
	imsg_free(&im);
	imsg_compose(&h->monitor, MSG_START, 0, -1, NULL, 0);
	return imsg_flush_blocking(&h->monitor);
}

void
harness_kill(struct harness *h)
{
	if (h->pid > 0) {
		(void)kill(h->pid, SIGKILL);
		(void)waitpid(h->pid, NULL, 0);
	}
	h->pid = 0;
	imsg_clear(&h->monitor);
	imsg_clear(&h->bridge);
}

void
harness_remove(struct harness *h)
{
	size_t i;

	remove_tree(h->dir);
	for (i = 0; i < h->nroots; i++)
		free(h->roots[i]);
	for (i = 0; i < h->nhidden; i++)
		free(h->hidden[i]);
	for (i = 0; i < h->nenv; i++)
		free(h->env[i]);
	free(h->home);
	free(h->dir);
	free(h->failed);
	free(h->outcome_of);
	free(h->allowed);
	memset(h, 0, sizeof(*h));
}

void
harness_stop(struct harness *h)
{
	struct imsg im;
	int st;

	if (h->pid > 0) {
		imsg_compose(&h->monitor, MSG_STOP, 0, -1, NULL, 0);
		(void)imsg_flush_blocking(&h->monitor);
		while (imsg_get_blocking(&h->monitor, &im, 5000) == 1)
			imsg_free(&im);
		(void)kill(h->pid, SIGKILL);
		(void)waitpid(h->pid, &st, 0);
		h->pid = 0;
	}
	imsg_clear(&h->monitor);
	imsg_clear(&h->bridge);
	harness_remove(h);
}

static void
allow(struct harness *h, const struct request *q)
{
	struct buf b;
	struct imsg im;

	buf_init(&b);
	assignment_ref_build(&b, q->root, q->assignment);
	imsg_compose(&h->monitor, MSG_ALLOW, 0, -1, b.data, b.len);
	buf_free(&b);
	if (imsg_flush_blocking(&h->monitor) == -1)
		return;
	while (imsg_get_blocking(&h->monitor, &im, ANSWER_TIMEOUT_MS) == 1) {
		if (im.type == MSG_ALLOWED) {
			free(h->allowed);
			h->allowed = xstrdup(q->assignment);
			imsg_free(&im);
			return;
		}
		imsg_free(&im);
	}
}

uint32_t
harness_send(struct harness *h, struct request *q)
{
	struct buf b;
	uint32_t id = ++h->next_id;
	char *name = NULL;

	if (q->assignment == NULL)
		q->assignment = name = xasprintf("assignment-%u", id);
	if (OP_BIT(q->operation) & OPS_MUTATION)
		allow(h, q);
	buf_init(&b);
	request_build(&b, q);
	imsg_compose(&h->bridge, MSG_REQUEST, id, -1, b.data, b.len);
	buf_free(&b);
	(void)imsg_flush_blocking(&h->bridge);
	if (name != NULL) {
		free(name);
		q->assignment = NULL;
	}
	return id;
}

void
harness_cancel(struct harness *h, uint32_t id)
{
	imsg_compose(&h->bridge, MSG_CANCEL, id, -1, NULL, 0);
	(void)imsg_flush_blocking(&h->bridge);
}

/* Takes the outcomes that are there already. */
static void
take_outcomes(struct harness *h)
{
	struct assignment_ref a;
	struct imsg im;

	while (imsg_get_blocking(&h->monitor, &im, 0) == 1) {
		if (im.type == MSG_OUTCOME &&
		    outcome_parse(&im, &a, &h->outcome) == 0) {
			free(h->outcome_of);
			h->outcome_of = a.assignment;
		}
		imsg_free(&im);
	}
}

/* The answer with this id, stashed or next; others are kept for later. */
static int
next_answer(struct harness *h, uint32_t id, struct imsg *im)
{
	size_t i;

	for (i = 0; i < h->nstash; i++)
		if (h->stash[i].id == id) {
			*im = h->stash[i];
			h->stash[i] = h->stash[--h->nstash];
			return 0;
		}
	for (;;) {
		if (imsg_get_blocking(&h->bridge, im, ANSWER_TIMEOUT_MS) != 1)
			return -1;
		if (im->id == id)
			return 0;
		if (h->nstash == sizeof(h->stash) / sizeof(h->stash[0]))
			fatalx("too many answers");
		h->stash[h->nstash++] = *im;
	}
}

int
harness_wait(struct harness *h, uint32_t id, struct answer *a)
{
	struct imsg im;

	memset(a, 0, sizeof(*a));
	if (next_answer(h, id, &im) == -1)
		return -1;
	if (im.type == MSG_RESULT) {
		if (result_parse(&im, &a->result) == -1)
			fatalx("malformed result");
		a->ok = 1;
	} else if (im.type != MSG_ERROR ||
	    tool_error_parse(&im, &a->error) == -1)
		fatalx("malformed answer");
	imsg_free(&im);
	take_outcomes(h);
	return 0;
}

void
answer_free(struct answer *a)
{
	result_free(&a->result);
	tool_error_free(&a->error);
}

int
harness_request(struct harness *h, struct request *q, struct answer *a)
{
	double start = now();
	uint32_t id;

	id = harness_send(h, q);
	if (harness_wait(h, id, a) == -1)
		return -1;
	a->ms = now() - start;
	return 0;
}

int
harness_run_with(struct harness *h, uint32_t root, const char *command,
    const char *cwd, uint32_t timeout_ms, uint32_t max_output, struct answer *a)
{
	struct request q;
	int r;

	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	q.root = root;
	text_set(&q.command, command, strlen(command));
	text_set(&q.cwd, cwd, strlen(cwd));
	q.timeout_ms = timeout_ms;
	q.max_output = max_output;
	r = harness_request(h, &q, a);
	request_free(&q);
	return r;
}

int
harness_run(
    struct harness *h, uint32_t root, const char *command, struct answer *a)
{
	return harness_run_with(h, root, command, "", 30000, 65536, a);
}

void
copy_program(
    struct harness *h, const char *variable, const char *dir, const char *name)
{
	const char *from = getenv(variable);
	struct buf b;
	ssize_t n;
	int fd;

	if (from == NULL || (fd = open(from, O_RDONLY | O_CLOEXEC)) == -1)
		fatal("the variable %s must name a program", variable);
	buf_init(&b);
	while ((n = read(fd, buf_reserve(&b, 65536), 65536)) > 0)
		b.len += (size_t)n;
	close(fd);
	put_file(h, dir, name, b.data, b.len, 0755);
	buf_free(&b);
}

void
put_file(struct harness *h, const char *dir, const char *name, const void *data,
    size_t len, mode_t mode)
{
	char *path = xasprintf("%s/%s", dir, name);
	int fd;

	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd == -1 || write(fd, data, len) != (ssize_t)len ||
	    fchown(fd, h->uid, h->gid) == -1 || fchmod(fd, mode) == -1)
		fatal("%s", path);
	close(fd);
	free(path);
}

static void
remove_at(int dir, const char *name)
{
	struct dirent *de;
	DIR *d;
	int fd;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return;
	if (fchmodat(dir, name, 0700, 0) == -1)
		return;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd == -1)
		return;
	if ((d = fdopendir(fd)) == NULL) {
		close(fd);
		return;
	}
	while ((de = readdir(d)) != NULL)
		if (strcmp(de->d_name, ".") != 0 &&
		    strcmp(de->d_name, "..") != 0)
			remove_at(dirfd(d), de->d_name);
	closedir(d);
	(void)unlinkat(dir, name, AT_REMOVEDIR);
}

void
remove_tree(const char *path)
{
	remove_at(AT_FDCWD, path);
}

int
process_exists(const char *mark)
{
	char path[300], line[4096];
	struct dirent *de;
	ssize_t n;
	DIR *d;
	int fd, found = 0;

	if ((d = opendir("/proc")) == NULL)
		return 1;
	while (!found && (de = readdir(d)) != NULL) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/cmdline", de->d_name);
		if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
			continue;
		n = read(fd, line, sizeof(line));
		close(fd);
		if (n > 0 && memmem(line, (size_t)n, mark, strlen(mark)))
			found = 1;
	}
	closedir(d);
	return found;
}

pid_t
find_below(pid_t pid, const char *name, int depth)
{
	char path[300], text[512], *p, *q;
	struct dirent *de;
	pid_t found = 0, child;
	ssize_t n;
	DIR *d;
	int fd;

	if (depth == 0 || (d = opendir("/proc")) == NULL)
		return 0;
	while (found == 0 && (de = readdir(d)) != NULL) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9')
			continue;
		(void)xsnprintf(
		    path, sizeof(path), "/proc/%s/stat", de->d_name);
		if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
			continue;
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
		if (n <= 0)
			continue;
		text[n] = '\0';
		p = strchr(text, '(');
		q = strrchr(text, ')');
		if (p == NULL || q == NULL ||
		    strtol(q + 4, NULL, 10) != (long)pid)
			continue;
		*q = '\0';
		child = (pid_t)strtol(de->d_name, NULL, 10);
		if (strcmp(p + 1, name) == 0)
			found = child;
		else
			found = find_below(child, name, depth - 1);
	}
	closedir(d);
	return found;
}

const char *
new_mark(void)
{
	static char text[32];
	static int count;

	(void)xsnprintf(
	    text, sizeof(text), "9%d.%d", (int)getpid(), 10000 + ++count);
	return text;
}

char *
with_mark(const char *mark, const char *command)
{
	return xasprintf("M=%s; %s", mark, command);
}

char *
visible_scratch(struct harness *h)
{
	const char *const places[] = { "/srv", "/opt", "/var/lib",
		getenv("HOME"), "." };
	char *path, *real;
	size_t i;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (places[i] == NULL)
			continue;
		path = xasprintf("%s/librechat-code-test.XXXXXX", places[i]);
		if (mkdtemp(path) != NULL) {
			real = realpath(path, NULL);
			if (real == NULL || chmod(real, 0755) == -1 ||
			    chown(real, h->uid, h->gid) == -1)
				fatal("%s", path);
			free(path);
			return real;
		}
		free(path);
	}
	fatalx("no place for a scratch directory");
}
