#ifndef EXECUTOR_RG_H
#define EXECUTOR_RG_H

#include <sys/types.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "restrict.h"

/*
 * ripgrep, which walks a directory tree and knows the ignore rules; it only
 * enumerates files (workspace-tools 6.3, 7.2). It is the one program that the
 * file process executes, under the file process's own restrictions.
 */
struct rg {
	char *program; /* absolute path, or NULL: not installed */
	int null; /* /dev/null */
	struct landlock_path *paths;
	size_t npaths;
};

/*
 * Before the process restricts itself: finds rg in a fixed list of
 * directories, never through PATH, and fills paths with what Landlock must
 * permit: the root itself, the program, its loader and libraries, and the
 * ignore files above the root that exist now. A missing rg is no error.
 */
void rg_prepare(struct rg *, const char *root_path);

/*
 * Also before: a filter for the calls that starting rg needs, whose arguments
 * matter: no namespaces, and no signal but SIGKILL to one process. 0, or -1
 * with one line in *error.
 */
int rg_limit_calls(char **error);

/*
 * After it: proves that another program cannot be executed (fatal if it can),
 * and tries rg; one that does not run counts as missing, with a warning.
 */
void rg_verify(struct rg *);

/* One run. Only one at a time; always ended by rg_stop. */
struct tool;
struct rg_run {
	struct tool *tool;
	int64_t deadline; /* time_mono_ms */
	pid_t pid; /* 0: ended and reaped */
	int fd; /* names, or -1 */
	struct buf in;
	size_t at; /* first byte of in that was not handed out */
	int incomplete; /* a directory could not be read */
};

/*
 * Starts rg in the root with an empty environment and --no-config; args
 * (NULL-terminated) follow "--files --null --sort path" and the like, and end
 * with what stands behind "--". 0, or -1 if there is no rg.
 */
int rg_start(
    struct rg_run *, struct tool *, const char *const *args, int64_t deadline);

/*
 * The next name in path order (1.8), relative to the root, not terminated,
 * valid until the next call. RG_END when rg said everything; run->incomplete
 * is set if it could not read a directory. On RG_TIMEOUT, RG_ABORTED and
 * RG_FAILED there is no result.
 */
enum rg_next { RG_NAME, RG_END, RG_TIMEOUT, RG_ABORTED, RG_FAILED, RG_LATER };
enum rg_next rg_next(struct rg_run *, const char **, size_t *);

/* The same without waiting, neither for rg nor for a cancellation. */
enum rg_next rg_try(struct rg_run *, const char **, size_t *);

/* Kills it if it still runs, reaps it and frees the rest. */
void rg_stop(struct rg_run *);

#endif
