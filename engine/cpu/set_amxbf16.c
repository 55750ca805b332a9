/* set_amxbf16.c - as set_amx.c, and float weights by bfloat16 tiles: other numerics, by name only. */
#include "engine/cpu/lanes_avx512.h"

#define STRETCH_Q8  stretch_amx
#define STRETCH_F32 stretch_bf16
#include "engine/cpu/amx_usable.h"
#include "engine/cpu/avx512_usable.h"
#include "engine/cpu/fast_set.inc.h"

static bool usable(void)
{
    return avx512_usable() && amx_usable();
}

FAST_KERNELS(KERNELS_AMX_BF16, "amx-bf16", "int15-bf16", usable);
