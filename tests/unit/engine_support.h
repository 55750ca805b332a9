/* engine_support.h - what the engine's tests share: the real model as a node image, requests, and what came of them. */
#ifndef EXA_TESTS_ENGINE_SUPPORT_H
#define EXA_TESTS_ENGINE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/err.h"
#include "engine/engine.h"
#include "model/gguf.h"
#include "model/image.h"

/* Sanitizers make kernels many times slower: tests on the real model then do less. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { INSTRUMENTED = 1 };
#else
enum { INSTRUMENTED = 0 };
#endif

static inline const char *env_or(const char *name, const char *otherwise)
{
    const char *v = getenv(name);
    return v && *v ? v : otherwise;
}

#define MUST(rc, e)                                                                                \
    do {                                                                                           \
        if (rc)                                                                                    \
            fail_msg("%s: %s", err_name((e).code), (e).text);                                      \
    } while (0)

/* Put a model into an image under `cache`; every segment is hashed as a pack would have it. path: [4096] */
static inline void support_image_build(char *path, const char *cache, struct model_meta *meta,
                                       struct model_index *x, const uint8_t *const *data)
{
    struct err e = ERR_INIT;
    struct buf bytes;
    buf_init(&bytes, META_MAX_BYTES);
    MUST(meta_encode(meta, &bytes, &e), e);
    for (uint32_t s = 0; s < x->n_segments; s++) {
        struct segment seg = index_segment(x, s);
        sha256_of(data[seg.tensor] + seg.offset, seg.n_bytes, x->hashes[s]);
    }
    sha256_of(bytes.data, bytes.len, x->meta_hash);
    MUST(index_seal(x, &e), e);
    struct image_writer *w;
    MUST(image_writer_open(&w, cache, x, bytes.data, bytes.len, 120000000, &e), e);
    const uint8_t *have = image_writer_have(w);
    for (uint32_t s = 0; s < x->n_segments; s++) {
        struct segment seg = index_segment(x, s);
        if (!(have[s / 8] >> s % 8 & 1))
            MUST(image_writer_put(w, s, data[seg.tensor] + seg.offset, seg.n_bytes, &e), e);
    }
    MUST(image_writer_finish(w, path, 4096, &e), e);
    image_writer_close(w);
    buf_fini(&bytes);
}

/* Path of the real model's image, built on the first call; NULL: there is no model here (tests skip). */
static inline const char *support_image(void)
{
    static char path[4096];
    const char *model =
        env_or("EXASERVE_TEST_MODEL", "build/model/SmolLM2-135M-Instruct.Q4_1.gguf");
    if (*path)
        return path;
    if (access(model, R_OK)) {
        print_message("skipped: no model at %s (make model, or set EXASERVE_TEST_MODEL)\n", model);
        return NULL;
    }
    struct gguf g;
    struct err e = ERR_INIT;
    MUST(gguf_open(&g, model, &e), e);
    support_image_build(path, env_or("EXASERVE_TEST_CACHE", "build/test-cache"), &g.meta, &g.index,
                        g.tensor_data);
    gguf_close(&g);
    return path;
}

/* One request and what its steps brought. */
struct job {
    struct msg_submit submit;
    uint32_t tokens[8192]; /* as submitted: prompt and log, little-endian machine */
    uint32_t n_out;
    uint32_t out[4096];
    int finish;
    uint32_t n_results; /* results after the last one is a fault */
    struct err error;
};

static inline void job_init(struct job *j, uint32_t slot, const uint32_t *tokens, uint32_t n,
                            uint32_t max_tokens)
{
    memset(j, 0, sizeof *j);
    memcpy(j->tokens, tokens, n * sizeof *tokens);
    j->submit = (struct msg_submit){
        .attempt = {.router = 1, .router_inc = 7, .slot = slot, .generation = 1},
        .sampling = {.top_p = 1},
        .max_tokens = max_tokens,
        .ignore_eos = true,
        .n_tokens = n,
        .tokens = (const uint8_t *)j->tokens,
    };
}

struct jobs {
    struct job **list;
    uint32_t n;
};

