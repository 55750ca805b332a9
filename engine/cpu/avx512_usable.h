/* avx512_usable.h - what lanes_avx512.h needs. */
#ifndef EXA_ENGINE_CPU_AVX512_USABLE_H
#define EXA_ENGINE_CPU_AVX512_USABLE_H

#include <stdbool.h>

static inline bool avx512_usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma");
}

#endif
