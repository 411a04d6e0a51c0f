#ifndef COMMON_MSG_H
#define COMMON_MSG_H

#include <sys/types.h>
#include <stddef.h>
#include <stdint.h>

#include "imsg.h"

/*
 * Every message that two processes of the daemon exchange, its members, and
 * the pair of functions that write and read it. The file PROTOCOL describes
 * the same for people. Names follow ../man and the bridge protocol.
 *
 * A parse function returns 0 and a structure that the caller frees with the
 * matching _free, or -1 (nothing to free) when the payload is not exactly
 * what its build function writes or a value is out of range.
 */
enum msg_type {
	MSG_NONE = 0,

	/* start-up and end; monitor <-> bridge, monitor <-> executor */
	MSG_CONFIG, /* monitor: first message (fd: bridge-executor channel,
		       in the worker role) */
	MSG_ROOT, /* monitor -> executor: one registered root (fd) */
	MSG_CGROUP, /* monitor -> executor: control group of a root (fd) */
	MSG_READY, /* restricted and verified, waiting for MSG_START */
	MSG_FAILED, /* start-up failed: text; the sender then exits */
	MSG_START, /* monitor: go on */
	MSG_STOP, /* monitor: orderly shutdown */
	MSG_ENDED, /* last message of a helper: exit status, text */

	/* bridge -> monitor and the answers */
	MSG_SIGN,
	MSG_SIGNED,
	MSG_STORE_CREDENTIAL,
	MSG_CREDENTIAL_STORED,
	MSG_ARM,
	MSG_ARMED,
	MSG_CLEAR,
	MSG_CLEARED,
	MSG_STATE, /* change of state, for the log and service manager */
	MSG_PAIRED, /* pair role: the redeemed credential */

	/* monitor -> executor and the answer */
	MSG_ALLOW,
	MSG_ALLOWED,
	MSG_OUTCOME, /* executor -> monitor: how a mutation ended */

	/* bridge -> executor and the answers */
	MSG_REQUEST,
	MSG_CANCEL,
	MSG_RESULT,
	MSG_ERROR,

	MSG_MAX
};

/* "REQUEST" for MSG_REQUEST; "?" for anything unknown. */
const char *msg_name(uint32_t);

#define ID_MAX    128 /* worker, workspace id (protocol 1) */
#define ROOTS_MAX 32
#define SLOTS_MAX 8

/* Operations, as bits of a mask in this order (protocol 5.3). */
enum operation {
	OP_READ_FILE,
	OP_SEARCH_TEXT,
	OP_LIST_FILES,
	OP_WRITE_FILE,
	OP_PREVIEW_EDIT,
	OP_EDIT_FILE,
	OP_EXECUTE_COMMAND,
	OP_MAX
};
#define OP_BIT(op) (1U << (op))
#define OPS_MUTATION                                    \
	(OP_BIT(OP_WRITE_FILE) | OP_BIT(OP_EDIT_FILE) | \
	    OP_BIT(OP_EXECUTE_COMMAND))

/* Wire name of an operation, and back (OP_MAX if unknown). */
const char *operation_name(enum operation);
enum operation operation_by_name(const void *, size_t);

/* errorCode of a rejection (protocol 8.7, code-api-server 11.4). */
enum error_code {
	EC_NONE, /* rejection without a code */
	EC_INVALID_PATH,
	EC_INVALID_REQUEST,
	EC_READ_LIMIT_EXCEEDED,
	EC_WRITE_LIMIT_EXCEEDED,
	EC_WRITE_DISABLED,
	EC_WRITE_UNAVAILABLE,
	EC_EDIT_CONFLICT,
	EC_REGISTRATION_INVALID,
	EC_EXECUTION_ABORTED,
	EC_LIST_TIMEOUT,
	EC_LIST_UNAVAILABLE,
	EC_SEARCH_TIMEOUT,
	EC_SEARCH_UNAVAILABLE,
	EC_COMMAND_TIMEOUT,
	EC_COMMAND_UNAVAILABLE,
	EC_COMMAND_DISABLED,
	EC_MAX
};
const char *error_code_name(enum error_code); /* NULL for EC_NONE */

/* ---- configuration of the bridge (monitor -> bridge, MSG_CONFIG) ---- */

enum bridge_role {
	ROLE_WORKER, /* register, lease, settle */
	ROLE_PAIR, /* redeem a one-time code, report MSG_PAIRED, end */
	ROLE_RESET, /* register without ever leasing, reset a session, end */
	ROLE_REACH, /* see whether the Code API answers, end */
	ROLE_MAX
};
enum auth_mode {
	AUTH_PAIRED, /* Bridge credential and a proof by the monitor */
	AUTH_STATIC, /* Bearer token */
	AUTH_MAX
};

struct workspace {
	char *id;
	char *name; /* or NULL */
	uint32_t operations; /* mask of OP_BIT */
	uint8_t quarantined; /* not to be used; with lease slots only */
};

