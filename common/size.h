#ifndef COMMON_SIZE_H
#define COMMON_SIZE_H

#include <stdint.h>

/*
 * A number of bytes for people: "512 MiB", "17.6 GiB", "900 bytes"; one digit
 * after the point, cut, and none where it is 0. The caller frees it.
 */
char *size_text(uint64_t bytes);

#endif
