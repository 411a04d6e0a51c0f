#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "error.h"
#include "idmap.h"
#include "roots.h"

/* Which account runs commands, and what it must not see. */

#define HIDDEN_LIMIT 250

int
account_privsep(struct account *a, char **error)
{
	char *why = NULL;

	if (account_by_name(PRIVSEP_USER, a, &why) == 0)
		return 0;
	errorf(error,
	    "%s: make it with: useradd --system --no-create-home --shell "
	    "/usr/sbin/nologin %s",
	    why, PRIVSEP_USER);
	free(why);
	return -1;
}

/* The account of --user, of the first root's owner, or the dedicated one. */
static int
choose_account(const struct roots *rs, const struct settings *s,
    struct account *a, char **error)
{
	size_t i;

	if (geteuid() != 0)
		return account_by_uid(geteuid(), a, error);
	if (s->user != NULL) {
		if (account_by_name(s->user, a, error) == -1)
			return -1;
		if (a->uid == 0)
			return errorf(error,
			    "--user %s: commands never run as root", s->user);
		return 0;
	}
	for (i = 0; i < rs->n; i++)
		if (rs->list[i].uid != 0 && rs->list[i].uid != rs->list[0].uid)
			return errorf(error,
			    "the workspaces %s and %s belong to different "
			    "accounts: choose one for commands with --user",
			    rs->list[0].id, rs->list[i].id);
	if (rs->list[0].uid != 0)
		return account_by_uid(rs->list[0].uid, a, error);
	return account_privsep(a, error);
}

/* HOME inside the sandbox must be an absolute directory other than "/". */
static void
settle_home(struct account *a, int mapped)
{
	if (!mapped && a->home[0] == '/' && strcmp(a->home, "/") != 0 &&
	    strcmp(a->home, "/nonexistent") != 0)
		return;
	free(a->home);
	a->home = xasprintf("/home/%s", a->name);
}

int
roots_account(
    struct roots *rs, const struct settings *s, struct account *a, char **error)
{
	struct root *r;
	size_t i;
	int fd, map, any = 0;

	memset(a, 0, sizeof(*a));
	if (choose_account(rs, s, a, error) == -1)
		return -1;
	for (i = 0; geteuid() == 0 && i < rs->n; i++) {
		r = &rs->list[i];
		map = s->user == NULL && r->uid == 0;
		any |= map;
		fd = idmap_clone(r->fd, r->path, map ? a : NULL, error);
		if (fd == -1)
			return -1;
		close(r->fd);
		r->fd = fd;
		r->mount = map ? ROOT_MAPPED : ROOT_DETACHED;
	}
	settle_home(a, any);
	return 0;
}

static int
system_dir(const char *path)
{
	static const char *const dirs[] = { "/", "/Applications", "/Library",
		"/System", "/Users", "/bin", "/boot", "/dev", "/dev/shm",
		"/etc", "/lib", "/lib32", "/lib64", "/libx32", "/media", "/mnt",
		"/nix", "/nix/store", "/opt", "/private", "/private/etc",
		"/private/tmp", "/private/var", "/proc", "/sbin", "/snap",
		"/srv", "/sys", "/tmp", "/usr", "/var", "/var/cache",
		"/var/lib", "/var/log", "/var/run", "/var/spool", "/var/tmp" };
	size_t i;

	for (i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		if (strcmp(dirs[i], path) == 0)
			return 1;
	return path_contains("/usr", path) || path_contains("/proc", path) ||
	    path_contains("/sys", path) || path_contains("/bin", path) ||
	    path_contains("/sbin", path) || path_contains("/lib", path) ||
	    path_contains("/lib64", path);
}

struct list {
	char **p;
	size_t n;
	int full; /* something did not fit */
	const struct roots *roots;
};

/*
 * Adds a directory unless it is below one that is there already. What is at
 * or below a root cannot be hidden.
 */
static void
add(struct list *l, const char *dir)
{
	size_t i;

	for (i = 0; i < l->n; i++)
		if (path_contains(l->p[i], dir))
			return;
	for (i = 0; i < l->roots->n; i++)
		if (path_contains(l->roots->list[i].path, dir))
			return;
	if (l->n == HIDDEN_LIMIT) {
		l->full = 1;
		return;
	}
	l->p = xreallocarray(l->p, l->n + 1, sizeof(*l->p));
	l->p[l->n++] = xstrdup(dir);
}

/*
 * A system directory must stay visible; that is harmless only if the account
 * cannot read the file.
 */
static int
hide(struct list *l, const char *file, const char *dir, const struct account *a,
    char **error)
{
	if (!system_dir(dir))
		add(l, dir);
	else if (a->uid == geteuid())
		return errorf(error,
		    "%s: the system directory %s cannot be hidden from "
		    "commands: keep the file in a directory of its own",
		    file, dir);
	return 0;
}

/* Adds the directory of a control file. */
static int
add_control(
    struct list *l, const char *file, const struct account *a, char **error)
{
	struct walk w;
	struct place p;
	char *why = NULL;
	int r;

	/* Of a link both its own directory and that of its target. */
	if (storage_walk(file, 1, &w, &why) == STORAGE_OK) {
		r = w.leaf == NULL ? 0 : hide(l, file, w.dir, a, error);
		walk_free(&w);
		if (r == -1)
			return -1;
	}
	free(why);
	if (place_open(file, 0, &p, error) != STORAGE_OK)
		return -1;
	r = hide(l, file, p.dir, a, error);
	place_close(&p);
	return r;
}

static void
add_homes(struct list *l)
{
	struct passwd *pw;
	char *real;

	setpwent();
	while ((pw = getpwent()) != NULL) {
		if (pw->pw_uid < 1000 || pw->pw_dir == NULL ||
		    pw->pw_dir[0] != '/')
			continue;
		if ((real = realpath(pw->pw_dir, NULL)) == NULL)
			continue;
		if (!system_dir(real) && !path_contains("/home", real) &&
		    strcmp(real, "/nonexistent") != 0)
			add(l, real);
		free(real);
	}
	endpwent();
}

int
roots_hidden(const struct roots *rs, const struct settings *s,
    const struct account *a, char ***list, size_t *n, char **error)
{
	struct list l = { NULL, 0, 0, rs };
	char *state, *real;
	size_t i;
	int r = 0;

	add(&l, "/home");
	add(&l, "/root");
	add(&l, "/run");
	state = xasprintf("%s/.local/state/librechat", s->home);
	if ((real = realpath(state, NULL)) != NULL)
		add(&l, real);
	free(real);
	free(state);
	if ((real = realpath(s->home, NULL)) != NULL && !system_dir(real))
		add(&l, real);
	free(real);
	if (s->identity_path != NULL)
		r = add_control(&l, s->identity_path, a, error);
	if (r == 0 && s->marker_file != NULL)
		r = add_control(&l, s->marker_file, a, error);
	if (r == 0)
		add_homes(&l);
	if (r == 0 && l.full)
		r = errorf(error,
		    "there are more than %d home directories outside /home to "
		    "hide from commands",
		    HIDDEN_LIMIT);
	if (r == -1) {
		for (i = 0; i < l.n; i++)
			free(l.p[i]);
		free(l.p);
		return -1;
	}
	*list = l.p;
	*n = l.n;
	return 0;
}
