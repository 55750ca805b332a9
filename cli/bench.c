/* bench.c - `exaserve bench engine`: the speed of one engine, by itself, on this machine.
 *
 * Prompts are made-up ids (speed does not depend on them); the prefix cache is off. In order: start and the first token of a five-token
 * prompt; the best of three prefills; then PARALLEL requests of PROMPT tokens each, whose decode steps are timed once all of them
 * are in. Times are this process's own, the peak of memory is counted from the engine's start. Last, an engine with the prefix cache is
 * asked the same prompt again.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/bench_image.h"
#include "cli/commands.h"
#include "cli/say.h"
#include "engine/engine.h"

enum { WARM_UP_STEPS = 2, PREFILLS = 3, FIRST_PROMPT = 5, DEFAULT_CHUNK = 512 };

struct bench {
    const char *kernels;
    uint64_t threads, prompt, gen, parallel, chunk;
    bool json;

    struct engine *g;
    struct engine_info info;
    uint32_t next_slot;
    double first_s, prefill_s, decode_s;
    uint64_t n_decoded, kernel_us, *step_us; /* [gen] */
    double peak_mb;
    double
        cached; /* time to the first token of a prompt that is in the prefix cache, of what it took the first time */
};

static void count(void *ctx, const struct step_result *r)
{
    *(uint64_t *)ctx += r->n_tokens;
}

/* What the process holds at most is counted anew from here. */
static void peak_reset(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, "5", 1) != 1)
        fprintf(stderr, "exaserve bench: the memory of making the image is counted too\n");
    close(fd);
}

static double peak_mb(void)
{
    char line[256];
    double kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmHWM:", 6))
            kb = strtod(line + 6, NULL);
    if (f)
        fclose(f);
    return kb / 1024;
}

static int submit(struct bench *b, uint64_t n, uint64_t max_tokens, struct err *e)
{
    uint32_t *tokens = malloc(n * sizeof *tokens), slot = b->next_slot++;
    struct engine_info info;
    if (!tokens)
        return err_set(e, ERR_NOMEM, "out of memory");
    engine_info(b->g, &info);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (1000 + (i * 7919 + slot * 31) % 20000) % info.n_vocab;
    const struct msg_submit s = {
        .attempt = {1, 1, slot, 1},
        .sampling = {.top_p = 1},
        .max_tokens = (uint32_t)max_tokens,
        .ignore_eos = true,
        .n_tokens = (uint32_t)n,
        .tokens = (const uint8_t *)tokens,
    };
    int rc = engine_submit(b->g, &s, clock_now_us(), e);
    free(tokens);
    return rc;
}

/* Step until n tokens came, or nothing is left. */
static int steps_until(struct bench *b, uint64_t n, struct err *e)
{
    uint64_t got = 0;
    for (int left = 1; got < n && left > 0;) {
        left = engine_step(b->g, clock_now_us(), count, &got, e);
        if (left < 0)
            return left;
    }
    return got >= n ? 0
                    : err_set(e, ERR_DEVICE, "%llu of %llu tokens came", (unsigned long long)got,
                              (unsigned long long)n);
}

static int prefill(struct bench *b, uint64_t n, double *seconds, struct err *e)
{
    uint64_t start = clock_now_us();
    int rc = submit(b, n, 1, e);
    if (!rc)
        rc = steps_until(b, 1, e);
    *seconds = (double)(clock_now_us() - start) / 1e6;
    return rc;
}

static int decode(struct bench *b, struct err *e)
{
    struct engine_load before, after;
    int rc = 0;
    for (uint64_t i = 0; i < b->parallel && !rc; i++) {
        rc = submit(b, b->prompt, b->gen + WARM_UP_STEPS + 8 * b->parallel, e);
        if (!rc) /* its prompt is in before the next one comes */
            rc = steps_until(b, i + 1, e);
    }
    for (int i = 0; i < WARM_UP_STEPS && !rc; i++)
        rc = steps_until(b, b->parallel, e);
    engine_load(b->g, &before);
    uint64_t start = clock_now_us();
    for (uint64_t i = 0; i < b->gen && !rc; i++) {
        uint64_t t = clock_now_us();
        rc = steps_until(b, b->parallel, e);
        b->step_us[i] = clock_now_us() - t;
    }
    b->decode_s = (double)(clock_now_us() - start) / 1e6;
    engine_load(b->g, &after);
    b->kernel_us = after.kernel_us - before.kernel_us;
    b->n_decoded = b->gen * b->parallel;
    return rc;
}

/* The same prompt twice, the best of a few: a second request of slot n has the tokens of the first. */
static int measure_cached(struct bench *b, const struct engine_config *c, struct err *e)
{
    double first, again, best_first = 0, best_again = 0;
    int rc = engine_create(&b->g, c, e);
    if (!rc)
        rc = prefill(b, FIRST_PROMPT, &first, e); /* pages and threads warm */
    for (int i = 0; i < PREFILLS && !rc; i++) {
        rc = prefill(b, b->prompt, &first, e);
        b->next_slot--;
        if (!rc)
            rc = prefill(b, b->prompt, &again, e);
        best_first = i && best_first < first ? best_first : first;
        best_again = i && best_again < again ? best_again : again;
    }
    if (!rc)
        b->cached = best_again / best_first;
    return rc;
}

