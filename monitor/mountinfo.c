#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>
#ifdef __APPLE__
#include <sys/param.h>
#include <sys/mount.h>
#include <stdlib.h>
#endif

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "error.h"
#include "mountinfo.h"

struct field {
	const char *p;
	size_t n;
};

/* Next field up to a single space; 0 after the last one. */
static int
next_field(const char **p, const char *end, struct field *f)
{
	const char *space;

	if (*p > end)
		return 0;
	f->p = *p;
	space = memchr(*p, ' ', (size_t)(end - *p));
	f->n = (size_t)((space == NULL ? end : space) - *p);
	*p += f->n + 1;
	return 1;
}

static int
digits(const char *p, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (p[i] < '0' || p[i] > '9')
			return 0;
	return n > 0;
}

static int
device(const struct field *f)
{
	const char *colon = memchr(f->p, ':', f->n);
	size_t n;

	if (colon == NULL)
		return 0;
	n = (size_t)(colon - f->p);
	return digits(f->p, n) && digits(colon + 1, f->n - n - 1);
}

/* Decodes the four escapes of a mount point; 0 if there is another one. */
static int
decode(const struct field *f, struct buf *out)
{
	static const char codes[] = "040011012134";
	static const char bytes[] = " \t\n\\";
	size_t i, k;

	for (i = 0; i < f->n; i++) {
		if (f->p[i] != '\\') {
			buf_addc(out, (uint8_t)f->p[i]);
			continue;
		}
		for (k = 0; k < 4; k++)
			if (f->n - i > 3 &&
			    memcmp(f->p + i + 1, codes + 3 * k, 3) == 0)
				break;
		if (k == 4)
			return 0;
		buf_addc(out, (uint8_t)bytes[k]);
		i += 3;
	}
	return 1;
}

static enum mount_result
check_line(const char *p, const char *end, const char *path)
{
	struct field f, point = { NULL, 0 };
	struct buf name;
	enum mount_result result = MOUNT_NONE;
	size_t i, after = 0;

	for (i = 0; next_field(&p, end, &f); i++) {
		if (after > 0) {
			/* No file system type is called "-". */
			if (after++ == 1 && f.n == 1 && f.p[0] == '-')
				return MOUNT_MALFORMED;
			continue;
		}
		if ((i < 2 && !digits(f.p, f.n)) || (i == 2 && !device(&f)))
			return MOUNT_MALFORMED;
		if (i == 4)
			point = f;
		if (i >= 6 && f.n == 1 && f.p[0] == '-')
			after = 1;
	}
	/*
	 * Three fields follow the separator; more are accepted because some
	 * systems show super options with a bare space.
	 */
	if (after < 4 || point.n == 0 || point.p[0] != '/')
		return MOUNT_MALFORMED;
	buf_init(&name);
	if (!decode(&point, &name))
		result = MOUNT_MALFORMED;
	else if (name.len == strlen(path) &&
	    memcmp(name.data, path, name.len) == 0)
		result = MOUNT_POINT;
	buf_free(&name);
	return result;
}

