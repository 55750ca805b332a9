/* model_gguf_fuzz.c - any bytes as a GGUF file. What is accepted must keep the reader's promises
 * and survive the way that a pack takes it: canonical bytes that decode to the same bytes. */
#include "model/gguf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_tensors(const struct gguf *g, const uint8_t *data, size_t n)
{
    for (uint32_t i = 0; i < g->index.n_tensors; i++) {
        size_t at = (size_t)(g->tensor_data[i] - data), bytes = g->index.tensors[i].n_bytes;
        CHECK(at <= n && bytes <= n - at);
    }
}

static void check_meta(const struct gguf *g)
{
    struct buf a, b;
    struct model_meta m;
    buf_init(&a, META_MAX_BYTES);
    buf_init(&b, META_MAX_BYTES);
    CHECK(meta_encode(&g->meta, &a, NULL) == 0);
    CHECK(meta_decode(&m, a.data, a.len, NULL) == 0);
    CHECK(meta_encode(&m, &b, NULL) == 0);
    CHECK(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
    CHECK(meta_check(&m, NULL) == 0);
    meta_fini(&m);
    buf_fini(&a);
    buf_fini(&b);
}

static void check_index(const struct gguf *g)
{
    struct buf a;
    struct model_index x;
    buf_init(&a, INDEX_MAX_BYTES);
    CHECK(index_encode(&g->index, &a, NULL) == 0);
    CHECK(index_decode(&x, a.data, a.len, NULL) == 0);
    CHECK(x.n_segments == g->index.n_segments && x.image_bytes == g->index.image_bytes);
    index_fini(&x);
    buf_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct gguf g;
    struct err e = ERR_INIT;
    if (gguf_parse(&g, data, n, "input", &e) != 0) {
        CHECK(e.code != 0 && e.text[0]);
        /* The decoders behind it take foreign bytes, too. */
        struct model_meta m;
        struct model_index x;
        if (meta_decode(&m, data, n, NULL) == 0)
            meta_fini(&m);
        if (index_decode(&x, data, n, NULL) == 0)
            index_fini(&x);
        return 0;
    }
    check_tensors(&g, data, n);
    check_meta(&g);
    check_index(&g);
    gguf_close(&g);
    return 0;
}
