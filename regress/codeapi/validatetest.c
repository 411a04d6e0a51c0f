/*
 * Tables over the rules of code-api-server chapter 18 for requests and
 * results, of 6.2 for capabilities and of 13.1 for what is advertised.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "capabilities.h"
#include "json.h"
#include "tap.h"
#include "validate.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

/* The members that all requests and results have; the rest follows. */
#define HEAD "{\"protocolVersion\":1,\"workspaceId\":\"primary\",\"operation\":"
#define SHA  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct json *
parse(const char *tail)
{
	struct json *v;
	char *text;

	text = *tail == '{' ? xstrdup(tail) : xasprintf(HEAD "%s}", tail);
	v = json_parse(text, strlen(text));
	if (v == NULL)
		printf("# not JSON: %s\n", text);
	free(text);
	return v;
}

/* What follows HEAD, and whether the request is valid. */
static const struct {
	int ok;
	const char *request;
} requests[] = {
	{ 1, "\"read_file\",\"path\":\"a\"" },
	{ 1, "\"read_file\",\"path\":\"a\",\"startLine\":1,\"maxLines\":500" },
	{ 0, "\"read_file\"" },
	{ 0, "\"read_file\",\"path\":\"../a\"" },
	{ 0, "\"read_file\",\"path\":\"a\",\"startLine\":0" },
	{ 0, "\"read_file\",\"path\":\"a\",\"startLine\":1.5" },
	{ 0, "\"read_file\",\"path\":\"a\",\"startLine\":null" },
	{ 0, "\"read_file\",\"path\":\"a\",\"maxLines\":501" },
	{ 0, "\"read_file\",\"path\":\"a\",\"maxLines\":0" },
	{ 0, "\"read_file\",\"path\":\"a\",\"extra\":1" },
	{ 0, "\"unknown\",\"path\":\"a\"" },
	{ 0,
	    "{\"protocolVersion\":2,\"workspaceId\":\"primary\","
	    "\"operation\":\"read_file\",\"path\":\"a\"}" },
	{ 0,
	    "{\"protocolVersion\":1,\"workspaceId\":\"/\","
	    "\"operation\":\"read_file\",\"path\":\"a\"}" },
	{ 1, "\"search_text\",\"query\":\"x\"" },
	{ 1,
	    "\"search_text\",\"query\":\"x\",\"path\":\"a\",\"maxResults\":"
	    "200" },
	{ 0, "\"search_text\"" },
	{ 0, "\"search_text\",\"query\":\"\"" },
	{ 0, "\"search_text\",\"query\":\"a\\nb\"" },
	{ 0, "\"search_text\",\"query\":\"a\\rb\"" },
	{ 0, "\"search_text\",\"query\":\"a\\u0000b\"" },
	{ 0, "\"search_text\",\"query\":\"a\\ud800b\"" },
	{ 0, "\"search_text\",\"query\":\"x\",\"maxResults\":201" },
	{ 1, "\"list_files\"" },
	{ 1,
	    "\"list_files\",\"path\":\"src\",\"maxResults\":500,"
	    "\"afterPath\":\"src/a\"" },
	{ 0, "\"list_files\",\"maxResults\":501" },
	{ 0, "\"list_files\",\"path\":\"src\",\"afterPath\":\"lib/a\"" },
	{ 0, "\"list_files\",\"path\":\"src\",\"afterPath\":\"src//a\"" },
	{ 1, "\"write_file\",\"path\":\"a\",\"content\":\"\"" },
	{ 1,
	    "\"write_file\",\"path\":\"a\",\"content\":\"x\","
	    "\"overwrite\":false" },
	{ 0, "\"write_file\",\"path\":\"a\"" },
	{ 0, "\"write_file\",\"path\":\"a\",\"content\":\"\\udfff\"" },
	{ 0,
	    "\"write_file\",\"path\":\"a\",\"content\":\"x\","
	    "\"overwrite\":null" },
	{ 1,
	    "\"edit_file\",\"path\":\"a\",\"oldText\":\"x\",\"newText\":\"\"" },
	{ 1,
	    "\"edit_file\",\"path\":\"a\",\"oldText\":\"x\",\"newText\":"
	    "\"y\",\"expectedBaseSha256\":\"" SHA "\"" },
	{ 1,
	    "\"edit_file\",\"path\":\"a\",\"edits\":[{\"oldText\":\"x\","
	    "\"newText\":\"y\"}]" },
	{ 0, "\"edit_file\",\"path\":\"a\",\"oldText\":\"\",\"newText\":\"\"" },
	{ 0, "\"edit_file\",\"path\":\"a\",\"oldText\":\"x\"" },
	{ 0, "\"edit_file\",\"path\":\"a\",\"edits\":[]" },
	{ 0,
	    "\"edit_file\",\"path\":\"a\",\"edits\":[{\"oldText\":\"x\","
	    "\"newText\":\"y\",\"z\":1}]" },
	{ 0,
	    "\"edit_file\",\"path\":\"a\",\"oldText\":\"x\",\"newText\":\"y\","
	    "\"edits\":[{\"oldText\":\"x\",\"newText\":\"y\"}]" },
	{ 0,
	    "\"edit_file\",\"path\":\"a\",\"oldText\":\"x\",\"newText\":"
	    "\"y\",\"expectedBaseSha256\":\"ABC\"" },
	{ 1,
	    "\"preview_edit\",\"path\":\"a\",\"oldText\":\"x\",\"newText\":"
	    "\"y\"" },
	{ 0,
	    "\"preview_edit\",\"path\":\"a\",\"oldText\":\"x\",\"newText\":"
	    "\"y\",\"expectedBaseSha256\":\"" SHA "\"" },
	{ 1, "\"execute_command\",\"command\":\"ls\"" },
	{ 1,
	    "\"execute_command\",\"command\":\"ls\",\"cwd\":\"a\","
	    "\"timeoutMs\":300000,\"maxOutputBytes\":1048576" },
	{ 0, "\"execute_command\",\"command\":\" \\t\\n\\u00a0\"" },
	{ 0, "\"execute_command\",\"command\":\"a\\u0000\"" },
	{ 0, "\"execute_command\",\"command\":\"ls\",\"cwd\":\"/\"" },
	{ 0, "\"execute_command\",\"command\":\"ls\",\"timeoutMs\":300001" },
	{ 0, "\"execute_command\",\"command\":\"ls\",\"timeoutMs\":0" },
	{ 0, "\"execute_command\",\"command\":\"ls\",\"maxOutputBytes\":0" },
};

