/* sampler_bench.c - what drawing one token costs, by parameters, at vocabularies of 49,152 and 128,256 ids.
 *
 * Logits are like a language model's: a bulk of normal ones, and some tens that stand out. Each line: microseconds a token, of this
 * thread's processor time.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/sampler.h"
#include "model/meta.h"

enum { N_ROWS = 16, ROUNDS = 20, N_CTX = 2048, N_PROMPT = 1000 };

static double normal(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += rand() / (double)RAND_MAX;
    return sum;
}

static void fill(float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)(-2 + 2.5 * normal());
    for (int i = 0; i < 60; i++)
        x[(uint32_t)rand() % n] = (float)(6 + 10 * fabs(normal()));
}

static double thread_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

struct bench {
    struct sampler_pool *pool;
    uint32_t n_vocab;
    float *rows, *row;
    uint8_t tokens[4 * N_PROMPT];
};

static void measure(struct bench *b, const char *name, struct sampling p)
{
    struct msg_submit m = {.sampling = p, .n_tokens = N_PROMPT, .tokens = b->tokens};
    struct sampler *s;
    struct drawn d;
    struct err e = ERR_INIT;
    double spent = 0;
    if (sampler_start(b->pool, 0, &m, &s, &e)) {
        fprintf(stderr, "sampler_bench: %s\n", e.text);
        exit(1);
    }
    for (uint32_t i = 0; i < N_ROWS * ROUNDS; i++) {
        memcpy(b->row, b->rows + (size_t)(i % N_ROWS) * b->n_vocab, b->n_vocab * sizeof *b->row);
        double start = thread_us();
        if (sampler_draw(s, i, b->row, &d, &e)) {
            fprintf(stderr, "sampler_bench: %s\n", e.text);
            exit(1);
        }
        spent += thread_us() - start;
    }
    printf("%7u  %-34s %8.1f us\n", b->n_vocab, name, spent / (N_ROWS * ROUNDS));
}

int main(void)
{
    static const uint32_t SIZES[] = {49152, 128256};
    for (int i = 0; i < 2; i++) {
        struct model_meta meta = {.params = {.n_vocab = SIZES[i]}};
        struct bench b = {.n_vocab = SIZES[i]};
        struct err e = ERR_INIT;
        if (sampler_pool_create(&b.pool, &meta, 1, N_CTX, &e)) {
            fprintf(stderr, "sampler_bench: %s\n", e.text);
            return 1;
        }
        b.rows = malloc((size_t)N_ROWS * SIZES[i] * sizeof *b.rows);
        b.row = malloc(SIZES[i] * sizeof *b.row);
        for (uint32_t k = 0; k < 4 * N_PROMPT; k++)
            b.tokens[k] = k % 4 < 1 ? (uint8_t)rand() : 0;
        for (int k = 0; k < N_ROWS; k++)
            fill(b.rows + (size_t)k * SIZES[i], SIZES[i]);
        measure(&b, "greedy", (struct sampling){.temperature = 0});
        measure(&b, "temperature", (struct sampling){.temperature = 1});
        measure(&b, "top_k 40", (struct sampling){.temperature = 1, .top_k = 40});
        measure(&b, "top_p 0.95", (struct sampling){.temperature = 1, .top_p = 0.95f});
        measure(&b, "top_k 40, top_p 0.95",
                (struct sampling){.temperature = 0.8f, .top_k = 40, .top_p = 0.95f});
        measure(&b, "min_p 0.05", (struct sampling){.temperature = 1, .min_p = 0.05f});
        measure(&b, "typical_p 0.9", (struct sampling){.temperature = 1, .typical_p = 0.9f});
        measure(&b, "temperature 2, top_p 0.999 (flat)",
                (struct sampling){.temperature = 2, .top_p = 0.999f});
        measure(&b, "penalties, greedy",
                (struct sampling){.repetition_penalty = 1.1f, .frequency_penalty = 0.1f});
        measure(&b, "greedy, 20 log-probabilities",
                (struct sampling){.want_logprobs = true, .n_top = 20});
        sampler_pool_destroy(b.pool);
        free(b.rows);
        free(b.row);
    }
    return 0;
}
