/* set_amx.c - the fast kernels for AVX-512 with AMX for dot products of bytes. */
#include "engine/cpu/lanes_avx512.h"

#define STRETCH_Q8 stretch_amx
#include "engine/cpu/amx_usable.h"
#include "engine/cpu/avx512_usable.h"
#include "engine/cpu/fast_set.inc.h"

static bool usable(void)
{
    return avx512_usable() && amx_usable();
}

FAST_KERNELS(KERNELS_AMX, "amx", "int15", usable);
