#ifndef CODEAPI_CAPABILITIES_H
#define CODEAPI_CAPABILITIES_H

struct json;

#define WORKSPACE_OPERATIONS                                                  \
	"read_file search_text list_files write_file preview_edit edit_file " \
	"execute_command"

/* 1 if the capabilities of a registration are valid (6.2). */
int capabilities_valid(const struct json *);

/*
 * 1 if a worker with these capabilities advertises what a valid workspace
 * request asks for (13.1).
 */
int capabilities_advertise(const struct json *, const struct json *request);

/* 1 if workspaceTools has that value in that array. */
int capabilities_have(
    const struct json *, const char *array, const char *value);

/* 1 if the text is one of the names in a list separated by spaces. */
int name_in(const char *list, const char *name);

#endif
