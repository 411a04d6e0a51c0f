#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "buf.h"
#include "log.h"
#include "protect.h"
#include "sys.h"
#include "times.h"

/*
 * Repositories below the root are looked for once, within these bounds; a
 * workspace that exceeds them is protected as far as the search came.
 */
#define SEARCH_DEPTH   6
#define SEARCH_ENTRIES 50000
#define SEARCH_MS      200

struct search {
	enum protection level;
	int64_t deadline;
	long entries;
	int protected_places;
};

/* At the top of the root. A directory stands for all that is in it. */
static const char *const top_names[] = { ".bashrc", ".bash_profile",
	".bash_login", ".profile", ".zshrc", ".zprofile", ".zshenv",
	".ripgreprc", ".mcp.json", ".vscode", ".idea" };
static const char *const agent_names[] = { "commands", "agents" };
static const char *const strict_names[] = { ".gitconfig", ".gitmodules" };

/* Without a link anywhere, so that it is what it looks like. */
static int
open_plain(int dir, const char *name)
{
	return sys_openat2(dir, name, O_PATH, 0,
	    SYS_RESOLVE_BENEATH | SYS_RESOLVE_NO_SYMLINKS |
		SYS_RESOLVE_NO_XDEV);
}

/*
 * Mounts the object on itself, read-only or, to pin it, as it is. The
 * descriptors decide; no name is looked up again.
 */
static int
mount_on_itself(int fd, int read_only)
{
	int mnt, r;

	if ((mnt = sys_open_tree_clone(fd, "", 1)) == -1)
		return -1;
	r = read_only ? sys_mount_setattr(mnt, 1, SYS_MOUNT_RDONLY, 0) : 0;
	if (r == 0)
		r = sys_move_mount_to(mnt, fd);
	close(mnt);
	return r;
}

static void
protect_name(struct search *s, int dir, const char *name, int read_only)
{
	struct stat st;
	int fd;

	if ((fd = open_plain(dir, name)) == -1)
		return;
	if (fstat(fd, &st) == 0 &&
	    (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) {
		if (mount_on_itself(fd, read_only) == 0)
			s->protected_places += read_only;
		else
			log_debug(
			    "protected path %s: %s", name, strerror(errno));
	}
	close(fd);
}

static int
in_list(const char *name, const char *const *list, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (strcasecmp(name, list[i]) == 0)
			return 1;
	return 0;
}
#define IN_LIST(name, list) in_list(name, list, sizeof(list) / sizeof(list[0]))

/* A directory, not a link; other mounts only where we made them. */
static DIR *
open_directory(int dir, const char *name, int pinned)
{
	DIR *d;
	int fd;

	fd = sys_openat2(dir, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0,
	    SYS_RESOLVE_BENEATH | SYS_RESOLVE_NO_SYMLINKS |
		(pinned ? 0 : SYS_RESOLVE_NO_XDEV));
	if (fd == -1)
		return NULL;
	if ((d = fdopendir(fd)) == NULL)
		close(fd);
	return d;
}

/* Protects the entries of a pinned directory that are in the list. */
static void
protect_listed(struct search *s, int dir, const char *name,
    const char *const *list, size_t n)
{
	struct dirent *de;
	DIR *d;

	if ((d = open_directory(dir, name, 1)) == NULL)
		return;
	while ((de = readdir(d)) != NULL)
		if (in_list(de->d_name, list, n))
			protect_name(s, dirfd(d), de->d_name, 1);
	closedir(d);
}

/*
 * A directory that is a Git repository's own (it has HEAD): its hooks, with
 * strict its config, and itself pinned. Pinning comes first: what is mounted
 * later lies on the pinned mount.
 */
static void
protect_git(struct search *s, int dir, const char *name)
{
	int git;

	protect_name(s, dir, name, 0);
	git = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (git == -1)
		return;
	protect_name(s, git, "hooks", 1);
	if (s->level == PROTECT_STRICT)
		protect_name(s, git, "config", 1);
	close(git);
}

static int
is_git_directory(int dir, const char *name)
{
	struct stat st;
	int git, r;

	git = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (git == -1)
		return 0;
	r = fstatat(git, "HEAD", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    fstatat(git, "objects", &st, AT_SYMLINK_NOFOLLOW) == 0;
	close(git);
	return r;
}

static void
search_directory(struct search *s, int dir, const char *name, int depth)
{
	struct dirent *de;
	DIR *d;

	if ((d = open_directory(dir, name, 0)) == NULL)
		return;
	while ((de = readdir(d)) != NULL) {
		if (++s->entries > SEARCH_ENTRIES ||
		    time_mono_ms() > s->deadline)
			break;
		if (strcmp(de->d_name, ".") == 0 ||
		    strcmp(de->d_name, "..") == 0 ||
		    (de->d_type != DT_DIR && de->d_type != DT_UNKNOWN))
			continue;
		if (strcasecmp(de->d_name, ".git") == 0) {
			if (is_git_directory(dirfd(d), de->d_name))
				protect_git(s, dirfd(d), de->d_name);
			continue;
		}
		if (depth > 0 && strcmp(de->d_name, "node_modules") != 0)
			search_directory(s, dirfd(d), de->d_name, depth - 1);
	}
	closedir(d);
}

static void
protect_top(struct search *s, int root)
{
	struct dirent *de;
	DIR *d;

	if ((d = open_directory(root, ".", 0)) == NULL)
		return;
	while ((de = readdir(d)) != NULL) {
		if (IN_LIST(de->d_name, top_names) ||
		    (s->level == PROTECT_STRICT &&
			IN_LIST(de->d_name, strict_names)))
			protect_name(s, root, de->d_name, 1);
		else if (strcasecmp(de->d_name, ".claude") == 0) {
			protect_name(s, root, de->d_name, 0);
			protect_listed(s, root, de->d_name, agent_names,
			    sizeof(agent_names) / sizeof(agent_names[0]));
		}
	}
	closedir(d);
}

int
protect(int root, enum protection level)
{
	struct search s;

	memset(&s, 0, sizeof(s));
	s.level = level;
	s.deadline = time_mono_ms() + SEARCH_MS;
	if (level == PROTECT_NONE)
		return 0;
	protect_top(&s, root);
	search_directory(&s, root, ".", SEARCH_DEPTH);
	return s.protected_places;
}
