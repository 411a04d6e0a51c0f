#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "keeper.h"
#include "path.h"
#include "sys.h"
#include "target.h"

/*
 * The canonical name of an open object, relative to the root; NULL if it is
 * not inside. Used for names only: every access starts at the root's
 * descriptor again.
 */
static char *
canonical_name(const char *root_path, int fd)
{
	char link[64], name[PATH_MAX];
	size_t n = strlen(root_path);
	ssize_t len;

	(void)xsnprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, name, sizeof(name) - 1);
	if (len <= 0 || (size_t)len == sizeof(name) - 1)
		return NULL;
	name[len] = '\0';
	if (strncmp(name, root_path, n) != 0)
		return NULL;
	if (name[n] == '\0')
		return xstrdup(".");
	if (name[n] != '/' || name[n + 1] == '\0')
		return NULL;
	return xstrdup(name + n + 1);
}

static char *
none_for_root(char *name)
{
	if (strcmp(name, ".") != 0)
		return name;
	free(name);
	return NULL;
}

int
target_locate(struct target *tg, const struct tool *t, const struct text *path)
{
	struct buf b;
	char *norm, *name = NULL;
	int fd;

	memset(tg, 0, sizeof(*tg));
	buf_init(&b);
	path_normalise(&b, path->data, path->len);
	norm = buf_steal(&b);
	fd = sys_openat2(t->root, norm, O_PATH, 0, SYS_RESOLVE_NO_MAGICLINKS);
	if (fd != -1) {
		if (fstat(fd, &tg->st) == 0)
			name = canonical_name(t->root_path, fd);
		close(fd);
	}
	if (name == NULL) {
		free(norm);
		return -1;
	}
	tg->canonical = none_for_root(name);
	tg->requested = none_for_root(norm);
	return 0;
}

void
target_free(struct target *tg)
{
	free(tg->canonical);
	free(tg->requested);
	memset(tg, 0, sizeof(*tg));
}

int
target_unreadable(const struct target *tg, const struct tool *t)
{
	int fd;

	if (!S_ISDIR(tg->st.st_mode))
		return 0;
	fd = beneath_open(t->root, tg->canonical != NULL ? tg->canonical : ".",
	    O_RDONLY | O_DIRECTORY);
	if (fd == -1)
		return 1;
	close(fd);
	return 0;
}

int
target_name(
    const struct target *tg, const char *name, size_t len, struct buf *b)
{
	size_t n;

	buf_reset(b);
	if (tg->canonical != NULL) {
		n = strlen(tg->canonical);
		if (len < n || memcmp(name, tg->canonical, n) != 0 ||
		    (len > n && name[n] != '/'))
			return 0;
		if (tg->requested != NULL) {
			buf_adds(b, tg->requested);
			name += n;
			len -= n;
		}
	} else if (tg->requested != NULL)
		buf_addf(b, "%s/", tg->requested);
	buf_add(b, name, len);
	(void)buf_cstr(b);
	return path_portable(b->data, b->len);
}

void
parent_init(struct parent *p, int root)
{
	p->root = root;
	p->fd = -1;
	p->name = NULL;
}

void
parent_free(struct parent *p)
{
	if (p->fd != -1 && p->fd != p->root)
		close(p->fd);
	free(p->name);
	parent_init(p, p->root);
}

int
parent_open(struct parent *p, const char *name, const char **leaf)
{
	const char *slash = strrchr(name, '/');
	size_t n = slash == NULL ? 0 : (size_t)(slash - name);

	*leaf = slash == NULL ? name : slash + 1;
	if (p->name == NULL || strlen(p->name) != n ||
	    memcmp(p->name, name, n) != 0) {
		parent_free(p);
		p->name = xstrndup(name, n);
		p->fd = n == 0
		    ? p->root
		    : beneath_open(p->root, p->name, O_PATH | O_DIRECTORY);
	}
	if (p->fd == -1)
		errno = ENOENT;
	return p->fd;
}
