#include "config.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <curl/curl.h>

#include "buf.h"
#include "json.h"
#include "log.h"

/*
 * Sends one workspace tool request to a Code API, as LibreChat would, and
 * shows the answer to a person. Used by ../demo and by hand:
 *	call [-w ID] [-q] [-t SECONDS] URL OPERATION [NAME=VALUE ...]
 * A value that consists of digits is sent as a number, true and false as
 * booleans, everything else as a string. Or sends any JSON and prints the
 * answer, or one member of it:
 *	call [-f MEMBER] -p URL JSON
 */

#define ANSWER_MAX (32U << 20)

static size_t
collect(char *p, size_t size, size_t n, void *arg)
{
	struct buf *b = arg;

	if (b->len + size * n > ANSWER_MAX)
		return 0;
	buf_add(b, p, size * n);
	return size * n;
}

static int
is_number(const char *s)
{
	const char *p;

	for (p = s; isdigit((unsigned char)*p); p++)
		;
	return p != s && *p == '\0' && strlen(s) < 16;
}

static void
build_request(struct buf *b, const char *workspace, char *argv[])
{
	struct jwriter w;
	char *eq;

	jw_init(&w, b);
	jw_object(&w);
	jw_member_int(&w, "protocolVersion", 1);
	jw_member_str(&w, "operation", *argv++);
	jw_member_str(&w, "workspaceId", workspace);
	for (; *argv != NULL; argv++) {
		if ((eq = strchr(*argv, '=')) == NULL)
			fatalx("%s: NAME=VALUE is needed", *argv);
		*eq++ = '\0';
		jw_name(&w, *argv);
		if (is_number(eq))
			jw_int(&w, strtoll(eq, NULL, 10));
		else if (strcmp(eq, "true") == 0 || strcmp(eq, "false") == 0)
			jw_bool(&w, *eq == 't');
		else
			jw_str(&w, eq);
	}
	jw_object_end(&w);
}

static void
show_text(const struct json *j, const char *name)
{
	const struct json *t;
	size_t i, start = 0;

	if ((t = json_get_type(j, name, JSON_STRING)) == NULL || t->len == 0)
		return;
	for (i = 0; i <= t->len; i++)
		if (i == t->len || t->str[i] == '\n') {
			if (i > start || i < t->len)
				printf("    | %.*s\n", (int)(i - start),
				    t->str + start);
			start = i + 1;
		}
}

/* One line for what the result says besides text. */
static void
show_summary(const struct json *j, char *line, size_t size)
{
	const struct json *m;
	const char *s;
	int64_t v;

	*line = '\0';
	if ((s = json_get_str(j, "code")) != NULL)
		xsnprintf(line, size, "%s: %s", s,
		    json_get_str(j, "error") ? json_get_str(j, "error") : "");
	else if ((s = json_get_str(j, "error")) != NULL)
		xsnprintf(line, size, "%s", s);
	else if (json_get_integer(j, "exitCode", &v) == 0)
		xsnprintf(line, size, "exit %lld", (long long)v);
	else if ((m = json_get_type(j, "timedOut", JSON_BOOL)) != NULL &&
	    m->boolean)
		xsnprintf(line, size, "timed out");
	else if ((s = json_get_str(j, "signal")) != NULL)
		xsnprintf(line, size, "%s", s);
	else if (json_get_integer(j, "bytesWritten", &v) == 0)
		xsnprintf(line, size, "%lld bytes written", (long long)v);
	else if (json_get_integer(j, "endLine", &v) == 0)
		xsnprintf(line, size, "up to line %lld", (long long)v);
}

static void
show(const struct buf *answer, long status, double seconds, const char *what,
    int quiet)
{
	const char *error;
	struct json *j;
	char line[512];

	if ((j = json_parse(answer->data, answer->len, &error)) == NULL)
		fatalx("the answer is no JSON: %s", error);
	show_summary(j, line, sizeof(line));
	printf("  %-16s %9.2f ms  %s\n", what, seconds * 1e3, line);
	if (!quiet && status == 200) {
		show_text(j, "content");
		show_text(j, "stdout");
		show_text(j, "stderr");
	}
	json_free(j);
}

static int
show_raw(struct buf *answer, long status, const char *member)
{
	const char *error, *s;
	struct json *j;

	if (status != 200)
		fatalx("status %ld: %s", status, buf_cstr(answer));
	if (member == NULL) {
		printf("%s\n", buf_cstr(answer));
		return 0;
	}
	if ((j = json_parse(answer->data, answer->len, &error)) == NULL)
		fatalx("the answer is no JSON: %s", error);
	if ((s = json_get_str(j, member)) == NULL)
		fatalx("the answer has no %s", member);
	printf("%s\n", s);
	json_free(j);
	return 0;
}

int
main(int argc, char *argv[])
{
	struct curl_slist *headers = NULL;
	struct buf body, answer;
	const char *workspace = "primary", *member = NULL;
	char *url;
	long status = 0, seconds = 330;
	double took = 0;
	CURLcode r;
	CURL *c;
	int ch, quiet = 0, raw = 0;

	log_init("call", 0);
	while ((ch = getopt(argc, argv, "f:pqt:w:")) != -1) {
		switch (ch) {
		case 'f':
			member = optarg;
			break;
		case 'p':
			raw = 1;
			break;
		case 'q':
			quiet = 1;
			break;
		case 't':
			seconds = strtol(optarg, NULL, 10);
			break;
		case 'w':
			workspace = optarg;
			break;
		default:
			return 2;
		}
	}
	argc -= optind;
	argv += optind;
	if (argc < 2)
		fatalx("usage: call [-q] [-t SECONDS] [-w ID] URL OPERATION "
		       "[NAME=VALUE ...]");
	buf_init(&body);
	buf_init(&answer);
	if (raw) {
		url = xstrdup(argv[0]);
		buf_adds(&body, argv[1]);
	} else {
		url = xasprintf("%s/workspace-tools/execute", argv[0]);
		build_request(&body, workspace, argv + 1);
	}
	if ((c = curl_easy_init()) == NULL)
		fatalx("curl");
	headers = curl_slist_append(headers, "Content-Type: application/json");
	headers = curl_slist_append(headers, "Expect:");
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_PROXY, "");
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(c, CURLOPT_POSTFIELDS, (char *)body.data);
	curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)body.len);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, &answer);
	curl_easy_setopt(c, CURLOPT_TIMEOUT, seconds);
	if ((r = curl_easy_perform(c)) != CURLE_OK)
		fatalx("%s: %s", url, curl_easy_strerror(r));
	curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(c, CURLINFO_TOTAL_TIME, &took);
	if (raw)
		status = show_raw(&answer, status, member) == 0 ? 200 : 0;
	else
		show(&answer, status, took, argv[1], quiet);
	curl_easy_cleanup(c);
	curl_slist_free_all(headers);
	buf_free(&body);
	buf_free(&answer);
	free(url);
	return status == 200 ? 0 : 1;
}
