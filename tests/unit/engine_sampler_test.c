/* engine_sampler_test.c - every parameter against a slow reference written on its own (sorting all, exp() of the C library), exact
 * continuation from every position, and hostile values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/constraint.h"
#include "engine/sampler.h"
#include "model/meta.h"
#include "tests/tools/byte_model.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { INSTRUMENTED = 1 };
#else
enum { INSTRUMENTED = 0 };
#endif
enum { MAX_VOCAB = 5000, N_CTX = 512 };

static uint64_t rnd_state = 1;
static uint32_t rnd(uint32_t n)
{
    rnd_state = rnd_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rnd_state >> 33) % n;
}
static float rnd_between(double a, double b)
{
    return (float)(a + (b - a) * rnd(1 << 30) / (1 << 30));
}

static struct sampler_pool *pool_make(uint32_t n_vocab, uint32_t n_samplers)
{
    struct sampler_pool *p;
    struct err e = ERR_INIT;
    struct model_meta meta = {.params = {.n_vocab = n_vocab}};
    if (sampler_pool_create(&p, &meta, n_samplers, N_CTX, &e))
        fail_msg("%s", e.text);
    return p;
}

/* --- a request as a test writes it ------------------------------------------------------------------------ */
struct ask {
    struct msg_submit m;
    uint32_t tokens[N_CTX]; /* little-endian machine */
    uint32_t stops[4];
    struct {
        uint32_t id;
        float value;
    } bias[16];
};

static void ask_init(struct ask *a, struct sampling p, uint32_t n_prompt, uint32_t n_vocab)
{
    *a = (struct ask){0};
    a->m = (struct msg_submit){.sampling = p,
                               .max_tokens = N_CTX,
                               .n_tokens = n_prompt,
                               .tokens = (const uint8_t *)a->tokens,
                               .stop_ids = (const uint8_t *)a->stops,
                               .bias = (const uint8_t *)a->bias};
    for (uint32_t i = 0; i < n_prompt; i++)
        a->tokens[i] = rnd(n_vocab);
}

static struct sampler *start(struct sampler_pool *p, uint32_t i, const struct ask *a)
{
    struct sampler *s;
    struct err e = ERR_INIT;
    if (sampler_start(p, i, &a->m, &s, &e))
        fail_msg("%s", e.text);
    return s;
}

