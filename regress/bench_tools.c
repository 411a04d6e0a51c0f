#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "buf.h"
#include "harness.h"
#include "log.h"
#include "world.h"

/*
 * The file tools against what somebody would type for the same; the shell
 * that starts it is part of the baseline, as our dispatch is part of ours.
 */
#define ROUNDS 21
#define LINES  200 /* most that read_file returns */
#define WIDTH  5242 /* 200 lines of it are 1 MiB */

/* Milliseconds that a shell command takes in a directory. */
static double
shell(const char *dir, const char *command)
{
	double start = world_now();
	int null, status;
	pid_t pid;

	if ((pid = fork()) == -1)
		fatal("fork");
	if (pid == 0) {
		if (chdir(dir) == -1 ||
		    (null = open("/dev/null", O_RDWR)) == -1)
			_exit(127);
		(void)dup2(null, 0);
		(void)dup2(null, 1);
		execl("/bin/sh", "/bin/sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
	    WEXITSTATUS(status) != 0)
		fatalx("%s failed", command);
	return world_now() - start;
}

struct comparison {
	const char *name;
	size_t root;
	struct request request[2]; /* by turns */
	const char *baseline[2];
	const char *aim;
};

static void
compare(struct harness *h, struct comparison *c)
{
	double ours[ROUNDS], theirs[ROUNDS], t, base;
	char note[120];
	struct answer a;
	size_t i;

	for (i = 0; i < ROUNDS; i++) {
		theirs[i] = shell(h->roots[c->root], c->baseline[i % 2]);
		if (harness_request(h, &c->request[i % 2], &a) == -1 || !a.ok)
			fatalx("%s: %s", c->name, a.error.text);
		ours[i] = a.ms;
		answer_free(&a);
	}
	t = bench_median(ours, ROUNDS);
	base = bench_median(theirs, ROUNDS);
	(void)xsnprintf(note, sizeof(note), "%.2f times %s %.2f ms (aim: %s)",
	    t / base, c->baseline[0], base, c->aim);
	bench_line(c->name, t, "ms", note);
}

static struct request
request(enum operation op, size_t root, const char *path)
{
	struct request q;

	memset(&q, 0, sizeof(q));
	q.operation = (uint8_t)op;
	q.root = (uint32_t)root;
	text_set(&q.path, path, strlen(path));
	return q;
}

static struct request
edit(const char *path, const char *old, const char *new)
{
	struct request q = request(OP_EDIT_FILE, 0, path);

	q.edits = xcalloc(1, sizeof(*q.edits));
	q.nedits = 1;
	text_set(&q.edits[0].old, old, strlen(old));
	text_set(&q.edits[0].new, new, strlen(new));
	return q;
}

/* n small files, spread over directories of 500; one in 5,000 has "needle". */
static void
many_files(const char *root, size_t n)
{
	char path[4096], text[64];
	size_t i;
	size_t len;
	int fd;

	for (i = 0; i < n; i++) {
		(void)xsnprintf(path, sizeof(path), "%s/d%03zu", root, i / 500);
		if (i % 500 == 0 && mkdir(path, 0755) == -1)
			fatal("%s", path);
		(void)xsnprintf(
		    path, sizeof(path), "%s/d%03zu/f%06zu", root, i / 500, i);
		if ((fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644)) == -1)
			fatal("%s", path);
		len = xsnprintf(text, sizeof(text), "this is file %zu%s\n", i,
		    i % 5000 == 7 ? " with a needle" : "");
		if (write(fd, text, len) != (ssize_t)len)
			fatal("%s", path);
		close(fd);
	}
}

static void
big_file(struct harness *h)
{
	struct buf b;
	size_t i, k;

	buf_init(&b);
	for (i = 0; i < LINES; i++) {
		buf_addf(&b, "%s line %zu ", i == 100 ? "marker-one" : "a", i);
		for (k = b.len % WIDTH; k < WIDTH - 1; k++)
			buf_addc(&b, (uint8_t)('a' + k % 26));
		buf_addc(&b, '\n');
	}
	put_file(h, h->roots[0], "big", b.data, b.len, 0644);
	put_file(h, h->roots[0], "big2", b.data, b.len, 0644);
	buf_free(&b);
}

