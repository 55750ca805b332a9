/* model_llama.c - see model_llama.h. Tensors are bound by name and checked for shape before anything is computed. */
#include "engine/model_llama.h"

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

struct llama {
    struct model_params p;
    struct llama_size size;
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
    float *logits;        /* [n_slots][n_vocab] */
    uint16_t *bad;        /* [max_rows] */
    uint16_t *bad_logits; /* [n_slots] */
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

int llama_check(const struct model_params *p, struct err *e)
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

uint32_t llama_max_cols(const struct model_params *p)
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

static uint64_t scratch_lay(struct llama *m, void *base)
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
    m->logits = carve(&c, (uint64_t)m->size.n_slots * p->n_vocab, sizeof *m->logits);
    m->bad = carve(&c, rows, sizeof *m->bad);
    m->bad_logits = carve(&c, m->size.n_slots, sizeof *m->bad_logits);
    return c.used;
}

struct llama_memory llama_memory(const struct model_params *p, const struct llama_size *size)
{
    struct llama m = {.p = *p, .size = *size};
    return (struct llama_memory){
        .kv_bytes =
            (uint64_t)size->n_slots * size->n_ctx * p->n_layers * 2 * kv_dim(p) * sizeof(float),
        .scratch_bytes = scratch_lay(&m, NULL),
    };
}

/* --- binding tensors ------------------------------------------------------------------------------------- */

static int bind_matrix(struct llama *m, struct weight *w, const struct image *img, const char *name,
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
    *w = (struct weight){data, t->type, n_rows, n_cols, t->n_bytes / n_rows};
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

static int bind_layer(struct llama *m, uint32_t i, const struct image *img, struct err *e)
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
static int refuse_unused(const struct llama *m, const struct image *img, struct err *e)
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

static int bind_all(struct llama *m, const struct image *img, struct err *e)
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

static void angles_fill(struct llama *m)
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

static int memory_take(struct llama *m, struct err *e)
{
    const struct model_params *p = &m->p;
    struct llama_memory need = llama_memory(p, &m->size);
    m->scratch_bytes = need.scratch_bytes;
    m->kv_bytes = need.kv_bytes;
    m->scratch = m->ops->buffer_alloc(m->x, need.scratch_bytes);
    m->kv = (struct kv_cache){
        .data = m->ops->buffer_alloc(m->x, need.kv_bytes),
        .n_slots = m->size.n_slots,
        .n_layers = p->n_layers,
        .n_kv_heads = p->n_kv_heads,
        .n_ctx = m->size.n_ctx,
        .head_dim = p->head_dim,
    };
    if (!m->scratch || !m->kv.data)
        return err_set(e, ERR_NOMEM, "taking %" PRIu64 " bytes of KV and %" PRIu64 " of scratch",
                       need.kv_bytes, need.scratch_bytes);
    scratch_lay(m, m->scratch);
    angles_fill(m);
    return 0;
}

int llama_create(struct llama **out, const struct image *img, const struct llama_size *size,
                 const struct ops *ops, struct exec *x, struct err *e)
{
    struct llama *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_NOMEM, "model: out of memory");
    m->p = img->meta.params;
    m->size = *size;
    m->ops = ops;
    m->x = x;
    int rc = llama_check(&m->p, e);
    if (!rc && !(m->layers = calloc(m->p.n_layers, sizeof *m->layers)))
        rc = err_set(e, ERR_NOMEM, "model: out of memory");
    if (!rc)
        rc = bind_all(m, img, e);
    if (!rc)
        rc = memory_take(m, e);
    if (rc) {
        llama_destroy(m);
        return rc;
    }
    *out = m;
    return 0;
}

void llama_destroy(struct llama *m)
{
    if (!m)
        return;
    m->ops->buffer_free(m->x, m->scratch, m->scratch_bytes);
    m->ops->buffer_free(m->x, m->kv.data, m->kv_bytes);
    free(m->layers);
    free(m);
}

/* --- the graph ------------------------------------------------------------------------------------------- */

