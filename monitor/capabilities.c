#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "error.h"
#include "log.h"
#include "msg.h"
#include "names.h"
#include "path.h"
#include "settings.h"
#include "utf8.h"

#define V "LIBRECHAT_CODE_"

extern char **environ;

/* Variables that ask for something that this version does not have. */
static const struct {
	const char *name; /* a prefix if it ends in "_" */
	const char *what;
} refused[] = {
	{ V "COMMAND_ALLOWED_DOMAINS",
	    "there is no egress proxy in this version, commands have no "
	    "network at all" },
	{ V "GITHUB_", "GitHub credentials are not supported by this version" },
	{ V "DOCKER_", "Docker is not supported by this version" },
	{ V "FILE_RELAY_", "the file relay is not supported by this version" },
	{ V "RUNTIME_IMAGE", "Docker is not supported by this version" },
	{ V "SANDBOX_ENDPOINT",
	    "sandbox endpoints are not supported by this version" },
	{ V "EXECUTION_MANIFEST_PUBLIC_KEY",
	    "execution manifests are not supported by this version" },
	{ V "COMMAND_POLICY_PRESET",
	    "policy presets are not supported by this version" },
};

static const char *const known[] = { "WORKER_ID", "IDENTITY_FILE", "URL",
	"WORKER_TOKEN", "POLICY", "WORKER_DIR", "DEFAULT_WORKSPACE",
	"WORKSPACE_ID", "WORKSPACE_NAME", "ALLOW_WORKSPACE_WRITES",
	"ALLOW_WORKSPACE_COMMANDS", "COMMAND_SANDBOX", "WORKSPACE_LEASE_SLOTS",
	"WORKSPACE_QUARANTINE_FILE", "RUNTIME_SUPERVISOR", "STATEFUL_WORKSPACE",
	"SANDBOX_PROFILE", "RUNTIMES", "CA_FILE", "USER", "TMP_SIZE",
	"MEMORY_LIMIT", "PROCESS_LIMIT", "PROTECTED_PATHS" };

static int
blank(const char *v)
{
	char *t = trimmed(v);
	int is = *t == '\0';

	free(t);
	return is;
}

/* The name is matched up to the "=" of an environment entry. */
static int
check_variable(const char *entry, char **error)
{
	const char *eq = strchr(entry, '='), *name;
	size_t i, n, len;

	if (eq == NULL || strncmp(entry, V, sizeof(V) - 1) != 0 ||
	    blank(eq + 1))
		return 0;
	len = (size_t)(eq - entry);
	for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		name = refused[i].name;
		n = strlen(name);
		if (strncmp(entry, name, n) == 0 &&
		    (name[n - 1] == '_' || n == len))
			return errorf(error, "%.*s is set, but %s: unset it",
			    (int)len, entry, refused[i].what);
	}
	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strlen(known[i]) == len - (sizeof(V) - 1) &&
		    strncmp(entry + sizeof(V) - 1, known[i],
			len - (sizeof(V) - 1)) == 0)
			return 0;
	log_warnx("%.*s is not known and has no effect", (int)len, entry);
	return 0;
}

static int
check_environment(char **error)
{
	char **e;

	for (e = environ; e != NULL && *e != NULL; e++)
		if (check_variable(*e, error) == -1)
			return -1;
	return 0;
}

static char *
lowered(const char *v)
{
	char *t = trimmed(v), *p;

	for (p = t; *p != '\0'; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p + 32);
	return t;
}

static int
is_true(const char *name)
{
	const char *v = getenv(name);
	char *t;
	int yes;

	if (v == NULL)
		return 0;
	t = lowered(v);
	yes = strcmp(t, "true") == 0;
	free(t);
	return yes;
}

static int
check_supervisor(char **error)
{
	const char *v = getenv(V "RUNTIME_SUPERVISOR");
	char *t;

	if (v != NULL) {
		t = lowered(v);
		if (strncmp(t, "docker", 6) == 0)
			errorf(error,
			    V "RUNTIME_SUPERVISOR %s is not supported by this "
			      "version",
			    t);
		else if (strcmp(t, "endpoint") != 0)
			errorf(error,
			    V "RUNTIME_SUPERVISOR must be endpoint, docker, "
			      "docker-nsjail, or docker-macos-nsjail");
		free(t);
	}
	if (*error == NULL && is_true(V "STATEFUL_WORKSPACE"))
		errorf(error,
		    V "STATEFUL_WORKSPACE is not supported by this version");
	return *error == NULL ? 0 : -1;
}

