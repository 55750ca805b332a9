/* ops_attend.c - keys, values and attention on the CPU.
 *
 * Rows of one sequence are taken together, up to KERNELS_ATTEND_ROWS queries with a kv head's group: they share each conversion of keys
 * and values. Where that leaves threads without work (few streams, long contexts), an item is a part of the positions instead, and parts
 * are merged afterwards, in the same order as in one go.
 */
#include <string.h>

#include "engine/cpu/exec.h"
#include "engine/cpu/kv_layout.h"

enum {
    STORE_GRAIN = 64,   /* heads of tokens */
    ITEMS_A_THREAD = 3, /* fewer: split positions */
};

const char *kv_type_name(int type)
{
    static const char *const NAMES[] = {[KV_F32] = "f32", [KV_F16] = "f16", [KV_Q8] = "q8"};
    return type >= KV_F32 && type <= KV_Q8 ? NAMES[type] : NULL;
}

size_t cpu_kv_block_bytes(int kv_type, uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim)
{
    return (size_t)n_layers * n_kv_heads * kv_slab_bytes(kv_type, head_dim);
}

struct store_job {
    const struct exec *x;
    const struct kv_cache *kv;
    uint32_t layer;
    const float *k, *v;
    const struct step *s;
};

static void store_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct store_job *j = ctx;
    for (uint32_t i = begin; i < end; i++) {
        const struct batch_row *row = &j->s->rows[i / j->kv->n_kv_heads];
        size_t at = (size_t)i * j->kv->head_dim;
        j->x->k->kv_store(j->kv, step_block(j->s, row->seq, row->position), j->layer,
                          i % j->kv->n_kv_heads, row->position % KV_BLOCK_TOKENS, j->k + at,
                          j->v + at);
    }
}

void cpu_kv_store(struct exec *x, const struct kv_cache *kv, uint32_t layer, const float *k,
                  const float *v, const struct step *s)
{
    exec_for(x, s->n_rows * kv->n_kv_heads, STORE_GRAIN, store_items,
             &(struct store_job){x, kv, layer, k, v, s});
}

void cpu_kv_copy(struct exec *x, const struct kv_cache *kv, uint32_t from_block, uint32_t to_block)
{
    memcpy((uint8_t *)kv->data + to_block * kv->block_bytes,
           (uint8_t *)kv->data + from_block * kv->block_bytes, kv->block_bytes);
}

/* --- attention -------------------------------------------------------------------------------------------- */

struct attend_call {
    struct exec *x;
    float *out;
    const float *q;
    uint32_t n_heads;
    const struct kv_cache *kv;
    uint32_t layer, window;
    const struct step *s;
    uint32_t n_tiles;      /* of x->tiles: first rows; n_tiles + 1 of them */
    uint32_t n_parts;      /* most of any tile */
    size_t partial_floats; /* of one part of a tile and head */
};

static void part_make(struct attend_part *p, const struct attend_call *c, uint32_t tile,
                      uint32_t head, uint32_t thread)
{
    const struct kv_cache *kv = c->kv;
    uint32_t r = c->x->tiles[tile], group = c->n_heads / kv->n_kv_heads;
    const struct batch_row *row = &c->s->rows[r];
    size_t stride = (size_t)c->n_heads * kv->head_dim;
    size_t at = r * stride + (size_t)head * group * kv->head_dim;
    *p = (struct attend_part){
        .kv = kv,
        .table = c->s->tables + (size_t)row->seq * c->s->table_stride,
        .layer = c->layer,
        .head = head,
        .group = group,
        .n_rows = c->x->tiles[tile + 1] - r,
        .first_position = row->position,
        .window = c->window,
        .q = c->q + at,
        .out = c->out + at,
        .stride = stride,
        .scratch = exec_scratch(c->x, thread),
    };
}

/* Parts that any row of p sees. */
static void parts_range(const struct attend_part *p, uint32_t *first, uint32_t *last)
{
    uint32_t n = p->first_position + 1;
    *first = (p->window && n > p->window ? n - p->window : 0) / KERNELS_PART_TOKENS;
    *last = (p->first_position + p->n_rows - 1) / KERNELS_PART_TOKENS;
}