/* --- the reference ---------------------------------------------------------------------------------------- */
struct entry {
    uint32_t id;
    double x, p, key;
};
static int by_likelihood(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->x != y->x ? (x->x < y->x) - (x->x > y->x) : (x->id > y->id) - (x->id < y->id);
}
static int by_key(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                            : (x->id > y->id) - (x->id < y->id);
}
static int by_id(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static void ref_apply(const struct ask *a, uint32_t position, float *x)
{
    const struct sampling *p = &a->m.sampling;
    uint32_t n_prompt = a->m.n_tokens - a->m.start;
    for (uint32_t i = 0; i < a->m.n_bias; i++)
        x[a->bias[i].id] += a->bias[i].value;
    for (uint32_t i = 0; i < a->m.n_tokens; i++) {
        uint32_t id = a->tokens[i], n_before = 0, n_answer = 0;
        for (uint32_t k = 0; k < a->m.n_tokens; k++) {
            n_before += k < i && a->tokens[k] == id;
            n_answer += k >= n_prompt && a->tokens[k] == id;
        }
        if (n_before)
            continue;
        if (p->repetition_penalty != 0)
            x[id] = x[id] > 0 ? x[id] / p->repetition_penalty : x[id] * p->repetition_penalty;
        x[id] -= (float)n_answer * p->frequency_penalty;
        x[id] -= n_answer ? p->presence_penalty : 0;
    }
    for (uint32_t i = 0; position < p->min_tokens && i < a->m.n_stop_ids; i++)
        x[a->stops[i]] = -INFINITY;
}

static uint32_t shortest(struct entry *r, uint32_t n, double share)
{
    double total = 0, sum = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        total += r[i].p;
    while (kept < n && (!kept || sum < share * total))
        sum += r[kept++].p;
    return kept;
}

/* x: after ref_apply. */
static uint32_t ref_choose(const struct sampling *p, uint32_t position, const float *x, uint32_t n)
{
    static struct entry r[MAX_VOCAB];
    for (uint32_t i = 0; i < n; i++)
        r[i] = (struct entry){.id = i, .x = x[i]};
    qsort(r, n, sizeof *r, by_likelihood);
    if (p->temperature == 0)
        return r[0].id;
    for (uint32_t i = 0; i < n; i++)
        r[i].p = exp((r[i].x - r[0].x) / (double)p->temperature);
    if (p->top_k && p->top_k < n)
        n = p->top_k;
    if (p->top_p > 0)
        n = shortest(r, n, p->top_p);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (r[i].p >= (double)p->min_p)
            r[kept++] = r[i];
    n = kept;
    if (p->typical_p > 0) {
        double total = 0, entropy = 0;
        for (uint32_t i = 0; i < n; i++)
            total += r[i].p;
        for (uint32_t i = 0; i < n; i++)
            if (r[i].p > 0)
                entropy -= r[i].p / total * log(r[i].p / total);
        for (uint32_t i = 0; i < n; i++)
            r[i].key = fabs(-log(r[i].p / total) - entropy);
        qsort(r, n, sizeof *r, by_key);
        n = shortest(r, n, p->typical_p);
    }
    qsort(r, n, sizeof *r, by_id);
    double total = 0, sum = 0, u = sample_uniform(p->seed, position);
    for (uint32_t i = 0; i < n; i++)
        total += r[i].p;
    for (uint32_t i = 0; i < n; i++)
        if ((sum += r[i].p) > u * total)
            return r[i].id;
    return r[n - 1].id;
}

/* Like a language model's: a bulk, a few that stand out, sometimes equal ones. */
static void random_logits(float *x, uint32_t n)
{
    uint32_t kind = rnd(4);
    for (uint32_t i = 0; i < n; i++)
        x[i] = kind == 0   ? rnd_between(-1, 1)
               : kind == 1 ? (float)rnd(4) - 1 /* many are equal */
                           : rnd_between(-8, 0) + rnd_between(0, 8);
    for (uint32_t i = 0; kind == 2 && i < 20; i++)
        x[rnd(n)] += rnd_between(4, 20);
}

static struct sampling random_sampling(void)
{
    struct sampling p = {.seed = rnd(1 << 30)};
    static const float TEMPERATURES[] = {0, 0.05f, 0.7f, 1, 1, 2, 100};
    p.temperature = TEMPERATURES[rnd(7)];
    if (rnd(2))
        p.top_k = rnd(2) ? 1 + rnd(50) : 1 + rnd(MAX_VOCAB);
    if (rnd(2))
        p.top_p = rnd(2) ? rnd_between(0.0001, 1) : 1;
    if (!rnd(3))
        p.min_p = rnd(2) ? rnd_between(0, 0.3) : 1;
    if (!rnd(3))
        p.typical_p = rnd(2) ? rnd_between(0.01, 1) : 1;
    if (!rnd(3))
        p.repetition_penalty = rnd_between(0.5, 2);
    if (!rnd(3))
        p.frequency_penalty = rnd_between(-2, 2);
    if (!rnd(3))
        p.presence_penalty = rnd_between(-2, 2);
    return p;
}

static void check_logprobs(const struct drawn *d, const float *x, uint32_t n, uint32_t n_top)
{
    double max = -INFINITY, sum = 0;
    uint32_t n_before = 0;
    for (uint32_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (uint32_t i = 0; i < n; i++) {
        sum += exp(x[i] - max);
        n_before += x[i] > x[d->token] || (x[i] == x[d->token] && i < d->token);
    }
    assert_float_equal(d->logprob, x[d->token] - max - log(sum), 2e-6 * (1 + fabs(d->logprob)));
    assert_int_equal(d->rank, n_before);
    assert_int_equal(d->n_top, n_top < n ? n_top : n);
    for (uint32_t i = 0; i < d->n_top; i++) {
        const struct token_logprob *t = &d->top[i];
        assert_float_equal(t->logprob, x[t->id] - max - log(sum), 2e-6 * (1 + fabs(t->logprob)));
        uint32_t rank = 0;
        for (uint32_t k = 0; k < n; k++)
            rank += x[k] > x[t->id] || (x[k] == x[t->id] && k < t->id);
        assert_int_equal(rank, i);
    }
}

/* The token for a given random number is the reference's, for any parameters. */
static void test_every_parameter_as_the_reference(void **unused)
{
    static const uint32_t SIZES[] = {2, 7, 64, 65, 300, MAX_VOCAB};
    static float x[MAX_VOCAB], raw[MAX_VOCAB], ref[MAX_VOCAB];
    struct sampler_pool *pools[6];
    for (int i = 0; i < 6; i++)
        pools[i] = pool_make(SIZES[i], 1);
    int n_trials = INSTRUMENTED ? 600 : 6000;
    for (int trial = 0; trial < n_trials; trial++) {
        static struct ask a;
        uint32_t size = rnd(6), n = SIZES[size], position = rnd(20);
        ask_init(&a, random_sampling(), 1 + rnd(30), n);
        if (trial % 3 == 0) {
            a.m.sampling.want_logprobs = true;
            a.m.sampling.n_top = (uint8_t)rnd(21);
        }
        a.m.start = rnd(a.m.n_tokens);
        if (n > 4 && !rnd(3)) {
            a.m.sampling.min_tokens = rnd(30);
            a.m.n_stop_ids = 2;
            a.stops[0] = rnd(n);
            a.stops[1] = rnd(n);
        }
        for (a.m.n_bias = rnd(2) ? rnd(16) : 0; a.m.n_bias && !a.bias[a.m.n_bias - 1].value;)
            for (uint32_t i = 0; i < a.m.n_bias; i++) {
                a.bias[i].id = rnd(n);
                a.bias[i].value = rnd(4) ? rnd_between(-5, 5) : -100;
            }
        random_logits(raw, n);
        memcpy(x, raw, sizeof x);
        memcpy(ref, raw, sizeof x);
        struct sampler *s = start(pools[size], 0, &a);
        struct drawn d;
        struct err e = ERR_INIT;
        assert_int_equal(sampler_draw(s, position, x, &d, &e), 0);
        ref_apply(&a, position, ref);
        uint32_t want = ref_choose(&a.m.sampling, position, ref, n);
        if (d.token != want) {
            const struct sampling *p = &a.m.sampling;
            fail_msg("trial %d of %u: token %u, expected %u (t %g k %u p %g min %g typical %g)",
                     trial, n, d.token, want, p->temperature, p->top_k, p->top_p, p->min_p,
                     p->typical_p);
        }
        if (a.m.sampling.want_logprobs)
            check_logprobs(&d, raw, n, a.m.sampling.n_top);
    }
    for (int i = 0; i < 6; i++)
        sampler_pool_destroy(pools[i]);
}

/* Log-probabilities of any token, as the prompt's are given. */
static void test_score(void **unused)
{
    enum { N = 300 };
    static float x[N];
    static struct ask a;
    struct sampler_pool *p = pool_make(N, 1);
    ask_init(&a, (struct sampling){.n_top = 20}, 1, N);
    struct sampler *s = start(p, 0, &a);
    for (int i = 0; i < 200; i++) {
        struct drawn d;
        random_logits(x, N);
        uint32_t token = rnd(N);
        sampler_score(s, x, token, &d);
        assert_int_equal(d.token, token);
        check_logprobs(&d, x, N, 20);
    }
    struct drawn d;
    x[4] = -INFINITY; /* must fit into JSON */
    sampler_score(s, x, 4, &d);
    assert_true(d.logprob == -9999.0f);
    assert_int_equal(d.rank, N - 1);
    sampler_score(s, x, N, &d);
    assert_true(d.logprob == -9999.0f);
    x[4] = NAN;
    sampler_score(s, x, 4, &d);
    assert_true(d.logprob == -9999.0f && d.n_top == 0);
    sampler_pool_destroy(p);
}

/* --- going on from any position --------------------------------------------------------------------------- */

/* What a model would say: any function of all tokens so far. */
static void model_logits(const uint32_t *tokens, uint32_t n_tokens, float *x, uint32_t n_vocab)
{
    uint64_t h = n_tokens;
    for (uint32_t i = 0; i < n_tokens; i++)
        h = (h ^ tokens[i]) * 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < n_vocab; i++) {
        h = h * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((double)(h >> 33) / (1u << 31) * 8 - 4);
    }
}

struct live {
    uint32_t n;
    uint32_t tokens[N_CTX];
    struct drawn drawn[N_CTX];
};

/* Draw up to position n_end into out, from where a's log ends. */
static void run(struct sampler_pool *p, uint32_t i, struct ask *a, uint32_t n_vocab, uint32_t n_end,
                struct live *out)
{
    static float x[MAX_VOCAB];
    struct sampler *s = start(p, i, a);
    uint32_t n = a->m.n_tokens;
    for (uint32_t position = a->m.start; position < n_end; position++, n++) {
        struct err e = ERR_INIT;
        model_logits(a->tokens, n, x, n_vocab);
        if (sampler_draw(s, position, x, &out->drawn[position], &e))
            fail_msg("position %u: %s", position, e.text);
        a->tokens[n] = out->tokens[position] = out->drawn[position].token;
    }
    out->n = n_end;
}

/* The whole of it is left in `whole`. */
static void check_restarts(struct sampler_pool *pool, struct sampling p,
                           enum constraint_kind constraint, const char *source, const char *name,
                           struct live *whole)
{
    enum { N = BYTE_MODEL_VOCAB, PROMPT = 9, END = 48 };
    static struct ask a;
    static struct live again;
    ask_init(&a, p, PROMPT, N);
    a.m.constraint = constraint;
    a.m.constraint_source = source;
    a.m.constraint_bytes = (uint32_t)strlen(source);
    a.m.n_stop_ids = 2;
    a.stops[0] = 7;
    a.stops[1] = BYTE_MODEL_EOS;
    a.m.n_bias = 2;
    a.bias[0].id = 3;
    a.bias[0].value = 2;
    a.bias[1].id = 5;
    a.bias[1].value = -100;
    run(pool, 0, &a, N, END, whole);
    for (uint32_t k = 0; k <= END; k++) {
        a.m.start = k;
        a.m.n_tokens = PROMPT + k;
        memset(&again, 0, sizeof again);
        run(pool, 1, &a, N, END, &again);
        for (uint32_t i = k; i < END; i++)
            if (memcmp(&again.drawn[i], &whole->drawn[i], sizeof again.drawn[i]))
                fail_msg("%s: from %u on, position %u differs: token %u, was %u", name, k, i,
                         again.tokens[i], whole->tokens[i]);
    }
}

static struct sampler_pool *byte_pool(void)
{
    struct sampler_pool *pool;
    struct err e = ERR_INIT;
    struct model_meta meta;
    byte_model_meta(&meta);
    if (sampler_pool_create(&pool, &meta, 2, N_CTX, &e))
        fail_msg("%s", e.text);
    meta_fini(&meta);
    return pool;
}

static void test_goes_on_from_every_position(void **unused)
{
    const struct {
        const char *name;
        struct sampling p;
    } CASES[] = {
        {"greedy", {.temperature = 0}},
        {"plain", {.temperature = 1}},
        {"top_k", {.temperature = 1, .top_k = 20}},
        {"top_p", {.temperature = 1, .top_p = 0.8f}},
        {"min_p", {.temperature = 1, .min_p = 0.1f}},
        {"typical_p", {.temperature = 1, .typical_p = 0.6f}},
        {"repetition", {.temperature = 1, .repetition_penalty = 1.7f}},
        {"frequency", {.temperature = 1, .frequency_penalty = 1.5f}},
        {"presence", {.temperature = 1, .presence_penalty = 1.5f}},
        {"greedy penalties", {.repetition_penalty = 1.2f, .frequency_penalty = 0.3f}},
        {"min_tokens", {.temperature = 1, .min_tokens = 25}},
        {"logprobs", {.temperature = 1, .want_logprobs = true, .n_top = 20}},
        {"all",
         {.temperature = 0.9f,
          .top_k = 60,
          .top_p = 0.95f,
          .min_p = 0.01f,
          .typical_p = 0.9f,
          .repetition_penalty = 1.3f,
          .frequency_penalty = 0.5f,
          .presence_penalty = -0.5f,
          .min_tokens = 30,
          .want_logprobs = true,
          .n_top = 5,
          .seed = 77}},
    };
    static struct live whole;
    struct sampler_pool *pool = byte_pool();
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        check_restarts(pool, CASES[i].p, CONSTRAINT_NONE, "", CASES[i].name, &whole);
    sampler_pool_destroy(pool);
}

/* The text up to the end; false: it has not ended. */
static bool text_of(const struct live *l, char out[N_CTX + 1])
{
    uint32_t i = 0;
    for (; i < l->n && l->tokens[i] >= BYTE_MODEL_FIRST; i++)
        out[i] = (char)(l->tokens[i] - BYTE_MODEL_FIRST);
    out[i] = 0;
    return i < l->n;
}

static void test_constraints_go_on_from_every_position(void **unused)
{
    const struct {
        enum constraint_kind kind;
        const char *source;
    } CASES[] = {
        {CONSTRAINT_JSON_OBJECT, ""},
        {CONSTRAINT_JSON_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":3},\"b\":{"
         "\"enum\":"
         "[\"x\",null]}},\"required\":[\"a\",\"b\"],\"additionalProperties\":false}"},
        {CONSTRAINT_REGEX, "(ab|[x-z]{2,30}\\d*)+q?"},
        {CONSTRAINT_CHOICE,
         "[\"yes\",\"no\",\"a longer one, which takes more steps than the others\"]"},
        {CONSTRAINT_GBNF, "root ::= item+ \"!\"\nitem ::= \"<\" [a-c]* item? \">\""},
    };
    const struct sampling PARAMETERS[] = {
        {.temperature = 1},
        {.temperature = 2, .top_p = 0.9f, .repetition_penalty = 1.2f, .seed = 4},
        {.temperature = 1, .min_tokens = 20, .want_logprobs = true, .n_top = 3},
        {.temperature = 1, .top_k = 30, .frequency_penalty = 0.2f, .typical_p = 0.9f},
        {.temperature = 0},
    };
    static struct live whole;
    char text[N_CTX + 1];
    struct sampler_pool *pool = byte_pool();
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        for (size_t k = 0; k < sizeof PARAMETERS / sizeof PARAMETERS[0]; k++) {
            check_restarts(pool, PARAMETERS[k], CASES[i].kind, CASES[i].source, CASES[i].source,
                           &whole);
            bool ended = text_of(&whole, text);
            struct err e = ERR_INIT;
            struct grammar *g;
            struct grammar_state state;
            assert_int_equal(grammar_create(&g, (enum grammar_kind)(CASES[i].kind - 1),
                                            CASES[i].source, strlen(CASES[i].source), NULL, &e),
                             0);
            grammar_state_init(&state, g);
            if (grammar_accept_bytes(&state, text, strlen(text), &e))
                fail_msg("%s: %s", text, e.text);
            assert_true(!ended || grammar_is_complete(&state));
            grammar_unref(g);
        }
    sampler_pool_destroy(pool);
}

static void test_constraints_refused(void **unused)
{
    static struct ask a;
    struct sampler *s;
    struct err e = ERR_INIT;
    struct sampler_pool *p = pool_make(100, 1);
    ask_init(&a, (struct sampling){0}, 1, 100);
    a.m.constraint = CONSTRAINT_JSON_OBJECT;
    assert_int_equal(sampler_start(p, 0, &a.m, &s, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "no tokenizer"));
    sampler_pool_destroy(p);
    p = byte_pool();
    a.m.constraint = CONSTRAINT_GBNF;
    a.m.constraint_source = "root ::= other";
    a.m.constraint_bytes = 14;
    int rc = sampler_start(p, 0, &a.m, &s, &e);
    assert_true(rc == ERR_FORMAT || rc == ERR_CONFIG);
    assert_non_null(strstr(e.text, "other"));
    a.m.constraint_source = "root ::= \"abc\"";
    a.tokens[1] = BYTE_MODEL_FIRST + 'a'; /* a log that the constraint does not allow */
    a.tokens[2] = BYTE_MODEL_FIRST + 'x';
    a.m.n_tokens = 3;
    a.m.start = 2;
    assert_int_equal(sampler_start(p, 0, &a.m, &s, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "position 1 of the log"));
    sampler_pool_destroy(p);
}

/* More different ones than are kept: those in use stay, the others make room. */
static void test_constraints_are_bounded(void **unused)
{
    enum { N_SAMPLERS = CONSTRAINT_MAX_ENTRIES + 1 };
    static struct ask a;
    struct sampler_pool *pool;
    struct sampler *s[N_SAMPLERS];
    struct model_meta meta;
    struct err e = ERR_INIT;
    byte_model_meta(&meta);
    assert_int_equal(sampler_pool_create(&pool, &meta, N_SAMPLERS, N_CTX, &e), 0);
    meta_fini(&meta);
    char source[64];
    ask_init(&a, (struct sampling){0}, 1, 100);
    a.m.constraint = CONSTRAINT_GBNF;
    a.m.constraint_source = source;
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < N_SAMPLERS; i++) {
            a.m.constraint_bytes =
                (uint32_t)snprintf(source, sizeof source, "root ::= \"%d %u\"", round, i);
            int rc = sampler_start(pool, i, &a.m, &s[i], &e);
            assert_int_equal(rc, i < CONSTRAINT_MAX_ENTRIES ? 0 : ERR_AGAIN);
        }
        a.m.constraint_bytes =
            (uint32_t)snprintf(source, sizeof source, "root ::= \"%d 7\"", round);
        assert_int_equal(sampler_start(pool, N_SAMPLERS - 1, &a.m, &s[N_SAMPLERS - 1], &e), 0);
        for (uint32_t i = 0; i < N_SAMPLERS; i++)
            sampler_end(s[i]);
    }
    sampler_pool_destroy(pool);
}

