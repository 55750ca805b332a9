/* families_support.h - the tiny models of tests/golden/families as images in memory, and graphs that run on them.
 *
 * Weights are made from their names as tests/tools/make_families.py makes them; there is nothing else to a model but the
 * parameters in families.json.
 */
#ifndef EXA_TESTS_FAMILIES_SUPPORT_H
#define EXA_TESTS_FAMILIES_SUPPORT_H

#include "engine_support.h"

#include <jansson.h>
#include <math.h>

#include "engine/cpu/exec_cpu.h"
#include "engine/graph.h"
#include "model/blocks.h"

enum { FAMILY_MAX_PROMPT = 64, FAMILY_MAX_TENSORS = 128, FAMILY_MAX_POSITIONS = 8 };

/* One record of families.json. */
struct family_case {
    const char *name;
    struct model_params params;
    uint32_t n_ctx, n_prompt, n_positions, width;
    uint32_t prompt[FAMILY_MAX_PROMPT], positions[FAMILY_MAX_POSITIONS];
    const float *expected; /* [n_positions][width] */
    json_t *record;
};

static const char FAMILIES[] = "tests/golden/families/families.json";

static inline json_t *families_load(const char *path)
{
    json_error_t error;
    json_t *all = json_load_file(path, 0, &error);
    if (!all)
        fail_msg("%s: %s", path, error.text);
    return all;
}

static inline float *families_results(void)
{
    static float results[1 << 16];
    FILE *f = fopen("tests/golden/families/families.f32", "rb");
    assert_non_null(f);
    assert_true(fread(results, sizeof *results, sizeof results / sizeof *results, f) > 0);
    fclose(f);
    return results;
}

static inline uint32_t json_u32(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_true(v) ? 1 : v ? (uint32_t)json_number_value(v) : 0;
}

static inline float json_f32(const json_t *o, const char *key)
{
    return (float)json_number_value(json_object_get(o, key));
}

static inline struct model_params params_read(const json_t *o)
{
    struct model_params p = {
        .n_layers = json_u32(o, "n_layers"),
        .n_embd = json_u32(o, "n_embd"),
        .n_ff = json_u32(o, "n_ff"),
        .n_heads = json_u32(o, "n_heads"),
        .n_kv_heads = json_u32(o, "n_kv_heads"),
        .head_dim = json_u32(o, "head_dim"),
        .rope_dim = json_u32(o, "rope_dim"),
        .rope_base = json_f32(o, "rope_base"),
        .norm_eps = json_f32(o, "norm_eps"),
        .n_ctx = json_u32(o, "n_ctx"),
        .n_vocab = json_u32(o, "n_vocab"),
        .tied_embeddings = json_u32(o, "tied_embeddings"),
        .rope_scaling = (uint8_t)json_u32(o, "rope_scaling"),
        .rope_factor = json_f32(o, "rope_factor"),
        .rope_orig_ctx = json_u32(o, "rope_orig_ctx"),
        .rope_attn_factor = json_f32(o, "rope_attn_factor"),
        .yarn_beta_fast = json_f32(o, "yarn_beta_fast"),
        .yarn_beta_slow = json_f32(o, "yarn_beta_slow"),
        .rope_low_factor = json_f32(o, "rope_low_factor"),
        .rope_high_factor = json_f32(o, "rope_high_factor"),
        .window = json_u32(o, "window"),
        .window_from = json_u32(o, "window_from"),
        .nope_every = json_u32(o, "nope_every"),
        .n_experts = json_u32(o, "n_experts"),
        .n_experts_used = json_u32(o, "n_experts_used"),
        .n_ff_expert = json_u32(o, "n_ff_expert"),
        .experts_renorm = json_u32(o, "experts_renorm"),
        .pooling = (uint8_t)json_u32(o, "pooling"),
    };
    const char *arch = json_string_value(json_object_get(o, "arch"));
    snprintf(p.arch, sizeof p.arch, "%s", arch ? arch : "");
    return p;
}

static inline uint32_t numbers_read(uint32_t *out, uint32_t max, const json_t *list)
{
    uint32_t n = (uint32_t)json_array_size(list);
    assert_true(n <= max);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return n;
}

/* o and results must outlive c. */
static inline void family_read(struct family_case *c, json_t *o, const float *results)
{
    *c = (struct family_case){
        .name = json_string_value(json_object_get(o, "name")),
        .params = params_read(json_object_get(o, "params")),
        .n_ctx = json_u32(o, "n_ctx"),
        .width = json_u32(o, "width"),
        .expected = results + json_u32(o, "first_float"),
        .record = o,
    };
    c->n_prompt = numbers_read(c->prompt, FAMILY_MAX_PROMPT, json_object_get(o, "prompt"));
    c->n_positions =
        numbers_read(c->positions, FAMILY_MAX_POSITIONS, json_object_get(o, "positions"));
}

