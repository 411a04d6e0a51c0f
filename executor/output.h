#ifndef EXECUTOR_OUTPUT_H
#define EXECUTOR_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

#include "msg.h"

/*
 * What is kept of one output stream: the first half of the budget and a
 * rolling last half, and how many bytes went by in all (workspace-tools
 * 16.9). Memory is taken as it is needed and never exceeds the budget.
 */
struct output {
	size_t budget; /* raw bytes that may be kept */
	size_t head_max; /* half of it, rounded down */
	size_t tail_max;
	uint8_t *head;
	size_t head_len;
	size_t head_cap;
	uint8_t *tail; /* ring */
	size_t tail_cap;
	size_t tail_start;
	size_t tail_len;
	uint64_t total; /* bytes seen */
	uint8_t last; /* of them */
};

void output_init(struct output *, size_t budget);
void output_free(struct output *);

/* Constant work a byte, whatever went by before. */
void output_add(struct output *, const void *, size_t);

/* 1 if nothing or a complete line went by last. */
int output_at_line_start(const struct output *);

/*
 * Makes the two texts of a result: well-formed UTF-8, together at most
 * budget bytes. If both fit they are complete. Otherwise standard error is
 * sure of half the budget (rounded up) and a shortened stream has a mark
 * with the exact number of raw bytes left out between its first and last
 * part. Cuts never split a character. Returns 1 if anything was left out.
 */
int output_compose(const struct output *out, const struct output *err,
    size_t budget, struct text *out_text, struct text *err_text);

#endif
