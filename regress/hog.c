#include "config.h"

#include <sys/types.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Takes as much as it can get of one thing, inside a sandbox, prints how much
 * that was and the error that ended it, and with a name at the end of its
 * arguments makes a directory of that name and keeps everything until it is
 * killed.
 * For test_limits.c.
 */
#define MEBIBYTE (1UL << 20)

#ifdef SANITIZERS
/* A search for leaks needs what has just been used up. */
const char *__asan_default_options(void);
const char *
__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

static void
say(unsigned long n, int error)
{
	printf("%lu %s\n", n,
	    error == EAGAIN       ? "EAGAIN"
		: error == EMFILE ? "EMFILE"
		: error == ENOSPC ? "ENOSPC"
		: error == 0      ? "0"
				  : strerror(error));
	(void)fflush(stdout);
}

/* A directory, since there may be no descriptor left for a file. */
static void
keep(const char *name)
{
	if (name == NULL)
		return;
	if (mkdir(name, 0755) == -1)
		_exit(1);
	for (;;)
		(void)pause();
}

static int
processes(char **arg)
{
	unsigned long n = 0;
	pid_t pid;

	while ((pid = fork()) != -1) {
		if (pid == 0)
			for (;;)
				(void)pause();
		n++;
	}
	say(n, errno);
	keep(arg[0]);
	return 0;
}

/* Forks wherever it can, for ever, and leaves the processor to others. */
static int
bomb(char **arg)
{
	if (mkdir(arg[0], 0755) == -1)
		return 1;
	for (;;)
		if (fork() == -1)
			(void)usleep(10000);
}

/* Processes that have left everything that they came from. */
static int
orphans(char **arg)
{
	unsigned long i, n = strtoul(arg[0], NULL, 10);
	int ready[2];
	char c;

	if (pipe(ready) == -1)
		return 1;
	for (i = 0; i < n; i++) {
		switch (fork()) {
		case -1:
			say(i, errno);
			return 1;
		case 0:
			if (fork() != 0)
				_exit(0);
			(void)setsid();
			(void)signal(SIGTERM, SIG_IGN);
			(void)signal(SIGHUP, SIG_IGN);
			close(STDOUT_FILENO);
			close(STDERR_FILENO);
			(void)!write(ready[1], "", 1);
			for (;;)
				(void)pause();
		default:
			while (wait(NULL) == -1 && errno == EINTR)
				;
		}
	}
	for (i = 0; i < n; i++)
		if (read(ready[0], &c, 1) != 1)
			return 1;
	say(n, 0);
	return 0;
}

static int
instances(char **arg)
{
	unsigned long n = 0;

	while (inotify_init1(IN_CLOEXEC) != -1)
		n++;
	say(n, errno);
	keep(arg[0]);
	return 0;
}

/* Watches so many files, made below a directory. */
static int
watches(char **arg)
{
	unsigned long i, n = strtoul(arg[1], NULL, 10);
	int fd, file;
	char path[256];

	if ((fd = inotify_init1(IN_CLOEXEC)) == -1)
		return 1;
	for (i = 0; i < n; i++) {
		(void)snprintf(path, sizeof(path), "%s/%lu", arg[0], i);
		file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (file == -1)
			return 1;
		close(file);
		if (inotify_add_watch(fd, path, IN_OPEN) == -1)
			break;
	}
	say(i, i == n ? 0 : errno);
	return 0;
}

static int
descriptors(char **arg)
{
	struct rlimit rl;
	unsigned long n = 0;

	/* As java and node do it. */
	if (getrlimit(RLIMIT_NOFILE, &rl) == -1)
		return 1;
	rl.rlim_cur = rl.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &rl) == -1)
		return 1;
	while (n < 100000 && dup(0) != -1)
		n++;
	say(n, n == 100000 ? 0 : errno);
	keep(arg[0]);
	return 0;
}

/* So many MiB, each page written. */
static int
memory(char **arg)
{
	unsigned long i, n = strtoul(arg[0], NULL, 10);
	char *p;

	for (i = 0; i < n; i++) {
		if ((p = malloc(MEBIBYTE)) == NULL)
			break;
		memset(p, (int)i | 1, MEBIBYTE);
	}
	say(i, i == n ? 0 : errno);
	return 0;
}

static int
files(char **arg)
{
	unsigned long i, n = strtoul(arg[1], NULL, 10);
	char path[256];
	int fd;

	for (i = 0; i < n; i++) {
		(void)snprintf(path, sizeof(path), "%s/%lu", arg[0], i);
		if ((fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644)) ==
		    -1)
			break;
		close(fd);
	}
	say(i, i == n ? 0 : errno);
	return 0;
}

static const struct {
	const char *name;
	int nargs; /* needed */
	int (*run)(char **);
} table[] = {
	{ "processes", 0, processes },
	{ "bomb", 1, bomb },
	{ "orphans", 1, orphans },
	{ "instances", 0, instances },
	{ "watches", 2, watches },
	{ "descriptors", 0, descriptors },
	{ "memory", 1, memory },
	{ "files", 2, files },
};

int
main(int argc, char **argv)
{
	size_t i;

	for (i = 0; argc > 1 && i < sizeof(table) / sizeof(table[0]); i++)
		if (strcmp(argv[1], table[i].name) == 0 &&
		    argc - 2 >= table[i].nargs)
			return table[i].run(argv + 2);
	fprintf(stderr, "usage: hog what [number] [directory]\n");
	return 2;
}
