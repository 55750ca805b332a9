/* family_qwen3.c - Qwen3: every query and key head is normalised before it is rotated; head_dim is a parameter of its own. */
#include "engine/family.h"

const struct family FAMILY_QWEN3 = {
    .arch = "qwen3",
    .rope_style = ROPE_HALVES,
    .features = FAMILY_WINDOW,
    .tables = {TENSORS_TOP, TENSORS_ATTENTION, TENSORS_ATTENTION_BIAS, TENSORS_HEAD_NORM,
               TENSORS_FEED_FORWARD},
};
