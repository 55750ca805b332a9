/* set_amxemu.c - the kernels of set_amx.c with tiles in plain C: for tests on machines without AMX, never chosen by itself. */
#include "engine/cpu/lanes_avx512.h"

#define TILE_EMULATED
#define STRETCH_Q8 stretch_amx
#include "engine/cpu/avx512_usable.h"
#include "engine/cpu/fast_set.inc.h"

FAST_KERNELS(KERNELS_AMX_EMULATED, "amx-emulated", "int15", avx512_usable);
