/* ops_attend.c - keys, values and attention on the CPU. */
#include <math.h>
#include <string.h>

#include "engine/cpu/exec.h"
#include "engine/cpu/kv_layout.h"
#include "model/blocks.h"

const char *kv_type_name(int type)
{
    static const char *const NAMES[] = {[KV_F32] = "f32", [KV_F16] = "f16", [KV_Q8] = "q8"};
    return type >= KV_F32 && type <= KV_Q8 ? NAMES[type] : "unknown";
}

size_t cpu_kv_block_bytes(int kv_type, uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim)
{
    return (size_t)n_layers * n_kv_heads * kv_slab_bytes(kv_type, head_dim);
}

static void elem_put(uint8_t *base, int type, size_t at, float value, float inv_scale)
{
    if (type == KV_F32)
        memcpy(base + 4 * at, &value, 4);
    else if (type == KV_F16)
        float_half(base + 2 * at, value);
    else
        base[at] = (uint8_t)(int8_t)lrintf(value * inv_scale);
}

static float elem_get(const uint8_t *base, int type, size_t at, float scale)
{
    float v;
    if (type == KV_F32)
        memcpy(&v, base + 4 * at, 4);
    else if (type == KV_F16)
        v = half_float(base + 2 * at);
    else
        v = scale * (float)(int8_t)base[at];
    return v;
}

/* Of one token's head; 0 for a head of zeros, NaN if anything is not finite. */
static float q8_scale(const float *in, uint32_t n)
{
    float most = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(in[i]))
            return NAN;
        most = fabsf(in[i]) > most ? fabsf(in[i]) : most;
    }
    return most < 1e-30f ? 0 : most / 127;
}

static float q8_inverse(float scale)
{
    return scale > 0 ? 1 / scale : 0;
}

struct store_job {
    const struct kv_cache *kv;
    uint32_t layer;
    const float *k, *v;
    const struct step *s;
};

static void store_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct store_job *j = ctx;
    uint32_t d = j->kv->head_dim, padded = kv_dim_padded(d);
    int type = j->kv->type;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t r = i / j->kv->n_kv_heads, h = i % j->kv->n_kv_heads;
        const struct batch_row *row = &j->s->rows[r];
        struct kv_slab slab =
            kv_slab(j->kv, step_block(j->s, row->seq, row->position), j->layer, h);
        const float *k = j->k + (size_t)i * d, *v = j->v + (size_t)i * d;
        size_t at = row->position % KV_BLOCK_TOKENS;
        float k_inv = 0, v_inv = 0;
        if (type == KV_Q8) {
            k_inv = q8_inverse(slab.k_scale[at] = q8_scale(k, d));
            v_inv = q8_inverse(slab.v_scale[at] = q8_scale(v, d));
        }
        for (uint32_t c = 0; c < d; c++)
            elem_put(slab.k, type, c * KV_BLOCK_TOKENS + at, k[c], k_inv);
        for (uint32_t c = 0; c < padded; c++)
            elem_put(slab.v, type, at * padded + c, c < d ? v[c] : 0, v_inv);
    }
}

void cpu_kv_store(struct exec *x, const struct kv_cache *kv, uint32_t layer, const float *k,
                  const float *v, const struct step *s)
{
    exec_for(x, s->n_rows * kv->n_kv_heads, 32, store_items,
             &(struct store_job){kv, layer, k, v, s});
}

void cpu_kv_copy(struct exec *x, const struct kv_cache *kv, uint32_t from_block, uint32_t to_block)
{
    memcpy((uint8_t *)kv->data + to_block * kv->block_bytes,
           (uint8_t *)kv->data + from_block * kv->block_bytes, kv->block_bytes);
}

struct attend_job {
    const struct exec *x;
    float *out;
    const float *q;
    uint32_t n_heads;
    const struct kv_cache *kv;
    uint32_t layer, window;
    const struct step *s;
};

static void attend_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct attend_job *j = ctx;
    const struct kv_cache *kv = j->kv;
    uint32_t group = j->n_heads / kv->n_kv_heads;
    uint32_t d = kv->head_dim, padded = kv_dim_padded(d);
    for (uint32_t i = begin; i < end; i++) {
        uint32_t r = i / kv->n_kv_heads, h = i % kv->n_kv_heads;
        const struct batch_row *row = &j->s->rows[r];
        uint32_t last = row->position + 1;
        uint32_t first = j->window && last > j->window ? last - j->window : 0;
        float *scores = exec_scratch(j->x, thread), *k = scores + j->x->max_kv + 8,
              *v = k + (size_t)j->x->max_kv * d;
        for (uint32_t p = first; p < last; p++) {
            struct kv_slab slab = kv_slab(kv, step_block(j->s, row->seq, p), j->layer, h);
            uint32_t at = p % KV_BLOCK_TOKENS;
            float k_scale = kv->type == KV_Q8 ? slab.k_scale[at] : 0;
            float v_scale = kv->type == KV_Q8 ? slab.v_scale[at] : 0;
            for (uint32_t c = 0; c < d; c++) {
                k[(size_t)(p - first) * d + c] =
                    elem_get(slab.k, kv->type, c * KV_BLOCK_TOKENS + at, k_scale);
                v[(size_t)(p - first) * d + c] =
                    elem_get(slab.v, kv->type, (size_t)at * padded + c, v_scale);
            }
        }
        size_t at = ((size_t)r * j->n_heads + (size_t)h * group) * d;
        j->x->k->attend(j->out + at, j->q + at, group, k, v, last - first, d, scores);
    }
}

void cpu_attend(struct exec *x, float *out, const float *q, uint32_t n_heads,
                const struct kv_cache *kv, uint32_t layer, uint32_t window, const struct step *s)
{
    exec_for(x, s->n_rows * kv->n_kv_heads, 1, attend_items,
             &(struct attend_job){x, out, q, n_heads, kv, layer, window, s});
}
