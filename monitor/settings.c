#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "error.h"
#include "log.h"
#include "names.h"
#include "path.h"
#include "settings.h"

#define V "LIBRECHAT_CODE_"

/* The trimmed value of a variable, or NULL if it is not set. */
static char *
variable(const char *name)
{
	const char *v = getenv(name);

	return v == NULL ? NULL : trimmed(v);
}

/* The same, and a blank value counts as not set. */
static char *
filled(const char *name)
{
	char *v = variable(name);

	if (v != NULL && *v == '\0') {
		free(v);
		v = NULL;
	}
	return v;
}

char *
settings_home(char **error)
{
	struct passwd *pw;
	const char *home;
	size_t n;

	if ((home = getenv("HOME")) == NULL) {
		if ((pw = getpwuid(geteuid())) == NULL) {
			errorf(error,
			    "HOME is not set and there is no account entry for "
			    "uid %lu",
			    (unsigned long)geteuid());
			return NULL;
		}
		home = pw->pw_dir;
	}
	if (home[0] != '/') {
		errorf(
		    error, "HOME must be an absolute path, not \"%s\"", home);
		return NULL;
	}
	for (n = strlen(home); n > 1 && home[n - 1] == '/'; n--)
		;
	return xstrndup(home, n);
}

static int
required(const char *value, const char *name, char **error)
{
	if (value == NULL || *value == '\0')
		return errorf(error, "%s is required", name);
	return 0;
}

static int
check_worker_id(const char *id, const char *name, char **error)
{
	if (required(id, name, error) == -1)
		return -1;
	if (!id_valid(id, strlen(id)))
		return errorf(error,
		    "%s must match the bridge worker ID format: a letter or "
		    "digit, then at most 127 of A-Z a-z 0-9 . _ : -",
		    name);
	return 0;
}

static int
set_url(struct settings *s, const char *text, char **error)
{
	size_t n = strlen(text);

	if (base_url_parse(text, &s->url, error) == -1)
		return -1;
	while (n > 0 && text[n - 1] == '/')
		n--;
	s->url_text = xstrndup(text, n);
	s->state_dir = state_dir(s->home, s->url.canonical, s->worker);
	if (!s->url.https && !s->url.loopback)
		log_warnx("%s is not https: everything is sent in the clear",
		    s->url.base);
	return 0;
}

/*
 * Takes the token out of the environment: proc_pid_environ(5) shows the
 * memory that the program was started with.
 */
static char *
take_token(void)
{
	char *token = filled(V "WORKER_TOKEN"), *v;

	if ((v = getenv(V "WORKER_TOKEN")) != NULL) {
		explicit_bzero(v, strlen(v));
		(void)unsetenv(V "WORKER_TOKEN");
	}
	return token;
}

/* Chooses between identity and static token (3.5). */
static int
choose_mode(struct settings *s, char **error)
{
	struct stat st;
	char *file, *token;
	int blank_file;

	file = variable(V "IDENTITY_FILE");
	blank_file = file != NULL && *file == '\0';
	if (file == NULL && s->worker != NULL && *s->worker != '\0')
		file = identity_default_path(s->home, s->worker);
	token = take_token();
	if (token == NULL) {
		if (blank_file)
			errorf(error,
			    V "WORKER_TOKEN is required, since " V
			      "IDENTITY_FILE is set but blank");
		else if (file == NULL)
			errorf(error, V "WORKER_ID is required");
		s->paired = 1;
		s->identity_path = file;
		return *error == NULL ? 0 : -1;
	}
	if (file != NULL && !blank_file &&
	    (getenv(V "IDENTITY_FILE") != NULL || lstat(file, &st) == 0))
		errorf(error,
		    V "WORKER_TOKEN is set although there is the identity %s: "
		      "unset the token to run paired, or remove the identity",
		    file);
	secret_set(&s->token, token, strlen(token));
	explicit_bzero(token, strlen(token));
	free(token);
	free(file);
	return *error == NULL ? 0 : -1;
}

static int
load_identity(struct settings *s, char **error)
{
	char *why = NULL;
	enum storage_result r;

	r = identity_load(s->identity_path, &s->identity, &why);
	if (r == STORAGE_MISSING)
		errorf(error,
		    "there is no identity %s; pair this worker first: "
		    "librechat-code pair URL CODE",
		    s->identity_path);
	else if (r == STORAGE_ERROR)
		errorf(error, "%s", why);
	free(why);
	if (r != STORAGE_OK)
		return -1;
	if (s->worker == NULL)
		s->worker = xstrdup(s->identity.worker);
	if (check_worker_id(s->worker, V "WORKER_ID", error) == -1)
		return -1;
	if (strcmp(s->worker, s->identity.worker) != 0)
		return errorf(error,
		    "Identity belongs to %s, not configured worker %s",
		    s->identity.worker, s->worker);
	return 0;
}

static int
boolean(const char *name)
{
	char *v = variable(name), *p;
	int yes;

	if (v == NULL)
		return 0;
	for (p = v; *p != '\0'; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p + 32);
	yes = strcmp(v, "true") == 0;
	free(v);
	return yes;
}

static char *
option_or_variable(const char *option, const char *name)
{
	return option != NULL ? xstrdup(option) : filled(name);
}

