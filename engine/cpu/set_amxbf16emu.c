/* set_amxbf16emu.c - the kernels of set_amxbf16.c with tiles in plain C: for tests on machines without AMX, never chosen by itself. */
#include "engine/cpu/lanes_avx512.h"

#define TILE_EMULATED
#define STRETCH_Q8  stretch_amx
#define STRETCH_F32 stretch_bf16
#include "engine/cpu/avx512_usable.h"
#include "engine/cpu/fast_set.inc.h"

FAST_KERNELS(KERNELS_AMX_BF16_EMULATED, "amx-bf16-emulated", "int15-bf16", avx512_usable);
