/* model_hf_tokenizer_fuzz.c - any bytes as a tokenizer.json: what is read is valid, and stays the
 * same as bytes and back. */
#include "model/hf_tokenizer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void round_trip(struct model_meta *m)
{
    struct model_meta again;
    struct buf a, b;
    struct err e = ERR_INIT;
    strcpy(m->params.arch, "llama");
    buf_init(&a, META_MAX_BYTES);
    buf_init(&b, META_MAX_BYTES);
    if (meta_encode(m, &a, &e) == 0) {
        check(meta_decode(&again, a.data, a.len, &e) == 0);
        check(meta_encode(&again, &b, &e) == 0);
        check(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
        meta_fini(&again);
    }
    buf_fini(&a);
    buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct model_meta m;
    struct err e = ERR_INIT;
    meta_init(&m);
    int rc = hf_tokenizer_parse("fuzz", (const char *)data, n, &m.tok, &e);
    check(rc == 0 || e.text[0]);
    if (rc == 0)
        round_trip(&m);
    meta_fini(&m);
    return 0;
}
