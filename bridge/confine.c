#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#endif
#include <netinet/in.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "confine.h"
#include "restrict.h"

#define RESOLV_CONF "/etc/resolv.conf"

int
confine_resolver_lost(void)
{
	int fd;

	/* Reading is refused only for a file that came after the start. */
	if ((fd = open(RESOLV_CONF, O_RDONLY | O_CLOEXEC)) != -1) {
		close(fd);
		return 0;
	}
	return errno == EACCES;
}

#ifdef __linux__

#define FAMILIES 64 /* more than the kernel has */

static const struct landlock_path paths[] = {
	/* names */
	{ RESOLV_CONF, LL_READ },
	{ "/etc/hosts", LL_READ },
	{ "/etc/host.conf", LL_READ },
	{ "/etc/nsswitch.conf", LL_READ },
	{ "/etc/gai.conf", LL_READ },
	{ "/etc/services", LL_READ },
	{ "/etc/ld.so.cache", LL_READ },
	{ "/run/systemd/resolve", LL_READ },
	{ "/run/NetworkManager", LL_READ },
	{ "/run/resolvconf", LL_READ },
	{ "/run/nscd", LL_READ },
	{ "/var/run/nscd", LL_READ },
	/* modules of the name service and of TLS */
	{ "/lib", LL_READ },
	{ "/lib64", LL_READ },
	{ "/usr/lib", LL_READ },
	{ "/usr/lib64", LL_READ },
	{ "/usr/local/lib", LL_READ },
	/* certificates */
	{ "/etc/ssl", LL_READ },
	{ "/etc/pki", LL_READ },
	{ "/etc/ca-certificates", LL_READ },
	{ "/etc/crypto-policies", LL_READ },
	{ "/usr/share/ca-certificates", LL_READ },
	{ "/usr/share/pki", LL_READ },
	{ "/usr/local/share/ca-certificates", LL_READ },
	{ "/etc/localtime", LL_READ },
	{ "/dev/null", LL_READ },
	{ "/dev/urandom", LL_READ },
#ifdef SANITIZERS
	{ "/proc/self", LL_READ },
#endif
};
#define NPATHS (sizeof(paths) / sizeof(paths[0]))

static const char *const calls[] = {
	/* connections and name resolution */
	"socket",
	"connect",
	"bind", /* netlink; TCP is closed by the other layers */
	"sendmmsg",
	"recvmmsg",
	/* configuration, certificates, modules */
	"open",
	"openat",
	"access",
	"faccessat",
	"faccessat2",
	"stat",
	"stat64",
	"lstat",
	"newfstatat",
	"fstatat64",
	"statx",
	"readlink",
	"readlinkat",
	"getdents64",
	"getcwd",
	/* the resolver's threads; see limit_arguments */
	"clone",
	"getpgrp",
	NULL,
};

static int
add(scmp_filter_ctx ctx, uint32_t action, int call, unsigned int n,
    const struct scmp_arg_cmp *args, char **error)
{
	int r;

	if (call < 0)
		return 0;
	if ((r = seccomp_rule_add_array(ctx, action, call, n, args)) < 0) {
		*error = xasprintf("seccomp: argument rule: %s", strerror(-r));
		return -1;
	}
	return 0;
}

/* A condition on the first argument. */
static struct scmp_arg_cmp
compare(enum scmp_compare op, scmp_datum_t a, scmp_datum_t b)
{
	struct scmp_arg_cmp c;

	memset(&c, 0, sizeof(c));
	c.op = op;
	c.datum_a = a;
	c.datum_b = b;
	return c;
}

/*
 * A filter below the list of calls, for their arguments: threads but no
 * processes, and no sockets but those of the Internet, of the local name
 * services and of the kernel's address list. clone3 hides its arguments in
 * memory, so the C library has to fall back to clone.
 */