/* --- ends and hostile values ------------------------------------------------------------------------------ */

static void test_ends(void **unused)
{
    static struct ask a;
    struct sampler_pool *p = pool_make(50, 1);
    ask_init(&a, (struct sampling){.min_tokens = 3}, 1, 50);
    a.m.n_stop_ids = 2;
    a.stops[0] = 7;
    a.stops[1] = 9;
    struct sampler *s = start(p, 0, &a);
    assert_false(sampler_is_end(s, 7, 2));
    assert_true(sampler_is_end(s, 7, 3));
    assert_true(sampler_is_end(s, 9, 30));
    assert_false(sampler_is_end(s, 8, 30));
    float x[50] = {[7] = 5, [9] = 4, [8] = 3};
    struct drawn d;
    assert_int_equal(sampler_draw(s, 2, x, &d, NULL), 0);
    assert_int_equal(d.token, 8);
    x[7] = 5;
    assert_int_equal(sampler_draw(s, 3, x, &d, NULL), 0);
    assert_int_equal(d.token, 7);
    a.m.ignore_eos = true;
    s = start(p, 0, &a);
    assert_false(sampler_is_end(s, 7, 3));
    assert_int_equal(sampler_draw(s, 2, x, &d, NULL), 0);
    assert_int_equal(d.token, 7);
    sampler_pool_destroy(p);
}

