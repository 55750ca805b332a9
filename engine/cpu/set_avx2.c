/* set_avx2.c - the fast kernels for AVX2, FMA and F16C. */
#include "engine/cpu/lanes_avx2.h"

#include "engine/cpu/fast_set.inc.h"
#include <cpuid.h>

static bool avx2_usable(void)
{
    /* clang's __builtin_cpu_supports does not know f16c */
    unsigned a, b, c = 0, d;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

FAST_KERNELS(KERNELS_AVX2, "avx2", "int15", avx2_usable);
