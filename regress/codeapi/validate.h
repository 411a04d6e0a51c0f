#ifndef CODEAPI_VALIDATE_H
#define CODEAPI_VALIDATE_H

struct json;

/* 1 if a workspace tool request obeys 18.1. */
int request_valid(const struct json *);

/*
 * 1 if a result obeys 18.2 for a valid request; after_path says whether the
 * worker registered that feature of list_files.
 */
int result_valid(
    const struct json *request, const struct json *result, int after_path);

#endif
