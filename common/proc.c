#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "log.h"
#include "proc.h"

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

static int
account_set(struct account *a, const struct passwd *pw)
{
	a->uid = pw->pw_uid;
	a->gid = pw->pw_gid;
	a->name = xstrdup(pw->pw_name);
	a->home = xstrdup(pw->pw_dir);
	return 0;
}

static int
parse_id(const char *s, uid_t *uid)
{
	unsigned long v;
	char *end;

	if (*s < '0' || *s > '9')
		return -1;
	errno = 0;
	v = strtoul(s, &end, 10);
	if (errno != 0 || *end != '\0' || v >= 0xffffffffUL)
		return -1;
	*uid = (uid_t)v;
	return 0;
}

int
account_by_name(const char *name, struct account *a, char **error)
{
	struct passwd *pw;
	uid_t uid;

	if ((pw = getpwnam(name)) != NULL)
		return account_set(a, pw);
	if (parse_id(name, &uid) == 0)
		return account_by_uid(uid, a, error);
	*error = xasprintf("there is no account %s", name);
	return -1;
}

int
account_by_uid(uid_t uid, struct account *a, char **error)
{
	struct passwd *pw;

	(void)error;
	if ((pw = getpwuid(uid)) != NULL)
		return account_set(a, pw);
	a->uid = uid;
	a->gid = (gid_t)uid;
	a->name = xasprintf("%lu", (unsigned long)uid);
	a->home = xstrdup("/");
	return 0;
}

void
account_free(struct account *a)
{
	free(a->name);
	free(a->home);
	memset(a, 0, sizeof(*a));
}

int
proc_socketpair(int sv[2])
{
#ifdef SOCK_CLOEXEC
	return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv);
#else
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == -1)
		return -1;
	(void)fcntl(sv[0], F_SETFD, FD_CLOEXEC);
	(void)fcntl(sv[1], F_SETFD, FD_CLOEXEC);
	return 0;
#endif
}

/* Path of the running program, without symbolic links. */
static int
program_path(char *path, size_t size)
{
#ifdef __APPLE__
	char raw[PATH_MAX];
	uint32_t len = sizeof(raw);

	if (size < PATH_MAX || _NSGetExecutablePath(raw, &len) != 0 ||
	    realpath(raw, path) == NULL)
		return -1;
	return 0;
#else
	ssize_t n;

	n = readlink("/proc/self/exe", path, size - 1);
	if (n <= 0 || (size_t)n >= size - 1)
		return -1;
	path[n] = '\0';
	return 0;
#endif
}

static char *
helper_path(const char *name, char **error)
{
	char exe[PATH_MAX], *slash;
	size_t len, blen = strlen(BINDIR);

	if (program_path(exe, sizeof(exe)) == -1) {
		*error = xstrdup("cannot find the path of this program; is "
				 "/proc mounted?");
		return NULL;
	}
	if ((slash = strrchr(exe, '/')) == NULL || slash == exe) {
		*error = xasprintf("%s: not an installed program", exe);
		return NULL;
	}
	*slash = '\0';
	len = strlen(exe);
	if (len < blen || strcmp(exe + len - blen, BINDIR) != 0) {
		*error = xasprintf("%s is not the directory that the program "
				   "was built for (%s); install it with make "
				   "install",
		    exe, BINDIR);
		return NULL;
	}
	exe[len - blen] = '\0';
	return xasprintf("%s%s/%s", exe, PKGLIBEXECDIR, name);
}

/* A helper that another account could change is not started by root. */
static int
open_helper(const char *path, char **error)
{
	struct stat st;
	int fd;

	if ((fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) == -1) {
		*error = xasprintf("%s: %s", path, strerror(errno));
		return -1;
	}
	if (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode)) {
		*error = xasprintf("%s is not a program", path);
		close(fd);
		return -1;
	}
	if ((st.st_uid != 0 && st.st_uid != geteuid()) ||
	    (st.st_mode & S_IWOTH)) {
		*error = xasprintf(
		    "%s can be changed by another account", path);
		close(fd);
		return -1;
	}
	return fd;
}

int
proc_become(uid_t uid, gid_t gid)
{
	if (geteuid() == 0) {
		if (setgroups(0, NULL) == -1)
			return -1;
	}
#ifdef __APPLE__
	if (setregid(gid, gid) == -1 || setreuid(uid, uid) == -1)
		return -1;
#else
	if (setresgid(gid, gid, gid) == -1 || setresuid(uid, uid, uid) == -1)
		return -1;
#endif
	if (uid != 0 && (setuid(0) != -1 || seteuid(0) != -1)) {
		errno = EPERM;
		return -1;
	}
	if (getuid() != uid || geteuid() != uid || getgid() != gid ||
	    getegid() != gid) {
		errno = EPERM;
		return -1;
	}
	return 0;
}