/* --- weights --------------------------------------------------------------------------------------------- */

static inline uint64_t name_hash(const char *name) /* FNV-1a */
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001b3u;
    return h;
}

/* Value k of tensor `name`: weights() of make_families.py. */
static inline float family_weight(const char *name, uint64_t hash, uint64_t k)
{
    uint64_t x = hash + (k + 1) * 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    size_t n = strlen(name);
    float v = (float)((int64_t)((x >> 33) % 255) - 127) / 128;
    if (strstr(name, "norm"))
        return 1 + v / 4;
    if (!strncmp(name, "token_embd", 10) || strstr(name, "gate_inp"))
        return v;
    return n > 5 && !strcmp(name + n - 5, ".bias") ? v / 2 : v / 4;
}

/* About a normal distribution instead of a flat one, and with more bits than any block format keeps: the sum of four. */
static inline float family_weight_smooth(const char *name, uint64_t hash, uint64_t k)
{
    float v = 0;
    for (uint64_t i = 0; i < 4; i++)
        v += family_weight(name, hash, 4 * k + i);
    return strstr(name, "norm") ? v / 4 : v * 0.5f / 3;
}

/* GGUF keeps the halves of a rotated head as pairs: row 2 * i + b of a head is row i + b * head_dim / 2. */
static inline uint32_t family_row(const struct model_params *p, const char *name, uint32_t row)
{
    bool pairs = !strcmp(p->arch, "llama") || !strcmp(p->arch, "smollm3");
    if (!pairs || (!strstr(name, ".attn_q.") && !strstr(name, ".attn_k.")))
        return row;
    uint32_t in_head = row % p->head_dim;
    return row - in_head + in_head / 2 + in_head % 2 * (p->head_dim / 2);
}

struct family_shape {
    const char *name;
    uint32_t rows, cols, n_parts; /* rows 0: a vector */
};

typedef float (*weight_fn)(const char *name, uint64_t hash, uint64_t k);

/* values: [n_parts][rows][cols] */
static inline void family_weights(float *values, const struct model_params *p,
                                  const struct family_shape *s, weight_fn weight)
{
    uint64_t hash = name_hash(s->name);
    bool vector = s->rows == 0;
    uint32_t rows = vector ? s->cols : s->rows, cols = vector ? 1 : s->cols;
    for (uint32_t part = 0; part < s->n_parts; part++)
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t c = 0; c < cols; c++)
                *values++ = weight(s->name, hash,
                                   ((uint64_t)part * rows + family_row(p, s->name, r)) * cols + c);
}

/* --- images in memory ------------------------------------------------------------------------------------ */

/* given: tensors whose values are listed, NULL: none. type: of matrices but the router. The image is like one from image_open, but for its memory. */
static inline void image_make(struct image *img, const struct model_params *p,
                              const struct family_shape *shapes, uint32_t n, int type,
                              const json_t *given, weight_fn weight)
{
    static struct tensor_info list[FAMILY_MAX_TENSORS];
    struct err e = ERR_INIT;
    memset(img, 0, sizeof *img);
    img->fd = -1;
    meta_init(&img->meta);
    img->meta.params = *p;
    assert_true(n <= FAMILY_MAX_TENSORS);
    for (uint32_t i = 0; i < n; i++) {
        const struct family_shape *s = &shapes[i];
        bool f32 = s->rows == 0 || strstr(s->name, "gate_inp");
        list[i] = (struct tensor_info){
            .type = f32 ? TENSOR_F32 : type,
            .n_dims = s->rows == 0     ? 1
                      : s->n_parts > 1 ? 3
                                       : 2,
            .dims = {s->cols, s->rows ? s->rows : 1, s->n_parts, 1},
        };
        snprintf(list[i].name, sizeof list[i].name, "%s", s->name);
    }
    MUST(index_build(&img->index, list, n, &e), e);
    uint8_t *map = aligned_alloc(TENSOR_ALIGN, (img->index.image_bytes + TENSOR_ALIGN - 1) /
                                                   TENSOR_ALIGN * TENSOR_ALIGN);
    assert_non_null(map);
    for (uint32_t i = 0; i < n; i++) {
        const struct tensor_info *t = &img->index.tensors[i];
        size_t count = (size_t)(t->dims[0] * t->dims[1] * t->dims[2]);
        float *values = malloc(count * sizeof *values);
        const json_t *fixed = given ? json_object_get(given, t->name) : NULL;
        for (size_t k = 0; fixed && k < count; k++)
            values[k] = (float)json_number_value(json_array_get(fixed, k));
        if (!fixed)
            family_weights(values, p, &shapes[i], weight);
        block_pack(t->type, map + t->image_offset, values, count);
        free(values);
    }
    img->map = map;
    img->map_bytes = img->index.image_bytes;
}