static inline void jobs_take(void *ctx, const struct step_result *r)
{
    struct jobs *jobs = ctx;
    for (uint32_t i = 0; i < jobs->n; i++) {
        struct job *j = jobs->list[i];
        if (memcmp(&j->submit.attempt, &r->attempt, sizeof r->attempt))
            continue;
        assert_int_equal(j->finish, FINISH_NONE);
        assert_int_equal(r->position, j->submit.start + j->n_out);
        for (uint32_t k = 0; k < r->n_tokens; k++)
            j->out[j->n_out++] = r->tokens[k];
        j->finish = r->finish;
        j->n_results++;
        if (r->error)
            j->error = *r->error;
        return;
    }
    fail_msg("a result for an attempt that nobody submitted");
}

static inline int jobs_step(struct engine *g, struct jobs *jobs)
{
    struct err e = ERR_INIT;
    int rc = engine_step(g, clock_now_us(), jobs_take, jobs, &e);
    if (rc < 0)
        fail_msg("%s: %s", err_name(e.code), e.text);
    return rc;
}

static inline struct engine *support_engine(const char *image, const char *kernels,
                                            uint32_t n_slots, uint32_t n_ctx, uint32_t n_threads,
                                            uint32_t chunk)
{
    struct engine *g;
    struct err e = ERR_INIT;
    struct engine_config c = {
        .kind = "cpu",
        .image_path = image,
        .n_ctx = n_ctx,
        .n_slots = n_slots,
        .n_threads = n_threads,
        .chunk = chunk,
        .kernels = kernels,
    };
    MUST(engine_create(&g, &c, &e), e);
    return g;
}

static inline bool support_avx2(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
#else
    return false;
#endif
}

/* --- a model of a few thousand made-up weights ----------------------------------------------------------- */

enum { TINY_VOCAB = 97, TINY_EMBD = 64, TINY_FF = 96, TINY_LAYERS = 2, TINY_CTX = 256 };

struct tiny {
    int type;           /* of matrices; embedding Q8_0 */
    const char *drop;   /* tensor left out */
    const char *narrow; /* tensor with half as many rows */
    const char *poison; /* F32 tensor with a NaN in it */
    const char *extra;  /* one tensor more, of this name */
    float norm_scale;   /* 0: 1 */
    uint8_t pooling;    /* enum pooling */
};

static inline uint32_t tiny_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Blocks with made-up contents; scales are small constants. */
static inline void tiny_fill(uint8_t *p, const struct tensor_info *t, uint32_t *state)
{
    const struct tensor_type_info *type = tensor_type_info(t->type);
    for (uint64_t i = 0; i < t->n_bytes; i++)
        p[i] = (uint8_t)tiny_random(state);
    for (uint64_t at = 0; at < t->n_bytes; at += type->block_bytes) {
        float f = ((float)(tiny_random(state) % 2001) - 1000) / 8000;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        switch (t->type) {
        case TENSOR_F32:
            memcpy(p + at, &f, 4);
            break;
        case TENSOR_BF16:
            memcpy(p + at, (uint8_t *)&bits + 2, 2);
            break;
        case TENSOR_F16:
            p[at + 1] = (uint8_t)((p[at + 1] & 0x83) | 0x2c); /* 2^-4 to 2^-3 */
            break;
        case TENSOR_Q8_0:
            memcpy(p + at, "\x00\x14", 2); /* d = 2^-10 */
            break;
        case TENSOR_Q4_1:
            memcpy(p + at, "\x00\x20\x00\xac", 4); /* d = 2^-7, m = -8 d */
            break;
        case TENSOR_Q4_0:
            memcpy(p + at, "\x00\x20", 2);
            break;
        default:
            fail_msg("no made-up blocks of type %d", t->type);
        }
    }
}

struct tiny_tensors {
    struct tensor_info list[64];
    uint32_t n;
};

static inline void tiny_add(struct tiny_tensors *t, const struct tiny *o, const char *name,
                            int type, uint32_t rows, uint32_t cols)
{
    if (o->drop && !strcmp(o->drop, name))
        return;
    if (o->narrow && !strcmp(o->narrow, name))
        rows /= 2;
    struct tensor_info *i = &t->list[t->n++];
    *i = (struct tensor_info){.type = type, .n_dims = rows > 1 ? 2 : 1, .dims = {cols, rows, 1, 1}};
    snprintf(i->name, sizeof i->name, "%s", name);
}

