#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "fault.h"
#include "files.h"
#include "imsg.h"
#include "leftover.h"
#include "log.h"
#include "path.h"
#include "proc.h"
#include "restrict.h"
#include "rg.h"
#include "sys.h"

int
failure(struct failure *f, enum error_code code, enum certainty certainty,
    const char *text)
{
	f->code = code;
	f->certainty = certainty;
	f->text = text;
	return -1;
}

void
place_split(struct place *pl, const struct text *path)
{
	struct buf b;
	char *slash, *norm;

	buf_init(&b);
	path_normalise(&b, path->data, path->len);
	norm = buf_steal(&b);
	pl->parent = pl->leaf = NULL;
	if (strcmp(norm, ".") == 0) {
		free(norm);
		return;
	}
	if ((slash = strrchr(norm, '/')) == NULL) {
		pl->leaf = norm;
		return;
	}
	*slash = '\0';
	pl->parent = norm;
	pl->leaf = xstrdup(slash + 1);
}

void
place_free(struct place *pl)
{
	free(pl->parent);
	free(pl->leaf);
	pl->parent = pl->leaf = NULL;
}

int
read_whole(int fd, struct buf *b)
{
	ssize_t n;
	uint8_t *p;

	if (b->cap == 0)
		buf_exact(b, FILE_MAX + 1);
	while (b->len <= FILE_MAX) {
		p = buf_reserve(b, FILE_MAX + 1 - b->len);
		n = pread(fd, p, FILE_MAX + 1 - b->len, (off_t)b->len);
		if (n == -1) {
			if (errno == EINTR)
				continue;
			return -1;
		}
		if (n == 0)
			break;
		b->len += (size_t)n;
	}
	return 0;
}

static const char *const more_calls[] = {
	/* files, all relative to descriptors below the root */
	"openat",
	"openat2",
	"newfstatat",
	"fstatat64",
	"statx",
	"getdents64",
	"ftruncate",
	"ftruncate64",
	"fallocate",
	"fsync",
	"fdatasync",
	"fchmod",
	"fchmodat",
	"fchown",
	"fchown32",
	"fchownat",
	"linkat",
	"renameat",
	"renameat2",
	"unlinkat",
	"mkdirat",
	"faccessat",
	"faccessat2",
	"fgetxattr",
	"fsetxattr",
	"flistxattr",
	"fremovexattr",
	"flock",
	"umask",
	/* starting rg and rg itself (rg.c); some have limited arguments */
	"clone",
	"execve",
	"wait4",
	"kill",
	"fchdir",
	"arch_prctl",
	"set_tid_address",
	"access",
	"getcwd",
	"readlink",
	"readlinkat",
	NULL,
};

/* Every layer, each proved by an attempt. */
static void
restrict_files(const char *root_path, struct rg *rg)
{
	char *error = NULL;

	rg_prepare(rg, root_path);

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1)
		fatal("files: parent death signal");
	if (sys_drop_capabilities() == -1)
		fatal("files: capabilities");
	if (restrict_basic(&error) == -1 ||
	    restrict_landlock(rg->paths, rg->npaths,
		LL_NO_BIND | LL_NO_CONNECT | LL_SCOPED, &error) == -1 ||
	    rg_limit_calls(&error) == -1 ||
	    restrict_seccomp_with(more_calls, &error) == -1)
		fatalx("files: %s", error);
	if (open("/etc/passwd", O_RDONLY | O_CLOEXEC) != -1)
		fatalx("files: Landlock does not hold");
	if (syscall(SYS_socket, 2, 1, 0) != -1)
		fatalx("files: seccomp does not hold");
	rg_verify(rg);
}

int
tool_cancelled(struct tool *t)
{
	struct imsg im;

	/* Nothing else can come before the request is answered. */
	while (!t->cancelled && imsg_get_blocking(t->channel, &im, 0) == 1) {
		if (im.type != MSG_CANCEL || im.data.len != 0)
			fatalx("files: malformed cancellation");
		t->cancelled = im.id == t->id;
		imsg_free(&im);
	}
	return t->cancelled;
}

int
tool_aborted(struct failure *f)
{
	return failure(
	    f, EC_EXECUTION_ABORTED, NOT_COMMITTED, "execution aborted");
}

