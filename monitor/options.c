#include "config.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "error.h"
#include "msg.h"
#include "options.h"

#define R (1U << CMD_RUN)
#define P (1U << CMD_PAIR)
#define C (1U << CMD_CLEAR)
#define W (1U << CMD_RESET)
#define E (1U << CMD_EXEC)
#define S (1U << CMD_SELFTEST)

enum kind { FLAG, VALUE, COUNT, ROOT };

struct option {
	const char *name;
	enum kind kind;
	unsigned int commands;
	size_t offset;
};

static const struct option table[] = {
	{ "--worker-dir", VALUE, R | C | E,
	    offsetof(struct options, worker_dir) },
	{ "--default-workspace", FLAG, R | C,
	    offsetof(struct options, default_workspace) },
	{ "--workspace-id", VALUE, R | C,
	    offsetof(struct options, workspace_id) },
	{ "--workspace-name", VALUE, R,
	    offsetof(struct options, workspace_name) },
	{ "--workspace", ROOT, R, 0 },
	{ "--allow-workspace-writes", FLAG, R,
	    offsetof(struct options, allow_writes) },
	{ "--allow-workspace-commands", FLAG, R,
	    offsetof(struct options, allow_commands) },
	{ "--command-sandbox", VALUE, R,
	    offsetof(struct options, command_sandbox) },
	{ "--workspace-lease-slots", VALUE, R,
	    offsetof(struct options, lease_slots) },
	{ "--reset-workspace-quarantine", VALUE, R,
	    offsetof(struct options, reset) },
	{ "--user", VALUE, R | E | S, offsetof(struct options, user) },
	{ "--tmp-size", VALUE, R | E | S, offsetof(struct options, tmp_size) },
	{ "--memory-limit", VALUE, R | E | S,
	    offsetof(struct options, memory_limit) },
	{ "--process-limit", VALUE, R | E | S,
	    offsetof(struct options, process_limit) },
	{ "--timeout", VALUE, E, offsetof(struct options, timeout) },
	{ "--worker-id", VALUE, P, offsetof(struct options, worker_id) },
	{ "--identity", VALUE, P, offsetof(struct options, identity) },
	{ "--verbose", COUNT, R | P | C | W | E | S,
	    offsetof(struct options, verbose) },
};

const char options_usage[] =
    "usage: librechat-code [run] [options]\n"
    "       librechat-code pair URL CODE [--worker-id ID] [--identity PATH]\n"
    "       librechat-code clear-workspace-quarantine [options]\n"
    "       librechat-code reset-workspace SESSION\n"
    "       librechat-code exec --worker-dir DIR [options] -- COMMAND [ARG "
    "...]\n"
    "       librechat-code selftest\n"
    "       librechat-code --help | --version\n"
    "\n"
    "run attaches this machine to a Code API as a worker:\n"
    "  --worker-dir DIR              register this directory\n"
    "  --default-workspace           or one that the program keeps\n"
    "  --workspace-id ID             its id (primary)\n"
    "  --workspace-name NAME         its display name\n"
    "  --workspace ID=DIR            register a further directory\n"
    "  --allow-workspace-writes      offer writing and editing files\n"
    "  --allow-workspace-commands    offer running commands in the sandbox\n"
    "  --command-sandbox native-srt  which sandbox runs commands\n"
    "  --workspace-lease-slots N     assignments at the same time (1)\n"
    "  --reset-workspace-quarantine ID  lift the fence of a workspace, end\n"
    "  --user NAME                   account for commands, when run by root\n"
    "  --tmp-size SIZE               limit of the sandbox's /tmp (1/4 of the\n"
    "                                memory, at most 4G)\n"
    "  --memory-limit SIZE|none      memory of the commands of a directory\n"
    "                                (3/4 of the memory)\n"
    "  --process-limit NUMBER|none   their processes and threads (4096)\n"
    "  -v                            more messages; repeatable\n"
    "pair redeems a one-time code; CODE - reads it from standard input.\n"
    "clear-workspace-quarantine takes --worker-dir, --default-workspace and\n"
    "--workspace-id, and removes the marker of that directory.\n"
    "exec runs a command in the sandbox, without any Code API; it takes\n"
    "--worker-dir, --user, the limits and --timeout SECONDS.\n"
    "selftest says what this machine lacks for the sandbox and the worker.\n"
    "\n"
    "librechat-code(1) describes the options and the environment.\n";

static const struct {
	const char *word;
	enum command command;
} commands[] = {
	{ "run", CMD_RUN },
	{ "pair", CMD_PAIR },
	{ "clear-workspace-quarantine", CMD_CLEAR },
	{ "reset-workspace", CMD_RESET },
	{ "exec", CMD_EXEC },
	{ "selftest", CMD_SELFTEST },
	{ "help", CMD_HELP },
	{ "--help", CMD_HELP },
	{ "-h", CMD_HELP },
	{ "--version", CMD_VERSION },
	{ "version", CMD_VERSION },
};

/* Commands of the Node worker that exist but not here. */
static const char *const absent[] = { "relay", "projects" };

static int
parse_command(struct options *o, const char *word, char **error)
{
	size_t i;

	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(word, commands[i].word) == 0) {
			o->command = commands[i].command;
			return 0;
		}
	}
	for (i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
		if (strcmp(word, absent[i]) == 0)
			return errorf(error,
			    "the command %s is not available in this version",
			    word);
	return errorf(error,
	    "Unknown command: %s (options follow the command; see "
	    "librechat-code --help)",
	    word);
}

