#include "config.h"

#include <sys/stat.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "log.h"
#include "server.h"

#define TOKEN_MAX      4096
#define HARDENED_TOKEN 32

struct options {
	struct settings set;
	char *address;
	uint16_t port;
	const char *port_file;
	const char *token_file;
	int exit_with_parent;
};

enum {
	OPT_LISTEN = 256,
	OPT_BASE,
	OPT_AUTH,
	OPT_TOKEN_FILE,
	OPT_WORKER,
	OPT_DYNAMIC,
	OPT_SLOTS,
	OPT_OLD_SERVER,
	OPT_UNKNOWN,
	OPT_CREDENTIAL_TTL,
	OPT_PAIRING_TTL,
	OPT_LEASE_TTL,
	OPT_QUEUE,
	OPT_JOB_TIMEOUT,
	OPT_TOOL,
	OPT_COMMAND_GRACE,
	OPT_RECORD_GRACE,
	OPT_BODY_MAX,
	OPT_RATE_LIMIT,
	OPT_PORT_FILE,
	OPT_CALLER_LOG,
	OPT_EXIT_WITH_PARENT,
	OPT_HELP
};

static const struct option longopts[] = {
	{ "listen", required_argument, NULL, OPT_LISTEN },
	{ "base", required_argument, NULL, OPT_BASE },
	{ "auth", required_argument, NULL, OPT_AUTH },
	{ "token-file", required_argument, NULL, OPT_TOKEN_FILE },
	{ "worker", required_argument, NULL, OPT_WORKER },
	{ "dynamic", no_argument, NULL, OPT_DYNAMIC },
	{ "slots", required_argument, NULL, OPT_SLOTS },
	{ "old-server", no_argument, NULL, OPT_OLD_SERVER },
	{ "unknown-route", required_argument, NULL, OPT_UNKNOWN },
	{ "credential-ttl", required_argument, NULL, OPT_CREDENTIAL_TTL },
	{ "pairing-ttl", required_argument, NULL, OPT_PAIRING_TTL },
	{ "lease-ttl", required_argument, NULL, OPT_LEASE_TTL },
	{ "queue-time", required_argument, NULL, OPT_QUEUE },
	{ "job-timeout", required_argument, NULL, OPT_JOB_TIMEOUT },
	{ "tool-budget", required_argument, NULL, OPT_TOOL },
	{ "command-grace", required_argument, NULL, OPT_COMMAND_GRACE },
	{ "record-grace", required_argument, NULL, OPT_RECORD_GRACE },
	{ "body-max", required_argument, NULL, OPT_BODY_MAX },
	{ "rate-limit", required_argument, NULL, OPT_RATE_LIMIT },
	{ "port-file", required_argument, NULL, OPT_PORT_FILE },
	{ "caller-log", no_argument, NULL, OPT_CALLER_LOG },
	{ "exit-with-parent", no_argument, NULL, OPT_EXIT_WITH_PARENT },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 },
};

static void
help(void)
{
	fputs(
	    "usage: codeapi [options]\n"
	    "A Code API for tests and demonstrations. It keeps everything in\n"
	    "memory and has control routes without authentication below\n"
	    "/control, so let it listen on loopback only.\n\n"
	    "  --listen ADDR:PORT     default 127.0.0.1:0, 0 being a free port\n"
	    "  --base PATH            default /v1\n"
	    "  --auth static|paired   default paired\n"
	    "  --token-file FILE      administrator token; else it is taken\n"
	    "                         from CODEAPI_BRIDGE_TOKEN; else one is\n"
	    "                         made and printed as \"token TEXT\"\n"
	    "  --worker ID            the one worker id that is served\n"
	    "  --dynamic              any worker id is served\n"
	    "  --slots N              ceiling of workspace lease slots, 1\n"
	    "  --old-server           registers as before slots existed\n"
	    "  --unknown-route CODE   401 (default) or 404\n"
	    "  --credential-ttl SEC   default 900\n"
	    "  --pairing-ttl SEC      default 600\n"
	    "  --lease-ttl MS         life of a registration, 60000\n"
	    "  --queue-time MS        admission of callers, 30000\n"
	    "  --job-timeout MS       300000\n"
	    "  --tool-budget MS       tools that are no commands, 30000\n"
	    "  --command-grace MS     added to a command's time, 5000\n"
	    "  --record-grace MS      records beyond a deadline, 30000\n"
	    "  --body-max BYTES       largest body, 52428800\n"
	    "  --rate-limit N         callers' requests in 30 s; 0 is none\n"
	    "  --port-file FILE       gets the base URL when listening\n"
	    "  --caller-log           one line for each caller's answer\n"
	    "  --exit-with-parent     end when the parent process ends\n",
	    stdout);
}