static int
check_command_sandbox(const struct options *o, char **error)
{
	const char *v = getenv(V "COMMAND_SANDBOX");
	char *t;

	if (o->command_sandbox != NULL)
		t = xstrdup(o->command_sandbox);
	else if (v != NULL)
		t = lowered(v);
	else
		return 0;
	if (strcmp(t, "runtime") == 0)
		errorf(error,
		    "the command sandbox runtime is not supported by this "
		    "build; use native-srt");
	else if (strcmp(t, "native-srt") != 0)
		errorf(
		    error, V "COMMAND_SANDBOX must be native-srt or runtime");
	free(t);
	return *error == NULL ? 0 : -1;
}

static int
parse_slots(const char *text, unsigned int *slots, char **error)
{
	char *t = trimmed(text), *end;
	unsigned long v;

	if (*t == '\0') {
		free(t);
		return 0;
	}
	v = strtoul(t, &end, 10);
	if (*t < '0' || *t > '9' || *end != '\0' || v == 0 || strlen(t) > 15)
		errorf(error,
		    V "WORKSPACE_LEASE_SLOTS must be a positive integer");
	else if (v > SLOTS_MAX)
		errorf(error, "Workspace lease slots cannot exceed 8");
	else
		*slots = (unsigned int)v;
	free(t);
	return *error == NULL ? 0 : -1;
}

static int
set_slots(struct settings *s, const struct options *o, char **error)
{
	const char *v = getenv(V "WORKSPACE_LEASE_SLOTS");

	s->lease_slots = 1;
	if (o->lease_slots != NULL)
		v = o->lease_slots;
	if (v != NULL && parse_slots(v, &s->lease_slots, error) == -1)
		return -1;
	if (s->lease_slots > 1 && !s->allow_commands)
		return errorf(error,
		    "Concurrent workspace leases require native-srt commands");
	return 0;
}

/* A label of 1 to max UTF-16 units that is not all blank. */
static int
label_valid(const char *s, size_t max)
{
	size_t n = strlen(s);

	return utf8_valid(s, n) && utf8_units(s, n) <= max && !utf8_blank(s, n);
}

static int
set_labels(struct settings *s, char **error)
{
	const char *v = getenv(V "SANDBOX_PROFILE"), *comma;
	char *item, *t;
	int bad = 0;

	if (v == NULL)
		v = s->allow_commands ? "anthropic-srt" : "nsjail";
	s->profile = xstrdup(v);
	v = getenv(V "RUNTIMES");
	while (v != NULL && !bad) {
		comma = strchr(v, ',');
		item = comma == NULL ? xstrdup(v)
				     : xstrndup(v, (size_t)(comma - v));
		t = trimmed(item);
		free(item);
		v = comma == NULL ? NULL : comma + 1;
		if (*t == '\0') {
			free(t);
			continue;
		}
		bad = s->nruntimes == 32 || !label_valid(t, 64);
		s->runtimes = xreallocarray(
		    s->runtimes, s->nruntimes + 1, sizeof(*s->runtimes));
		s->runtimes[s->nruntimes++] = t;
	}
	if (bad || !label_valid(s->profile, 128))
		return errorf(
		    error, V "SANDBOX_PROFILE or " V "RUNTIMES is invalid");
	return 0;
}

/* native-sandbox 8.5 as one named setting; see executor/protect.h. */
static int
set_protection(struct settings *s, char **error)
{
	const char *v = getenv(V "PROTECTED_PATHS");

	if (v == NULL || strcmp(v, "standard") == 0)
		s->protection = PROTECT_STANDARD;
	else if (strcmp(v, "strict") == 0)
		s->protection = PROTECT_STRICT;
	else if (strcmp(v, "none") == 0)
		s->protection = PROTECT_NONE;
	else
		return errorf(error,
		    V "PROTECTED_PATHS must be standard, strict or none, not "
		      "\"%s\"",
		    v);
	return 0;
}

