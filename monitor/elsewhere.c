#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "elsewhere.h"
#include "error.h"
#include "names.h"
#include "storage.h"

/* More entries than that are not looked at; each level is small. */
#define ENTRIES_MAX 4096

struct search {
	const char *root_name;
	const char *id_name;
	dev_t own_dev; /* this worker's own directory */
	ino_t own_ino;
};

static int
found(const char *dir, const char *name, char **error)
{
	return errorf(error,
	    "there is a quarantine of this workspace at %s/%s, made for "
	    "another deployment or worker id, or by an older version. Inspect "
	    "the workspace, then remove that file",
	    dir, name);
}

/* One directory of markers. */
static int
look(int fd, const struct search *s, const char *dir, char **error)
{
	struct stat st;
	int own;

	if (fstat(fd, &st) == -1)
		return error_errno(error, "%s", dir);
	own = st.st_dev == s->own_dev && st.st_ino == s->own_ino;
	if (!own && fstatat(fd, s->root_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return found(dir, s->root_name, error);
	if (own && fstatat(fd, s->id_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return found(dir, s->id_name, error);
	return 0;
}

/* Calls itself once for the two levels of D and W. */
static int
search(int fd, const struct search *s, const char *dir, int level, char **error)
{
	struct dirent *de;
	DIR *d;
	char *path;
	int sub, r = 0, n = 0;

	if (level == 2) {
		r = look(fd, s, dir, error);
		close(fd);
		return r;
	}
	if ((d = fdopendir(fd)) == NULL) {
		close(fd);
		return error_errno(error, "%s", dir);
	}
	while (r == 0 && n++ < ENTRIES_MAX && (de = readdir(d)) != NULL) {
		if (strncmp(de->d_name, "id-", 3) != 0)
			continue;
		sub = openat(dirfd(d), de->d_name,
		    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub == -1)
			continue;
		path = xasprintf("%s/%s", dir, de->d_name);
		r = search(sub, s, path, level + 1, error);
		free(path);
	}
	closedir(d);
	return r;
}

int
elsewhere_check(
    const char *state_dir, const char *root, const char *id, char **error)
{
	struct search s;
	struct place p;
	struct stat st;
	char *root_name, *id_name, *top;
	int fd, r = -1;

	/* The place of the directory D in ".../quarantines/D/W". */
	if (place_open(state_dir, 0, &p, error) != STORAGE_OK)
		return -1;
	root_name = marker_name(root);
	id_name = marker_name(id);
	memset(&s, 0, sizeof(s));
	s.root_name = root_name;
	s.id_name = id_name;
	top = xstrdup(p.dir);
	*strrchr(top, '/') = '\0';
	fd = openat(p.fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1 || fstatat(p.fd, p.leaf, &st, 0) == -1) {
		error_errno(error, "%s", state_dir);
		if (fd != -1)
			close(fd);
	} else {
		s.own_dev = st.st_dev;
		s.own_ino = st.st_ino;
		r = search(fd, &s, top, 0, error);
	}
	free(top);
	free(root_name);
	free(id_name);
	place_close(&p);
	return r;
}