static inline void tiny_layers(struct tiny_tensors *t, const struct tiny *o)
{
    static const struct {
        const char *name;
        bool is_norm;
        uint32_t rows, cols;
    } PARTS[] = {
        {"attn_norm", true, 1, TINY_EMBD},
        {"attn_q", false, TINY_EMBD, TINY_EMBD},
        {"attn_k", false, TINY_EMBD / 2, TINY_EMBD},
        {"attn_v", false, TINY_EMBD / 2, TINY_EMBD},
        {"attn_output", false, TINY_EMBD, TINY_EMBD},
        {"ffn_norm", true, 1, TINY_EMBD},
        {"ffn_gate", false, TINY_FF, TINY_EMBD},
        {"ffn_up", false, TINY_FF, TINY_EMBD},
        {"ffn_down", false, TINY_EMBD, TINY_FF},
    };
    for (uint32_t l = 0; l < TINY_LAYERS; l++)
        for (size_t i = 0; i < sizeof PARTS / sizeof PARTS[0]; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s.weight", l, PARTS[i].name);
            tiny_add(t, o, name, PARTS[i].is_norm ? TENSOR_F32 : o->type, PARTS[i].rows,
                     PARTS[i].cols);
        }
}

static inline void tiny_meta(struct model_meta *m)
{
    meta_init(m);
    snprintf(m->name, sizeof m->name, "tiny");
    m->params = (struct model_params){
        .arch = "llama",
        .n_layers = TINY_LAYERS,
        .n_embd = TINY_EMBD,
        .n_ff = TINY_FF,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = 16,
        .rope_dim = 16,
        .rope_base = 10000,
        .norm_eps = 1e-5f,
        .n_ctx = TINY_CTX,
        .n_vocab = TINY_VOCAB,
        .tied_embeddings = true,
    };
    struct tokenizer_data *t = &m->tok;
    strcpy(t->model, "gpt2");
    strcpy(t->pre, "smollm");
    t->bos = t->eos = t->unk = t->pad = -1;
    t->n_tokens = TINY_VOCAB;
    t->tokens = calloc(TINY_VOCAB, sizeof *t->tokens);
    t->types = malloc(TINY_VOCAB);
    memset(t->types, TOKEN_NORMAL, TINY_VOCAB);
    for (int i = 0; i < TINY_VOCAB; i++) {
        char text[16];
        snprintf(text, sizeof text, "t%d", i);
        t->tokens[i] = strdup(text);
    }
}

/* Builds the image and returns its path [4096]. */
static inline void tiny_image(char *path, const struct tiny *o)
{
    struct tiny_tensors t = {.n = 0};
    struct model_meta meta;
    struct model_index x;
    struct err e = ERR_INIT;
    uint32_t state = 12345;
    tiny_meta(&meta);
    meta.params.pooling = o->pooling;
    tiny_add(&t, o, "token_embd.weight", TENSOR_Q8_0, TINY_VOCAB, TINY_EMBD);
    tiny_add(&t, o, "output_norm.weight", TENSOR_F32, 1, TINY_EMBD);
    tiny_layers(&t, o);
    if (o->extra)
        tiny_add(&t, o, o->extra, TENSOR_F32, 1, TINY_EMBD);
    MUST(index_build(&x, t.list, t.n, &e), e);
    const uint8_t **data = calloc(x.n_tensors, sizeof *data);
    for (uint32_t i = 0; i < x.n_tensors; i++) {
        const struct tensor_info *info = &x.tensors[i];
        uint8_t *p = malloc(info->n_bytes);
        tiny_fill(p, info, &state);
        float *f = (float *)(void *)p;
        for (uint32_t k = 0; info->type == TENSOR_F32 && info->n_dims == 1 && k < info->dims[0];
             k++)
            f[k] = (o->norm_scale ? o->norm_scale : 1) + f[k];
        if (o->poison && !strcmp(o->poison, info->name))
            memcpy(p, "\x00\x00\xc0\x7f", 4); /* NaN */
        data[i] = p;
    }
    support_image_build(path, env_or("EXASERVE_TEST_CACHE", "build/test-cache"), &meta, &x, data);
    for (uint32_t i = 0; i < x.n_tensors; i++)
        free((void *)data[i]);
    free(data);
    index_fini(&x);
    meta_fini(&meta);
}

#endif
