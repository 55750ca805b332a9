/* set_avxvnni.c - the fast kernels for AVX2 with AVX-VNNI: dot products of bytes in one instruction. */
#include "engine/cpu/lanes_avx2.h"

#include "engine/cpu/fast_set.inc.h"
#include <cpuid.h>

static bool avxvnni_usable(void)
{
    unsigned a, b, c = 0, d, leaf7 = 0;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C &&
           __get_cpuid_count(7, 1, &leaf7, &b, &c, &d) && leaf7 >> 4 & 1;
}

FAST_KERNELS(KERNELS_AVXVNNI, "avxvnni", "int15", avxvnni_usable);
