/* family_qwen2.c - Qwen2 and Qwen2.5: biases on q, k and v, halves (i, i + rope_dim / 2) rotate together; some have a sliding window from
 * one layer on. */
#include "engine/family.h"

static const struct family_tensor BIASES[] = {
    LAYER_VECTOR("attn_q.bias", bq, W_Q, NEED_ALWAYS),
    LAYER_VECTOR("attn_k.bias", bk, W_KV, NEED_ALWAYS),
    LAYER_VECTOR("attn_v.bias", bv, W_KV, NEED_ALWAYS),
    {0},
};

const struct family FAMILY_QWEN2 = {
    .arch = "qwen2",
    .rope_style = ROPE_HALVES,
    .features = FAMILY_WINDOW,
    .tables = {TENSORS_TOP, TENSORS_ATTENTION, BIASES, TENSORS_FEED_FORWARD},
};
