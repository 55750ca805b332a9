/* siphash.h - SipHash-2-4 (Aumasson, Bernstein, INDOCRYPT 2012) over 32-bit words: a keyed hash for tables that hostile input may fill. */
#ifndef EXA_ENGINE_SIPHASH_H
#define EXA_ENGINE_SIPHASH_H

#include <stdint.h>

/* Of n words, each as four bytes little-endian. */
uint64_t siphash(const uint64_t key[2], const uint32_t *words, uint32_t n);

#endif