static long long
number(const char *name, const char *text, long long min, long long max)
{
	char *end;
	long long n;

	errno = 0;
	n = strtoll(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || n < min || n > max)
		errx(1, "--%s: %s is not a number from %lld to %lld", name,
		    text, min, max);
	return n;
}

static void
parse_listen(struct options *o, const char *text)
{
	const char *colon;
	size_t n;

	if ((colon = strrchr(text, ':')) == NULL)
		errx(1, "--listen: %s is not ADDR:PORT", text);
	n = (size_t)(colon - text);
	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		text++;
		n -= 2;
	}
	free(o->address);
	o->address = xstrndup(text, n);
	o->port = (uint16_t)number("listen", colon + 1, 0, 65535);
}

static void
parse_text_option(struct options *o, int opt, const char *arg)
{
	switch (opt) {
	case OPT_LISTEN:
		parse_listen(o, arg);
		break;
	case OPT_BASE:
		if (*arg != '\0' &&
		    (*arg != '/' || arg[strlen(arg) - 1] == '/'))
			errx(1, "--base: %s must start with / and not end so",
			    arg);
		o->set.base = arg;
		break;
	case OPT_AUTH:
		if (strcmp(arg, "static") != 0 && strcmp(arg, "paired") != 0)
			errx(1, "--auth: %s is neither static nor paired", arg);
		o->set.paired = strcmp(arg, "paired") == 0;
		break;
	case OPT_TOKEN_FILE:
		o->token_file = arg;
		break;
	case OPT_WORKER:
		if (!name_is_id(arg))
			errx(1, "--worker: %s is not a worker id", arg);
		xsnprintf(o->set.worker, sizeof(o->set.worker), "%s", arg);
		break;
	case OPT_PORT_FILE:
		o->port_file = arg;
		break;
	default:
		break;
	}
}

/* Options with a number: where it goes, its unit in ms, and its bounds. */
static void
parse_number_option(
    struct options *o, int opt, const char *name, const char *arg)
{
	const struct {
		int opt;
		int64_t *value;
		int unit;
	} times[] = {
		{ OPT_CREDENTIAL_TTL, &o->set.credential_ttl, 1000 },
		{ OPT_PAIRING_TTL, &o->set.pairing_ttl, 1000 },
		{ OPT_LEASE_TTL, &o->set.lease_ttl, 1 },
		{ OPT_QUEUE, &o->set.queue_time, 1 },
		{ OPT_JOB_TIMEOUT, &o->set.job_timeout, 1 },
		{ OPT_TOOL, &o->set.tool_budget, 1 },
		{ OPT_COMMAND_GRACE, &o->set.command_grace, 1 },
		{ OPT_RECORD_GRACE, &o->set.record_grace, 1 },
	};
	size_t i;

	for (i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		if (times[i].opt == opt)
			*times[i].value = number(name, arg, 0, 86400000) *
			    times[i].unit;
	}
	if (opt == OPT_SLOTS)
		o->set.ceiling = (unsigned int)number(name, arg, 1, SLOTS_MAX);
	else if (opt == OPT_BODY_MAX)
		o->set.body_max = (size_t)number(name, arg, 1, 1 << 30);
	else if (opt == OPT_RATE_LIMIT)
		o->set.rate_limit = (unsigned int)number(name, arg, 0, 1000000);
	else if (opt == OPT_UNKNOWN) {
		if (strcmp(arg, "401") != 0 && strcmp(arg, "404") != 0)
			errx(1, "--unknown-route: %s is neither 401 nor 404",
			    arg);
		o->set.unknown_status = (int)number(name, arg, 401, 404);
	}
}

static void
parse_options(struct options *o, int argc, char **argv)
{
	int opt, index;

	while ((opt = getopt_long(argc, argv, "", longopts, &index)) != -1) {
		switch (opt) {
		case OPT_DYNAMIC:
			o->set.dynamic = 1;
			break;
		case OPT_OLD_SERVER:
			o->set.old_server = 1;
			break;
		case OPT_CALLER_LOG:
			o->set.caller_log = 1;
			break;
		case OPT_EXIT_WITH_PARENT:
			o->exit_with_parent = 1;
			break;
		case OPT_HELP:
			help();
			exit(0);
		case '?':
			errx(1, "try --help");
		default:
			parse_text_option(o, opt, optarg);
			parse_number_option(
			    o, opt, longopts[index].name, optarg);
			break;
		}
	}
	if (optind != argc)
		errx(1, "unexpected argument %s", argv[optind]);
	if (o->set.dynamic && !o->set.paired)
		errx(1, "dynamic workers need --auth paired");
}