static void
test_requests(void)
{
	struct json *v;
	size_t i;

	for (i = 0; i < N(requests); i++) {
		v = parse(requests[i].request);
		tap_number(request_valid(v), requests[i].ok, "request %s",
		    requests[i].request);
		json_free(v);
	}
}

static void
test_sizes(void)
{
	static const struct {
		int ok;
		size_t n;
		const char *head;
	} sizes[] = {
		{ 1, 2000, "\"search_text\",\"query\":\"" },
		{ 0, 2001, "\"search_text\",\"query\":\"" },
		{ 1, 4096, "\"read_file\",\"path\":\"" },
		{ 0, 4097, "\"read_file\",\"path\":\"" },
		{ 1, 32768, "\"execute_command\",\"command\":\"" },
		{ 0, 32769, "\"execute_command\",\"command\":\"" },
		{ 1, 1048576, "\"write_file\",\"path\":\"a\",\"content\":\"" },
		{ 0, 1048577, "\"write_file\",\"path\":\"a\",\"content\":\"" },
	};
	struct json *v;
	struct buf b;
	size_t i;

	for (i = 0; i < N(sizes); i++) {
		buf_init(&b);
		buf_adds(&b, sizes[i].head);
		memset(buf_reserve(&b, sizes[i].n), 'a', sizes[i].n);
		b.len += sizes[i].n;
		buf_adds(&b, "\"");
		v = parse(buf_cstr(&b));
		tap_number(request_valid(v), sizes[i].ok, "%zu bytes in %s",
		    sizes[i].n, sizes[i].head);
		json_free(v);
		buf_free(&b);
	}
}

#define READ    "\"read_file\",\"path\":\"a\""
#define FIND    "\"search_text\",\"query\":\"x\",\"path\":\"src\",\"maxResults\":1"
#define LIST    "\"list_files\",\"path\":\"src\",\"maxResults\":2"
#define EDIT    "\"edit_file\",\"path\":\"a\""
#define PREVIEW "\"preview_edit\",\"path\":\"a\""
#define ONE     ",\"oldText\":\"x\",\"newText\":\"y\""
#define RUN     "\"execute_command\""
#define OUT     ",\"stdout\":\"\",\"stderr\":\"\",\"truncated\":false,\"timedOut\":"

