#include "config.h"

#include <sys/types.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "buf.h"
#include "log.h"
#include "protect.h"
#include "repository.h"
#include "sys.h"
#include "times.h"

/*
 * The workspace is searched once, nearest directories first, within these
 * bounds; one that exceeds them is protected as far as the search came.
 */
#define SEARCH_DEPTH   6
#define SEARCH_ENTRIES 50000
#define SEARCH_MS      5000
#define MODULES_DEPTH  10
#define PLACES_MAX     1000 /* every one is a mount */
#define INCLUDE_DEPTH  4
#define POINTER_MAX    (PATH_MAX + 64)
#define CONFIG_MAX     (256 * 1024)

/* A path relative to the root, "" for the root itself. */
struct place {
	TAILQ_ENTRY(place) entry;
	int read_only; /* else only pinned */
	int depth; /* of a directory to search */
	char *path;
};
TAILQ_HEAD(places, place);

struct search {
	enum protection level;
	const char *root_path;
	int root;
	int64_t deadline;
	long entries;
	size_t nplaces;
	struct places places; /* to be protected */
	struct places queue; /* directories to be searched */
};

/* A directory stands for all that is in it. */
static const char *const names[] = { ".bashrc", ".bash_profile", ".bash_login",
	".profile", ".zshrc", ".zprofile", ".zshenv", ".ripgreprc", ".mcp.json",
	".vscode", ".idea" };
static const char *const strict_names[] = { ".gitconfig", ".gitmodules" };
static const char *const agent_names[] = { "commands", "agents" };
static const char *const hook_names[] = { "hooks" };
static const char *const config_names[] = { "config", "config.worktree" };
static const char *const link_names[] = { "commondir", "gitdir",
	"config.worktree" };

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

static char *
join(const char *dir, const char *name)
{
	return *dir == '\0' ? xstrdup(name) : xasprintf("%s/%s", dir, name);
}

/* ---- looking, on the root's own mount, without links on the way ---- */

static int
open_plain(const struct search *s, const char *path, int flags)
{
	return sys_openat2(s->root, *path == '\0' ? "." : path, flags, 0,
	    SYS_RESOLVE_BENEATH | SYS_RESOLVE_NO_SYMLINKS |
		SYS_RESOLVE_NO_XDEV);
}

static DIR *
open_directory(const struct search *s, const char *path)
{
	DIR *d;
	int fd;

	fd = open_plain(s, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	if (fd == -1)
		return NULL;
	if ((d = fdopendir(fd)) == NULL)
		close(fd);
	return d;
}

/* The next entry but "." and "..", within the bounds of the search. */
static struct dirent *
next_entry(struct search *s, DIR *d)
{
	struct dirent *de;

	while ((de = readdir(d)) != NULL) {
		if (++s->entries > SEARCH_ENTRIES ||
		    time_mono_ms() > s->deadline)
			return NULL;
		if (strcmp(de->d_name, ".") != 0 &&
		    strcmp(de->d_name, "..") != 0)
			return de;
	}
	return NULL;
}

/* Content of a regular file of at most max bytes; 0 or -1. */
static int
read_plain(const struct search *s, const char *path, size_t max, struct buf *b)
{
	struct stat st;
	ssize_t n;
	int fd;

	if ((fd = open_plain(s, path, O_RDONLY | O_NONBLOCK)) == -1)
		return -1;
	if (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size > max) {
		close(fd);
		return -1;
	}
	do {
		n = read(fd, buf_reserve(b, 4096), 4096);
		if (n > 0)
			b->len += (size_t)n;
	} while ((n > 0 && b->len <= max) || (n == -1 && errno == EINTR));
	close(fd);
	return n == 0 ? 0 : -1;
}

/*
 * Where a path that stands in a file or link leads, links followed: relative
 * to the root and without any, or NULL if that is not inside the root.
 */
static char *
resolve(const struct search *s, const char *dir, const char *to)
{
	char link[64], full[PATH_MAX], *path;
	size_t n = strlen(s->root_path);
	ssize_t len;
	int fd;

	if (*to != '/')
		path = join(dir, to);
	else if (strncmp(to, s->root_path, n) == 0 && to[n] == '/')
		path = xstrdup(to + n + strspn(to + n, "/"));
	else
		return NULL;
	fd = sys_openat2(s->root, *path == '\0' ? "." : path, O_PATH, 0,
	    SYS_RESOLVE_BENEATH | SYS_RESOLVE_NO_MAGICLINKS |
		SYS_RESOLVE_NO_XDEV);
	free(path);
	if (fd == -1)
		return NULL;
	(void)xsnprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, full, sizeof(full) - 1);
	close(fd);
	if (len <= 0 || (size_t)len >= sizeof(full) - 1)
		return NULL;
	full[len] = '\0';
	if (strncmp(full, s->root_path, n) != 0)
		return NULL;
	if (full[n] == '\0')
		return xstrdup("");
	return full[n] == '/' ? xstrdup(full + n + 1) : NULL;
}

