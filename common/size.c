#include "config.h"

#include "buf.h"
#include "size.h"

char *
size_text(uint64_t bytes)
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB",
		"TiB" };
	uint64_t tenths;
	unsigned int shift = 0, i = 0;

	while (i < 4 && bytes >> shift >= 1024) {
		shift += 10;
		i++;
	}
	if (i == 0)
		return xasprintf("%llu bytes", (unsigned long long)bytes);
	tenths = (bytes >> (shift - 10)) % 1024 * 10 / 1024;
	if (tenths == 0)
		return xasprintf(
		    "%llu %s", (unsigned long long)bytes >> shift, units[i]);
	return xasprintf("%llu.%llu %s", (unsigned long long)bytes >> shift,
	    (unsigned long long)tenths, units[i]);
}