/* Finds the option and splits "--name=value". */
static const struct option *
find(const char *arg, unsigned int command, const char **value)
{
	const char *eq = strchr(arg, '=');
	size_t i, n = eq == NULL ? strlen(arg) : (size_t)(eq - arg);

	*value = eq == NULL ? NULL : eq + 1;
	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (strlen(table[i].name) == n &&
		    memcmp(table[i].name, arg, n) == 0 &&
		    (table[i].commands & (1U << command)))
			return &table[i];
	return NULL;
}

static int
add_root(struct options *o, const char *value, char **error)
{
	const char *eq;

	if (value == NULL || *value == '\0')
		return errorf(error, "--workspace requires id=path");
	eq = strchr(value, '=');
	if (eq == NULL || eq == value || eq[1] == '\0')
		return errorf(error,
		    "Additional --workspace id=path roots require a primary "
		    "workspace and native-srt: \"%s\" is not id=path",
		    value);
	if (o->nroots >= ROOTS_MAX)
		return errorf(
		    error, "At most 32 workspace roots may be registered");
	o->roots = xreallocarray(o->roots, o->nroots + 1, sizeof(*o->roots));
	o->roots[o->nroots].id = xstrndup(value, (size_t)(eq - value));
	o->roots[o->nroots++].path = eq + 1;
	return 0;
}

static int
set_option(
    struct options *o, const struct option *op, const char *value, char **error)
{
	void *member = (char *)o + op->offset;
	const char **text = member;
	int *number = member;

	switch (op->kind) {
	case ROOT:
		return add_root(o, value, error);
	case COUNT:
		(*number)++;
		return 0;
	case FLAG:
		if (*number)
			return errorf(error, "%s is given twice", op->name);
		*number = 1;
		return 0;
	case VALUE:
		break;
	}
	if (value == NULL || *value == '\0')
		return errorf(error, "%s needs a value", op->name);
	if (*text != NULL)
		return errorf(error, "%s is given twice", op->name);
	*text = value;
	return 0;
}

static int
set_positional(struct options *o, char *word, char **error)
{
	if (o->command == CMD_PAIR && o->url == NULL) {
		o->url = word;
		return 0;
	}
	if (o->command == CMD_PAIR && o->code == NULL) {
		o->code = word;
		return 0;
	}
	if (o->command == CMD_RESET && o->session == NULL) {
		o->session = word;
		return 0;
	}
	if (o->command == CMD_RESET)
		return errorf(error,
		    "Usage: librechat-code reset-workspace "
		    "<runtime-session-id>");
	if (o->command == CMD_PAIR)
		return errorf(error, "pair takes a URL and a code only");
	return errorf(error, "unexpected argument: %s", word);
}

/* "-v", "-vv"; 0 if the word is something else. */
static int
count_verbose(struct options *o, const char *word)
{
	size_t n = strspn(word + 1, "v");

	if (word[0] != '-' || n == 0 || word[n + 1] != '\0')
		return 0;
	o->verbose += (int)n;
	return 1;
}

static int
parse_word(struct options *o, int argc, char **argv, int *i, char **error)
{
	const struct option *op;
	const char *value;
	char *word = argv[*i];

	if (word[0] != '-' || word[1] == '\0')
		return set_positional(o, word, error);
	if (count_verbose(o, word))
		return 0;
	if ((op = find(word, o->command, &value)) == NULL)
		return errorf(error,
		    "unknown option %.*s (see librechat-code --help)",
		    (int)strcspn(word, "="), word);
	if (op->kind == FLAG || op->kind == COUNT) {
		if (value != NULL)
			return errorf(error, "%s takes no value", op->name);
	} else if (value == NULL && *i + 1 < argc &&
	    strncmp(argv[*i + 1], "--", 2) != 0)
		value = argv[++*i];
	return set_option(o, op, value, error);
}

int
options_parse(struct options *o, int argc, char **argv, char **error)
{
	int i = 1, words_only = 0;

	memset(o, 0, sizeof(*o));
	if (argc > 1 && argv[1][0] != '\0') {
		if (parse_command(o, argv[1], error) == -1)
			return -1;
		i = 2;
	} else if (argc > 1)
		i = 2;
	if (o->command == CMD_HELP || o->command == CMD_VERSION)
		return 0;
	for (; i < argc; i++) {
		/* The rest is a command of its own. */
		if (o->command == CMD_EXEC &&
		    (words_only || argv[i][0] != '-')) {
			o->words = &argv[i];
			o->nwords = (size_t)(argc - i);
			break;
		}
		if (!words_only && strcmp(argv[i], "--help") == 0) {
			o->command = CMD_HELP;
			return 0;
		}
		if (!words_only && strcmp(argv[i], "--") == 0) {
			words_only = 1;
			continue;
		}
		if ((words_only ? set_positional(o, argv[i], error)
				: parse_word(o, argc, argv, &i, error)) == -1) {
			options_free(o);
			return -1;
		}
	}
	return 0;
}

void
options_free(struct options *o)
{
	size_t i;

	for (i = 0; i < o->nroots; i++)
		free(o->roots[i].id);
	free(o->roots);
	o->roots = NULL;
	o->nroots = 0;
}
