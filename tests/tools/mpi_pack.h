/* mpi_pack.h - an artificial pack: a plain file of tensors whose bytes follow from the segment's
 * number, and its index. */
#ifndef EXA_TESTS_MPI_PACK_H
#define EXA_TESTS_MPI_PACK_H

#include "base/err.h"
#include "model/index.h"

enum { PACK_META_BYTES = 7 };
extern const char PACK_META[PACK_META_BYTES];

_Noreturn void die(const char *what, const struct err *e);
/* The bytes of a segment. */
void pack_fill(uint8_t *p, uint32_t n, uint32_t segment);
/* Write DIR/pack and DIR/index with about n_segments, and print what was made. */
int pack_make(const char *dir, uint32_t n_segments);
/* Read DIR/index. Returns file offsets [n_tensors] (free it). */
uint64_t *pack_load(const char *dir, struct model_index *x);

#endif
