#ifndef EXECUTOR_DECODE_H
#define EXECUTOR_DECODE_H

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "msg.h"

/*
 * Appends the text of a file (workspace-tools 4): UTF-16 by its byte-order
 * mark, else UTF-8 without its mark; malformed input becomes U+FFFD. Never
 * fails. UTF-8 of at most three times the input is made.
 */
void decode_file(struct buf *, const uint8_t *, size_t);

/*
 * The same for a whole file, in *text, which is empty; the bytes of most files
 * are moved there and not copied. Empties *raw.
 */
void decode_whole(struct buf *text, struct buf *raw);

/*
 * Line window of a decoded text (workspace-tools 5.2, steps 6 to 8): fills
 * content, which points into the text, start_line, end_line and truncated of
 * the result.
 */
void line_window(const uint8_t *, size_t, int64_t start_line,
    uint32_t max_lines, struct result *);

#endif
