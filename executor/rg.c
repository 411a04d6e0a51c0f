#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <seccomp.h>

#include "files.h"
#include "log.h"
#include "proc.h"
#include "rg.h"
#include "times.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

#define READ_SIZE     (64 * 1024)
#define NAME_SIZE_MAX (64 * 1024) /* longer than any path of the kernel */
#define PIPE_SIZE     (1024 * 1024)
#define EXEC_REFUSED  126
#define EXEC_FAILED   127

/* What a shared rg and its loader may read; nothing here is secret. */
static const char *const library_paths[] = { "/lib", "/lib64", "/usr/lib",
	"/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache" };

static const char *const programs[] = { "/usr/local/bin/rg", "/usr/bin/rg",
	"/bin/rg" };

/*
 * No home, so that no ignore file of an account is looked for (without HOME
 * rg would ask the account database), and nothing of ours.
 */
static char home[] = "HOME=/nonexistent";
static char *const environment[] = { home, NULL };

/* ---- what Landlock must permit ---- */

static void
permit(struct rg *rg, const char *path, int rights)
{
	rg->paths = xreallocarray(
	    rg->paths, rg->npaths + 1, sizeof(*rg->paths));
	rg->paths[rg->npaths].path = xstrdup(path);
	rg->paths[rg->npaths].rights = rights;
	rg->npaths++;
}

static int
is_regular(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The loader that the kernel opens to execute a program, elf(5). */
static void
permit_interpreter(struct rg *rg)
{
	ElfW(Ehdr) eh;
	ElfW(Phdr) ph;
	char name[256];
	size_t i;
	int fd;

	if ((fd = open(rg->program, O_RDONLY | O_CLOEXEC)) == -1)
		return;
	if (pread(fd, &eh, sizeof(eh), 0) != (ssize_t)sizeof(eh) ||
	    memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 ||
	    eh.e_phentsize != sizeof(ph)) {
		close(fd);
		return;
	}
	for (i = 0; i < eh.e_phnum; i++) {
		if (pread(fd, &ph, sizeof(ph),
			(off_t)(eh.e_phoff + i * sizeof(ph))) !=
		    (ssize_t)sizeof(ph))
			break;
		if (ph.p_type != PT_INTERP || ph.p_filesz == 0 ||
		    ph.p_filesz > sizeof(name))
			continue;
		if (pread(fd, name, ph.p_filesz, (off_t)ph.p_offset) ==
			(ssize_t)ph.p_filesz &&
		    name[ph.p_filesz - 1] == '\0')
			permit(rg, name, LL_READ | LL_EXEC);
		break;
	}
	close(fd);
}

/*
 * The ignore files above the root. One that is made or replaced later has no
 * rule and is not honoured until the next start: a directory cannot be
 * permitted without everything below it.
 */
static void
permit_ignore_files(struct rg *rg, const char *root_path)
{
	static const char *const names[] = { ".ignore", ".rgignore",
		".gitignore", ".git", ".git/info/exclude" };
	char *dir, *slash, *path;
	size_t i;

	dir = xstrdup(root_path);
	while ((slash = strrchr(dir, '/')) != NULL) {
		*slash = '\0';
		for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			path = xasprintf("%s/%s", dir, names[i]);
			if (is_regular(path))
				permit(rg, path, LL_READ);
			free(path);
		}
	}
	free(dir);
}

void
rg_prepare(struct rg *rg, const char *root_path)
{
	size_t i;

	memset(rg, 0, sizeof(*rg));
	if ((rg->null = open("/dev/null", O_RDWR | O_CLOEXEC)) == -1)
		fatal("files: /dev/null");
	permit(rg, root_path, LL_READ | LL_WRITE);
	for (i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (is_regular(programs[i]) && access(programs[i], X_OK) == 0) {
			rg->program = xstrdup(programs[i]);
			break;
		}
	if (rg->program == NULL)
		return;
	permit(rg, rg->program, LL_READ | LL_EXEC);
	permit_interpreter(rg);
	for (i = 0; i < sizeof(library_paths) / sizeof(library_paths[0]); i++)
		permit(rg, library_paths[i], LL_READ);
	permit_ignore_files(rg, root_path);
}

/* ---- seccomp ---- */

int
rg_limit_calls(char **error)
{
	static const uint64_t flags[] = { CLONE_NEWUSER, CLONE_NEWNS,
		CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS,
		CLONE_NEWCGROUP, CLONE_NEWTIME };
	scmp_filter_ctx ctx;
	size_t i;
	int r = 0;

	if ((ctx = seccomp_init(SCMP_ACT_ALLOW)) == NULL) {
		*error = xstrdup("seccomp: cannot make a filter");
		return -1;
	}
	for (i = 0; r == 0 && i < sizeof(flags) / sizeof(flags[0]); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM),
		    SCMP_SYS(clone), 1,
		    SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
	/* Process 1, and the groups that kill(2) means below it. */
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(kill),
		    1, SCMP_A0(SCMP_CMP_LE, 1, 0));
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(kill),
		    1, SCMP_A0(SCMP_CMP_GT, 0x7fffffff, 0));
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(kill),
		    1, SCMP_A1(SCMP_CMP_NE, SIGKILL, 0));
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	if (r != 0) {
		*error = xasprintf("seccomp: %s", strerror(-r));
		return -1;
	}
	return 0;
}

