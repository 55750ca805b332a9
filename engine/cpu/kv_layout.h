/* kv_layout.h - where keys and values lie in a block of the CPU's KV cache.
 *
 * A block is [layer][kv head] slabs; a slab is
 *   keys    [head_dim][KV_BLOCK_TOKENS]   transposed: a vector's lanes are positions, so a score needs no sum over lanes
 *   values  [KV_BLOCK_TOKENS][dim_padded]
 *   scales  [2][KV_BLOCK_TOKENS] F32, of KV_Q8 only: of keys, of values
 * in F32, IEEE halves or int8 (element = scale * int8). dim_padded is head_dim rounded up to whole vectors; the rest is zero.
 */
#ifndef EXA_ENGINE_CPU_KV_LAYOUT_H
#define EXA_ENGINE_CPU_KV_LAYOUT_H

#include "engine/ops.h"

enum { KV_LANES = 16 };

struct kv_slab {
    uint8_t *k, *v;
    float *k_scale, *v_scale; /* [KV_BLOCK_TOKENS] */
};

static inline uint32_t kv_dim_padded(uint32_t head_dim)
{
    return (head_dim + KV_LANES - 1) / KV_LANES * KV_LANES;
}

static inline size_t kv_elem_bytes(int type)
{
    return type == KV_F32 ? 4 : type == KV_F16 ? 2 : 1;
}

/* A multiple of 16 bytes, so scales are aligned. */
static inline size_t kv_slab_bytes(int type, uint32_t head_dim)
{
    size_t elems = (size_t)KV_BLOCK_TOKENS * (head_dim + kv_dim_padded(head_dim));
    return elems * kv_elem_bytes(type) + (type == KV_Q8 ? 2 * KV_BLOCK_TOKENS * sizeof(float) : 0);
}

static inline struct kv_slab kv_slab(const struct kv_cache *kv, uint32_t block, uint32_t layer,
                                     uint32_t head)
{
    size_t elem = kv_elem_bytes(kv->type);
    uint8_t *p = (uint8_t *)kv->data + block * kv->block_bytes +
                 ((size_t)layer * kv->n_kv_heads + head) * kv_slab_bytes(kv->type, kv->head_dim);
    uint8_t *v = p + KV_BLOCK_TOKENS * kv->head_dim * elem;
    float *scales = (float *)(void *)(v + KV_BLOCK_TOKENS * kv_dim_padded(kv->head_dim) * elem);
    return (struct kv_slab){p, v, scales, scales + KV_BLOCK_TOKENS};
}

#endif
