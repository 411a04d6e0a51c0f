#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"

static int fault_root = -1;

static const struct {
	const char *name;
	int value;
} errors[] = {
	{ "EIO", EIO },
	{ "ENOSPC", ENOSPC },
	{ "EEXIST", EEXIST },
	{ "EINVAL", EINVAL },
	{ "ENOSYS", ENOSYS },
	{ "EPERM", EPERM },
	{ "EMLINK", EMLINK },
	{ "EBUSY", EBUSY },
	{ "ENOENT", ENOENT },
};

void
fault_init(int root)
{
	fault_root = root;
}

static void
wait_for_test(void)
{
	char c = '!';
	ssize_t n = 0;
	int fd;

	fd = openat(fault_root, FAULT_REACHED, O_WRONLY | O_CLOEXEC);
	if (fd != -1)
		n = write(fd, &c, 1);
	close(fd);
	if (n != 1)
		_exit(1);
	if ((fd = openat(fault_root, FAULT_GO, O_RDONLY | O_CLOEXEC)) != -1)
		n = read(fd, &c, 1);
	close(fd);
	if (n != 1)
		_exit(1);
}

static int
act(const char *action)
{
	size_t i;

	if (strcmp(action, "kill") == 0) {
		(void)raise(SIGKILL);
		_exit(1);
	}
	if (strcmp(action, "wait") == 0) {
		wait_for_test();
		return 0;
	}
	for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (strcmp(action, errors[i].name) == 0) {
			errno = errors[i].value;
			return -1;
		}
	_exit(1);
}

int
fault(const char *point)
{
	char text[512], *line, *action, *last;
	ssize_t n;
	int fd;

	fd = openat(fault_root, FAULT_CONTROL, O_RDONLY | O_CLOEXEC);
	if (fd == -1)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	for (line = strtok_r(text, "\n", &last); line != NULL;
	     line = strtok_r(NULL, "\n", &last)) {
		if ((action = strchr(line, ' ')) == NULL)
			_exit(1);
		*action++ = '\0';
		if (strcmp(line, point) == 0)
			return act(action);
	}
	return 0;
}