/*
 * This program's own tree as one works in it: sources and what the compiler
 * made of them, but not what was installed, packed or downloaded.
 */
static void
build_tree(const char *source, const char *build, const char *root)
{
	static const char *const dirs[] = { "common", "monitor", "bridge",
		"executor", "regress", "man" };
	const char *from[] = { source, build };
	char *copy;
	size_t i, k;

	for (i = 0; i < 2; i++)
		for (k = 0; k < sizeof(dirs) / sizeof(dirs[0]); k++) {
			copy = xasprintf("mkdir -p '%s/%zu' && "
					 "cp -r '%s/%s' '%s/%zu/'",
			    root, i, from[i], dirs[k], root, i);
			(void)shell("/", copy);
			free(copy);
		}
	(void)shell(root, "find . -type f -size +16M -exec rm -f {} +");
}

static struct request
search(size_t root, const char *query)
{
	struct request q = request(OP_SEARCH_TEXT, root, "");

	text_set(&q.query, query, strlen(query));
	q.max = MATCHES_MAX;
	return q;
}

static struct request
list(size_t root, const char *after)
{
	struct request q = request(OP_LIST_FILES, root, "");

	text_set(&q.after, after, strlen(after));
	q.max = PATHS_MAX;
	return q;
}

static struct request
read_whole(const char *path)
{
	struct request q = request(OP_READ_FILE, 0, path);

	q.start_line = 1;
	q.max = LINES;
	return q;
}

static struct request
write_whole(const char *path, uint8_t c)
{
	struct request q = request(OP_WRITE_FILE, 0, path);

	q.content.len = LINES * WIDTH;
	q.content.data = xmalloc(q.content.len);
	memset(q.content.data, c, q.content.len);
	return q;
}

void
bench_tools(const char *source, const char *build)
{
	struct comparison c[] = {
		{ "read_file of 1 MiB", 0,
		    { read_whole("big"), read_whole("big") },
		    { "cat big", "cat big" }, "1.5" },
		{ "edit_file of 1 MiB", 0,
		    { edit("big", "marker-one", "marker-two"),
			edit("big", "marker-two", "marker-one") },
		    { "sed -i s/marker-one/marker-two/ big2; sync big2",
			"sed -i s/marker-two/marker-one/ big2; sync big2" },
		    "1.5" },
		{ "write_file of 1 MiB", 0,
		    { write_whole("big3", 'x'), write_whole("big3", 'y') },
		    { "cp big2 big4; sync big4", "cp big2 big4; sync big4" },
		    "none" },
		{ "search_text, a build tree", 2,
		    { search(2, "pkglibexecdir"), search(2, "pkglibexecdir") },
		    { "rg -nF pkglibexecdir", "rg -nF pkglibexecdir" }, "1.2" },
		/* Of more than 20,000 files it searches the first ones. */
		{ "search_text, 50,000 files", 1,
		    { search(1, "needle"), search(1, "needle") },
		    { "rg -nF needle", "rg -nF needle" }, "1.2" },
		{ "search_text, 200,000 files", 4,
		    { search(4, "needle"), search(4, "needle") },
		    { "rg -nF needle", "rg -nF needle" }, "1.2" },
		{ "list_files, 500 of 100,000", 3, { list(3, ""), list(3, "") },
		    { "rg --files", "rg --files" }, "1.2" },
		{ "list_files, last of 100,000", 3,
		    { list(3, "d199/f099499"), list(3, "d199/f099499") },
		    { "rg --files", "rg --files" }, "1.2" },
	};
	struct harness h;
	size_t i;

	harness_init(&h, 5);
	big_file(&h);
	many_files(h.roots[1], 50000);
	build_tree(source, build, h.roots[2]);
	many_files(h.roots[3], 100000);
	many_files(h.roots[4], 200000);
	if (harness_start(&h) == -1)
		fatalx("%s", h.failed);
	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		compare(&h, &c[i]);
		request_free(&c[i].request[0]);
		request_free(&c[i].request[1]);
	}
	harness_stop(&h);
}
