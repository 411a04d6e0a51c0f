#ifndef MONITOR_SETTINGS_H
#define MONITOR_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

#include "identity.h"
#include "msg.h"
#include "options.h"
#include "url.h"

/*
 * What the command line, the environment and the identity file say together
 * (cli-and-storage chapter 3), checked. All strings are owned.
 */
struct settings {
	char *home;
	int verbose;

	/* who and where (3.4, 3.5) */
	char *worker;
	int paired;
	char *identity_path; /* paired mode */
	struct identity identity; /* paired mode */
	struct secret token; /* static mode */
	char *url_text; /* as configured, without slashes at its end */
	struct base_url url;
	char *state_dir; /* markers and lock */

	/* roots and capabilities (3.6, 3.7); run only */
	char *worker_dir; /* or NULL */
	int default_workspace;
	char *workspace_id;
	char *workspace_name; /* or NULL: take the default */
	int allow_writes;
	int allow_commands;
	unsigned int lease_slots;
	char *marker_file; /* override, or NULL */
	char *profile;
	char **runtimes;
	size_t nruntimes;
	char digest[65];
	char *user; /* account for commands, or NULL */
	uint64_t tmp_bytes;
	uint64_t memory_bytes; /* of the commands of a root; 0 = no limit */
	uint32_t processes; /* likewise */
	enum protection protection;
	uint32_t timeout_ms; /* exec */

	/* for the bridge; run and pair */
	char *ca_file;
	char *https_proxy;
	char *http_proxy;
	char *all_proxy;
	char *no_proxy;
};

/* HOME or the account's home; absolute. Allocated, or NULL with *error. */
char *settings_home(char **error);

/*
 * Evaluates what run and clear-workspace-quarantine have in common: identity,
 * worker id, URL, primary directory. 0 or -1 with *error.
 */
int settings_common(struct settings *, const struct options *, char **error);

/* Everything else that run needs; after settings_common. */
int settings_run(struct settings *, const struct options *, char **error);

/*
 * What exec needs and nothing of a Code API: the home, the directory, the
 * account, the limits.
 */
int settings_exec(struct settings *, const struct options *, char **error);

/* What reset-workspace needs beyond settings_common; no roots. */
int settings_reset(struct settings *, char **error);

/* CA file and proxies; also for pair. */
int settings_network(struct settings *, char **error);

/* What pair needs: worker id, identity path, URL. */
int settings_pair(struct settings *, const struct options *, char **error);

void settings_free(struct settings *);

/*
 * What commands may use up (limits.c): /tmp size, memory, processes, from
 * options, variables and what the machine has. 0 or -1 with *error.
 */
int settings_limits(struct settings *, const struct options *, char **error);

/* "512M", "2G", plain bytes: 1 MiB to 1 TiB. 0 or -1. */
int parse_size(const char *, uint64_t *);

#endif
