/* memory.h - how much memory this process may still take: the machine's, and its control groups'. */
#ifndef EXA_ENGINE_MEMORY_H
#define EXA_ENGINE_MEMORY_H

#include <stdint.h>

/* The least of MemAvailable and the limits of our memory control groups (v1 or v2). UINT64_MAX: nothing could be read. */
uint64_t memory_available(void);

#endif
