/* pack_progress.h - a line a second on standard error while a pack is written or verified. */
#ifndef EXA_CLI_PACK_PROGRESS_H
#define EXA_CLI_PACK_PROGRESS_H

#include "base/clock.h"

#include <stdbool.h>
#include <stdio.h>

enum { PACK_PROGRESS_US = 1000000 }; /* readable in a log, too */

struct pack_progress {
    const char *verb;
    bool quiet;
    uint64_t start_us, last_us;
};

static inline struct pack_progress pack_progress_start(const char *verb, bool quiet)
{
    uint64_t now = clock_now_us();
    return (struct pack_progress){verb, quiet, now, now};
}

/* A pack_progress_fn. */
static inline void pack_progress_show(void *ctx, uint64_t done, uint64_t total)
{
    struct pack_progress *p = ctx;
    uint64_t now = clock_now_us();
    if (p->quiet || now - p->last_us < PACK_PROGRESS_US)
        return;
    p->last_us = now;
    double s = (double)(now - p->start_us) / 1e6;
    fprintf(stderr, "%s: %3.0f %%, %.0f MB/s\n", p->verb, 100.0 * (double)done / (double)total,
            (double)done / 1e6 / s);
}

#endif
