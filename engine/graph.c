/* graph.c - see graph.h. Tensors are bound by name and checked for shape before anything is computed. */
#include "engine/graph.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LANES = 8, /* widths are whole vectors of the CPU kernels */
    MAX_HEAD_DIM = 256,
    MAX_HEAD_GROUP = 64,
};

struct layer {
    const float *attn_norm, *ffn_norm; /* [n_embd] */
    struct weight wq, wk, wv, wo;      /* rows: q heads, kv heads, kv heads, n_embd */
    struct weight w_gate, w_up;        /* [n_ff][n_embd] */
    struct weight w_down;              /* [n_embd][n_ff] */
};

struct graph {
    struct model_params p;
    struct graph_size size;
    const struct ops *ops;
    struct exec *x;

    struct weight embd, head; /* [n_vocab][n_embd] */
    const float *out_norm;
    struct layer *layers; /* [n_layers] */

    struct kv_cache kv;
    void *scratch;        /* all that follows lies in it */
    float *angles;        /* [n_ctx][rope_dim / 2][cos, sin] */
    float *resid;         /* [max_rows][n_embd]: the residual stream */
    float *normed;        /* [max_rows][n_embd] */
    float *q, *att;       /* [max_rows][q_dim] */
    float *k, *v;         /* [max_rows][kv_dim] */
    float *gate, *up;     /* [max_rows][n_ff] */
    float *out;           /* [max_out][n_embd] */
    float *logits;        /* [max_out][n_vocab] */
    uint16_t *bad;        /* [max_rows] */
    uint16_t *bad_logits; /* [max_out] */
    float *pools;         /* [n_seqs][n_embd] */
    uint64_t scratch_bytes, kv_bytes;
};

static uint32_t q_dim(const struct model_params *p)
{
    return p->n_heads * p->head_dim;
}

static uint32_t kv_dim(const struct model_params *p)
{
    return p->n_kv_heads * p->head_dim;
}

int graph_check(const struct model_params *p, struct err *e)
{
    if (strcmp(p->arch, "llama"))
        return err_set(e, ERR_FORMAT, "architecture %s: this engine runs llama", p->arch);
    if (!p->n_layers || !p->n_heads || !p->n_kv_heads || !p->n_vocab || p->n_layers > 1024)
        return err_set(e, ERR_FORMAT, "model has %u layers, %u heads, %u kv heads, %u tokens",
                       p->n_layers, p->n_heads, p->n_kv_heads, p->n_vocab);
    if (p->n_heads % p->n_kv_heads || p->n_heads / p->n_kv_heads > MAX_HEAD_GROUP)
        return err_set(e, ERR_FORMAT, "%u heads cannot share %u kv heads", p->n_heads,
                       p->n_kv_heads);
    if (!p->head_dim || p->head_dim % LANES || p->head_dim > MAX_HEAD_DIM)
        return err_set(e, ERR_FORMAT, "head size %u: expected a multiple of %d up to %d",
                       p->head_dim, LANES, MAX_HEAD_DIM);
    if (!p->n_embd || p->n_embd % LANES || !p->n_ff || p->n_ff % LANES)
        return err_set(e, ERR_FORMAT, "widths %u and %u: expected multiples of %d", p->n_embd,
                       p->n_ff, LANES);
    if (!p->rope_dim || p->rope_dim % 2 || p->rope_dim > p->head_dim)
        return err_set(e, ERR_FORMAT, "rotary size %u: expected an even number up to %u",
                       p->rope_dim, p->head_dim);
    if (!(p->rope_base > 1) || !(p->norm_eps > 0) || !isfinite(p->rope_base))
        return err_set(e, ERR_FORMAT, "rotary base %g, norm epsilon %g", (double)p->rope_base,
                       (double)p->norm_eps);
    return 0;
}

uint32_t graph_max_cols(const struct model_params *p)
{
    uint32_t n = p->n_embd > p->n_ff ? p->n_embd : p->n_ff;
    return n > q_dim(p) ? n : q_dim(p);
}

