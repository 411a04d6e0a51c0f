#include "config.h"

#include <sys/types.h>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "procs.h"
#include "times.h"

#define DEPTH 6

/* Parent and name of a process; 0, or -1 if it is gone. */
static int
describe(const char *pid, pid_t *parent, char *name, size_t size)
{
	char path[300], text[512], *open_, *close_;
	ssize_t n;
	int fd;

	(void)xsnprintf(path, sizeof(path), "/proc/%s/stat", pid);
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	open_ = strchr(text, '(');
	close_ = strrchr(text, ')');
	if (open_ == NULL || close_ == NULL || strlen(close_) < 4)
		return -1;
	*close_ = '\0';
	(void)xsnprintf(name, size, "%s", open_ + 1);
	*parent = (pid_t)strtol(close_ + 4, NULL, 10);
	return 0;
}

static pid_t
below(pid_t pid, const char *name, int depth)
{
	char found_name[64];
	struct dirent *de;
	pid_t found = 0, parent, child;
	DIR *d;

	if (depth == 0 || (d = opendir("/proc")) == NULL)
		return 0;
	while (found == 0 && (de = readdir(d)) != NULL) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9' ||
		    describe(de->d_name, &parent, found_name,
			sizeof(found_name)) == -1 ||
		    parent != pid)
			continue;
		child = (pid_t)strtol(de->d_name, NULL, 10);
		found = strcmp(found_name, name) == 0
		    ? child
		    : below(child, name, depth - 1);
	}
	closedir(d);
	return found;
}

pid_t
process_below(pid_t pid, const char *name)
{
	return below(pid, name, DEPTH);
}

static int
is_alive(const char *pid)
{
	char path[300], text[512], *p;
	ssize_t n;
	int fd;

	(void)xsnprintf(path, sizeof(path), "/proc/%s/stat", pid);
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	p = strrchr(text, ')');
	return p != NULL && strlen(p) > 2 && strchr("ZXx", p[2]) == NULL;
}

/* 1 if the process is in the namespace. */
static int
is_member(const char *pid, const char *link)
{
	char path[300], target[64];
	ssize_t n;

	(void)xsnprintf(path, sizeof(path), "/proc/%s/ns/pid", pid);
	if ((n = readlink(path, target, sizeof(target) - 1)) <= 0)
		return 0;
	target[n] = '\0';
	return strcmp(target, link) == 0 && is_alive(pid);
}

int
namespace_pin(const char *link)
{
	char path[300];
	struct dirent *de;
	int fd = -1;
	DIR *d;

	if ((d = opendir("/proc")) == NULL)
		return -1;
	while (fd == -1 && (de = readdir(d)) != NULL) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9' ||
		    !is_member(de->d_name, link))
			continue;
		(void)xsnprintf(
		    path, sizeof(path), "/proc/%s/ns/pid", de->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	closedir(d);
	return fd;
}

int
namespace_members(const char *link)
{
	struct dirent *de;
	int members = 0;
	DIR *d;

	if ((d = opendir("/proc")) == NULL)
		return -1;
	while ((de = readdir(d)) != NULL)
		if (de->d_name[0] >= '0' && de->d_name[0] <= '9')
			members += is_member(de->d_name, link);
	closedir(d);
	return members;
}

int
namespace_emptied(const char *link)
{
	int64_t end = time_mono_ms() + 20000;
	int n;

	while ((n = namespace_members(link)) != 0 && time_mono_ms() < end)
		(void)poll(NULL, 0, 2);
	return n;
}