static void attention(struct llama *m, uint32_t i, const struct batch_row *rows, uint32_t n)
{
    const struct model_params *p = &m->p;
    const struct ops *o = m->ops;
    const struct layer *l = &m->layers[i];
    const struct matmul qkv[] = {
        {m->q, q_dim(p), &l->wq}, {m->k, kv_dim(p), &l->wk}, {m->v, kv_dim(p), &l->wv}};
    const struct matmul project = {m->normed, p->n_embd, &l->wo};

    o->norm(m->x, m->normed, m->resid, l->attn_norm, n, p->n_embd, p->norm_eps);
    o->matmul(m->x, qkv, 3, m->normed, p->n_embd, n);
    o->rope(m->x, m->q, p->n_heads, p->head_dim, p->rope_dim, m->angles, rows, n);
    o->rope(m->x, m->k, p->n_kv_heads, p->head_dim, p->rope_dim, m->angles, rows, n);
    o->kv_store(m->x, &m->kv, i, m->k, m->v, rows, n);
    o->attend(m->x, m->att, m->q, p->n_heads, &m->kv, i, rows, n);
    o->matmul(m->x, &project, 1, m->att, q_dim(p), n);
    o->add(m->x, m->resid, m->normed, n, p->n_embd);
}

static void feed_forward(struct llama *m, uint32_t i, uint32_t n)
{
    const struct model_params *p = &m->p;
    const struct ops *o = m->ops;
    const struct layer *l = &m->layers[i];
    const struct matmul gate_up[] = {{m->gate, p->n_ff, &l->w_gate}, {m->up, p->n_ff, &l->w_up}};
    const struct matmul down = {m->normed, p->n_embd, &l->w_down};

    o->norm(m->x, m->normed, m->resid, l->ffn_norm, n, p->n_embd, p->norm_eps);
    o->matmul(m->x, gate_up, 2, m->normed, p->n_embd, n);
    o->silu_mul(m->x, m->gate, m->up, n, p->n_ff);
    o->matmul(m->x, &down, 1, m->gate, p->n_ff, n);
    o->add(m->x, m->resid, m->normed, n, p->n_embd);
}

/* Gather the rows that want logits to the front of resid, then norm and head on those only. */
static void head(struct llama *m, const struct batch_row *rows, uint32_t n)
{
    const struct model_params *p = &m->p;
    uint32_t n_out = 0;
    for (uint32_t r = 0; r < n; r++)
        if (rows[r].wants_logits) {
            CHECK(n_out < m->size.n_slots);
            if (n_out != r)
                memcpy(m->resid + (size_t)n_out * p->n_embd, m->resid + (size_t)r * p->n_embd,
                       p->n_embd * sizeof *m->resid);
            n_out++;
        }
    const struct matmul logits = {m->logits, p->n_vocab, &m->head};
    m->ops->norm(m->x, m->normed, m->resid, m->out_norm, n_out, p->n_embd, p->norm_eps);
    m->ops->matmul(m->x, &logits, 1, m->normed, p->n_embd, n_out);
    memset(m->bad_logits, 0, n_out * sizeof *m->bad_logits);
    m->ops->mark_nonfinite(m->x, m->bad_logits, (uint16_t)(1 + p->n_layers), m->logits, n_out,
                           p->n_vocab);
    for (uint32_t r = 0, i = 0; r < n; r++)
        if (rows[r].wants_logits) {
            if (!m->bad[r])
                m->bad[r] = m->bad_logits[i];
            i++;
        }
}

void llama_forward(struct llama *m, const struct batch_row *rows, uint32_t n)
{
    CHECK(n <= m->size.max_rows);
    memset(m->bad, 0, n * sizeof *m->bad);
    m->ops->embed(m->x, m->resid, &m->embd, rows, n);
    for (uint32_t i = 0; i < m->p.n_layers; i++) {
        attention(m, i, rows, n);
        feed_forward(m, i, n);
        m->ops->mark_nonfinite(m->x, m->bad, (uint16_t)(1 + i), m->resid, n, m->p.n_embd);
    }
    head(m, rows, n);
}

const float *llama_logits(const struct llama *m, uint32_t i)
{
    return m->logits + (size_t)i * m->p.n_vocab;
}

uint32_t llama_bad_layer(const struct llama *m, uint32_t r)
{
    return m->bad[r];
}
