/* boot.c - see boot.h. */
#include "ranks/boot.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    LIMIT_BASE_US = 60 * 1000000, /* a slow file system or a busy node at the very start */
    LIMIT_RANK_US = 1000000,
    NAMED_MAX = 12,
};

const char *boot_phase_name(uint32_t phase)
{
    switch (phase) {
    case BOOT_OUT_OF_INIT:
        return "leaving MPI_Init and registering";
    case BOOT_WARM:
        return "warming up MPI";
    case BOOT_GROUPED:
        return "making communicators";
    case BOOT_DETACHED:
        return "detaching from PMIx";
    default:
        return "serving";
    }
}

uint64_t boot_phase_limit_us(uint32_t n_ranks)
{
    return LIMIT_BASE_US + (uint64_t)LIMIT_RANK_US * n_ranks;
}

int boot_init(struct boot *b, const struct layout *l, uint64_t now_us, struct err *e)
{
    *b = (struct boot){.layout = l, .phase = BOOT_OUT_OF_INIT};
    b->reached = calloc(l->n_ranks, sizeof *b->reached);
    b->lost = calloc(l->n_ranks, sizeof *b->lost);
    if (!b->reached || !b->lost) {
        boot_fini(b);
        return err_set(e, ERR_NOMEM, "no memory for the start of %u ranks", l->n_ranks);
    }
    b->phase_us[0] = now_us;
    b->deadline_us = now_us + boot_phase_limit_us(l->n_ranks);
    return 0;
}

void boot_fini(struct boot *b)
{
    free(b->reached);
    free(b->lost);
    b->reached = NULL;
    b->lost = NULL;
}

void boot_reach(struct boot *b, uint32_t rank, uint32_t phase)
{
    if (rank < b->layout->n_ranks && phase <= BOOT_PHASES && phase > b->reached[rank])
        b->reached[rank] = (uint8_t)phase;
}

void boot_lose(struct boot *b, uint32_t rank)
{
    if (rank < b->layout->n_ranks)
        b->lost[rank] = true;
}

bool boot_is_missing(const struct boot *b, uint32_t rank)
{
    return b->lost[rank] || b->reached[rank] < b->phase;
}

void boot_blame(const struct boot *b, struct buf *hosts)
{
    const struct layout *l = b->layout;
    uint32_t n_missing = 0, n_lost = 0;
    for (uint32_t r = 0; r < l->n_ranks; r++) {
        n_missing += boot_is_missing(b, r);
        n_lost += b->lost[r];
    }
    if (!n_lost && 2 * n_missing >= l->n_ranks)
        return;
    for (uint32_t r = 0; r < l->n_ranks; r++)
        if (n_lost ? b->lost[r] : boot_is_missing(b, r))
            buf_printf(hosts, "%s\n", l->nodes[l->ranks[r].node].host);
}

void boot_missing(const struct boot *b, char *out, size_t cap)
{
    const struct layout *l = b->layout;
    uint32_t n = 0;
    for (uint32_t r = 0; r < l->n_ranks; r++)
        n += boot_is_missing(b, r);
    size_t at = (size_t)snprintf(out, cap, "%u of %u ranks:", n, l->n_ranks);
    uint32_t named = 0;
    for (uint32_t r = 0; r < l->n_ranks && at < cap; r++) {
        if (!boot_is_missing(b, r))
            continue;
        if (named++ == NAMED_MAX) {
            snprintf(out + at, cap - at, " …");
            return;
        }
        at += (size_t)snprintf(out + at, cap - at, "%s %u (%s%s)", named > 1 ? "," : "", r,
                               l->nodes[l->ranks[r].node].host, b->lost[r] ? ", lost" : "");
    }
}

int boot_check(struct boot *b, uint64_t now_us, struct err *e)
{
    if (b->phase > BOOT_PHASES)
        return 0;
    bool all = true, any_lost = false;
    for (uint32_t r = 0; r < b->layout->n_ranks; r++) {
        all = all && b->reached[r] >= b->phase;
        any_lost = any_lost || b->lost[r];
    }
    /* Before the detach the death of one rank ends the step anyway (platform.md): say who, start again. */
    if (any_lost || (!all && now_us >= b->deadline_us)) {
        char names[384];
        boot_missing(b, names, sizeof names);
        return err_set(e, any_lost ? ERR_PEER : ERR_TIMEOUT,
                       "the world did not start: %s, missing %s", boot_phase_name(b->phase), names);
    }
    if (!all)
        return 0;
    b->phase_us[b->phase] = now_us;
    b->phase++;
    b->deadline_us = now_us + boot_phase_limit_us(b->layout->n_ranks);
    return 1;
}