/* ---- collecting ---- */

static void
add_place(struct search *s, const char *path, int read_only)
{
	struct place *p;

	TAILQ_FOREACH (p, &s->places, entry)
		if (strcmp(p->path, path) == 0) {
			p->read_only |= read_only;
			return;
		}
	if (++s->nplaces > PLACES_MAX) {
		if (s->nplaces == PLACES_MAX + 1)
			log_warnx("%s: more than %d protected places, the "
				  "rest is not protected",
			    s->root_path, PLACES_MAX);
		return;
	}
	p = xcalloc(1, sizeof(*p));
	p->path = xstrdup(path);
	p->read_only = read_only;
	TAILQ_INSERT_TAIL(&s->places, p, entry);
}

/* 1 if the path is the directory or in it. */
static int
is_in(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return n == 0 ||
	    (strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0'));
}

/*
 * If the path is a symbolic link, pins it and returns where it leads, unless
 * that is outside the root or a directory the link itself is in; a path that
 * is none is returned as it is.
 */
static char *
follow(struct search *s, const char *path)
{
	struct stat st;
	char *to = NULL, *dir, text[PATH_MAX];
	const char *slash = strrchr(path, '/');
	ssize_t n;
	int fd;

	if ((fd = open_plain(s, path, O_PATH | O_NOFOLLOW)) == -1)
		return NULL;
	if (fstat(fd, &st) == 0 && S_ISLNK(st.st_mode)) {
		n = readlinkat(fd, "", text, sizeof(text) - 1);
		if (n > 0) {
			text[n] = '\0';
			dir = slash == NULL
			    ? xstrdup("")
			    : xstrndup(path, (size_t)(slash - path));
			to = resolve(s, dir, text);
			free(dir);
		}
		if (to != NULL && is_in(path, to)) {
			free(to);
			to = NULL;
		}
		if (to != NULL)
			add_place(s, path, 0);
	} else
		to = xstrdup(path);
	close(fd);
	return to;
}

/* Makes a file or directory read-only; a link to one counts as both. */
static void
add_read_only(struct search *s, const char *path)
{
	char *to;

	if ((to = follow(s, path)) != NULL)
		add_place(s, to, 1);
	free(to);
}

static void
add_listed(struct search *s, const char *dir, const char *const *list, size_t n)
{
	struct dirent *de;
	char *path;
	DIR *d;

	if ((d = open_directory(s, dir)) == NULL)
		return;
	while ((de = next_entry(s, d)) != NULL)
		if (in_list(de->d_name, list, n)) {
			path = join(dir, de->d_name);
			add_read_only(s, path);
			free(path);
		}
	closedir(d);
}
#define ADD_LISTED(s, dir, list) \
	add_listed(s, dir, list, sizeof(list) / sizeof(list[0]))

struct config_place {
	struct search *s;
	char *dir; /* of the configuration file */
	const char *top; /* of the working tree */
	int depth; /* of further includes */
};

static void add_config(struct search *, const char *, const char *, int);

static void
add_value(void *arg, enum repository_value what, const char *value)
{
	const struct config_place *c = arg;
	char *to;

	if (++c->s->entries > SEARCH_ENTRIES)
		return;
	to = resolve(
	    c->s, what == REPOSITORY_HOOKS_PATH ? c->top : c->dir, value);
	if (to == NULL || *to == '\0') {
		free(to);
		return;
	}
	if (what == REPOSITORY_INCLUDE)
		add_config(c->s, to, c->top, c->depth);
	else if (!is_in(c->top, to))
		add_place(c->s, to, 1);
	free(to);
}

/*
 * A configuration file, those it includes and the hooks it names. It may be
 * met again for another working tree, where the names mean something else.
 */
static void
add_config(struct search *s, const char *path, const char *top, int depth)
{
	struct config_place c = { s, NULL, top, depth - 1 };
	struct buf b;
	char *to, *slash;

	if ((to = follow(s, path)) == NULL)
		return;
	add_place(s, to, 1);
	buf_init(&b);
	if (depth > 0 && read_plain(s, to, CONFIG_MAX, &b) == 0) {
		c.dir = xstrdup(to);
		if ((slash = strrchr(c.dir, '/')) != NULL)
			*slash = '\0';
		else
			*c.dir = '\0';
		repository_values((const char *)b.data, b.len, add_value, &c);
		free(c.dir);
	}
	buf_free(&b);
	free(to);
}

static void add_repository(struct search *, const char *, const char *);

/* Repositories of submodules; their names may have slashes. */
static void
add_modules(struct search *s, const char *dir, const char *top, int depth)
{
	struct dirent *de;
	char *path;
	DIR *d;

	if ((d = open_directory(s, dir)) == NULL)
		return;
	if (repository_here(dirfd(d)))
		add_repository(s, dir, top);
	else
		while (depth > 0 && (de = next_entry(s, d)) != NULL) {
			path = join(dir, de->d_name);
			add_modules(s, path, top, depth - 1);
			free(path);
		}
	closedir(d);
}

/* Git's own files about the linked worktrees of a repository. */
static void
add_worktrees(struct search *s, const char *dir, const char *top)
{
	struct dirent *de;
	char *path, *config;
	DIR *d;

	if ((d = open_directory(s, dir)) == NULL)
		return;
	while ((de = next_entry(s, d)) != NULL) {
		path = join(dir, de->d_name);
		ADD_LISTED(s, path, link_names);
		config = join(path, "config.worktree");
		add_config(s, config, top, INCLUDE_DEPTH);
		free(config);
		free(path);
	}
	closedir(d);
}

/*
 * The directory of a repository: its hooks; with strict its configuration and
 * what leads Git elsewhere; the same for its submodules. top is the directory
 * of its working tree.
 */
static void
add_repository(struct search *s, const char *git, const char *top)
{
	struct dirent *de;
	char *path;
	DIR *d;

	ADD_LISTED(s, git, hook_names);
	if ((d = open_directory(s, git)) == NULL)
		return;
	while ((de = next_entry(s, d)) != NULL) {
		path = join(git, de->d_name);
		if (strcasecmp(de->d_name, "modules") == 0)
			add_modules(s, path, top, MODULES_DEPTH);
		else if (s->level != PROTECT_STRICT)
			;
		else if (IN_LIST(de->d_name, config_names))
			add_config(s, path, top, INCLUDE_DEPTH);
		else if (IN_LIST(de->d_name, link_names))
			add_read_only(s, path);
		else if (strcasecmp(de->d_name, "worktrees") == 0)
			add_worktrees(s, path, top);
		free(path);
	}
	closedir(d);
}

/* The directory that a .git file names; it may lean on another repository. */
static void
add_linked(struct search *s, const char *git, const char *top)
{
	struct buf b;
	char *path, *text, *common;

	add_repository(s, git, top);
	buf_init(&b);
	path = join(git, "commondir");
	if (read_plain(s, path, POINTER_MAX, &b) == 0) {
		text = buf_cstr(&b);
		text[strcspn(text, "\r\n")] = '\0';
		if (*text != '\0' && (common = resolve(s, git, text)) != NULL) {
			add_repository(s, common, top);
			free(common);
		}
	}
	buf_free(&b);
	free(path);
}

/* Something named .git in the directory top. */
static void
add_git(struct search *s, const char *top, const char *path)
{
	struct buf b;
	char *git, *pointer, *to;
	DIR *d;

	if ((git = follow(s, path)) == NULL)
		return;
	buf_init(&b);
	if ((d = open_directory(s, git)) != NULL) {
		if (repository_here(dirfd(d)))
			add_repository(s, git, top);
		closedir(d);
	} else if (read_plain(s, git, POINTER_MAX, &b) == 0 &&
	    (pointer = repository_pointer((const char *)b.data, b.len)) !=
		NULL) {
		/* Another pointer would lead to other hooks. */
		add_place(s, git, 1);
		if ((to = resolve(s, top, pointer)) != NULL)
			add_linked(s, to, top);
		free(to);
		free(pointer);
	}
	buf_free(&b);
	free(git);
}

static void
enqueue(struct search *s, const char *path, int depth)
{
	struct place *p;

	p = xcalloc(1, sizeof(*p));
	p->path = xstrdup(path);
	p->depth = depth;
	TAILQ_INSERT_TAIL(&s->queue, p, entry);
}

static void
look_at(struct search *s, const struct place *in, const struct dirent *de)
{
	int listed = in->depth == 0 || s->level == PROTECT_STRICT;
	char *path = join(in->path, de->d_name);

	if (strcasecmp(de->d_name, ".git") == 0)
		add_git(s, in->path, path);
	else if (listed &&
	    (IN_LIST(de->d_name, names) ||
		(s->level == PROTECT_STRICT &&
		    IN_LIST(de->d_name, strict_names))))
		add_read_only(s, path);
	else if (listed && strcasecmp(de->d_name, ".claude") == 0) {
		char *to = follow(s, path);

		if (to != NULL)
			ADD_LISTED(s, to, agent_names);
		free(to);
	} else if ((de->d_type == DT_DIR || de->d_type == DT_UNKNOWN) &&
	    in->depth < SEARCH_DEPTH && strcmp(de->d_name, "node_modules") != 0)
		enqueue(s, path, in->depth + 1);
	free(path);
}

static void
place_free(struct places *list, struct place *p)
{
	TAILQ_REMOVE(list, p, entry);
	free(p->path);
	free(p);
}

static void
collect(struct search *s)
{
	struct dirent *de;
	struct place *p;
	size_t i;
	DIR *d;

	/* At the top first and by name, whatever else fills the workspace. */
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		add_read_only(s, names[i]);
	add_git(s, "", ".git");
	enqueue(s, "", 0);
	while ((p = TAILQ_FIRST(&s->queue)) != NULL) {
		if ((d = open_directory(s, p->path)) != NULL) {
			/* a bare one, or one under another name */
			if (repository_here(dirfd(d)))
				add_repository(s, p->path, p->path);
			while ((de = next_entry(s, d)) != NULL)
				look_at(s, p, de);
			closedir(d);
		}
		place_free(&s->queue, p);
	}
}

/* ---- mounting ---- */

/*
 * Mounts the object on itself. The descriptors decide; no name is looked up
 * again.
 */
static int
mount_on_itself(int fd, int read_only)
{
	int mnt, r;

	if ((mnt = sys_open_tree_clone(fd, "", read_only)) == -1)
		return -1;
	r = read_only ? sys_mount_setattr(mnt, 1, SYS_MOUNT_RDONLY, 0) : 0;
	if (r == 0)
		r = sys_move_mount_to(mnt, fd);
	close(mnt);
	return r;
}

static void
mount_place(const struct search *s, int root, const char *path, int read_only)
{
	int fd;

	/* Only mounts of ours can be on the way. */
	fd = sys_openat2(root, path, O_PATH | O_NOFOLLOW, 0,
	    SYS_RESOLVE_BENEATH | SYS_RESOLVE_NO_SYMLINKS);
	if (fd == -1 || mount_on_itself(fd, read_only) == -1)
		log_warn("%s: %s is not protected", s->root_path, path);
	if (fd != -1)
		close(fd);
}

/* Pins every directory on the way to the path, and the path if it is asked. */
static void
pin(const struct search *s, struct places *pinned, int root, const char *path,
    int itself)
{
	struct place *p;
	const char *end = path;
	char *part;

	while (*end != '\0') {
		end += strcspn(end + 1, "/") + 1;
		if (*end == '\0' && !itself)
			break;
		part = xstrndup(path, (size_t)(end - path));
		TAILQ_FOREACH (p, pinned, entry)
			if (strcmp(p->path, part) == 0)
				break;
		if (p == NULL) {
			mount_place(s, root, part, 0);
			p = xcalloc(1, sizeof(*p));
			p->path = part;
			TAILQ_INSERT_TAIL(pinned, p, entry);
		} else
			free(part);
	}
}

static void
mount_all(struct search *s, int under, int top)
{
	struct places pinned = TAILQ_HEAD_INITIALIZER(pinned);
	struct place *p;

	TAILQ_FOREACH (p, &s->places, entry)
		pin(s, &pinned, under, p->path, !p->read_only);
	TAILQ_FOREACH (p, &s->places, entry)
		if (p->read_only && *p->path != '\0')
			mount_place(s, top, p->path, 1);
	while ((p = TAILQ_FIRST(&pinned)) != NULL)
		place_free(&pinned, p);
}

int
protect(int *root, const char *path, enum protection level)
{
	struct search s;
	struct place *p;
	int top, r = 0;

	if (level == PROTECT_NONE)
		return 0;
	memset(&s, 0, sizeof(s));
	s.level = level;
	s.root_path = path;
	s.root = *root;
	s.deadline = time_mono_ms() + SEARCH_MS;
	TAILQ_INIT(&s.places);
	TAILQ_INIT(&s.queue);
	collect(&s);
	if (!TAILQ_EMPTY(&s.places)) {
		if ((top = sys_open_tree_clone(*root, "", 1)) == -1 ||
		    sys_move_mount_to(top, *root) == -1) {
			r = -1;
			if (top != -1)
				close(top);
		} else {
			mount_all(&s, *root, top);
			close(*root);
			*root = top;
		}
	}
	while ((p = TAILQ_FIRST(&s.places)) != NULL)
		place_free(&s.places, p);
	return r;
}