static void test_bad_logits(void **unused)
{
    enum { N = 130 };
    static struct ask a;
    struct sampler_pool *p = pool_make(N, 1);
    static const float BAD[] = {NAN, -NAN, INFINITY};
    float x[N];
    struct drawn d;
    for (int logprobs = 0; logprobs < 2; logprobs++) {
        ask_init(&a, (struct sampling){.want_logprobs = logprobs}, 1, N);
        struct sampler *s = start(p, 0, &a);
        for (uint32_t i = 0; i < N; i++)
            for (size_t k = 0; k < sizeof BAD / sizeof BAD[0]; k++) {
                struct err e = ERR_INIT;
                memset(x, 0, sizeof x);
                x[i] = BAD[k];
                assert_int_equal(sampler_draw(s, 0, x, &d, &e), ERR_FORMAT);
                char name[32];
                snprintf(name, sizeof name, "token %u is not a number", i);
                assert_non_null(strstr(e.text, isnan(BAD[k]) ? name : "plus infinity"));
            }
        struct err e = ERR_INIT;
        for (uint32_t i = 0; i < N; i++)
            x[i] = -INFINITY;
        assert_int_equal(sampler_draw(s, 0, x, &d, &e), ERR_FORMAT);
        assert_non_null(strstr(e.text, "minus infinity"));
        x[129] = -3; /* the only one that is left, whatever is asked for */
        a.m.sampling = random_sampling();
        a.m.sampling.typical_p = 0.5f;
        s = start(p, 0, &a);
        assert_int_equal(sampler_draw(s, 0, x, &d, &e), 0);
        assert_int_equal(d.token, 129);
    }
    sampler_pool_destroy(p);
}