static inline void image_drop(struct image *img)
{
    free((void *)img->map);
    img->map = NULL;
    index_fini(&img->index);
    meta_fini(&img->meta);
}

static inline uint32_t shapes_read(struct family_shape *out, const struct family_case *c)
{
    uint32_t n = 0;
    const char *name;
    json_t *v;
    json_object_foreach(json_object_get(c->record, "shapes"), name, v)
    {
        uint32_t d[3] = {0}, n_dims = numbers_read(d, 3, v);
        out[n++] = n_dims == 1   ? (struct family_shape){name, 0, d[0], 1}
                   : n_dims == 2 ? (struct family_shape){name, d[0], d[1], 1}
                                 : (struct family_shape){name, d[1], d[2], d[0]};
    }
    json_object_foreach(json_object_get(c->record, "tensors"), name, v)
    {
        out[n++] = (struct family_shape){name, 0, (uint32_t)json_array_size(v), 1};
    }
    return n;
}

static inline void family_image(struct image *img, const struct family_case *c, int type)
{
    struct family_shape shapes[FAMILY_MAX_TENSORS];
    uint32_t n = shapes_read(shapes, c);
    image_make(img, &c->params, shapes, n, type, json_object_get(c->record, "tensors"),
               family_weight);
}

/* --- running --------------------------------------------------------------------------------------------- */

enum { RUN_SEQS = 3 };

/* A graph with room for RUN_SEQS sequences, whose KV blocks lie in no order. */
struct run {
    struct graph *g;
    struct exec *x;
    uint32_t *tables, stride;
};

static inline struct graph_size run_size(uint32_t n_ctx, int kv_type)
{
    uint32_t stride = (n_ctx + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    return (struct graph_size){
        .n_ctx = n_ctx,
        .n_seqs = RUN_SEQS,
        .max_rows = RUN_SEQS * FAMILY_MAX_PROMPT,
        .max_out = RUN_SEQS * FAMILY_MAX_PROMPT,
        .n_blocks = RUN_SEQS * stride,
        .kv_type = kv_type,
    };
}

static inline void run_tables(struct run *r, const struct graph_size *size)
{
    r->stride = size->n_blocks / RUN_SEQS;
    r->tables = malloc(size->n_blocks * sizeof *r->tables);
    for (uint32_t i = 0; i < size->n_blocks; i++)
        r->tables[i] = size->n_blocks - 1 - i;
}

static inline void run_open(struct run *r, const struct image *img, const struct graph_size *size,
                            const char *kernels, uint32_t n_threads)
{
    const struct kernels *k;
    struct err e = ERR_INIT;
    MUST(kernels_find(&k, kernels, &e), e);
    MUST(exec_cpu_create(&r->x, k, n_threads, graph_max_cols(&img->meta.params), size->n_ctx, &e),
         e);
    MUST(graph_create(&r->g, img, size, &OPS_CPU, r->x, &e), e);
    run_tables(r, size);
}

static inline void run_close(struct run *r)
{
    graph_destroy(r->g);
    exec_cpu_destroy(r->x);
    free(r->tables);
}

/* A step of rows n of a prompt from `from` on, each with an output, for sequence seq; then those of `company`, a text in another
 * sequence, without outputs. */
static inline void run_step(struct run *r, uint32_t seq, const uint32_t *prompt, uint32_t from,
                            uint32_t n, uint32_t n_company)
{
    struct batch_row rows[2 * FAMILY_MAX_PROMPT];
    struct err e = ERR_INIT;
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < n_company; i++)
        rows[n_rows++] = (struct batch_row){(seq + 1) % RUN_SEQS, i, (i * 37 + 5) % 96, ROW_NO_OUT};
    for (uint32_t i = 0; i < n; i++)
        rows[n_rows++] = (struct batch_row){seq, from + i, prompt[from + i], i};
    MUST(graph_forward(r->g, &(struct step){rows, n_rows, n, r->tables, r->stride}, &e), e);
    for (uint32_t i = 0; i < n_rows; i++)
        assert_int_equal(graph_bad_layer(r->g, i), 0);
}

/* What a position brings: logits, or the hidden state of an embedding model. */
static inline const float *run_result(const struct run *r, const struct model_params *p, uint32_t i)
{
    return p->pooling == POOLING_NONE ? graph_logits(r->g, i) : graph_hidden(r->g, i);
}

static inline double nmse(const float *got, const float *expected, size_t n)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        off += ((double)got[i] - expected[i]) * ((double)got[i] - expected[i]);
        all += (double)expected[i] * expected[i];
    }
    return off / all;
}

#endif
