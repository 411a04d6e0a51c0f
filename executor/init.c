#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bounds.h"
#include "buf.h"
#include "fence.h"
#include "filter.h"
#include "keeper.h"
#include "kernel.h"
#include "proc.h"
#include "sys.h"

#define FD_STATUS 3
#define FD_ROOT   4

static void
report_to(int fd, int event, int value, int error)
{
	struct run_status st = { event, value, error };

	while (write(fd, &st, sizeof(st)) == -1 && errno == EINTR)
		;
}

static void
report(int event, int value, int error)
{
	report_to(FD_STATUS, event, value, error);
}

static void __attribute__((__noreturn__)) fail(enum run_step step)
{
	report(RUN_FAILED, (int)step, errno);
	_exit(1);
}

/* Moves the descriptors of the command to their numbers, closes the rest. */
static int
arrange_descriptors(int null, int out, int err, int status, int root)
{
	int high[5], i;
	const int fds[5] = { null, out, err, status, root };

	for (i = 0; i < 5; i++)
		if ((high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 16)) == -1)
			return -1;
	for (i = 0; i < 3; i++)
		if (dup2(high[i], i) == -1)
			return -1;
	if (dup3(high[3], FD_STATUS, O_CLOEXEC) == -1 ||
	    dup3(high[4], FD_ROOT, O_CLOEXEC) == -1)
		return -1;
	proc_close_from(FD_ROOT + 1);
	return 0;
}

static int
enter_cwd(const char *cwd)
{
	int fd;

	if (*cwd == '\0')
		return fchdir(FD_ROOT);
	fd = beneath_open(FD_ROOT, cwd, O_PATH | O_DIRECTORY);
	if (fd == -1)
		return -1;
	if (fchdir(fd) == -1)
		return -1;
	return close(fd);
}

/*
 * No core file, and no program of the host that is given the image of a
 * crashed process instead: the kernel starts none if the limit is exactly one
 * byte, but does if it is zero (core(5)). The filter of commands ignores
 * attempts to change it.
 */
static void
limit_core(void)
{
	struct rlimit core = { 1, 1 };

	/* A lower limit of the daemon itself cannot be raised. */
	if (setrlimit(RLIMIT_CORE, &core) == -1) {
		core.rlim_cur = core.rlim_max = 0;
		(void)setrlimit(RLIMIT_CORE, &core);
	}
}

/* The state that a login shell would start a program with. */
static void
default_state(void)
{
	sigset_t none;
	int i;

	for (i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)umask(022);
}

static void __attribute__((__noreturn__))
shell_main(const struct keeper *k, const char *command)
{
	char bash[] = "/bin/bash", opt[] = "-c", *argv[4];
	char *const *env = k->env;
	char pwd[PATH_MAX + 8], **envp;
	size_t n;

	(void)setsid();
	default_state();
	/* A control group counts the commands alone. */
	bounds_command(k->group == -1 ? k->processes : 0);
	memcpy(pwd, "PWD=", 5);
	if (getcwd(pwd + 4, sizeof(pwd) - 4) == NULL)
		pwd[4] = '\0';
	for (n = 0; env[n] != NULL; n++)
		;
	envp = xcalloc(n + 2, sizeof(*envp));
	memcpy(envp, env, n * sizeof(*envp));
	if (pwd[4] != '\0')
		envp[n++] = pwd;
	argv[0] = bash;
	argv[1] = opt;
	argv[2] = xstrdup(command);
	argv[3] = NULL;
	(void)execve(bash, argv, envp);
	fail(RUN_STEP_SHELL);
}

void
init_main(const struct keeper *k, const char *cwd, const char *command, int out,
    int err, int status)
{
	pid_t shell, pid;
	int root, st;

	(void)prctl(PR_SET_NAME, "init", 0, 0, 0);
	(void)signal(SIGCHLD, SIG_DFL);
	/*
	 * The keeper's descriptor is of a mount in the namespace that was
	 * copied: paths from there and paths from "/" would lie on different
	 * mounts. The working directory is the root in the new one.
	 */
	if ((root = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)) == -1 ||
	    arrange_descriptors(k->null, out, err, status, root) == -1) {
		report_to(status, RUN_FAILED, RUN_STEP_DESCRIPTORS, errno);
		_exit(1);
	}
	if (kernel_proc() == -1)
		fail(RUN_STEP_PROC);
	/*
	 * The keeper has the namespace of the host, or it could not start a
	 * process in a group that lies beside its own (cgroup_namespaces(7)).
	 */
	if (k->group != -1 && unshare(CLONE_NEWCGROUP) == -1)
		fail(RUN_STEP_PRIVILEGES);
	if (sys_drop_capabilities() == -1)
		fail(RUN_STEP_PRIVILEGES);
	if (enter_cwd(cwd) == -1)
		fail(RUN_STEP_CWD);
	limit_core();
	if (fence(k->plan) == -1)
		fail(RUN_STEP_FENCE);
	if (filter_install(k->filter) == -1)
		fail(RUN_STEP_FILTER);
	report(RUN_STARTED, 0, 0);

	if ((shell = fork()) == -1)
		fail(RUN_STEP_FORK);
	if (shell == 0) {
		close(FD_ROOT);
		shell_main(k, command);
	}
	/* The pipes must close with the command's last process. */
	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	close(STDERR_FILENO);
	close(FD_ROOT);
	for (;;) {
		if ((pid = waitpid(-1, &st, 0)) == -1) {
			if (errno == EINTR)
				continue;
			/* Nothing is left: the namespace ends with us. */
			_exit(0);
		}
		if (pid == shell)
			report(RUN_ENDED, st, 0);
	}
}