/* Lay the scratch out, or with base NULL only measure it. Each array starts on a cache line. */
struct carve {
    uint8_t *base;
    uint64_t used;
};

static void *carve(struct carve *c, uint64_t n, size_t elem_bytes)
{
    void *p = c->base ? c->base + c->used : NULL;
    c->used += (n * elem_bytes + 63) / 64 * 64;
    return p;
}

static uint64_t scratch_lay(struct graph *m, void *base)
{
    const struct model_params *p = &m->p;
    uint64_t rows = m->size.max_rows;
    struct carve c = {base, 0};
    m->angles = carve(&c, (uint64_t)m->size.n_ctx * p->rope_dim, sizeof *m->angles);
    m->resid = carve(&c, rows * p->n_embd, sizeof *m->resid);
    m->normed = carve(&c, rows * p->n_embd, sizeof *m->normed);
    m->q = carve(&c, rows * q_dim(p), sizeof *m->q);
    m->att = carve(&c, rows * q_dim(p), sizeof *m->att);
    m->k = carve(&c, rows * kv_dim(p), sizeof *m->k);
    m->v = carve(&c, rows * kv_dim(p), sizeof *m->v);
    m->gate = carve(&c, rows * p->n_ff, sizeof *m->gate);
    m->up = carve(&c, rows * p->n_ff, sizeof *m->up);
    m->out = carve(&c, (uint64_t)m->size.max_out * p->n_embd, sizeof *m->out);
    m->logits = carve(&c, (uint64_t)m->size.max_out * p->n_vocab, sizeof *m->logits);
    m->bad = carve(&c, rows, sizeof *m->bad);
    m->bad_logits = carve(&c, m->size.max_out, sizeof *m->bad_logits);
    m->pools = carve(&c, (uint64_t)m->size.n_seqs * p->n_embd, sizeof *m->pools);
    return c.used;
}

int graph_memory(struct graph_memory *out, const struct image *img, const struct graph_size *size,
                 const struct ops *ops, struct err *e)
{
    const struct model_params *p = &img->meta.params;
    struct graph m = {.p = *p, .size = *size};
    int rc = graph_check(p, e);
    if (rc)
        return rc;
    *out = (struct graph_memory){
        .weight_bytes = img->index.data_bytes,
        .kv_bytes = size->n_blocks * (uint64_t)ops->kv_block_bytes(size->kv_type, p->n_layers,
                                                                   p->n_kv_heads, p->head_dim),
        .scratch_bytes = scratch_lay(&m, NULL),
    };
    return 0;
}

/* --- binding tensors ------------------------------------------------------------------------------------- */

static int bind_matrix(struct graph *m, struct weight *w, const struct image *img, const char *name,
                       uint32_t n_rows, uint32_t n_cols, struct err *e)
{
    const struct tensor_info *t = NULL;
    const void *data = image_tensor(img, name, &t);
    if (!data)
        return err_set(e, ERR_FORMAT, "tensor %s: missing", name);
    if (t->dims[0] != n_cols || t->dims[1] != n_rows || t->dims[2] > 1 || t->dims[3] > 1)
        return err_set(e, ERR_FORMAT,
                       "tensor %s: expected %u rows of %u, found %" PRIu64 " of %" PRIu64, name,
                       n_rows, n_cols, t->dims[1], t->dims[0]);
    if (t->n_bytes % n_rows)
        return err_set(e, ERR_FORMAT, "tensor %s: %" PRIu64 " bytes are no %u equal rows", name,
                       t->n_bytes, n_rows);
    *w = (struct weight){.data = data,
                         .type = t->type,
                         .n_rows = n_rows,
                         .n_cols = n_cols,
                         .row_bytes = t->n_bytes / n_rows};
    return m->ops->weight_bind(m->x, w, name, e);
}

static int bind_vector(const float **out, const struct image *img, const char *name, uint32_t n,
                       struct err *e)
{
    const struct tensor_info *t = NULL;
    const void *data = image_tensor(img, name, &t);
    if (!data)
        return err_set(e, ERR_FORMAT, "tensor %s: missing", name);
    if (t->type != TENSOR_F32 || t->dims[0] != n || t->n_bytes != (uint64_t)n * sizeof(float))
        return err_set(e, ERR_FORMAT,
                       "tensor %s: expected %u F32 values, found %" PRIu64 " of type %d", name, n,
                       t->dims[0], t->type);
    *out = data;
    return 0;
}

