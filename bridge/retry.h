#ifndef BRIDGE_RETRY_H
#define BRIDGE_RETRY_H

#include <stdint.h>

/*
 * Back-off of the main loop (protocol 7.5): half of min(30 s, 1 s * 2^attempt)
 * plus a random part of the other half. r runs from 0 to 1000000 for the
 * random number 0 to 1; vectors in 16.6.
 */
int64_t retry_delay_with(unsigned int attempt, uint32_t r);
int64_t retry_delay(unsigned int attempt);

/*
 * What is left of an assignment's time when its lease is answered (7.2): the
 * time that the server did not spend itself was spent on the way.
 */
int64_t retry_remaining(
    int64_t remaining_ms, int64_t elapsed, int64_t server_elapsed);

#endif