static const struct {
	int ok;
	int after_path;
	const char *request;
	const char *result;
} results[] = {
	{ 1, 0, READ,
	    READ ",\"content\":\"\",\"startLine\":1,\"endLine\":1,"
		 "\"truncated\":false" },
	{ 1, 0, READ,
	    READ ",\"content\":\"a\\nb\",\"startLine\":1,"
		 "\"endLine\":2,\"truncated\":false" },
	{ 1, 0, READ ",\"startLine\":9",
	    READ ",\"content\":\"\",\"startLine\":9,\"endLine\":8,"
		 "\"truncated\":false" },
	{ 1, 0, READ ",\"maxLines\":1",
	    READ ",\"content\":\"a\",\"startLine\":1,\"endLine\":1,"
		 "\"truncated\":true,\"nextStartLine\":2" },
	{ 0, 0, READ ",\"maxLines\":1",
	    READ ",\"content\":\"a\\nb\",\"startLine\":1,\"endLine\":2,"
		 "\"truncated\":false" },
	{ 0, 0, READ,
	    READ ",\"content\":\"a\",\"startLine\":1,\"endLine\":1,"
		 "\"truncated\":true" },
	{ 0, 0, READ,
	    READ ",\"content\":\"a\",\"startLine\":1,\"endLine\":1,"
		 "\"truncated\":false,\"nextStartLine\":2" },
	{ 0, 0, READ,
	    READ ",\"content\":\"a\",\"startLine\":1,\"endLine\":2,"
		 "\"truncated\":false" },
	{ 0, 0, READ,
	    READ ",\"content\":\"a\",\"startLine\":2,\"endLine\":2,"
		 "\"truncated\":false" },
	{ 0, 0, READ,
	    "\"read_file\",\"path\":\"./a\",\"content\":\"a\","
	    "\"startLine\":1,\"endLine\":1,\"truncated\":false" },
	{ 0, 0, READ,
	    READ ",\"content\":\"\",\"startLine\":1,\"endLine\":0,"
		 "\"truncated\":true,\"nextStartLine\":1" },
	{ 0, 0, READ,
	    READ ",\"content\":\"a\",\"startLine\":1,\"endLine\":1,"
		 "\"truncated\":false,\"x\":1" },
	{ 1, 0, FIND, "\"search_text\",\"matches\":[],\"truncated\":false" },
	{ 1, 0, FIND,
	    "\"search_text\",\"matches\":[{\"path\":\"src/a\","
	    "\"line\":1,\"column\":2,\"text\":\"axb\"}],"
	    "\"truncated\":true" },
	{ 0, 0, FIND,
	    "\"search_text\",\"matches\":[{\"path\":\"lib/a\","
	    "\"line\":1,\"column\":2,\"text\":\"axb\"}],"
	    "\"truncated\":true" },
	{ 0, 0, FIND,
	    "\"search_text\",\"matches\":[{\"path\":\"src/a\","
	    "\"line\":1,\"column\":2,\"text\":\"ab\"}],"
	    "\"truncated\":true" },
	{ 0, 0, FIND,
	    "\"search_text\",\"matches\":[{\"path\":\"src/a\","
	    "\"line\":0,\"column\":2,\"text\":\"x\"}],"
	    "\"truncated\":true" },
	{ 0, 0, FIND,
	    "\"search_text\",\"matches\":[{\"path\":\"src/a\","
	    "\"line\":1,\"column\":1,\"text\":\"x\"},{\"path\":"
	    "\"src/b\",\"line\":1,\"column\":1,\"text\":\"x\"}],"
	    "\"truncated\":true" },
	{ 1, 0, LIST,
	    "\"list_files\",\"paths\":[\"src/b\",\"src/a\"],"
	    "\"truncated\":true" },
	{ 0, 0, LIST,
	    "\"list_files\",\"paths\":[\"src/a\",\"src/./a\"],"
	    "\"truncated\":false" },
	{ 0, 0, LIST,
	    "\"list_files\",\"paths\":[\"src/a\"],\"truncated\":true,"
	    "\"nextAfterPath\":\"src/a\"" },
	{ 0, 0, LIST,
	    "\"list_files\",\"paths\":[\"lib/a\"],\"truncated\":"
	    "false" },
	{ 0, 0, LIST,
	    "\"list_files\",\"paths\":[\"src/a\",\"src/b\","
	    "\"src/c\"],\"truncated\":false" },
	{ 1, 1, LIST,
	    "\"list_files\",\"paths\":[\"src/a/z\",\"src/a.c\"],"
	    "\"truncated\":true,\"nextAfterPath\":\"src/a.c\"" },
	{ 0, 1, LIST,
	    "\"list_files\",\"paths\":[\"src/a.c\",\"src/a/z\"],"
	    "\"truncated\":false" },
	{ 0, 1, LIST,
	    "\"list_files\",\"paths\":[\"src/a\"],\"truncated\":"
	    "true" },
	{ 0, 1, LIST, "\"list_files\",\"paths\":[],\"truncated\":true" },
	{ 0, 1, LIST,
	    "\"list_files\",\"paths\":[\"src//a\"],\"truncated\":"
	    "false" },
	{ 0, 1, LIST ",\"afterPath\":\"src/b\"",
	    "\"list_files\",\"paths\":[\"src/a\"],\"truncated\":false" },
	{ 1, 1, LIST ",\"afterPath\":\"src/b\"",
	    "\"list_files\",\"paths\":[\"src/c\"],\"truncated\":false" },
	{ 1, 0, "\"write_file\",\"path\":\"a\",\"content\":\"\\u00e9\"",
	    "\"write_file\",\"path\":\"a\",\"created\":false,"
	    "\"bytesWritten\":2" },
	{ 0, 0, "\"write_file\",\"path\":\"a\",\"content\":\"\\u00e9\"",
	    "\"write_file\",\"path\":\"a\",\"created\":false,"
	    "\"bytesWritten\":1" },
	{ 0, 0,
	    "\"write_file\",\"path\":\"a\",\"content\":\"x\",\"overwrite\":"
	    "false",
	    "\"write_file\",\"path\":\"a\",\"created\":false,"
	    "\"bytesWritten\":1" },
	{ 1, 0, EDIT ONE, EDIT ",\"replacements\":1,\"bytesWritten\":0" },
	{ 0, 0, EDIT ONE, EDIT ",\"replacements\":2,\"bytesWritten\":0" },
	{ 0, 0, EDIT ONE, EDIT ",\"replacements\":1,\"bytesWritten\":1048577" },
	{ 1, 0,
	    EDIT ",\"edits\":[{\"oldText\":\"x\",\"newText\":\"y\"},"
		 "{\"oldText\":\"x\",\"newText\":\"y\"}]",
	    EDIT ",\"replacements\":2,\"bytesWritten\":9" },
	{ 1, 0, PREVIEW ONE,
	    PREVIEW
	    ",\"content\":\"y\",\"hasUtf8Bom\":true,\"baseSha256\":\"" SHA
	    "\",\"replacements\":1,\"bytesWritten\":4" },
	{ 0, 0, PREVIEW ONE,
	    PREVIEW
	    ",\"content\":\"y\",\"hasUtf8Bom\":true,\"baseSha256\":\"" SHA
	    "\",\"replacements\":1,\"bytesWritten\":1" },
	{ 0, 0, PREVIEW ONE,
	    PREVIEW ",\"content\":\"y\",\"hasUtf8Bom\":false,\"baseSha256\":"
		    "\"X\",\"replacements\":1,\"bytesWritten\":1" },
	{ 1, 0, RUN ",\"command\":\"x\"", RUN ",\"exitCode\":0" OUT "false" },
	{ 1, 0, RUN ",\"command\":\"x\"", RUN ",\"exitCode\":255" OUT "false" },
	{ 0, 0, RUN ",\"command\":\"x\"", RUN ",\"exitCode\":256" OUT "false" },
	{ 0, 0, RUN ",\"command\":\"x\"", RUN ",\"exitCode\":-1" OUT "false" },
	{ 0, 0, RUN ",\"command\":\"x\"",
	    RUN ",\"exitCode\":null" OUT "false" },
	{ 1, 0, RUN ",\"command\":\"x\"", RUN ",\"exitCode\":null" OUT "true" },
	{ 0, 0, RUN ",\"command\":\"x\"", RUN ",\"exitCode\":0" OUT "true" },
	{ 1, 0, RUN ",\"command\":\"x\"",
	    RUN ",\"exitCode\":null,\"signal\":\"SIGKILL\"" OUT "false" },
	{ 0, 0, RUN ",\"command\":\"x\"",
	    RUN ",\"exitCode\":137,\"signal\":\"SIGKILL\"" OUT "false" },
	{ 0, 0, RUN ",\"command\":\"x\"",
	    RUN ",\"exitCode\":null,\"signal\":\"kill\"" OUT "false" },
	{ 0, 0, RUN ",\"command\":\"x\",\"maxOutputBytes\":3",
	    RUN ",\"exitCode\":0,\"stdout\":\"ab\",\"stderr\":\"cd\","
		"\"truncated\":true,\"timedOut\":false" },
	{ 1, 0, RUN ",\"command\":\"x\",\"maxOutputBytes\":4",
	    RUN ",\"exitCode\":0,\"stdout\":\"ab\",\"stderr\":\"cd\","
		"\"truncated\":true,\"timedOut\":false" },
	{ 0, 0, RUN ",\"command\":\"x\"",
	    RUN ",\"exitCode\":0,\"stdout\":\"\\ud800\",\"stderr\":\"\","
		"\"truncated\":true,\"timedOut\":false" },
	{ 0, 0, RUN ",\"command\":\"x\"",
	    READ ",\"content\":\"\","
		 "\"startLine\":1,\"endLine\":1,"
		 "\"truncated\":false" },
	{ 0, 0, RUN ",\"command\":\"x\"",
	    "{\"protocolVersion\":1,\"workspaceId\":\"second\",\"operation\":"
	    "\"execute_command\",\"exitCode\":0" OUT "false}" },
};

