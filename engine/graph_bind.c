/* graph_bind.c - tensors of an image to their places in the graph: found by name, checked for shape and type, sliced for this shard.
 *
 * All of the image is checked before anything is computed: a tensor that the family does not know would mean another model than the one
 * we compute.
 */
#include "engine/graph_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VECTOR_ALIGN = 64 }; /* bytes: a cache line */

/* A tensor with its shapes: whole, this shard's, and which of them the image has. */
struct shape {
    uint32_t rows, cols, n_parts; /* of the whole tensor */
    struct span row, col;         /* this shard's */
    bool is_slice;                /* the image holds the slice */
};

static uint64_t aligned(uint64_t n)
{
    return (n + VECTOR_ALIGN - 1) / VECTOR_ALIGN * VECTOR_ALIGN;
}

static bool has_shape(const struct tensor_info *i, uint32_t rows, uint32_t cols, uint32_t n_parts)
{
    return i->dims[0] == cols && i->dims[1] == rows && i->dims[2] == n_parts && i->dims[3] == 1;
}

static int check_vector(const struct tensor_info *i, const struct shape *s, struct err *e)
{
    bool fits = has_shape(i, 1, s->is_slice ? s->col.n : s->cols, 1);
    if (i->type == TENSOR_F32 && fits)
        return 0;
    const struct tensor_type_info *type = tensor_type_info(i->type);
    return err_set(e, ERR_FORMAT, "tensor %s: expected %u F32 values, found %" PRIu64 " of type %s",
                   i->name, s->cols, i->dims[0], type ? type->name : "unknown");
}

static int check_matrix(const struct graph *g, const struct tensor_info *i, const struct shape *s,
                        struct err *e)
{
    if (!s->is_slice && !has_shape(i, s->rows, s->cols, s->n_parts))
        return err_set(e, ERR_FORMAT,
                       "tensor %s: expected %u rows of %u%s, found %" PRIu64 " of %" PRIu64
                       " times %" PRIu64,
                       i->name, s->rows, s->cols, s->n_parts > 1 ? " for each expert" : "",
                       i->dims[1], i->dims[0], i->dims[2] * i->dims[3]);
    struct shard_plan plan;
    if (s->is_slice || s->col.n == s->cols)
        return 0;
    return graph_shard_plan(&plan, &g->p, i->name, i->type, g->size.tp_rank, g->size.tp_size, e);
}

static struct shape shape_of(const struct graph *g, const struct family_tensor *t,
                             const struct tensor_info *i)
{
    struct shape s = {
        .rows = family_width(t->rows, &g->p),
        .cols = family_width(t->cols, &g->p),
        .n_parts = t->of_experts ? g->p.n_experts : 1,
        .row = shard_span(t->rows, &g->p, &g->size),
        .col = shard_span(t->cols, &g->p, &g->size),
    };
    s.is_slice =
        (s.row.n != s.rows || s.col.n != s.cols) && has_shape(i, s.row.n, s.col.n, s.n_parts);
    return s;
}

static bool is_vector(const struct family_tensor *t)
{
    return t->rows == W_ONE;
}

/* Only columns are copied. */
static bool is_copied(const struct shape *s)
{
    return !s->is_slice && s->col.n != s->cols;
}

static uint64_t slice_bytes(const struct shape *s, const struct tensor_info *i)
{
    const struct tensor_type_info *type = tensor_type_info(i->type);
    return (uint64_t)s->n_parts * s->row.n * (s->col.n / type->block_elems) * type->block_bytes;
}

/* --- finding --------------------------------------------------------------------------------------------- */

static const struct tensor_info *found_at(const struct binding *b, const struct graph *g,
                                          uint32_t slot, uint32_t layer)
{
    return b->found[(size_t)slot * g->p.n_layers + layer];
}

#define TOP(member) offsetof(struct layer_top, member)

