#ifndef BRIDGE_RESULT_H
#define BRIDGE_RESULT_H

#include "msg.h"

struct jwriter;

/*
 * Checks a result of the executor against its request as the server does
 * (workspace-tools 12). after_path says whether the feature is in force.
 * Returns NULL, or a fixed phrase.
 */
const char *result_check(
    const struct request *, const struct result *, int after_path);

/*
 * Writes a checked result as one JSON object, members in the order of the
 * tables of workspace-tools.
 */
void result_write(struct jwriter *, const char *workspace,
    const struct request *, const struct result *, int after_path);

#endif
