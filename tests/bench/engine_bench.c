/* engine_bench.c - prefill and decode speed of one engine, in tokens per second.
 *
 *   engine_bench IMAGE [THREADS [KERNELS [STREAMS [PROMPT_TOKENS [CHUNK]]]]]
 *
 * Prompts are made-up ids (speed does not depend on them). Prefill: one prompt, until its first token. Decode: STREAMS requests at once,
 * 64 tokens each. The same prompt a second time: its prefix is cached.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/engine.h"

enum { DECODE_TOKENS = 64, MAX_STREAMS = 256, MAX_PROMPT = 4096 };

static void count(void *ctx, const struct step_result *r)
{
    *(uint64_t *)ctx += r->n_tokens;
}

static void submit(struct engine *g, uint32_t slot, uint32_t n, uint32_t max_tokens)
{
    static uint32_t tokens[MAX_PROMPT];
    struct err e = ERR_INIT;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = 1000 + (i * 7919 + slot * 31) % 20000;
    struct msg_submit s = {
        .attempt = {1, 1, slot, 1},
        .sampling = {.top_p = 1},
        .max_tokens = max_tokens,
        .ignore_eos = true,
        .n_tokens = n,
        .tokens = (const uint8_t *)tokens,
    };
    if (engine_submit(g, &s, clock_now_us(), &e)) {
        fprintf(stderr, "engine_bench: %s\n", e.text);
        exit(1);
    }
}

/* Seconds until nothing is left. */
static double drain(struct engine *g, uint64_t *n_tokens)
{
    uint64_t start = clock_now_us();
    struct err e = ERR_INIT;
    while (engine_step(g, clock_now_us(), count, n_tokens, &e) > 0)
        ;
    return (double)(clock_now_us() - start) / 1e6;
}

static uint32_t number(int argc, char **argv, int i, uint32_t otherwise, uint32_t most)
{
    unsigned long v = argc > i ? strtoul(argv[i], NULL, 10) : otherwise;
    return v < 1 ? 1 : v > most ? most : (uint32_t)v;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr,
                "usage: engine_bench IMAGE [THREADS [KERNELS [STREAMS [PROMPT [CHUNK]]]]]\n");
        return 4;
    }
    uint32_t threads = number(argc, argv, 2, 1, 256);
    uint32_t streams = number(argc, argv, 4, 1, MAX_STREAMS);
    uint32_t prompt = number(argc, argv, 5, 256, MAX_PROMPT);
    struct engine_config c = {
        .kind = "cpu",
        .image_path = argv[1],
        .n_slots = streams,
        .n_threads = threads,
        .n_ctx = prompt + DECODE_TOKENS + 2,
        .chunk = argc > 6 ? (uint32_t)strtoul(argv[6], NULL, 10) : 0,
        .kernels = argc > 3 && *argv[3] ? argv[3] : NULL,
    };
    struct engine *g;
    struct err e = ERR_INIT;
    if (engine_create(&g, &c, &e)) {
        fprintf(stderr, "engine_bench: %s\n", e.text);
        return 1;
    }
    struct engine_info info;
    engine_info(g, &info);
    uint64_t n = 0;
    submit(g, 0, 8, 2);
    drain(g, &n); /* pages and threads warm */
    submit(g, 0, prompt, 1);
    double prefill_s = drain(g, &n);
    submit(g, 0, prompt, 1); /* the same again */
    double cached_s = drain(g, &n);
    for (uint32_t i = 0; i < streams; i++)
        submit(g, i, 1, DECODE_TOKENS + 1);
    engine_step(g, clock_now_us(), count, &n, &e); /* all prompts are in after this step */
    n = 0;
    double decode_s = drain(g, &n);
    printf("kernels %s, threads %u: prefill %.1f tokens/s, decode %.1f tokens/s over %u streams, "
           "first token of the cached prompt in %.1f ms, %.1f %% of the uncached one's\n",
           info.kernels, threads, prompt / prefill_s, (double)n / decode_s, streams,
           1e3 * cached_s, 100 * cached_s / prefill_s);
    engine_destroy(g);
    return 0;
}