static void
test_results(void)
{
	struct json *q, *r;
	size_t i;

	for (i = 0; i < N(results); i++) {
		q = parse(results[i].request);
		r = parse(results[i].result);
		tap_ok(request_valid(q), "request of result %zu", i);
		tap_number(result_valid(q, r, results[i].after_path),
		    results[i].ok, "result %zu%s: %s", i,
		    results[i].after_path ? " with after_path" : "",
		    results[i].result);
		json_free(q);
		json_free(r);
	}
}

/* Outer members in front of workspaceTools, and its members. */
#define CAPS                                                     \
	"{\"statefulWorkspace\":false,\"sandboxProfile\":\"x\"," \
	"\"runtimes\":[]"
#define TOOLS                                                             \
	CAPS ",\"workspaceTools\":{\"protocolVersion\":1,\"workspaces\":" \
	     "[{\"id\":\"primary\"}],\"operations\":"

static const struct {
	int ok;
	const char *capabilities;
} capabilities[] = {
	{ 1, CAPS "}" },
	{ 1, CAPS ",\"unknown\":[1]}" },
	{ 1, CAPS ",\"policyDigest\":\"" SHA "\"}" },
	{ 0, CAPS ",\"policyDigest\":null}" },
	{ 0, CAPS ",\"requiresReadyConfirmation\":null}" },
	{ 1, CAPS ",\"workspaceLeaseSlots\":8}" },
	{ 0, CAPS ",\"workspaceLeaseSlots\":9}" },
	{ 0, CAPS ",\"workspaceLeaseSlots\":0}" },
	{ 0, CAPS ",\"workspaceTools\":null}" },
	{ 0, "{\"sandboxProfile\":\"x\",\"runtimes\":[]}" },
	{ 0,
	    "{\"statefulWorkspace\":false,\"sandboxProfile\":\" \","
	    "\"runtimes\":[]}" },
	{ 0, "{\"statefulWorkspace\":false,\"sandboxProfile\":\"x\"}" },
	{ 0,
	    "{\"statefulWorkspace\":false,\"sandboxProfile\":\"x\","
	    "\"runtimes\":[\"\"]}" },
	{ 1, TOOLS "[\"read_file\"]}}" },
	{ 1, TOOLS "[\"read_file\"],\"unknown\":1}}" },
	{ 0, TOOLS "[]}}" },
	{ 0, TOOLS "[\"read_file\",\"read_file\"]}}" },
	{ 0, TOOLS "[\"fly\"]}}" },
	{ 1, TOOLS "[\"write_file\"],\"writeFileModes\":[\"create\"]}}" },
	{ 0, TOOLS "[\"read_file\"],\"writeFileModes\":[\"create\"]}}" },
	{ 0, TOOLS "[\"write_file\"],\"writeFileModes\":[]}}" },
	{ 1, TOOLS "[\"preview_edit\"],\"editFileModes\":[\"batch\"]}}" },
	{ 0, TOOLS "[\"read_file\"],\"editFileModes\":[\"batch\"]}}" },
	{ 1,
	    TOOLS "[\"edit_file\"],\"editFileFeatures\":"
		  "[\"expected_base_sha256\"]}}" },
	{ 0,
	    TOOLS "[\"preview_edit\"],\"editFileFeatures\":"
		  "[\"expected_base_sha256\"]}}" },
	{ 0, TOOLS "[\"edit_file\"],\"editFileFeatures\":[\"other\"]}}" },
	{ 1,
	    TOOLS "[\"list_files\"],\"listFileFeatures\":"
		  "[\"after_path\"]}}" },
	{ 0,
	    TOOLS "[\"read_file\"],\"listFileFeatures\":"
		  "[\"after_path\"]}}" },
	{ 0,
	    CAPS ",\"workspaceTools\":{\"protocolVersion\":1,\"operations\":"
		 "[\"read_file\"],\"workspaces\":[{\"id\":\"a\",\"root\":"
		 "\"/srv\"}]}}" },
	{ 0,
	    CAPS ",\"workspaceTools\":{\"protocolVersion\":1,\"operations\":"
		 "[\"read_file\"],\"workspaces\":[{\"id\":\"a\"},{\"id\":"
		 "\"a\"}]}}" },
	{ 0,
	    CAPS ",\"workspaceTools\":{\"protocolVersion\":1,\"operations\":"
		 "[\"read_file\"],\"workspaces\":[{\"id\":\"a\",\"name\":"
		 "null}]}}" },
	{ 0,
	    CAPS ",\"workspaceTools\":{\"protocolVersion\":1,\"operations\":"
		 "[\"read_file\"],\"workspaces\":[{\"id\":\"a\","
		 "\"operations\":[\"write_file\"]}]}}" },
	{ 0,
	    CAPS ",\"workspaceTools\":{\"protocolVersion\":1,\"operations\":"
		 "[\"read_file\"],\"workspaces\":[]}}" },
};