static int
limit_arguments(char **error)
{
	struct scmp_arg_cmp arg;
	scmp_filter_ctx ctx;
	int family, r = -1;

	if ((ctx = seccomp_init(SCMP_ACT_ALLOW)) == NULL) {
		*error = xstrdup("seccomp: cannot make a filter");
		return -1;
	}
	arg = compare(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0);
	if (add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0, NULL,
		error) == -1 ||
	    add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, &arg, error) ==
		-1)
		goto out;
	for (family = 0; family < FAMILIES; family++) {
		if (family == AF_UNIX || family == AF_INET ||
		    family == AF_INET6 || family == AF_NETLINK)
			continue;
		arg = compare(SCMP_CMP_EQ, (scmp_datum_t)family, 0);
		if (add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
			&arg, error) == -1)
			goto out;
	}
	arg = compare(SCMP_CMP_GE, FAMILIES, 0);
	if (add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1, &arg,
		error) == -1)
		goto out;
	if ((r = seccomp_load(ctx)) < 0) {
		*error = xasprintf("seccomp: %s; the kernel needs "
				   "CONFIG_SECCOMP_FILTER",
		    strerror(-r));
		r = -1;
	}
out:
	seccomp_release(ctx);
	return r;
}

static int
broken(char **error, const char *layer, const char *what)
{
	*error = xasprintf("%s does not hold: the bridge could %s; is a "
			   "container or an old kernel in the way?",
	    layer, what);
	return -1;
}

/* A process made after all must not go on. */
static int
can_fork(void)
{
	long pid;

	pid = syscall(SYS_clone, (unsigned long)SIGCHLD, NULL, NULL, NULL, 0);
	if (pid == 0)
		_exit(0);
	if (pid == -1)
		return 0;
	(void)waitpid((pid_t)pid, NULL, 0);
	return 1;
}

static int
can_create(void)
{
	static const char *const places[] = { "/tmp/.librechat-code-test",
		"/dev/shm/.librechat-code-test" };
	size_t i;
	int fd;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		fd = open(
		    places[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd != -1) {
			close(fd);
			(void)unlink(places[i]);
			return 1;
		}
	}
	return 0;
}

static int
can_read(const char *path)
{
	int fd;

	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		return 0;
	close(fd);
	return 1;
}

static int
can_bind(void)
{
	struct sockaddr_in sin;
	int fd, r;

	if ((fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) == -1)
		return 0;
	memset(&sin, 0, sizeof(sin));
	sin.sin_family = AF_INET;
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	r = bind(fd, (struct sockaddr *)&sin, sizeof(sin));
	if (r == 0)
		r = listen(fd, 1);
	close(fd);
	return r == 0;
}

static int
can_execute(void)
{
	char *argv[] = { NULL, NULL }, *envp[] = { NULL };

	/* Refused as a call, before the file is looked at. */
	return execve("/nonexistent", argv, envp) == -1 && errno != ENOSYS;
}

static int
verify(char **error)
{
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		return broken(error, "no_new_privs", "gain privileges");
	if (prctl(PR_GET_DUMPABLE) != 0)
		return broken(error, "not dumpable", "be traced");
	if (prctl(PR_GET_SECCOMP) != SECCOMP_MODE_FILTER)
		return broken(error, "seccomp", "use every system call");
	if (can_execute())
		return broken(error, "seccomp", "execute a program");
	if (can_fork())
		return broken(error, "seccomp", "make a process");
	if (can_bind())
		return broken(error, "seccomp", "listen for connections");
	if (can_read("/") || can_read("/etc/passwd"))
		return broken(error, "Landlock", "read foreign files");
	if (can_create())
		return broken(error, "Landlock", "create a file");
	return 0;
}

int
confine(const char *ca_file, char **error)
{
	struct landlock_path list[NPATHS + 1];
	size_t n;

	if (restrict_basic(error) == -1)
		return -1;
	for (n = 0; n < NPATHS; n++)
		list[n] = paths[n];
	if (ca_file != NULL) {
		list[n].path = ca_file;
		list[n++].rights = LL_READ;
	}
	if (restrict_landlock(list, n, LL_NO_BIND | LL_SCOPED, error) == -1 ||
	    limit_arguments(error) == -1 ||
	    restrict_seccomp_with(calls, error) == -1)
		return -1;
	return verify(error);
}

#else

int
confine(const char *ca_file, char **error)
{
	(void)ca_file;
	return restrict_basic(error);
}

#endif