static void expect_refused(const struct ask *a, int code, const char *says)
{
    struct err e = ERR_INIT;
    int rc = sampling_check(&a->m, 100, &e);
    if (rc != code || !strstr(e.text, says))
        fail_msg("expected %s and '%s', got %s: %s", err_name(code), says, err_name(rc), e.text);
    struct sampler_pool *p = pool_make(100, 1);
    struct sampler *s;
    assert_int_equal(sampler_start(p, 0, &a->m, &s, NULL), code);
    sampler_pool_destroy(p);
}

static void test_bad_parameters(void **unused)
{
    static struct ask a;
    const float NOT_NUMBERS[] = {NAN, INFINITY, -INFINITY, 1e9f, -1e9f};
    const struct {
        const char *name;
        size_t at;
    } FLOATS[] = {
        {"temperature", offsetof(struct sampling, temperature)},
        {"top_p", offsetof(struct sampling, top_p)},
        {"min_p", offsetof(struct sampling, min_p)},
        {"typical_p", offsetof(struct sampling, typical_p)},
        {"repetition_penalty", offsetof(struct sampling, repetition_penalty)},
        {"frequency_penalty", offsetof(struct sampling, frequency_penalty)},
        {"presence_penalty", offsetof(struct sampling, presence_penalty)},
    };
    for (size_t f = 0; f < sizeof FLOATS / sizeof FLOATS[0]; f++)
        for (size_t i = 0; i < sizeof NOT_NUMBERS / sizeof NOT_NUMBERS[0]; i++) {
            ask_init(&a, (struct sampling){0}, 1, 100);
            memcpy((char *)&a.m.sampling + FLOATS[f].at, &NOT_NUMBERS[i], sizeof(float));
            expect_refused(&a, ERR_FORMAT, FLOATS[f].name);
        }
    ask_init(&a, (struct sampling){.top_p = 1.0001f}, 1, 100);
    expect_refused(&a, ERR_FORMAT, "top_p 1.0001: expected 0 to 1");
    ask_init(&a, (struct sampling){.repetition_penalty = 0.001f}, 1, 100);
    expect_refused(&a, ERR_FORMAT, "repetition_penalty");
    ask_init(&a, (struct sampling){.n_top = 21}, 1, 100);
    expect_refused(&a, ERR_LIMIT, "at most 20");
    ask_init(&a, (struct sampling){0}, 1, 100);
    a.m.n_stop_ids = 1;
    a.stops[0] = 100;
    expect_refused(&a, ERR_FORMAT, "stop id 100 is outside");
    a.m.n_stop_ids = MSG_MAX_STOP_IDS + 1;
    expect_refused(&a, ERR_LIMIT, "65 stop ids");
    ask_init(&a, (struct sampling){0}, 1, 100);
    a.m.n_bias = 1;
    a.bias[0].id = 4000000000u;
    expect_refused(&a, ERR_FORMAT, "bias of token 4000000000");
    a.bias[0].id = 1;
    a.bias[0].value = NAN;
    expect_refused(&a, ERR_FORMAT, "bias");
    a.m.n_bias = MSG_MAX_BIAS + 1;
    expect_refused(&a, ERR_LIMIT, "bias of 1025 tokens");
}