static int bind_layer(struct graph *m, uint32_t i, const struct image *img, struct err *e)
{
    const struct model_params *p = &m->p;
    struct layer *l = &m->layers[i];
    const struct {
        const char *name;
        struct weight *w;
        uint32_t n_rows, n_cols;
    } matrices[] = {
        {"attn_q", &l->wq, q_dim(p), p->n_embd},      {"attn_k", &l->wk, kv_dim(p), p->n_embd},
        {"attn_v", &l->wv, kv_dim(p), p->n_embd},     {"attn_output", &l->wo, p->n_embd, q_dim(p)},
        {"ffn_gate", &l->w_gate, p->n_ff, p->n_embd}, {"ffn_up", &l->w_up, p->n_ff, p->n_embd},
        {"ffn_down", &l->w_down, p->n_embd, p->n_ff},
    };
    const struct {
        const char *name;
        const float **v;
    } vectors[] = {{"attn_norm", &l->attn_norm}, {"ffn_norm", &l->ffn_norm}};
    char name[TENSOR_NAME_BYTES];
    int rc = 0;
    for (size_t k = 0; k < sizeof matrices / sizeof matrices[0] && !rc; k++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", i, matrices[k].name);
        rc = bind_matrix(m, matrices[k].w, img, name, matrices[k].n_rows, matrices[k].n_cols, e);
    }
    for (size_t k = 0; k < sizeof vectors / sizeof vectors[0] && !rc; k++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", i, vectors[k].name);
        rc = bind_vector(vectors[k].v, img, name, p->n_embd, e);
    }
    return rc;
}

/* A tensor that the graph does not use would mean another model than the one we compute. */
static int refuse_unused(const struct graph *m, const struct image *img, struct err *e)
{
    uint32_t n_used = m->p.n_layers * 9 + 2 + (m->head.data != m->embd.data);
    if (img->index.n_tensors == n_used)
        return 0;
    for (uint32_t i = 0; i < img->index.n_tensors; i++) {
        const char *name = img->index.tensors[i].name;
        size_t n = strlen(name);
        if ((n > 5 && !strcmp(name + n - 5, ".bias")) || strstr(name, "rope_") ||
            strstr(name, "_exps") || strstr(name, "q_norm") || strstr(name, "k_norm"))
            return err_set(e, ERR_FORMAT, "tensor %s: this engine's llama graph has no use for it",
                           name);
    }
    return err_set(e, ERR_FORMAT, "model has %u tensors, its %u layers account for %u",
                   img->index.n_tensors, m->p.n_layers, n_used);
}

static int bind_all(struct graph *m, const struct image *img, struct err *e)
{
    const struct model_params *p = &m->p;
    int rc = bind_matrix(m, &m->embd, img, "token_embd.weight", p->n_vocab, p->n_embd, e);
    if (!rc)
        rc = bind_vector(&m->out_norm, img, "output_norm.weight", p->n_embd, e);
    if (!rc && image_tensor(img, "output.weight", &(const struct tensor_info *){NULL}))
        rc = bind_matrix(m, &m->head, img, "output.weight", p->n_vocab, p->n_embd, e);
    else if (!rc)
        m->head = m->embd;
    for (uint32_t i = 0; i < p->n_layers && !rc; i++)
        rc = bind_layer(m, i, img, e);
    return rc ? rc : refuse_unused(m, img, e);
}

/* --- life ------------------------------------------------------------------------------------------------ */

static void angles_fill(struct graph *m)
{
    uint32_t half = m->p.rope_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        double turn = pow(m->p.rope_base, -2.0 * i / m->p.rope_dim);
        for (uint32_t pos = 0; pos < m->size.n_ctx; pos++) {
            float *a = m->angles + 2 * ((size_t)pos * half + i);
            a[0] = (float)cos(pos * turn);
            a[1] = (float)sin(pos * turn);
        }
    }
}