static int measure(struct bench *b, const char *image, struct err *e)
{
    uint64_t n_ctx = b->prompt + b->gen + WARM_UP_STEPS + 8 * b->parallel + 8;
    struct engine_config c = {
        .kind = "cpu",
        .image_path = image,
        .n_slots = (uint32_t)b->parallel,
        .n_threads = (uint32_t)b->threads,
        .n_ctx = (uint32_t)n_ctx,
        .chunk = (uint32_t)(b->chunk > b->parallel ? b->chunk : b->parallel),
        .kernels = b->kernels,
        .no_prefix_cache = true,
    };
    double seconds;
    peak_reset();
    uint64_t start = clock_now_us();
    int rc = engine_create(&b->g, &c, e);
    if (!rc)
        rc = prefill(b, FIRST_PROMPT, &seconds, e);
    b->first_s = (double)(clock_now_us() - start) / 1e6;
    for (int i = 0; i < PREFILLS && !rc; i++) {
        rc = prefill(b, b->prompt, &seconds, e);
        if (i == 0 || seconds < b->prefill_s)
            b->prefill_s = seconds;
    }
    if (!rc)
        rc = decode(b, e);
    b->peak_mb = peak_mb();
    if (rc)
        return rc;
    engine_info(b->g, &b->info);
    engine_destroy(b->g);
    b->g = NULL;
    c.no_prefix_cache = false;
    return measure_cached(b, &c, e);
}

static int by_value(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, c = *(const uint64_t *)y;
    return (a > c) - (a < c);
}

static void report(struct bench *b)
{
    qsort(b->step_us, b->gen, sizeof *b->step_us, by_value);
    uint64_t p50 = b->step_us[b->gen / 2], p99 = b->step_us[b->gen * 99 / 100];
    double outside = 1 - (double)b->kernel_us / 1e6 / b->decode_s;
    const char *format =
        b->json ? "{\"engine\": \"exaserve\", \"kernels\": \"%s\", \"threads\": %u, "
                  "\"prefill_tokens_s\": %.1f, \"decode_tokens_s\": %.1f, \"step_p50_us\": %llu, "
                  "\"step_p99_us\": %llu, \"outside_kernels\": %.4f, \"first_token_s\": %.3f, "
                  "\"peak_mb\": %.0f, \"cached_prompt\": %.4f}\n"
                : "kernels %s, threads %u\nprefill %.1f tokens/s\ndecode %.1f tokens/s\n"
                  "step p50 %llu us, p99 %llu us; %.4f of the time outside kernels\n"
                  "start to first token %.3f s\npeak memory %.0f MB\n"
                  "first token of a cached prompt: %.4f of the uncached one's time\n";
    printf(format, b->info.kernels, b->info.n_threads, (double)b->prompt / b->prefill_s,
           (double)b->n_decoded / b->decode_s, (unsigned long long)p50, (unsigned long long)p99,
           outside, b->first_s, b->peak_mb, b->cached);
}

static int run(int argc, char **argv)
{
    struct bench b = {
        .threads = 1, .prompt = 128, .gen = 64, .parallel = 1, .chunk = DEFAULT_CHUNK};
    const char *model = NULL, *operands[OPT_MAX_OPERANDS] = {NULL};
    const struct opt opts[] = {
        {"model", 'm', OPT_TEXT, "PACK", &model, .help = "a model pack (or a node image)"},
        {"threads", 't', OPT_UINT, "N", &b.threads, 1, 256, "compute threads (1)"},
        {"prompt", 'p', OPT_UINT, "N", &b.prompt, 1, 100000, "tokens of each prompt (128)"},
        {"gen", 'g', OPT_UINT, "N", &b.gen, 1, 100000, "decode steps (64)"},
        {"parallel", 'n', OPT_UINT, "N", &b.parallel, 1, 256, "requests at once (1)"},
        {"chunk", 'c', OPT_UINT, "N", &b.chunk, 1, 4096, "rows of a step (512)"},
        {"kernels", 'k', OPT_TEXT, "SET", &b.kernels, .help = "kernel set (the best for this CPU)"},
        {"json", 'j', OPT_FLAG, .value = &b.json, .help = "one JSON object, for programs"},
        {.name = NULL},
    };
    int code = opt_parse(&COMMAND_BENCH, opts, argc, argv, operands);
    if (code != OPT_GO_ON)
        return code;
    struct err e = ERR_INIT;
    char image[4096];
    int rc = 0;
    if (strcmp(operands[0], "engine") != 0)
        rc = err_set(&e, ERR_CONFIG, "%s: expected engine", operands[0]);
    else if (!model)
        rc = err_set(&e, ERR_CONFIG, "--model PACK is missing");
    if (!rc)
        rc = bench_image(model, image, sizeof image, &e);
    if (!rc && !(b.step_us = calloc(b.gen, sizeof *b.step_us)))
        rc = err_set(&e, ERR_NOMEM, "out of memory");
    if (!rc)
        rc = measure(&b, image, &e);
    if (!rc)
        report(&b);
    if (b.g)
        engine_destroy(b.g);
    free(b.step_us);
    return rc ? say_error("bench", &e) : EXIT_READY;
}

const struct command COMMAND_BENCH = {
    .name = "bench",
    .operands = "engine",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "measure the speed of one engine on this machine",
    .details =
        "Prefill and decode speed, step times, start and peak memory of one engine with made-up\n"
        "prompts, without a service around it.\n",
    .run = run,
};
