/* fast_set.inc.h - all kernels over lanes, as one set: FAST_KERNELS(KERNELS_X, name, numerics, usable). */
#include "engine/cpu/fast_rows.inc.h"
/* order matters: each uses what is above */
#include "engine/cpu/fast_tile.inc.h"

#include "engine/cpu/fast_tile_f32.inc.h"

#include "engine/cpu/fast_matmul.inc.h"

#ifdef STRETCH_Q8
#include "engine/cpu/amx_matmul.inc.h"
#endif
#ifdef STRETCH_F32
#include "engine/cpu/amx_bf16.inc.h"
#define MATMUL_SCRATCH struct bf16_scratch
#else
#define MATMUL_SCRATCH struct matmul_scratch
#endif

#include "engine/cpu/fast_attend.inc.h"

static size_t fast_scratch_bytes(uint32_t max_cols, uint32_t max_kv)
{
    size_t a = sizeof(MATMUL_SCRATCH), b = sizeof(struct attend_scratch);
    return a > b ? a : b;
}

#define FAST_KERNELS(set, text, same_as, can_run)                                                  \
    const struct kernels set = {                                                                   \
        .name = text,                                                                              \
        .numerics = same_as,                                                                       \
        .revision = 2,                                                                             \
        .usable = can_run,                                                                         \
        .scratch_bytes = fast_scratch_bytes,                                                       \
        .has_acts = fast_has_acts,                                                                 \
        .acts_make = fast_acts_make,                                                               \
        .matmul = fast_matmul,                                                                     \
        .norm = fast_norm,                                                                         \
        .rope = fast_rope,                                                                         \
        .silu_mul = fast_silu_mul,                                                                 \
        .add = fast_add,                                                                           \
        .scale_add = fast_scale_add,                                                               \
        .kv_store = fast_kv_store,                                                                 \
        .attend = fast_attend,                                                                     \
        .attend_one = fast_attend_one,                                                             \
        .attend_merge = fast_attend_merge,                                                         \
        .all_finite = fast_all_finite,                                                             \
        .argmax = fast_argmax,                                                                     \
        .log_sum_exp = fast_log_sum_exp,                                                           \
    }