static int memory_take(struct graph *m, const struct image *img, struct err *e)
{
    const struct model_params *p = &m->p;
    struct graph_memory need;
    int rc = graph_memory(&need, img, &m->size, m->ops, e);
    if (rc)
        return rc;
    m->scratch_bytes = need.scratch_bytes;
    m->kv_bytes = need.kv_bytes;
    m->scratch = m->ops->mem_alloc(m->x, MEM_DEVICE, need.scratch_bytes);
    m->kv = (struct kv_cache){
        .data = m->ops->mem_alloc(m->x, MEM_DEVICE, need.kv_bytes),
        .type = m->size.kv_type,
        .n_blocks = m->size.n_blocks,
        .n_layers = p->n_layers,
        .n_kv_heads = p->n_kv_heads,
        .head_dim = p->head_dim,
        .block_bytes =
            m->ops->kv_block_bytes(m->size.kv_type, p->n_layers, p->n_kv_heads, p->head_dim),
    };
    if (!m->scratch || !m->kv.data)
        return err_set(e, ERR_NOMEM, "taking %" PRIu64 " bytes of KV and %" PRIu64 " of scratch",
                       need.kv_bytes, need.scratch_bytes);
    scratch_lay(m, m->scratch);
    angles_fill(m);
    return 0;
}

int graph_create(struct graph **out, const struct image *img, const struct graph_size *size,
                 const struct ops *ops, struct exec *x, struct err *e)
{
    struct graph *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_NOMEM, "model: out of memory");
    m->p = img->meta.params;
    m->size = *size;
    m->ops = ops;
    m->x = x;
    int rc = graph_check(&m->p, e);
    if (!rc && !(m->layers = calloc(m->p.n_layers, sizeof *m->layers)))
        rc = err_set(e, ERR_NOMEM, "model: out of memory");
    if (!rc)
        rc = bind_all(m, img, e);
    if (!rc)
        rc = memory_take(m, img, e);
    if (rc) {
        graph_destroy(m);
        return rc;
    }
    *out = m;
    return 0;
}

void graph_destroy(struct graph *m)
{
    if (!m)
        return;
    m->ops->mem_free(m->x, MEM_DEVICE, m->scratch, m->scratch_bytes);
    m->ops->mem_free(m->x, MEM_DEVICE, m->kv.data, m->kv_bytes);
    free(m->layers);
    free(m);
}

/* --- the graph ------------------------------------------------------------------------------------------- */

static void attention(struct graph *m, uint32_t i, const struct step *s)
{
    const struct model_params *p = &m->p;
    const struct ops *o = m->ops;
    const struct layer *l = &m->layers[i];
    uint32_t n = s->n_rows;
    const struct matmul qkv[] = {{.y = m->q, .y_stride = q_dim(p), .w = &l->wq},
                                 {.y = m->k, .y_stride = kv_dim(p), .w = &l->wk},
                                 {.y = m->v, .y_stride = kv_dim(p), .w = &l->wv}};
    const struct matmul project = {
        .y = m->resid, .y_stride = p->n_embd, .w = &l->wo, .accumulate = true};

    o->norm(m->x, m->normed, m->resid, l->attn_norm, n, p->n_embd, p->norm_eps);
    o->matmul(m->x, qkv, 3, m->normed, p->n_embd, n);
    o->rope(m->x, m->q, p->n_heads, p->head_dim, p->rope_dim, ROPE_PAIRS, m->angles, s->rows, n);
    o->rope(m->x, m->k, p->n_kv_heads, p->head_dim, p->rope_dim, ROPE_PAIRS, m->angles, s->rows, n);
    o->kv_store(m->x, &m->kv, i, m->k, m->v, s);
    o->attend(m->x, m->att, m->q, p->n_heads, &m->kv, i, 0, s);
    o->matmul(m->x, &project, 1, m->att, q_dim(p), n);
}