static void
test_capabilities(void)
{
	struct json *v;
	size_t i;

	for (i = 0; i < N(capabilities); i++) {
		v = parse(capabilities[i].capabilities);
		tap_number(capabilities_valid(v), capabilities[i].ok,
		    "capabilities %zu: %s", i, capabilities[i].capabilities);
		json_free(v);
	}
}

static const struct {
	int ok;
	const char *capabilities;
	const char *request;
} advertised[] = {
	{ 1, TOOLS "[\"read_file\"]}}", READ },
	{ 0, TOOLS "[\"list_files\"]}}", READ },
	{ 0, CAPS "}", READ },
	{ 1, TOOLS "[\"list_files\"]}}", LIST },
	{ 0, TOOLS "[\"list_files\"]}}", LIST ",\"afterPath\":\"src/a\"" },
	{ 1, TOOLS "[\"list_files\"],\"listFileFeatures\":[\"after_path\"]}}",
	    LIST ",\"afterPath\":\"src/a\"" },
	{ 1, TOOLS "[\"write_file\"]}}",
	    "\"write_file\",\"path\":\"a\",\"content\":\"\"" },
	{ 0, TOOLS "[\"write_file\"]}}",
	    "\"write_file\",\"path\":\"a\",\"content\":\"\",\"overwrite\":"
	    "true" },
	{ 0, TOOLS "[\"write_file\"],\"writeFileModes\":[\"create\"]}}",
	    "\"write_file\",\"path\":\"a\",\"content\":\"\"" },
	{ 1, TOOLS "[\"write_file\"],\"writeFileModes\":[\"create\"]}}",
	    "\"write_file\",\"path\":\"a\",\"content\":\"\",\"overwrite\":"
	    "false" },
	{ 1, TOOLS "[\"edit_file\"]}}", EDIT ONE },
	{ 0, TOOLS "[\"edit_file\"]}}",
	    EDIT ",\"edits\":[{\"oldText\":\"x\",\"newText\":\"y\"}]" },
	{ 0, TOOLS "[\"edit_file\"],\"editFileModes\":[\"batch\"]}}",
	    EDIT ONE },
	{ 0, TOOLS "[\"edit_file\"]}}",
	    EDIT ONE ",\"expectedBaseSha256\":\"" SHA "\"" },
	{ 1,
	    TOOLS "[\"edit_file\"],\"editFileFeatures\":"
		  "[\"expected_base_sha256\"]}}",
	    EDIT ONE ",\"expectedBaseSha256\":\"" SHA "\"" },
};

static void
test_advertised(void)
{
	struct json *c, *q;
	size_t i;

	for (i = 0; i < N(advertised); i++) {
		c = parse(advertised[i].capabilities);
		q = parse(advertised[i].request);
		tap_number(capabilities_advertise(c, q), advertised[i].ok,
		    "advertised %zu: %s", i, advertised[i].request);
		json_free(c);
		json_free(q);
	}
}

int
main(void)
{
	test_requests();
	test_sizes();
	test_results();
	test_capabilities();
	test_advertised();
	return tap_done();
}