static int
white(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

enum mount_result
mountinfo_find(const void *data, size_t len, const char *path)
{
	const char *p = data, *end, *eol;
	enum mount_result r, result = MOUNT_NONE;

	while (len > 0 && white(p[len - 1]))
		len--;
	end = p + len;
	do {
		eol = memchr(p, '\n', (size_t)(end - p));
		if (eol == NULL)
			eol = end;
		if ((r = check_line(p, eol, path)) == MOUNT_MALFORMED)
			return r;
		if (r == MOUNT_POINT)
			result = r;
		p = eol + 1;
	} while (p <= end);
	return result;
}

/* Appends what the line says of the path; 0 if it is another mount. */
static int
line_location(const char *p, const char *end, unsigned long long id,
    const char *path, struct buf *out)
{
	struct field f, dev = { NULL, 0 }, top = { NULL, 0 };
	struct buf point, root;
	char number[24];
	size_t i, n;
	int r = 0;

	n = xsnprintf(number, sizeof(number), "%llu", id);
	buf_init(&point);
	buf_init(&root);
	for (i = 0; i < 5 && next_field(&p, end, &f); i++) {
		if (i == 0 && (f.n != n || memcmp(f.p, number, n) != 0))
			break;
		if (i == 2)
			dev = f;
		if (i == 3)
			top = f;
		if (i == 4 && top.n > 0 && decode(&top, &root) &&
		    decode(&f, &point))
			r = 1;
	}
	if (r == 1) {
		/* The slash at the end of "/" belongs to what follows. */
		if (root.len == 1)
			root.len = 0;
		if (point.len == 1)
			point.len = 0;
		n = point.len;
		if (strncmp(path, buf_cstr(&point), n) != 0 ||
		    (path[n] != '/' && path[n] != '\0'))
			r = 0;
	}
	if (r == 1) {
		buf_add(out, dev.p, dev.n);
		buf_add(out, root.data, root.len);
		buf_adds(out, path + n);
		if (root.len == 0 && path[n] == '\0')
			buf_addc(out, '/');
	}
	buf_free(&point);
	buf_free(&root);
	return r;
}

int
mountinfo_location(const void *data, size_t len, unsigned long long id,
    const char *path, struct buf *out)
{
	const char *p = data, *end = p + len, *eol;

	while (p < end) {
		if ((eol = memchr(p, '\n', (size_t)(end - p))) == NULL)
			eol = end;
		if (line_location(p, eol, id, path, out))
			return 0;
		p = eol + 1;
	}
	return -1;
}

#ifdef __linux__

int
mountinfo_open(void)
{
	return open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
}

static int
read_table(int fd, struct buf *b)
{
	ssize_t n;

	if (fd == -1 || lseek(fd, 0, SEEK_SET) == -1)
		return -1;
	for (;;) {
		n = read(fd, buf_reserve(b, 65536), 65536);
		if (n == -1 && errno == EINTR)
			continue;
		if (n == -1)
			return -1;
		if (n == 0)
			return 0;
		b->len += (size_t)n;
		if (b->len > MOUNTINFO_MAX)
			return -1;
	}
}

int
mount_preflight(int mountinfo, const char *path, char **error)
{
	enum mount_result r;
	struct buf b;

	buf_init(&b);
	if (read_table(mountinfo, &b) == -1) {
		buf_free(&b);
		return errorf(error,
		    "Cannot verify identity mount status: "
		    "/proc/self/mountinfo must be readable and no larger than "
		    "4 MiB. Mount /proc, or keep the identity elsewhere.");
	}
	r = mountinfo_find(b.data, b.len, path);
	buf_free(&b);
	if (r == MOUNT_MALFORMED)
		return errorf(error,
		    "Cannot verify identity mount status: malformed "
		    "/proc/self/mountinfo");
	if (r == MOUNT_POINT)
		return errorf(error,
		    "Bridge identity path %s is a mount point and cannot be "
		    "atomically replaced. Mount its directory instead of the "
		    "file.",
		    path);
	return 0;
}

int
mount_location(int fd, const char *path, struct buf *out)
{
#ifdef STATX_MNT_ID
	struct statx stx;
	struct buf table;
	int info, r = -1;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &stx) == -1 ||
	    (stx.stx_mask & STATX_MNT_ID) == 0)
		return -1;
	buf_init(&table);
	info = mountinfo_open();
	if (read_table(info, &table) == 0)
		r = mountinfo_location(
		    table.data, table.len, stx.stx_mnt_id, path, out);
	if (info != -1)
		close(info);
	buf_free(&table);
	return r;
#else
	(void)fd;
	(void)path;
	(void)out;
	return -1;
#endif
}

#else

int
mountinfo_open(void)
{
	return -1;
}

int
mount_location(int fd, const char *path, struct buf *out)
{
	(void)fd;
	(void)path;
	(void)out;
	return -1;
}

int
mount_preflight(int mountinfo, const char *path, char **error)
{
	struct statfs fs;
	struct stat st;
	char *real;
	int same;

	(void)mountinfo;
	if (lstat(path, &st) == -1)
		return errno == ENOENT ? 0 : error_errno(error, "%s", path);
	if (S_ISLNK(st.st_mode))
		return 0;
	if (statfs(path, &fs) == -1 || fs.f_mntonname[0] != '/' ||
	    (real = realpath(fs.f_mntonname, NULL)) == NULL)
		return errorf(
		    error, "Cannot verify macOS identity mount status.");
	same = strcmp(real, path) == 0;
	free(real);
	if (same)
		return errorf(error,
		    "Bridge identity path %s is a mount point and cannot be "
		    "atomically replaced.",
		    path);
	return 0;
}

#endif