/* Late tiles see the most positions: they go first. */
static void attend_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct attend_call *c = ctx;
    for (uint32_t i = begin; i < end; i++) {
        struct attend_part p;
        part_make(&p, c, c->n_tiles - 1 - i / c->kv->n_kv_heads, i % c->kv->n_kv_heads, thread);
        c->x->k->attend(&p);
    }
}

static float *partials_of(const struct attend_call *c, uint32_t item)
{
    return c->x->partials + (size_t)item * c->n_parts * c->partial_floats;
}

static void part_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct attend_call *c = ctx;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t item = i / c->n_parts, first, last, n_kv = c->kv->n_kv_heads;
        struct attend_part p;
        part_make(&p, c, item / n_kv, item % n_kv, thread);
        parts_range(&p, &first, &last);
        uint32_t number = first + i % c->n_parts;
        size_t size = attend_partial_floats(p.n_rows * p.group, c->kv->head_dim);
        if (number <= last)
            c->x->k->attend_one(&p, number, partials_of(c, item) + (number - first) * size);
    }
}

static void merge_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct attend_call *c = ctx;
    for (uint32_t item = begin; item < end; item++) {
        uint32_t first, last, n_kv = c->kv->n_kv_heads;
        struct attend_part p;
        part_make(&p, c, item / n_kv, item % n_kv, thread);
        parts_range(&p, &first, &last);
        c->x->k->attend_merge(&p, first, last, partials_of(c, item));
    }
}

/* Cut rows [begin, end) into tiles of one sequence each. */
static void tiles_make(struct attend_call *c, uint32_t begin, uint32_t end)
{
    const struct batch_row *rows = c->s->rows;
    uint32_t group = c->n_heads / c->kv->n_kv_heads, *tiles = c->x->tiles;
    uint32_t most = KERNELS_ATTEND_ROWS / group ? KERNELS_ATTEND_ROWS / group : 1;
    c->n_tiles = c->n_parts = 0;
    for (uint32_t r = begin; r < end;) {
        uint32_t n = 1;
        while (n < most && r + n < end && rows[r + n].seq == rows[r].seq &&
               rows[r + n].position == rows[r].position + n)
            n++;
        tiles[c->n_tiles++] = r;
        uint32_t first, last;
        parts_range(&(struct attend_part){.first_position = rows[r].position,
                                          .n_rows = n,
                                          .window = c->window},
                    &first, &last);
        c->n_parts = last - first + 1 > c->n_parts ? last - first + 1 : c->n_parts;
        r += n;
    }
    tiles[c->n_tiles] = end;
    c->partial_floats = attend_partial_floats(most * group, c->kv->head_dim);
}

static bool parts_pay(const struct attend_call *c, uint32_t n_items)
{
    uint32_t threads = pool_threads(c->x->pool);
    size_t bytes = (size_t)n_items * c->n_parts * c->partial_floats * sizeof(float);
    return c->x->k->attend_one && threads > 1 && c->n_parts > 1 &&
           n_items < threads * ITEMS_A_THREAD && bytes <= EXEC_PARTIALS_BYTES;
}

void cpu_attend(struct exec *x, float *out, const float *q, uint32_t n_heads,
                const struct kv_cache *kv, uint32_t layer, uint32_t window, const struct step *s)
{
    struct attend_call c = {x, out, q, n_heads, kv, layer, window, s, 0, 0, 0};
    for (uint32_t r = 0; r < s->n_rows; r += EXEC_MAX_TILES) {
        uint32_t end = s->n_rows - r < EXEC_MAX_TILES ? s->n_rows : r + EXEC_MAX_TILES;
        tiles_make(&c, r, end);
        uint32_t n_items = c.n_tiles * kv->n_kv_heads;
        if (parts_pay(&c, n_items)) {
            exec_for(x, n_items * c.n_parts, 1, part_items, &c);
            exec_for(x, n_items, 16, merge_items, &c);
        } else {
            exec_for(x, n_items, 1, attend_items, &c);
        }
    }
}