/* ---- processes ---- */

struct execution {
	const char *program;
	const char *const *argv;
	int root; /* working directory, or -1 */
	int null; /* standard input and error */
	int out; /* standard output */
};

/* The child. It never returns, and changes no memory but its stack. */
static int
execute(void *arg)
{
	const struct execution *e = arg;
	struct sigaction sa;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1 || getppid() == 1)
		_exit(EXEC_FAILED);
	if (e->root != -1 && fchdir(e->root) == -1)
		_exit(EXEC_FAILED);
	if (dup2(e->null, STDIN_FILENO) == -1 ||
	    dup2(e->out, STDOUT_FILENO) == -1 ||
	    dup2(e->null, STDERR_FILENO) == -1)
		_exit(EXEC_FAILED);
	proc_close_from(STDERR_FILENO + 1);
	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = SIG_DFL;
	(void)sigaction(SIGPIPE, &sa, NULL);
	(void)execve(
	    e->program, (char *const *)(uintptr_t)e->argv, environment);
	_exit(errno == EACCES ? EXEC_REFUSED : EXEC_FAILED);
}

/*
 * Starts a program. As with vfork(2), the child borrows the memory of its
 * parent, which waits until it has been executed: the page tables of a process
 * that holds large files need not be copied for that. -1 with errno.
 */
static pid_t
start(const struct execution *e)
{
	static _Alignas(64) char stack[64 * 1024];
#ifdef SANITIZERS
	const int flags = SIGCHLD;
#else
	const int flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
#endif

	return clone(
	    execute, stack + sizeof(stack), flags, (void *)(uintptr_t)e);
}

static int
reap(pid_t pid)
{
	int st;

	while (waitpid(pid, &st, 0) == -1)
		if (errno != EINTR)
			fatal("files: waitpid");
	return st;
}

void
rg_verify(struct rg *rg)
{
	static const char *const bash[] = { "bash", "-c", "exit 0", NULL };
	static const char *const version[] = { "rg", "--no-config", "--version",
		NULL };
	struct execution e = { "/bin/bash", bash, -1, rg->null, rg->null };
	char text[8];
	ssize_t n;
	pid_t pid;
	int fds[2], st;

	if ((pid = start(&e)) == -1)
		fatal("files: clone");
	st = reap(pid);
	if (!WIFEXITED(st) || WEXITSTATUS(st) != EXEC_REFUSED)
		fatalx("files: Landlock does not hold: bash was executed");
	if (rg->program == NULL) {
		log_warnx("files: ripgrep (rg) is in none of /usr/local/bin, "
			  "/usr/bin, /bin: search_text and list_files are not "
			  "available; install it and start again");
		return;
	}
	if (pipe2(fds, O_CLOEXEC) == -1)
		fatal("files: pipe");
	e.program = rg->program;
	e.argv = version;
	e.out = fds[1];
	if ((pid = start(&e)) == -1)
		fatal("files: clone");
	close(fds[1]);
	do {
		n = read(fds[0], text, sizeof(text));
	} while (n == -1 && errno == EINTR);
	close(fds[0]);
	(void)reap(pid);
	if (n == (ssize_t)sizeof(text) && memcmp(text, "ripgrep ", 8) == 0)
		return;
	log_warnx("files: %s does not run: search_text and list_files are not "
		  "available",
	    rg->program);
	free(rg->program);
	rg->program = NULL;
}

