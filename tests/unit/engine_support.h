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

static inline struct engine *support_engine(const char *kernels, uint32_t n_slots, uint32_t n_ctx,
                                            uint32_t n_threads, uint32_t chunk)
{
    struct engine *g;
    struct err e = ERR_INIT;
    struct engine_config c = {
        .kind = "cpu",
        .image_path = support_image(),
        .n_ctx = n_ctx,
        .n_slots = n_slots,
        .n_threads = n_threads,
        .chunk = chunk,
        .kernels = kernels,
    };
    MUST(engine_create(&g, &c, &e), e);
    return g;
}

#endif
