#ifndef MONITOR_OPTIONS_H
#define MONITOR_OPTIONS_H

#include <stddef.h>

/*
 * The command line (librechat-code(1), cli-and-storage chapters 2, 3, 9.1).
 * Strict: an unknown option, a single-valued option given twice, a missing
 * value or a stray word is an error.
 */
enum command {
	CMD_RUN,
	CMD_PAIR,
	CMD_CLEAR,
	CMD_RESET,
	CMD_EXEC,
	CMD_SELFTEST,
	CMD_HELP,
	CMD_VERSION,
	CMD_MAX
};

struct root_option {
	char *id;
	const char *path;
};

/* Strings point into argv; NULL stands for "not given". */
struct options {
	enum command command;
	int verbose;
	const char *worker_dir;
	const char *workspace_id;
	const char *workspace_name;
	const char *command_sandbox;
	const char *lease_slots;
	const char *reset;
	const char *user;
	const char *tmp_size;
	const char *memory_limit;
	const char *process_limit;
	const char *worker_id; /* pair */
	const char *identity; /* pair */
	const char *timeout; /* exec */
	char **words; /* exec: command and arguments; within argv */
	size_t nwords;
	const char *session; /* reset-workspace */
	const char *url; /* pair */
	char *code; /* pair; pair() overwrites it in argv */
	int default_workspace;
	int allow_writes;
	int allow_commands;
	struct root_option *roots;
	size_t nroots;
};

/* 0, or -1 with one line in *error. */
int options_parse(struct options *, int argc, char **argv, char **error);
void options_free(struct options *);

/* The text of --help. */
extern const char options_usage[];

#endif
