#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach.h"
#include "buf.h"
#include "mtab.h"

#define TABLE_MAX (16U << 20)

static int
read_table(struct buf *b)
{
	ssize_t n;
	int fd, save;

	fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	if (fd == -1)
		return -1;
	while ((n = read(fd, buf_reserve(b, 65536), 65536)) != 0) {
		if (n == -1 && errno == EINTR)
			continue;
		if (n == -1 || b->len > TABLE_MAX) {
			save = n == -1 ? errno : EFBIG;
			close(fd);
			errno = save;
			return -1;
		}
		b->len += (size_t)n;
	}
	close(fd);
	return 0;
}

static int
octal(const char *p)
{
	int i, v = 0;

	for (i = 0; i < 3; i++) {
		if (p[i] < '0' || p[i] > '7')
			return -1;
		v = v * 8 + (p[i] - '0');
	}
	return v;
}

/* Blanks and the like are written as a backslash and three octal digits. */
static char *
decode(const char *s)
{
	char *out = xmalloc(strlen(s) + 1), *o = out;
	int c;

	while (*s != '\0') {
		if (*s == '\\' && (c = octal(s + 1)) > 0) {
			*o++ = (char)c;
			s += 4;
		} else
			*o++ = *s++;
	}
	*o = '\0';
	return out;
}

/* id parent device root point options [tags] - type source super-options */
static int
parse_line(char *line, struct mtab_mount *m)
{
	char *field[6], *rest = line, *type;
	size_t i;

	for (i = 0; i < 6; i++)
		if ((field[i] = strsep(&rest, " ")) == NULL)
			return -1;
	while ((type = strsep(&rest, " ")) != NULL && strcmp(type, "-") != 0)
		;
	if (type == NULL || (type = strsep(&rest, " ")) == NULL)
		return -1;
	m->id = strtoull(field[0], NULL, 10);
	m->device = xstrdup(field[2]);
	m->root = decode(field[3]);
	m->point = decode(field[4]);
	m->type = xstrdup(type);
	return 0;
}

int
mtab_read(struct mtab *t)
{
	struct mtab_mount m;
	struct buf b;
	char *p, *line;

	t->list = NULL;
	t->n = 0;
	buf_init(&b);
	if (read_table(&b) == -1) {
		buf_free(&b);
		return -1;
	}
	p = buf_cstr(&b);
	while ((line = strsep(&p, "\n")) != NULL) {
		if (*line == '\0')
			continue;
		if (parse_line(line, &m) == -1) {
			mtab_free(t);
			buf_free(&b);
			errno = EPROTO;
			return -1;
		}
		t->list = xreallocarray(t->list, t->n + 1, sizeof(*t->list));
		t->list[t->n++] = m;
	}
	buf_free(&b);
	return 0;
}

void
mtab_free(struct mtab *t)
{
	size_t i;

	for (i = 0; i < t->n; i++) {
		free(t->list[i].device);
		free(t->list[i].root);
		free(t->list[i].point);
		free(t->list[i].type);
	}
	free(t->list);
	t->list = NULL;
	t->n = 0;
}

static const struct mtab_mount *
find_by_id(const struct mtab *t, int fd)
{
#ifdef STATX_MNT_ID
	struct statx stx;
	size_t i;

	if (fd == -1 ||
	    statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &stx) == -1 ||
	    (stx.stx_mask & STATX_MNT_ID) == 0)
		return NULL;
	for (i = 0; i < t->n; i++)
		if (t->list[i].id == stx.stx_mnt_id)
			return &t->list[i];
#else
	(void)t;
	(void)fd;
#endif
	return NULL;
}

const struct mtab_mount *
mtab_find(const struct mtab *t, int fd, const char *path)
{
	const struct mtab_mount *m, *best;
	size_t i;

	if ((best = find_by_id(t, fd)) != NULL)
		return best;
	/* The deepest one, and of several at one point the last. */
	for (i = 0; i < t->n; i++) {
		m = &t->list[i];
		if (path_below(path, m->point) &&
		    (best == NULL || strlen(m->point) >= strlen(best->point)))
			best = m;
	}
	return best;
}

/* What follows the directory in a path below it: "" or "/...". */
static const char *
tail(const char *path, const char *dir)
{
	return strcmp(dir, "/") == 0 ? path : path + strlen(dir);
}

static char *
join(const char *dir, const char *rest)
{
	char *path;

	if (strcmp(dir, "/") == 0)
		dir = "";
	if (strcmp(rest, "/") == 0)
		rest = "";
	path = xasprintf("%s%s", dir, rest);
	if (*path != '\0')
		return path;
	free(path);
	return xstrdup("/");
}

char *
mtab_place(const struct mtab_mount *m, const char *path)
{
	if (!path_below(path, m->point))
		return NULL;
	return join(m->root, tail(path, m->point));
}

char *
mtab_name(const struct mtab_mount *m, const char *place)
{
	if (!path_below(place, m->root))
		return NULL;
	return join(m->point, tail(place, m->root));
}