int
rg_start(struct rg_run *run, struct tool *t, const char *const *args,
    int64_t deadline)
{
	static const char *const fixed[] = { "rg", "--files", "--no-config",
		"--no-follow", "--no-messages", "--no-ignore-global", "--sort",
		"path", "--path-separator", "/", "--null" };
	const size_t nfixed = sizeof(fixed) / sizeof(fixed[0]);
	struct execution e = { t->rg->program, NULL, t->root, t->rg->null, -1 };
	const char **argv;
	size_t n = 0;
	int fds[2];

	memset(run, 0, sizeof(*run));
	run->tool = t;
	run->deadline = deadline;
	run->fd = -1;
	if (t->rg->program == NULL)
		return -1;
	while (args[n] != NULL)
		n++;
	argv = xcalloc(nfixed + n + 1, sizeof(*argv));
	memcpy(argv, fixed, sizeof(fixed));
	memcpy(argv + nfixed, args, n * sizeof(*argv));
	if (pipe2(fds, O_CLOEXEC) == -1) {
		free(argv);
		return -1;
	}
	/* rg walks on while we are busy with a file. */
	(void)fcntl(fds[0], F_SETPIPE_SZ, PIPE_SIZE);
	e.argv = argv;
	e.out = fds[1];
	run->pid = start(&e);
	close(fds[1]);
	free(argv);
	if (run->pid == -1) {
		run->pid = 0;
		close(fds[0]);
		return -1;
	}
	run->fd = fds[0];
	return 0;
}

/* Waits until there is more to read, as long as that is permitted. */
static enum rg_next
wait_more(struct rg_run *run)
{
	struct pollfd pfd[2];
	int64_t left;

	if (tool_cancelled(run->tool))
		return RG_ABORTED;
	pfd[0].fd = run->fd;
	pfd[1].fd = run->tool->channel->fd;
	pfd[0].events = pfd[1].events = POLLIN;
	for (;;) {
		if ((left = run->deadline - time_mono_ms()) <= 0)
			return RG_TIMEOUT;
		if (poll(pfd, 2, (int)left) == -1) {
			if (errno == EINTR)
				continue;
			return RG_FAILED;
		}
		if (pfd[1].revents != 0) {
			if (tool_cancelled(run->tool))
				return RG_ABORTED;
			/* Nobody waits for an answer any more. */
			if (pfd[1].revents & (POLLHUP | POLLERR))
				return RG_ABORTED;
		}
		if (pfd[0].revents != 0)
			return RG_NAME;
	}
}

/* rg closed its output: 0 and 1 are fine, 2 is "not everything". */
static enum rg_next
at_end(struct rg_run *run)
{
	int st = reap(run->pid);

	run->pid = 0;
	if (run->in.len != run->at || !WIFEXITED(st) || WEXITSTATUS(st) > 2)
		return RG_FAILED;
	run->incomplete = WEXITSTATUS(st) == 2;
	return RG_END;
}

/* RG_NAME if there is more to read now. */
static enum rg_next
ready(struct rg_run *run)
{
	struct pollfd pfd;

	pfd.fd = run->fd;
	pfd.events = POLLIN;
	return poll(&pfd, 1, 0) == 1 ? RG_NAME : RG_LATER;
}

static enum rg_next
next(struct rg_run *run, const char **name, size_t *len, int wait)
{
	enum rg_next r;
	uint8_t *p, *nul;
	ssize_t n;

	for (;;) {
		if (run->in.len > run->at) {
			p = run->in.data + run->at;
			nul = memchr(p, '\0', run->in.len - run->at);
			if (nul != NULL) {
				*name = (const char *)p;
				*len = (size_t)(nul - p);
				run->at += *len + 1;
				if (*len > 2 && memcmp(p, "./", 2) == 0) {
					*name += 2;
					*len -= 2;
				}
				return RG_NAME;
			}
		}
		if (run->pid == 0)
			return RG_END;
		buf_drain(&run->in, run->at);
		run->at = 0;
		if (run->in.len > NAME_SIZE_MAX)
			return RG_FAILED;
		if ((r = wait ? wait_more(run) : ready(run)) != RG_NAME)
			return r;
		n = read(run->fd, buf_reserve(&run->in, READ_SIZE), READ_SIZE);
		if (n == -1 && errno == EINTR)
			continue;
		if (n == -1)
			return RG_FAILED;
		if (n == 0)
			return at_end(run);
		run->in.len += (size_t)n;
	}
}

enum rg_next
rg_next(struct rg_run *run, const char **name, size_t *len)
{
	return next(run, name, len, 1);
}

enum rg_next
rg_try(struct rg_run *run, const char **name, size_t *len)
{
	return next(run, name, len, 0);
}

void
rg_stop(struct rg_run *run)
{
	if (run->pid > 0) {
		(void)kill(run->pid, SIGKILL);
		(void)reap(run->pid);
		run->pid = 0;
	}
	if (run->fd != -1)
		close(run->fd);
	run->fd = -1;
	buf_free(&run->in);
}
