#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "leftover.h"
#include "log.h"

int
leftover_name(const char *name, const char *leaf)
{
	size_t n = strlen(leaf);

	if (strncmp(name, leaf, n) != 0 || name[n] != '.')
		return 0;
	name += n + 1;
	if (strspn(name, "0123456789abcdef") != 16)
		return 0;
	name += 16;
	return strcmp(name, ".tmp") == 0 || strcmp(name, ".probe") == 0;
}

static int
ours(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1;
}

unsigned int
leftovers_remove(const struct place *p)
{
	unsigned int n = 0;
	struct dirent *de;
	DIR *d;
	int fd;

	fd = openat(p->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		return 0;
	if ((d = fdopendir(fd)) == NULL) {
		close(fd);
		return 0;
	}
	while ((de = readdir(d)) != NULL) {
		if (!leftover_name(de->d_name, p->leaf) &&
		    !leftover_name(de->d_name, "restricted"))
			continue;
		if (!ours(p->fd, de->d_name) ||
		    unlinkat(p->fd, de->d_name, 0) == -1)
			continue;
		log_debug("removed %s/%s, left by a crash", p->dir, de->d_name);
		n++;
	}
	closedir(d);
	return n;
}