struct bridge_config {
	uint8_t role;
	uint8_t auth;
	uint8_t verbose;
	char *base_url; /* http(s)://..., no trailing slash */
	char *worker_id;
	char *incarnation; /* worker role; 24 characters */
	char *credential; /* or the static token; a secret */
	int64_t expires; /* ms since 1970; paired mode */
	char *code; /* pair role; a secret */
	char *public_key; /* pair role; PEM */
	char *session; /* reset role; runtimeSessionId */
	char *sandbox_profile;
	char **runtimes;
	size_t nruntimes;
	char *policy_digest; /* 64 hex digits, or NULL */
	uint8_t lease_slots; /* 1..8 */
	struct workspace *workspaces; /* index = root number everywhere */
	size_t nworkspaces;
	char *ca_file; /* PEM bundle to trust, or NULL */
	char *https_proxy; /* from the monitor's environment */
	char *http_proxy;
	char *all_proxy;
	char *no_proxy;
};
void bridge_config_build(struct buf *, const struct bridge_config *);
int bridge_config_parse(const struct imsg *, struct bridge_config *);
void bridge_config_free(struct bridge_config *);

/* ---- configuration of the executor (monitor -> executor) ---- */

/* LIBRECHAT_CODE_PROTECTED_PATHS, see executor/protect.h. */
enum protection { PROTECT_NONE, PROTECT_STANDARD, PROTECT_STRICT, PROTECT_MAX };
struct executor_config {
	uint8_t verbose;
	uint32_t uid; /* account that runs commands */
	uint32_t gid;
	char *user; /* its name */
	char *home; /* HOME inside; absolute, not "/" */
	char **env; /* NAME=VALUE, allow-listed */
	size_t nenv;
	char **hidden; /* absolute directories to mask */
	size_t nhidden;
	uint64_t tmp_bytes; /* limit of /tmp, /var/tmp and shm */
	uint64_t home_bytes;
	uint8_t protection; /* enum protection */
	uint32_t processes; /* limit for a root's commands; 0 = none */
	uint64_t memory_bytes; /* likewise; in force only with groups */
	uint8_t slots; /* idle sandboxes to keep; 1..8 */
	uint32_t nroots; /* so many MSG_ROOT follow */
	uint8_t groups; /* 1: then as many MSG_CGROUP */
};
void executor_config_build(struct buf *, const struct executor_config *);
int executor_config_parse(const struct imsg *, struct executor_config *);
void executor_config_free(struct executor_config *);

/*
 * The descriptor is the root directory: opened with O_PATH | O_DIRECTORY, or
 * a detached mount of it from open_tree(2), which may be id-mapped so that
 * what belongs to root on disk belongs to the account inside.
 */
enum root_mount { ROOT_DIRECTORY, ROOT_DETACHED, ROOT_MAPPED, ROOT_MOUNT_MAX };
struct root_config {
	uint32_t index;
	char *id;
	char *path; /* canonical host path */
	uint32_t operations;
	uint8_t mount; /* enum root_mount */
};
void root_config_build(struct buf *, const struct root_config *);
int root_config_parse(const struct imsg *, struct root_config *);
void root_config_free(struct root_config *);

/*
 * MSG_CGROUP. The descriptor is the directory of a control group (cgroups(7),
 * version 2) with the limits of the root's commands, which start in it.
 */
struct cgroup_config {
	uint32_t index; /* of the root */
};
void cgroup_config_build(struct buf *, const struct cgroup_config *);
int cgroup_config_parse(const struct imsg *, struct cgroup_config *);

/* MSG_FAILED and MSG_ENDED */
struct ended {
	uint8_t status; /* exit status, see librechat-code(1) */
	char *text; /* one line for the operator, or NULL */
};
void ended_build(struct buf *, uint8_t, const char *);
int ended_parse(const struct imsg *, struct ended *);

/* ---- bridge <-> monitor ---- */

/*
 * MSG_SIGN, answered by MSG_SIGNED with the same id. The monitor makes the
 * time stamp and the nonce, so a proof cannot be made for later use.
 */
struct sign_request {
	char *path; /* request target as sent, no query */
	uint8_t sha256[32]; /* of the body */
};
struct sign_answer {
	char *timestamp;
	char *nonce;
	char *signature; /* base64url */
};
void sign_request_build(struct buf *, const struct sign_request *);
int sign_request_parse(const struct imsg *, struct sign_request *);
void sign_request_free(struct sign_request *);
void sign_answer_build(struct buf *, const struct sign_answer *);
int sign_answer_parse(const struct imsg *, struct sign_answer *);
void sign_answer_free(struct sign_answer *);

/* MSG_STORE_CREDENTIAL and MSG_PAIRED; answered by MSG_CREDENTIAL_STORED. */
struct credential {
	char *credential; /* a secret */
	char *expires_text; /* as the server wrote it */
	int64_t expires; /* ms since 1970 */
};
void credential_build(struct buf *, const struct credential *);
int credential_parse(const struct imsg *, struct credential *);
void credential_free(struct credential *);