static int
set_account(struct settings *s, const struct options *o, char **error)
{
	const char *v;

	if (o->user != NULL)
		s->user = xstrdup(o->user);
	else if ((v = getenv(V "USER")) != NULL && !blank(v))
		s->user = trimmed(v);
	if (s->user != NULL && geteuid() != 0)
		return errorf(error,
		    "--user needs a start as root; commands run as the account "
		    "that starts the worker");
	return settings_limits(s, o, error);
}

static int
set_name(struct settings *s, const struct options *o, char **error)
{
	const char *v = getenv(V "WORKSPACE_NAME");

	if (o->workspace_name != NULL)
		s->workspace_name = xstrdup(o->workspace_name);
	else if (v != NULL)
		s->workspace_name = trimmed(v);
	if (s->workspace_name != NULL && !label_valid(s->workspace_name, 128))
		return errorf(error,
		    "Invalid workspace registration: the workspace name must "
		    "have 1 to 128 characters");
	return 0;
}

int
settings_run(struct settings *s, const struct options *o, char **error)
{
	const char *policy = getenv(V "POLICY");
	char *text;

	s->allow_writes = o->allow_writes ||
	    is_true(V "ALLOW_WORKSPACE_WRITES");
	s->allow_commands = o->allow_commands ||
	    is_true(V "ALLOW_WORKSPACE_COMMANDS");
	if (check_supervisor(error) == -1 ||
	    check_command_sandbox(o, error) == -1 ||
	    check_environment(error) == -1 || set_slots(s, o, error) == -1 ||
	    set_name(s, o, error) == -1 || set_labels(s, error) == -1 ||
	    set_account(s, o, error) == -1 || set_protection(s, error) == -1 ||
	    settings_network(s, error) == -1)
		return -1;
	/* A setting other than the usual one shows in the digest. */
	text = xasprintf("%s%s", policy == NULL ? "default-deny" : policy,
	    s->protection == PROTECT_STANDARD     ? ""
		: s->protection == PROTECT_STRICT ? "\nprotected-paths=strict"
						  : "\nprotected-paths=none");
	policy_digest(s->digest, text, s->allow_commands, NULL, 0, GITHUB_NONE);
	free(text);
	if (o->nroots > 0 && s->marker_file != NULL)
		return errorf(error,
		    V "WORKSPACE_QUARANTINE_FILE is a single-root override; "
		      "unset it to use separate root-derived markers");
	return 0;
}

int
settings_reset(struct settings *s, char **error)
{
	const char *policy = getenv(V "POLICY");

	s->lease_slots = 1;
	if (set_labels(s, error) == -1 || settings_network(s, error) == -1)
		return -1;
	policy_digest(s->digest, policy == NULL ? "default-deny" : policy, 0,
	    NULL, 0, GITHUB_NONE);
	return 0;
}

/* The longest time limit of exec, and what is in force without one. */
#define TIMEOUT_MAX (24U * 86400U) /* in ms it fits an int */

int
settings_exec(struct settings *s, const struct options *o, char **error)
{
	unsigned long v = TIMEOUT_MAX;
	const char *dir;
	char *end;

	memset(s, 0, sizeof(*s));
	s->verbose = o->verbose;
	if ((s->home = settings_home(error)) == NULL)
		return -1;
	dir = o->worker_dir != NULL ? o->worker_dir : getenv(V "WORKER_DIR");
	if (dir == NULL || blank(dir))
		return errorf(error, "--worker-dir is required");
	s->worker_dir = xstrdup(dir);
	s->workspace_id = xstrdup("primary");
	s->state_dir = xasprintf(
	    "%s/.local/state/librechat/code/quarantines", s->home);
	s->allow_writes = s->allow_commands = 1;
	if (o->nwords == 0 || o->words[0][0] == '\0')
		return errorf(error,
		    "exec needs a command: librechat-code exec "
		    "--worker-dir DIR -- COMMAND [ARG ...]");
	if (o->timeout != NULL) {
		v = strtoul(o->timeout, &end, 10);
		if (*o->timeout < '0' || *o->timeout > '9' || *end != '\0' ||
		    v == 0 || v > TIMEOUT_MAX)
			return errorf(error,
			    "--timeout must be a number of seconds from 1 to "
			    "%u, not \"%s\"",
			    TIMEOUT_MAX, o->timeout);
	}
	s->timeout_ms = (uint32_t)v * 1000U;
	if (set_account(s, o, error) == -1)
		return -1;
	return set_protection(s, error);
}