static void feed_forward(struct graph *m, uint32_t i, uint32_t n)
{
    const struct model_params *p = &m->p;
    const struct ops *o = m->ops;
    const struct layer *l = &m->layers[i];
    const struct matmul gate_up[] = {{.y = m->gate, .y_stride = p->n_ff, .w = &l->w_gate},
                                     {.y = m->up, .y_stride = p->n_ff, .w = &l->w_up}};
    const struct matmul down = {
        .y = m->resid, .y_stride = p->n_embd, .w = &l->w_down, .accumulate = true};

    o->norm(m->x, m->normed, m->resid, l->ffn_norm, n, p->n_embd, p->norm_eps);
    o->matmul(m->x, gate_up, 2, m->normed, p->n_embd, n);
    o->silu_mul(m->x, m->gate, m->up, n, p->n_ff);
    o->matmul(m->x, &down, 1, m->gate, p->n_ff, n);
}

/* Norm and head on the rows with outputs only. */
static void head(struct graph *m, const struct step *s)
{
    const struct model_params *p = &m->p;
    const struct matmul logits = {.y = m->logits, .y_stride = p->n_vocab, .w = &m->head};
    m->ops->gather(m->x, m->out, m->resid, p->n_embd, s);
    m->ops->norm(m->x, m->out, m->out, m->out_norm, s->n_out, p->n_embd, p->norm_eps);
    m->ops->matmul(m->x, &logits, 1, m->out, p->n_embd, s->n_out);
    memset(m->bad_logits, 0, s->n_out * sizeof *m->bad_logits);
    m->ops->mark_nonfinite(m->x, m->bad_logits, (uint16_t)(1 + p->n_layers), m->logits, s->n_out,
                           p->n_vocab);
    for (uint32_t r = 0; r < s->n_rows; r++)
        if (s->rows[r].out != ROW_NO_OUT && !m->bad[r])
            m->bad[r] = m->bad_logits[s->rows[r].out];
}

/* Mean pooling is over the states after the last norm, in order of position. */
static void pool(struct graph *m, const struct step *s)
{
    uint32_t width = m->p.n_embd;
    m->ops->norm(m->x, m->normed, m->resid, m->out_norm, s->n_rows, width, m->p.norm_eps);
    for (uint32_t r = 0; r < s->n_rows; r++)
        for (uint32_t i = 0; i < width; i++)
            m->pools[(size_t)s->rows[r].seq * width + i] += m->normed[(size_t)r * width + i];
}

int graph_forward(struct graph *m, const struct step *s, struct err *e)
{
    CHECK(s->n_rows <= m->size.max_rows && s->n_out <= m->size.max_out);
    memset(m->bad, 0, s->n_rows * sizeof *m->bad);
    m->ops->embed(m->x, m->resid, &m->embd, s->rows, s->n_rows);
    for (uint32_t i = 0; i < m->p.n_layers; i++) {
        attention(m, i, s);
        feed_forward(m, i, s->n_rows);
        m->ops->mark_nonfinite(m->x, m->bad, (uint16_t)(1 + i), m->resid, s->n_rows, m->p.n_embd);
    }
    if (m->p.pooling == POOLING_MEAN)
        pool(m, s);
    head(m, s);
    return m->ops->stream_sync(m->x, NULL, e);
}

float *graph_logits(const struct graph *m, uint32_t i)
{
    return m->logits + (size_t)i * m->p.n_vocab;
}

uint32_t graph_bad_layer(const struct graph *m, uint32_t r)
{
    return m->bad[r];
}

const float *graph_hidden(const struct graph *m, uint32_t i)
{
    return m->out + (size_t)i * m->p.n_embd;
}

const float *graph_pool(const struct graph *m, uint32_t s)
{
    return m->pools + (size_t)s * m->p.n_embd;
}

void graph_pool_reset(struct graph *m, uint32_t s)
{
    memset(m->pools + (size_t)s * m->p.n_embd, 0, m->p.n_embd * sizeof *m->pools);
}

void graph_kv_copy(struct graph *m, uint32_t from_block, uint32_t to_block)
{
    m->ops->kv_copy(m->x, &m->kv, from_block, to_block);
}