/* The administrator token (4.1); it must not have white space around it. */
static char *
read_token(const char *file)
{
	char token[RANDOM_ID_SIZE], line[TOKEN_MAX];
	const char *env;
	FILE *f;
	size_t n;

	if (file != NULL) {
		if ((f = fopen(file, "re")) == NULL)
			err(1, "%s", file);
		if (fgets(line, sizeof(line), f) == NULL)
			errx(1, "%s: no token in it", file);
		fclose(f);
		n = strcspn(line, "\r\n");
		if (n == 0 || strcspn(line, " \t\r\n") != n)
			errx(1, "%s: the token has white space", file);
		return xstrndup(line, n);
	}
	env = getenv("CODEAPI_BRIDGE_TOKEN");
	if (env != NULL && *env != '\0') {
		if (strpbrk(env, " \t\r\n") != NULL)
			errx(1, "CODEAPI_BRIDGE_TOKEN has white space");
		return xstrdup(env);
	}
	random_id(token, HARDENED_TOKEN);
	printf("token %s\n", token);
	return xstrdup(token);
}

/* Writes the text into a new file and puts that in place. */
static void
write_port_file(const char *file, const char *url)
{
	char *temporary;
	FILE *f;

	temporary = xasprintf("%s.%ld", file, (long)getpid());
	if ((f = fopen(temporary, "we")) == NULL)
		err(1, "%s", temporary);
	if (fprintf(f, "%s\n", url) < 0 || fclose(f) != 0)
		err(1, "%s", temporary);
	if (rename(temporary, file) == -1)
		err(1, "%s", file);
	free(temporary);
}

static void
stop_cb(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	event_base_loopbreak(arg);
}

static void
serve(struct server *srv, const struct options *o)
{
	struct event *term, *intr;
	char *url;
	int port;

	port = server_listen(srv, o->address, o->port);
	if (port == -1)
		err(1, "listen on %s port %u", o->address, o->port);
	url = xasprintf(strchr(o->address, ':') == NULL ? "http://%s:%d%s"
							: "http://[%s]:%d%s",
	    o->address, port, o->set.base);
	term = evsignal_new(srv->base, SIGTERM, stop_cb, srv->base);
	intr = evsignal_new(srv->base, SIGINT, stop_cb, srv->base);
	if (term == NULL || intr == NULL || event_add(term, NULL) == -1 ||
	    event_add(intr, NULL) == -1)
		errx(1, "signals");
	if (o->port_file != NULL)
		write_port_file(o->port_file, url);
	printf("listening %s\n", url);
	fflush(stdout);
	free(url);
	event_base_dispatch(srv->base);
	event_free(term);
	event_free(intr);
}

static void
bind_to_parent(void)
{
#ifdef __linux__
	pid_t parent;

	parent = getppid();
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) == -1)
		err(1, "prctl");
	if (getppid() != parent)
		exit(0);
#else
	errx(1, "--exit-with-parent needs Linux");
#endif
}

int
main(int argc, char **argv)
{
	struct options o;
	struct server *srv;

	memset(&o, 0, sizeof(o));
	o.address = xstrdup("127.0.0.1");
	o.set.base = "/v1";
	o.set.paired = 1;
	o.set.ceiling = 1;
	o.set.unknown_status = 401;
	o.set.credential_ttl = 900000;
	o.set.pairing_ttl = 600000;
	o.set.lease_ttl = 60000;
	o.set.queue_time = 30000;
	o.set.job_timeout = 300000;
	o.set.tool_budget = 30000;
	o.set.command_grace = 5000;
	o.set.record_grace = 30000;
	o.set.body_max = 52428800;
	parse_options(&o, argc, argv);
	log_init("codeapi", 0);
	if (sodium_init() == -1)
		errx(1, "libsodium could not be started");
	if (o.exit_with_parent)
		bind_to_parent();
	signal(SIGPIPE, SIG_IGN);
	o.set.token = read_token(o.token_file);
	srv = server_new(&o.set);
	serve(srv, &o);
	server_free(srv);
	free(o.address);
	return 0;
}
