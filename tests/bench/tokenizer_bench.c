/* tokenizer_bench.c - MB/s of encoding on one core: tokenizer_bench FOLDER TEXT [CHUNK_BYTES].
 *
 * FOLDER holds a tokenizer.json. The text is encoded in chunks, as requests come; best and median of several passes.
 */
#include "base/clock.h"
#include "base/file.h"
#include "model/hf_tokenizer.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

enum { PASSES = 9, TEXT_MAX_BYTES = 256 << 20, CHUNK = 64 << 10 };

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* One pass over the text; tokens made, or -1. */
static long encode_all(const struct tokenizer *t, const struct buf *text, size_t chunk,
                       struct err *e)
{
    struct token_vec ids = {0};
    long tokens = 0;
    for (size_t at = 0, n; at < text->len; at += n) {
        n = text->len - at < chunk ? text->len - at : chunk;
        while (at + n < text->len && (text->data[at + n] & 0xC0) == 0x80)
            n++; /* not inside a character */
        ids.n = 0;
        if (tokenizer_encode(t, (const char *)text->data + at, n, false, SIZE_MAX, &ids, e))
            return -1;
        tokens += (long)ids.n;
    }
    token_vec_fini(&ids);
    return tokens;
}

int main(int argc, char **argv)
{
    struct model_meta m;
    struct tokenizer *t = NULL;
    struct buf text;
    struct err e = ERR_INIT;
    uint64_t times[PASSES];
    if (argc < 3) {
        fprintf(stderr, "usage: tokenizer_bench FOLDER TEXT [CHUNK_BYTES]\n");
        return 2;
    }
    size_t chunk = argc > 3 ? strtoul(argv[3], NULL, 10) : CHUNK;
    meta_init(&m);
    buf_init(&text, TEXT_MAX_BYTES);
    uint64_t start = clock_now_us();
    if (hf_tokenizer_read(argv[1], &m, &e) || tokenizer_create(&t, &m.tok, &e) ||
        file_read(argv[2], &text, &e)) {
        fprintf(stderr, "tokenizer_bench: %s\n", e.text);
        return 1;
    }
    printf("load %.0f ms\n", (double)(clock_now_us() - start) / 1e3);
    long tokens = 0;
    for (int i = 0; i < PASSES; i++) {
        start = clock_now_us();
        tokens = encode_all(t, &text, chunk, &e);
        times[i] = clock_now_us() - start;
        if (tokens < 0) {
            fprintf(stderr, "tokenizer_bench: %s\n", e.text);
            return 1;
        }
    }
    qsort(times, PASSES, sizeof times[0], by_time);
    printf("encode %.1f MB/s (best %.1f), %zu bytes, %ld tokens, chunks of %zu\n",
           (double)text.len / (double)times[PASSES / 2], (double)text.len / (double)times[0],
           text.len, tokens, chunk);
    buf_fini(&text);
    tokenizer_destroy(t);
    meta_fini(&m);
    return 0;
}