/*
 * MSG_ARM, MSG_CLEAR, MSG_ALLOW, MSG_ALLOWED: an assignment on a root.
 * The answers MSG_CREDENTIAL_STORED, MSG_ARMED and MSG_CLEARED carry a
 * verdict: error is NULL on success, else one line.
 */
struct assignment_ref {
	uint32_t root;
	char *assignment;
};
void assignment_ref_build(struct buf *, uint32_t, const char *);
int assignment_ref_parse(const struct imsg *, struct assignment_ref *);

struct verdict {
	char *error;
};
void verdict_build(struct buf *, const char *);
int verdict_parse(const struct imsg *, struct verdict *);

/* MSG_STATE: what the bridge is doing, for people. */
enum bridge_state {
	BS_CONNECTING,
	BS_REGISTERED, /* sent after the first registration only */
	BS_RECONNECTING,
	BS_MAX
};
void state_build(struct buf *, enum bridge_state, const char *);
int state_parse(const struct imsg *, enum bridge_state *, char **text);

/* ---- executor -> monitor ---- */

/*
 * How far a mutation went. CERTAIN outcomes may be settled and their marker
 * cleared; after UNCERTAIN the monitor refuses to clear the marker.
 */
enum certainty {
	COMMITTED, /* done, result is valid */
	NOT_COMMITTED, /* proof that nothing changed, or that all processes
			  of a cancelled command are dead */
	UNCERTAIN,
	CERTAINTY_MAX
};
void outcome_build(
    struct buf *, uint32_t root, const char *assignment, enum certainty);
int outcome_parse(
    const struct imsg *, struct assignment_ref *, enum certainty *);

/* ---- bridge <-> executor ---- */

/* Bytes that belong to the text, or to something that outlives it. */
struct text {
	uint8_t *data; /* not terminated */
	size_t len;
	uint8_t foreign; /* text_free leaves them alone */
};

struct edit {
	struct text old;
	struct text new;
};

/*
 * One workspace tool request, completely validated by the bridge
 * (workspace-tools 5 to 11); the executor checks again what its safety
 * depends on. Members beyond the common ones are used by the operations
 * named. The imsg id names it in MSG_CANCEL, MSG_RESULT and MSG_ERROR.
 */
struct request {
	uint8_t operation;
	uint32_t root;
	char *assignment;
	struct text path; /* all but execute; empty = absent */
	int64_t start_line; /* read */
	uint32_t max; /* read: lines; search, list: results */
	struct text query; /* search */
	struct text after; /* list; empty = absent */
	struct text content; /* write */
	uint8_t create_only; /* write: overwrite was false */
	struct edit *edits; /* edit, preview */
	size_t nedits;
	char *base_sha256; /* edit; or NULL */
	struct text command; /* execute */
	struct text cwd; /* execute; empty = root */
	uint32_t timeout_ms; /* execute */
	uint32_t max_output; /* execute; bytes */
};
#define EDITS_MAX 100
void request_build(struct buf *, const struct request *);
int request_parse(const struct imsg *, struct request *);
/* The same without copies: texts point into the message. */
int request_view(const struct imsg *, struct request *);
void request_free(struct request *);

struct match {
	struct text path;
	int64_t line;
	int64_t column;
	struct text text;
};

/* All texts of a result are well-formed UTF-8 within the wire's limits. */
struct result {
	uint8_t operation;
	struct text content; /* read, preview */
	int64_t start_line; /* read */
	int64_t end_line; /* read */
	uint8_t truncated; /* read, search, list, execute */
	struct match *matches; /* search */
	size_t nmatches;
	struct text *paths; /* list */
	size_t npaths;
	uint8_t created; /* write */
	int64_t bytes_written; /* write, edit, preview */
	uint32_t replacements; /* edit, preview */
	uint8_t has_bom; /* preview */
	char *base_sha256; /* preview */
	int32_t exit_code; /* execute; -1 = null */
	char *signal; /* execute; or NULL */
	struct text out; /* execute */
	struct text err; /* execute */
	uint8_t timed_out; /* execute */
};
#define MATCHES_MAX 200
#define PATHS_MAX   500
void result_build(struct buf *, const struct result *);
int result_parse(const struct imsg *, struct result *);
/* The same without copies: texts point into the message. */
int result_view(const struct imsg *, struct result *);
void result_free(struct result *);

struct tool_error {
	uint8_t code; /* enum error_code */
	uint8_t certainty; /* NOT_COMMITTED or UNCERTAIN */
	char *text; /* fixed phrase: no path, no output */
};
void tool_error_build(
    struct buf *, enum error_code, enum certainty, const char *);
int tool_error_parse(const struct imsg *, struct tool_error *);
void tool_error_free(struct tool_error *);

/* Copies bytes into a text, points a text at bytes, and frees one. */
void text_set(struct text *, const void *, size_t);
void text_view(struct text *, const void *, size_t);
void text_free(struct text *);

#endif
