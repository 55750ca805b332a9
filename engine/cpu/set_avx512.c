/* set_avx512.c - the fast kernels for AVX-512 with VNNI. */
#include "engine/cpu/lanes_avx512.h"

#include "engine/cpu/avx512_usable.h"
#include "engine/cpu/fast_set.inc.h"

FAST_KERNELS(KERNELS_AVX512, "avx512", "int15", avx512_usable);
