/* llama_bench.c - the same measurements as `exaserve bench engine`, of llama.cpp's library, for tests/bench/llama.sh.
 *
 *   llama_bench MODEL.gguf THREADS PROMPT GEN PARALLEL FLASH(0|1)
 *
 * Prefill: an empty cache, PROMPT tokens in one call, logits of the last. Decode: PARALLEL sequences with PROMPT tokens each in the cache,
 * GEN steps of one token of every sequence, every one with logits. Nothing is sampled. KV in F16, extra buffer types (AMX) allowed, as
 * llama.cpp has it by itself. Prints one JSON line; times are the process's own, memory is VmHWM.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <llama.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void quiet(enum ggml_log_level level, const char *text, void *ctx)
{
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

static int32_t token(uint32_t i, uint32_t seq)
{
    return (int32_t)(1000 + (i * 7919 + seq * 31) % 20000);
}

static void put(struct llama_batch *b, uint32_t at, uint32_t seq, bool logits)
{
    int32_t i = b->n_tokens++;
    b->token[i] = token(at, seq);
    b->pos[i] = (int32_t)at;
    b->n_seq_id[i] = 1;
    b->seq_id[i][0] = (int32_t)seq;
    b->logits[i] = logits;
}

static void must(int rc)
{
    if (rc) {
        fprintf(stderr, "llama_bench: llama_decode returned %d\n", rc);
        exit(1);
    }
}

static uint32_t number(const char *s)
{
    return (uint32_t)strtoul(s, NULL, 10);
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: llama_bench MODEL THREADS PROMPT GEN PARALLEL FLASH\n");
        return 4;
    }
    uint32_t prompt = number(argv[3]), gen = number(argv[4]), parallel = number(argv[5]);
    double start = now_s();
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    struct llama_model *m = llama_model_load_from_file(argv[1], mp);
    if (!m)
        return 1;
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = parallel * ((prompt + gen + 255) / 256 * 256);
    cp.n_batch = prompt > 2048 ? prompt : 2048;
    cp.n_ubatch = 512;
    cp.n_seq_max = parallel;
    cp.n_threads = cp.n_threads_batch = (int32_t)number(argv[2]);
    cp.flash_attn_type =
        number(argv[6]) ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *c = llama_init_from_model(m, cp);
    if (!c)
        return 1;
    struct llama_batch b = llama_batch_init((int32_t)cp.n_batch, 0, 1);
    for (uint32_t i = 0; i < 5; i++)
        put(&b, i, 0, i == 4);
    must(llama_decode(c, b));
    llama_get_logits_ith(c, 4);
    double first_s = now_s() - start;
    llama_memory_t kv = llama_get_memory(c);
    double prefill_s = 1e30;
    for (int round = 0; round < 3; round++) { /* the best of three */
        llama_memory_clear(kv, false);
        b.n_tokens = 0;
        for (uint32_t i = 0; i < prompt; i++)
            put(&b, i, 0, i + 1 == prompt);
        double t = now_s();
        must(llama_decode(c, b));
        llama_get_logits_ith(c, -1);
        t = now_s() - t;
        prefill_s = t < prefill_s ? t : prefill_s;
    }
    for (uint32_t s = 1; s < parallel; s++) {
        b.n_tokens = 0;
        for (uint32_t i = 0; i < prompt; i++)
            put(&b, i, s, i + 1 == prompt);
        must(llama_decode(c, b));
    }
    double decode_s = 0;
    for (uint32_t g = 0; g < gen + 2; g++) {
        if (g == 2) /* two steps to warm up */
            decode_s = now_s();
        b.n_tokens = 0;
        for (uint32_t s = 0; s < parallel; s++)
            put(&b, prompt + g, s, true);
        must(llama_decode(c, b));
        llama_get_logits_ith(c, -1);
    }
    decode_s = now_s() - decode_s;
    printf("{\"engine\": \"llama.cpp\", \"prefill_tokens_s\": %.1f, \"decode_tokens_s\": %.1f, "
           "\"first_token_s\": %.3f, \"peak_mb\": %.0f}\n",
           prompt / prefill_s, gen * parallel / decode_s, first_s, peak_mb());
    llama_batch_free(b);
    llama_free(c);
    llama_model_free(m);
    return 0;
}