/* Does this shard use it? The pipeline's first stage embeds, its last has the outputs. */
static bool is_wanted(const struct binding *b, const struct graph *g, const struct family_tensor *t,
                      uint32_t layer)
{
    const struct part *part = &g->part;
    if (t->of_layer)
        return layer >= part->layers.first && layer - part->layers.first < part->layers.n;
    if (t->at == TOP(out_norm))
        return part->is_last;
    if (t->at == TOP(head))
        return part->is_last && !graph_pools(g);
    if (t->at != TOP(embd))
        return true;
    if (part->is_first || !part->is_last || graph_pools(g))
        return part->is_first;
    for (uint32_t slot = 0; slot < b->n_slots; slot++) { /* tied: it is the output matrix too */
        const struct family_tensor *head = family_slot(g->family, slot);
        if (!head->of_layer && head->at == TOP(head))
            return !found_at(b, g, slot, 0);
    }
    return true;
}

static int find_all(struct binding *b, const struct graph *g, const struct image *img,
                    struct err *e)
{
    for (uint32_t k = 0; k < img->index.n_tensors; k++) {
        const struct tensor_info *i = &img->index.tensors[k];
        struct tensor_place at;
        int rc = family_place(&at, g->family, &g->p, i->name, e);
        if (rc)
            return rc;
        struct shape s = shape_of(g, at.t, i);
        rc = is_vector(at.t) ? check_vector(i, &s, e) : check_matrix(g, i, &s, e);
        if (rc)
            return rc;
        b->found[(size_t)at.slot * g->p.n_layers + at.layer] = i;
    }
    return 0;
}

static int missing(const struct family_tensor *t, uint32_t layer, struct err *e)
{
    char prefix[16] = "";
    if (t->of_layer)
        snprintf(prefix, sizeof prefix, "blk.%u.", layer);
    return err_set(e, ERR_FORMAT, "tensor %s%s: missing", prefix, t->name);
}

static int count(struct binding *b, const struct graph *g, struct err *e)
{
    for (uint32_t slot = 0; slot < b->n_slots; slot++) {
        const struct family_tensor *t = family_slot(g->family, slot);
        for (uint32_t layer = 0; layer < (t->of_layer ? g->p.n_layers : 1); layer++) {
            const struct tensor_info *i = found_at(b, g, slot, layer);
            if (!is_wanted(b, g, t, layer) && (i || graph_is_shard(&g->size)))
                continue;
            if (!i && family_needs(t, &g->p))
                return missing(t, layer, e);
            if (!i)
                continue;
            struct shape s = shape_of(g, t, i);
            if (is_vector(t))
                b->vector_bytes += aligned(s.col.n * sizeof(float));
            else if (is_copied(&s))
                b->copied_bytes += aligned(slice_bytes(&s, i));
            else
                b->mapped_bytes += slice_bytes(&s, i);
        }
    }
    return 0;
}

int binding_init(struct binding *b, const struct graph *g, const struct image *img, struct err *e)
{
    *b = (struct binding){.n_slots = family_n_slots(g->family)};
    b->found = calloc((size_t)b->n_slots * g->p.n_layers, sizeof *b->found);
    if (!b->found)
        return err_set(e, ERR_NOMEM, "binding %u tensors: out of memory", img->index.n_tensors);
    int rc = find_all(b, g, img, e);
    if (!rc)
        rc = count(b, g, e);
    if (rc)
        binding_fini(b);
    return rc;
}

void binding_fini(struct binding *b)
{
    free(b->found);
    b->found = NULL;
}

/* --- binding --------------------------------------------------------------------------------------------- */

struct taken { /* of graph.vectors and graph.copied */
    uint64_t vectors, copied;
};

static const float *vector_take(struct graph *g, struct taken *taken, const struct shape *s,
                                const uint8_t *data)
{
    float *to = (float *)(void *)((uint8_t *)g->vectors + taken->vectors);
    size_t from = s->is_slice ? 0 : s->col.first * sizeof(float);
    g->ops->copy(g->x, to, data + from, s->col.n * sizeof(float));
    taken->vectors += aligned(s->col.n * sizeof(float));
    return to;
}