/* The most extreme values that are taken give a token, never a fault. */
static void test_extreme_parameters(void **unused)
{
    enum { N = 200 };
    static struct ask a;
    static float x[N];
    struct sampler_pool *p = pool_make(N, 1);
    const struct sampling CASES[] = {
        {.temperature = 1e-45f, .top_p = 1e-45f, .min_p = 1, .typical_p = 1e-45f},
        {.temperature = 100, .repetition_penalty = 100, .frequency_penalty = -100},
        {.temperature = 1e-38f, .repetition_penalty = 0.01f, .presence_penalty = 100},
        {.temperature = 1, .top_k = UINT32_MAX, .top_p = 0.9999999f, .typical_p = 0.9999999f},
        {.temperature = 1e-45f},
        {.temperature = 100, .min_tokens = UINT32_MAX, .seed = UINT64_MAX},
    };
    for (size_t c = 0; c < sizeof CASES / sizeof CASES[0]; c++) {
        ask_init(&a, CASES[c], 50, N);
        a.m.start = 20;
        a.m.n_bias = 1;
        a.bias[0].value = 1e6f;
        struct sampler *s = start(p, 0, &a);
        for (uint32_t position = 20; position < 200; position++) {
            struct drawn d;
            struct err e = ERR_INIT;
            for (uint32_t i = 0; i < N; i++)
                x[i] = rnd_between(-1e4, 1e4);
            if (sampler_draw(s, position, x, &d, &e))
                fail_msg("case %zu: %s", c, e.text);
            assert_true(d.token < N);
        }
    }
    sampler_pool_destroy(p);
}

