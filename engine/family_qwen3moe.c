/* family_qwen3moe.c - Qwen3 with a mixture of experts for every feed-forward. */
#include "engine/family.h"

const struct family FAMILY_QWEN3MOE = {
    .arch = "qwen3moe",
    .rope_style = ROPE_HALVES,
    .features = FAMILY_WINDOW | FAMILY_EXPERTS | FAMILY_EXPERTS_ONLY,
    .tables = {TENSORS_TOP, TENSORS_ATTENTION, TENSORS_ATTENTION_BIAS, TENSORS_HEAD_NORM,
               TENSORS_FEED_FORWARD, TENSORS_EXPERTS},
};
