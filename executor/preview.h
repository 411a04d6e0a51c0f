#ifndef EXECUTOR_PREVIEW_H
#define EXECUTOR_PREVIEW_H

#include <stddef.h>
#include <stdint.h>

#include "msg.h"

/*
 * Fills column and text of a match (workspace-tools 6.5): the query was found
 * at byte at of a line of n bytes, all of it well-formed UTF-8. Lengths on
 * the wire are UTF-16 code units; the text is at most 2000 of them around the
 * query and splits no character.
 */
void preview(struct match *, const uint8_t *line, size_t n, size_t at,
    const uint8_t *query, size_t query_len);

#endif