static int
serve(struct tool *t, const struct request *q, struct result *res,
    struct failure *f)
{
	switch (q->operation) {
	case OP_READ_FILE:
		return tool_read_file(t, q, res, f);
	case OP_SEARCH_TEXT:
		return tool_search_text(t, q, res, f);
	case OP_LIST_FILES:
		return tool_list_files(t, q, res, f);
	case OP_WRITE_FILE:
		return tool_write_file(t, q, res, f);
	case OP_EDIT_FILE:
		return tool_edit_file(t, q, res, f);
	case OP_PREVIEW_EDIT:
		return tool_preview_edit(t, q, res, f);
	default:
		return failure(f, EC_INVALID_REQUEST, NOT_COMMITTED,
		    "invalid workspace tool request: operation");
	}
}

/*
 * Memory that is given back and taken again costs a page fault for every page
 * of every large file. So what one request needed is kept for the next, but
 * not for long.
 */
#define HEAP_KEPT    (8 * 1024 * 1024)
#define HEAP_KEPT_MS 1000

static void
heap_keep(void)
{
#ifdef __GLIBC__
	(void)mallopt(M_MMAP_THRESHOLD, HEAP_KEPT);
	(void)mallopt(M_TRIM_THRESHOLD, HEAP_KEPT);
#endif
}

static void
heap_return(void)
{
#ifdef __GLIBC__
	(void)malloc_trim(0);
#endif
}

static void
answer(struct tool *t, const struct request *q)
{
	struct imsgbuf *ib = t->channel;
	struct result res;
	struct failure f;
	struct buf b;

	memset(&res, 0, sizeof(res));
	res.operation = q->operation;
	buf_init(&b);
	if (serve(t, q, &res, &f) == 0) {
		result_build(&b, &res);
		imsg_compose_buf(ib, MSG_RESULT, t->id, -1, &b);
	} else {
		tool_error_build(&b, f.code, f.certainty, f.text);
		imsg_compose_buf(ib, MSG_ERROR, t->id, -1, &b);
	}
	result_free(&res);
	buf_free(&t->text);
	if (imsg_flush_blocking(ib) == -1)
		_exit(0);
}

/*
 * Waits for the next message; meanwhile idle time after the start goes to
 * what a crash left, and memory that is no longer used to the system.
 */
static void
next_message(struct imsgbuf *ib, struct imsg *im, int served)
{
	static int leftover = 1;
	int r, wait;

	for (;;) {
		wait = leftover ? 0 : served ? HEAP_KEPT_MS : -1;
		r = imsg_get_blocking(ib, im, wait);
		if (r == 1)
			return;
		if (r == 0)
			_exit(0);
		if (errno != ETIMEDOUT)
			fatal("files: channel");
		if (leftover)
			leftover = leftover_step();
		else {
			heap_return();
			served = 0;
		}
	}
}

void
files_main(int channel, int root, const char *root_path)
{
	struct tool tool;
	struct rg rg;
	struct imsgbuf ib;
	struct imsg im;
	struct request q;
	int served = 0;

	(void)prctl(PR_SET_NAME, "files", 0, 0, 0);
	log_init("files", log_verbose());
	(void)umask(022);
	if (sodium_init() == -1)
		fatalx("files: libsodium");
	heap_keep();
	restrict_files(root_path, &rg);
	fault_init(root);
	leftover_init(root);
	imsg_init(&ib, channel, IMSG_MESSAGE_MAX, 0);
	memset(&tool, 0, sizeof(tool));
	tool.root = root;
	tool.root_path = root_path;
	tool.rg = &rg;
	tool.channel = &ib;
	for (;;) {
		next_message(&ib, &im, served);
		/* A cancellation that came too late. */
		if (im.type == MSG_CANCEL) {
			imsg_free(&im);
			continue;
		}
		if (im.type != MSG_REQUEST || request_view(&im, &q) == -1)
			fatalx("files: malformed request");
		tool.id = im.id;
		tool.cancelled = 0;
		answer(&tool, &q);
		request_free(&q);
		imsg_free(&im);
		served = 1;
	}
}
