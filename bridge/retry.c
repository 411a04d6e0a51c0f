#include "config.h"

#include <sodium.h>

#include "retry.h"

#define DELAY_BASE 1000
#define DELAY_MAX  30000
#define ONE        1000000

int64_t
retry_delay_with(unsigned int attempt, uint32_t r)
{
	int64_t cap = DELAY_MAX;

	if (attempt < 5)
		cap = (int64_t)DELAY_BASE << attempt;
	return cap / 2 + cap / 2 * (int64_t)r / ONE;
}

int64_t
retry_delay(unsigned int attempt)
{
	return retry_delay_with(attempt, randombytes_uniform(ONE + 1));
}

int64_t
retry_remaining(int64_t remaining_ms, int64_t elapsed, int64_t server_elapsed)
{
	int64_t transport = elapsed - server_elapsed;

	if (transport < 0)
		transport = 0;
	return remaining_ms > transport ? remaining_ms - transport : 0;
}
