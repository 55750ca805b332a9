/* set_avx512.c - the fast kernels for AVX-512 with VNNI. */
#include "engine/cpu/lanes_avx512.h"

#include "engine/cpu/fast_set.inc.h"

static bool avx512_usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma");
}

FAST_KERNELS(KERNELS_AVX512, "avx512", avx512_usable);
