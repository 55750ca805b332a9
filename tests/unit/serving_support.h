/* serving_support.h - requests of random shape to an engine with a tiny model, and what each of them says when it is alone. */
#ifndef EXA_TESTS_SERVING_SUPPORT_H
#define EXA_TESTS_SERVING_SUPPORT_H

#include "engine_support.h"

enum { KIND_CTX = 256, N_KINDS = 24, KIND_MAX_OUT = 40 };

/* One request, with its answer. */
struct kind {
    uint32_t n_prompt, prompt[KIND_CTX], n_out, out[KIND_MAX_OUT];
    struct sampling sampling;
};

static inline uint32_t dice(uint32_t *state, uint32_t n)
{
    return (tiny_random(state) >> 6) % n;
}

/* Prompts of all lengths, of which many begin alike; greedy ones and warm ones. */
static inline void kind_make(struct kind *k, uint32_t n_vocab, uint32_t *random)
{
    uint32_t salt = dice(random, 3), longest = KIND_CTX - KIND_MAX_OUT;
    k->n_prompt = 1 + (dice(random, 3) ? dice(random, 60) : dice(random, longest));
    uint32_t common = dice(random, k->n_prompt + 1);
    for (uint32_t i = 0; i < k->n_prompt; i++)
        k->prompt[i] = i < common ? (i * 7 + salt * 13) % n_vocab : dice(random, n_vocab);
    k->n_out = 1 + dice(random, KIND_MAX_OUT);
    k->sampling = (struct sampling){.top_p = 1};
    if (dice(random, 2))
        k->sampling = (struct sampling){
            .temperature = 0.3f, .top_p = 0.9f, .top_k = 20, .seed = dice(random, 1000)};
}

static inline void kind_job(struct job *j, const struct kind *k, uint32_t slot)
{
    job_init(j, slot, k->prompt, k->n_prompt, k->n_out);
    j->submit.sampling = k->sampling;
}

static inline struct engine *engine_of(const struct engine_config *c)
{
    struct engine *g;
    struct err e = ERR_INIT;
    MUST(engine_create(&g, c, &e), e);
    return g;
}

static inline void kinds_make(struct kind *kinds, uint32_t n, const char *image, uint32_t n_vocab)
{
    uint32_t random = 4711;
    struct engine *g = engine_of(&(struct engine_config){.kind = "cpu",
                                                         .image_path = image,
                                                         .n_ctx = KIND_CTX,
                                                         .n_slots = 1,
                                                         .no_prefix_cache = true});
    for (uint32_t i = 0; i < n; i++) {
        static struct job j;
        struct job *list[] = {&j};
        struct jobs jobs = {list, 1};
        struct err e = ERR_INIT;
        kind_make(&kinds[i], n_vocab, &random);
        kind_job(&j, &kinds[i], 0);
        MUST(engine_submit(g, &j.submit, 0, &e), e);
        while (jobs_step(g, &jobs))
            ;
        assert_int_equal(j.finish, FINISH_LENGTH);
        memcpy(kinds[i].out, j.out, j.n_out * sizeof *j.out);
    }
    engine_destroy(g);
}

static inline void assert_says(const struct job *j, const struct kind *k, uint32_t mix)
{
    if (memcmp(j->out, k->out, j->n_out * sizeof *k->out))
        fail_msg("mix %u: request %u says something else than alone", mix, j->submit.attempt.slot);
}

#endif
