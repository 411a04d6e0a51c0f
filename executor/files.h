#ifndef EXECUTOR_FILES_H
#define EXECUTOR_FILES_H

#include "imsg.h"
#include "msg.h"

/*
 * The file process of a sandbox: serves the file tools on one root. It lives
 * in the sandbox's mount tree, without capabilities, network or the right to
 * execute anything but rg, and answers each MSG_REQUEST on its channel (imsg)
 * with one MSG_RESULT or MSG_ERROR of the same id. Ends when the channel
 * closes.
 */
void files_main(int channel, int root, const char *root_path)
    __attribute__((__noreturn__));

#define FILE_MAX (1024 * 1024) /* bytes of a file that tools read or write */

/* What a file tool says when it does not succeed. */
struct failure {
	enum error_code code;
	enum certainty certainty;
	const char *text; /* fixed phrase, or room */
	char room[80]; /* for a phrase with a number in it */
};

/* Fills *f and returns -1. */
int failure(struct failure *, enum error_code, enum certainty, const char *);

/*
 * A requested path, taken apart after normalising: the parent directory
 * (NULL: the root itself) and the last component (NULL for ".").
 */
struct place {
	char *parent;
	char *leaf;
};
void place_split(struct place *, const struct text *path);
void place_free(struct place *);

/*
 * What a tool works with. The request may be cancelled while it runs: a tool
 * that takes time asks tool_cancelled at the places of workspace-tools 13.4
 * and then fails with EC_EXECUTION_ABORTED, NOT_COMMITTED.
 */
struct tool {
	int root; /* directory, O_PATH */
	const char *root_path; /* where it is in the sandbox */
	struct rg *rg;
	struct imsgbuf *channel;
	uint32_t id; /* of the request */
	int cancelled;
	struct buf text; /* what a result may point into; freed with it */
};
int tool_cancelled(struct tool *);
int tool_aborted(struct failure *); /* fills that failure, returns -1 */

/* One function a tool: 0 and *res, or -1 and *f. */
int tool_read_file(
    struct tool *, const struct request *, struct result *, struct failure *);
int tool_search_text(
    struct tool *, const struct request *, struct result *, struct failure *);
int tool_list_files(
    struct tool *, const struct request *, struct result *, struct failure *);
int tool_write_file(
    struct tool *, const struct request *, struct result *, struct failure *);
int tool_edit_file(
    struct tool *, const struct request *, struct result *, struct failure *);
int tool_preview_edit(
    struct tool *, const struct request *, struct result *, struct failure *);

/*
 * Opens a regular file for reading (workspace-tools 1.9): links in the middle
 * may be followed inside the root, the last component may not be one.
 * Anything but a regular file is refused before it is opened. -1 with errno
 * (EISDIR, ELOOP, ENXIO for a socket, EINVAL: not a regular file).
 */
struct stat;
int open_regular(int root, const struct place *, struct stat *);

/*
 * Reads a regular file from its start, at most FILE_MAX + 1 bytes: more than
 * FILE_MAX in *b means that it is too large. -1 with errno on I/O errors.
 */
int read_whole(int fd, struct buf *b);

#endif
