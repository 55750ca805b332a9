/* boot.h - the start of a world as rank 0 sees it: who has reached which phase, and by when. Pure: events and a clock in.
 *
 * Phases, in order (design.md 2, "Boot order"; platform.md says why no other order works):
 *   BOOT_OUT_OF_INIT  every rank has left MPI_Init and registered over the message plane
 *   BOOT_WARM         every pair of ranks has talked over MPI once
 *   BOOT_GROUPED      the workers' communicators for broadcasts are made
 *   BOOT_DETACHED     PMIx is detached: from here on any rank may die and the others go on
 */
#ifndef EXA_RANKS_BOOT_H
#define EXA_RANKS_BOOT_H

#include "base/buf.h"
#include "base/err.h"
#include "mpi/layout.h"

#include <stdbool.h>
#include <stdint.h>

enum boot_phase {
    BOOT_OUT_OF_INIT = 1,
    BOOT_WARM = 2,
    BOOT_GROUPED = 3,
    BOOT_DETACHED = 4,
    BOOT_PHASES = 4
};
const char *boot_phase_name(uint32_t phase);

struct boot {
    const struct layout *layout;        /* borrowed */
    uint8_t *reached;                   /* owned [n_ranks]: highest phase reached */
    bool *lost;                         /* owned [n_ranks] */
    uint32_t phase;                     /* the phase being waited for; BOOT_PHASES + 1: done */
    uint64_t deadline_us;               /* of that phase */
    uint64_t phase_us[BOOT_PHASES + 2]; /* when each phase was complete; [0]: start */
};

/* Time one phase may take for n ranks: start-up measured at 0.35 s a rank on 2 cores (platform.md), times three. */
uint64_t boot_phase_limit_us(uint32_t n_ranks);

int boot_init(struct boot *b, const struct layout *l, uint64_t now_us, struct err *e);
void boot_fini(struct boot *b);
void boot_reach(struct boot *b, uint32_t rank, uint32_t phase);
void boot_lose(struct boot *b, uint32_t rank);
/* 1: b->phase was reached by all; it was advanced, release the old one. 0: wait. Negative: the start failed; the text names
 * the ranks and their nodes. */
int boot_check(struct boot *b, uint64_t now_us, struct err *e);
/* "3 of 8 ranks: 2 (n1), 5 (n3), 7 (n4)"; names at most a dozen. */
void boot_missing(const struct boot *b, char *out, size_t cap);
/* true: this rank has not reached the current phase. */
bool boot_is_missing(const struct boot *b, uint32_t rank);
/* After a failed start: the hosts that had a part in it, one a line. A lost rank's host alone: the others only waited for it. When half of
 * the ranks or more are missing, nobody: what all of them wait for is no fault of theirs. */
void boot_blame(const struct boot *b, struct buf *hosts);

#endif