void
proc_close_from(int lowest)
{
#if defined(__linux__) && defined(SYS_close_range)
	if (syscall(SYS_close_range, (unsigned int)lowest, ~0U, 0) == 0)
		return;
#endif
	{
		long i, max = sysconf(_SC_OPEN_MAX);

		if (max < 0 || max > 65536)
			max = 65536;
		for (i = lowest; i < max; i++)
			close((int)i);
	}
}

/* Everything between fork and exec; on failure says why on stderr. */
static void __attribute__((__noreturn__))
exec_helper(const char *name, const char *path, int helper, int sock,
    pid_t parent, const struct account *as)
{
	char *argv[2], *envp[4], *v;
	sigset_t none;
	size_t n = 0;
	int null, i;

	argv[0] = xstrdup(name);
	argv[1] = NULL;
	if ((v = getenv("JOURNAL_STREAM")) != NULL)
		envp[n++] = xasprintf("JOURNAL_STREAM=%s", v);
#ifdef SANITIZERS
	if ((v = getenv("ASAN_OPTIONS")) != NULL)
		envp[n++] = xasprintf("ASAN_OPTIONS=%s", v);
	if ((v = getenv("UBSAN_OPTIONS")) != NULL)
		envp[n++] = xasprintf("UBSAN_OPTIONS=%s", v);
#endif
	envp[n] = NULL;

	for (i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);

	/* Keep both descriptors clear of 0 to PROC_CHANNEL. */
	if ((sock = fcntl(sock, F_DUPFD_CLOEXEC, 10)) == -1 ||
	    (helper = fcntl(helper, F_DUPFD_CLOEXEC, 10)) == -1)
		fatal("start of %s: descriptor", name);
	if ((null = open("/dev/null", O_RDWR | O_CLOEXEC)) == -1)
		fatal("start of %s: /dev/null", name);
	if (dup2(null, STDIN_FILENO) == -1 || dup2(null, STDOUT_FILENO) == -1 ||
	    dup2(sock, PROC_CHANNEL) == -1)
		fatal("start of %s: dup2", name);
	if (dup2(helper, PROC_CHANNEL + 1) == -1)
		fatal("start of %s: dup2", name);
	helper = PROC_CHANNEL + 1;
	(void)fcntl(helper, F_SETFD, FD_CLOEXEC);
	proc_close_from(PROC_CHANNEL + 2);

	if (as != NULL && proc_become(as->uid, as->gid) == -1)
		fatal("start of %s: become %s", name, as->name);
	if (chdir("/") == -1)
		fatal("start of %s: chdir /", name);
#ifdef __linux__
	/* After the change of account, which clears it. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1)
		fatal("start of %s: parent death signal", name);
	if (getppid() != parent)
		_exit(1);
	(void)syscall(SYS_execveat, helper, "", argv, envp, AT_EMPTY_PATH);
#else
	(void)parent;
	(void)helper;
	(void)execve(path, argv, envp);
#endif
	fatal("start of %s: %s", name, path);
}

int
proc_start(
    struct proc *p, const char *name, const struct account *as, char **error)
{
	char *path;
	pid_t parent = getpid();
	int sv[2], helper;

	p->name = name;
	if ((path = helper_path(name, error)) == NULL)
		return -1;
	if ((helper = open_helper(path, error)) == -1) {
		free(path);
		return -1;
	}
	if (proc_socketpair(sv) == -1) {
		*error = xasprintf("socketpair: %s", strerror(errno));
		close(helper);
		free(path);
		return -1;
	}
	switch (p->pid = fork()) {
	case -1:
		*error = xasprintf("fork: %s", strerror(errno));
		close(sv[0]);
		close(sv[1]);
		close(helper);
		free(path);
		return -1;
	case 0:
		exec_helper(name, path, helper, sv[1], parent, as);
	default:
		break;
	}
	close(sv[1]);
	close(helper);
	free(path);
	/* Only requests to the monitor; no helper may hand it a descriptor. */
	imsg_init(&p->ib, sv[0], IMSG_MESSAGE_MAX, 0);
	return 0;
}

void
proc_helper_init(struct imsgbuf *ib, int take_fds)
{
	struct stat st;

	if (fstat(PROC_CHANNEL, &st) == -1 || !S_ISSOCK(st.st_mode))
		fatalx("this program is started by librechat-code(1), not by "
		       "hand");
	(void)fcntl(PROC_CHANNEL, F_SETFD, FD_CLOEXEC);
	(void)signal(SIGPIPE, SIG_IGN);
	/*
	 * The monitor decides when to stop; a terminal's ^C and a service
	 * manager's SIGTERM go to all processes.
	 */
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGTERM, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	imsg_init(ib, PROC_CHANNEL, IMSG_MESSAGE_MAX, take_fds);
}