static void test_uniform_is_a_function_of_seed_and_position(void **unused)
{
    enum { DRAWS = 40000 };
    double sum = 0, lag = 0, last = 0.5;
    for (uint32_t pos = 0; pos < DRAWS; pos++) {
        double u = sample_uniform(42, pos);
        assert_true(u >= 0 && u < 1);
        assert_true(u == sample_uniform(42, pos));
        sum += u;
        lag += (u - 0.5) * (last - 0.5);
        last = u;
    }
    /* standard error of the mean: 0.29 / 200; of the lag product: 0.083 / 200 */
    assert_true(fabs(sum / DRAWS - 0.5) < 0.007);
    assert_true(fabs(lag / DRAWS) < 0.002);
    uint32_t n_same = 0; /* neighbouring seeds are no shifted copies of each other */
    for (uint32_t seed = 0; seed < 100; seed++)
        for (uint32_t pos = 0; pos < 100; pos++)
            n_same += sample_uniform(seed, pos + 1) == sample_uniform(seed + 1, pos);
    assert_int_equal(n_same, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_parameter_as_the_reference),
        cmocka_unit_test(test_score),
        cmocka_unit_test(test_goes_on_from_every_position),
        cmocka_unit_test(test_constraints_go_on_from_every_position),
        cmocka_unit_test(test_constraints_refused),
        cmocka_unit_test(test_constraints_are_bounded),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_bad_logits),
        cmocka_unit_test(test_bad_parameters),
        cmocka_unit_test(test_extreme_parameters),
        cmocka_unit_test(test_uniform_is_a_function_of_seed_and_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
