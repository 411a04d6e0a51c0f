#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <errno.h>
#include <fcntl.h>
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

void
files_main(int channel, int root, const char *root_path)
{
	struct tool tool;
	struct rg rg;
	struct imsgbuf ib;
	struct imsg im;
	struct request q;
	struct result res;
	struct failure f;
	struct buf b;
	int idle_work = 1, r;

	(void)prctl(PR_SET_NAME, "files", 0, 0, 0);
	log_init("files", log_verbose());
	(void)umask(022);
	if (sodium_init() == -1)
		fatalx("files: libsodium");
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
		/* Idle time after the start goes to what a crash left. */
		r = imsg_get_blocking(&ib, &im, idle_work ? 0 : -1);
		if (r == -1 && errno == ETIMEDOUT) {
			idle_work = leftover_step();
			continue;
		}
		if (r == 0)
			_exit(0);
		if (r == -1)
			fatal("files: channel");
		/* A cancellation that came too late. */
		if (im.type == MSG_CANCEL) {
			imsg_free(&im);
			continue;
		}
		if (im.type != MSG_REQUEST || request_parse(&im, &q) == -1)
			fatalx("files: malformed request");
		tool.id = im.id;
		tool.cancelled = 0;
		memset(&res, 0, sizeof(res));
		res.operation = q.operation;
		buf_init(&b);
		if (serve(&tool, &q, &res, &f) == 0) {
			result_build(&b, &res);
			imsg_compose(&ib, MSG_RESULT, im.id, -1, b.data, b.len);
		} else {
			tool_error_build(&b, f.code, f.certainty, f.text);
			imsg_compose(&ib, MSG_ERROR, im.id, -1, b.data, b.len);
		}
		buf_free(&b);
		result_free(&res);
		request_free(&q);
		imsg_free(&im);
		if (imsg_flush_blocking(&ib) == -1)
			_exit(0);
	}
}