/* Rows and columns of the slice, part after part. */
static const void *slice_copy(struct graph *g, struct taken *taken, const struct shape *s,
                              const struct tensor_info *i, const uint8_t *data)
{
    const struct tensor_type_info *type = tensor_type_info(i->type);
    uint8_t *to = (uint8_t *)g->copied + taken->copied, *begin = to;
    size_t whole_row = (size_t)s->cols / type->block_elems * type->block_bytes;
    size_t first = (size_t)s->col.first / type->block_elems * type->block_bytes;
    size_t n = (size_t)s->col.n / type->block_elems * type->block_bytes;
    for (uint32_t part = 0; part < s->n_parts; part++)
        for (uint32_t r = 0; r < s->row.n; r++, to += n)
            memcpy(to, data + ((size_t)part * s->rows + s->row.first + r) * whole_row + first, n);
    taken->copied += aligned((uint64_t)(to - begin));
    return begin;
}

static int matrix_bind(struct graph *g, struct taken *taken, struct weight *w,
                       const struct shape *s, const struct tensor_info *i, const uint8_t *data,
                       bool of_experts, struct err *e)
{
    const struct tensor_type_info *type = tensor_type_info(i->type);
    *w = (struct weight){
        .type = i->type,
        .n_rows = s->row.n,
        .n_cols = s->col.n,
        .n_experts = of_experts ? s->n_parts : 0,
        .row_bytes = (size_t)s->col.n / type->block_elems * type->block_bytes,
    };
    if (is_copied(s))
        w->data = slice_copy(g, taken, s, i, data);
    else
        w->data = data + (s->is_slice ? 0 : s->row.first * w->row_bytes);
    if (of_experts) /* those of a whole tensor are as far apart as there, whatever of them is ours */
        w->expert_bytes = (s->is_slice || is_copied(s) ? s->row.n : s->rows) * w->row_bytes;
    int rc = g->ops->weight_bind(g->x, w, i->name, e);
    if (rc)
        *w = (struct weight){0};
    return rc;
}

/* Without an output matrix of its own a model uses the embedding's, and of it the shard's rows. */
static int head_tie(struct graph *g, struct err *e)
{
    if (g->top.head.data || !g->part.is_last || graph_pools(g))
        return 0;
    struct span rows = shard_span(W_OUT, &g->p, &g->size);
    g->top.head = g->top.embd;
    if (rows.n == g->p.n_vocab && g->part.is_first)
        return 0;
    struct weight *w = &g->top.head;
    w->data = (const uint8_t *)w->data + rows.first * w->row_bytes;
    w->n_rows = rows.n;
    w->bound = NULL;
    int rc = g->ops->weight_bind(g->x, w, "token_embd.weight", e);
    if (rc)
        *w = (struct weight){0};
    return rc;
}

int binding_apply(const struct binding *b, struct graph *g, const struct image *img, struct err *e)
{
    struct taken taken = {0};
    for (uint32_t slot = 0; slot < b->n_slots; slot++) {
        const struct family_tensor *t = family_slot(g->family, slot);
        for (uint32_t layer = 0; layer < (t->of_layer ? g->p.n_layers : 1); layer++) {
            const struct tensor_info *i = found_at(b, g, slot, layer);
            if (!i || !is_wanted(b, g, t, layer))
                continue;
            struct shape s = shape_of(g, t, i);
            const uint8_t *data = image_data(img, i);
            uint8_t *place = (t->of_layer ? (uint8_t *)&g->layers[layer - g->part.layers.first]
                                          : (uint8_t *)&g->top) +
                             t->at;
            int rc = 0;
            if (is_vector(t))
                *(const float **)(void *)place = vector_take(g, &taken, &s, data);
            else
                rc = matrix_bind(g, &taken, (struct weight *)(void *)place, &s, i, data,
                                 t->of_experts, e);
            if (rc)
                return rc;
        }
    }
    return head_tie(g, e);
}