static int
primary_root(struct settings *s, const struct options *o, char **error)
{
	s->worker_dir = option_or_variable(o->worker_dir, V "WORKER_DIR");
	s->default_workspace = o->default_workspace ||
	    boolean(V "DEFAULT_WORKSPACE");
	if (s->worker_dir != NULL && s->default_workspace)
		return errorf(error,
		    "--worker-dir and --default-workspace cannot be used "
		    "together");
	if (o->workspace_id != NULL)
		s->workspace_id = xstrdup(o->workspace_id);
	else if ((s->workspace_id = variable(V "WORKSPACE_ID")) == NULL)
		s->workspace_id = xstrdup("primary");
	if (!id_valid(s->workspace_id, strlen(s->workspace_id)))
		return errorf(error,
		    "Invalid workspace registration: the workspace id \"%s\" "
		    "is not a letter or digit and then at most 127 of A-Z a-z "
		    "0-9 . _ : -",
		    s->workspace_id);
	s->marker_file = filled(V "WORKSPACE_QUARANTINE_FILE");
	return 0;
}

int
settings_common(struct settings *s, const struct options *o, char **error)
{
	char *url;
	int r;

	memset(s, 0, sizeof(*s));
	s->verbose = o->verbose;
	if ((s->home = settings_home(error)) == NULL)
		return -1;
	s->worker = variable(V "WORKER_ID");
	if (s->worker != NULL && *s->worker == '\0')
		return errorf(error, V "WORKER_ID is required");
	if (choose_mode(s, error) == -1)
		return -1;
	if (s->paired) {
		if (load_identity(s, error) == -1)
			return -1;
	} else if (check_worker_id(s->worker, V "WORKER_ID", error) == -1)
		return -1;
	if ((url = variable(V "URL")) == NULL && s->paired)
		url = xstrdup(s->identity.url);
	r = required(url, V "URL", error);
	if (r == 0)
		r = set_url(s, url, error);
	free(url);
	if (r == 0)
		r = primary_root(s, o, error);
	return r;
}

int
settings_pair(struct settings *s, const struct options *o, char **error)
{
	char *url, *v;
	int r;

	memset(s, 0, sizeof(*s));
	s->verbose = o->verbose;
	if ((s->home = settings_home(error)) == NULL)
		return -1;
	if (o->url == NULL)
		return errorf(error, "instance URL is required");
	if (o->code == NULL)
		return errorf(error, "one-time pairing code is required");
	s->worker = o->worker_id != NULL ? trimmed(o->worker_id)
					 : variable(V "WORKER_ID");
	if (check_worker_id(
		s->worker, "--worker-id or " V "WORKER_ID", error) == -1)
		return -1;
	s->paired = 1;
	if (o->identity != NULL)
		s->identity_path = xstrdup(o->identity);
	else if ((v = variable(V "IDENTITY_FILE")) != NULL) {
		s->identity_path = v;
		if (*v == '\0')
			return errorf(error,
			    V "IDENTITY_FILE is set but blank: unset it or "
			      "give a path");
	} else
		s->identity_path = identity_default_path(s->home, s->worker);
	url = trimmed(o->url);
	r = set_url(s, url, error);
	free(url);
	return r == -1 ? -1 : settings_network(s, error);
}

/* First of the spellings that is set and not empty. */
static char *
proxy(const char *lower, const char *upper)
{
	const char *v = getenv(lower);

	if (v == NULL || *v == '\0')
		v = upper == NULL ? NULL : getenv(upper);
	return v == NULL || *v == '\0' ? NULL : xstrdup(v);
}

/* A file that decides whom to trust must not be writable by others. */
static int
check_ca_file(const char *path, const char *name, char **error)
{
	struct walk w;
	struct stat st;
	char *why = NULL;
	int r = -1;

	if (storage_walk(path, 0, &w, &why) != STORAGE_OK) {
		errorf(error, "%s: %s", name, why);
		free(why);
		return -1;
	}
	if (w.leaf == NULL ||
	    fstatat(w.fd, w.leaf, &st, AT_SYMLINK_NOFOLLOW) == -1 ||
	    !S_ISREG(st.st_mode))
		errorf(error, "%s: %s is not a regular file", name, path);
	else if ((st.st_mode & 022) != 0)
		errorf(error,
		    "%s: %s is writable by other accounts (mode %o). Run: "
		    "chmod go-w %s",
		    name, path, (unsigned int)(st.st_mode & 0777), path);
	else
		r = 0;
	walk_free(&w);
	return r;
}

int
settings_network(struct settings *s, char **error)
{
	const char *name = V "CA_FILE";
	char *real;

	if ((s->ca_file = filled(name)) == NULL) {
		name = "SSL_CERT_FILE";
		s->ca_file = filled(name);
	}
	if (s->ca_file != NULL) {
		if (check_ca_file(s->ca_file, name, error) == -1)
			return -1;
		if ((real = realpath(s->ca_file, NULL)) == NULL)
			return error_errno(error, "%s: %s", name, s->ca_file);
		free(s->ca_file);
		s->ca_file = real;
	}
	s->https_proxy = proxy("https_proxy", "HTTPS_PROXY");
	/* HTTP_PROXY can be a request header of a CGI program; still ours. */
	s->http_proxy = proxy("http_proxy", "HTTP_PROXY");
	s->all_proxy = proxy("all_proxy", "ALL_PROXY");
	s->no_proxy = proxy("no_proxy", "NO_PROXY");
	return 0;
}

void
settings_free(struct settings *s)
{
	size_t i;

	free(s->home);
	free(s->worker);
	free(s->identity_path);
	identity_free(&s->identity);
	secret_free(&s->token);
	free(s->url_text);
	base_url_free(&s->url);
	free(s->state_dir);
	free(s->worker_dir);
	free(s->workspace_id);
	free(s->workspace_name);
	free(s->marker_file);
	free(s->profile);
	for (i = 0; i < s->nruntimes; i++)
		free(s->runtimes[i]);
	free(s->runtimes);
	free(s->user);
	free(s->ca_file);
	free(s->https_proxy);
	free(s->http_proxy);
	free(s->all_proxy);
	free(s->no_proxy);
	memset(s, 0, sizeof(*s));
}
