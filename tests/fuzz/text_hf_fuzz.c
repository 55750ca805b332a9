/* text_hf_fuzz.c - a tokenizer.json, a NUL byte, a text: whatever tokenizer the file makes, it is
 * refused with a reason or encodes the text to ids of its vocabulary, and writes valid UTF-8. */
#include "model/hf_tokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void encode(const struct tokenizer *t, const char *text, size_t n, bool special)
{
    struct token_vec ids = {0};
    struct err e = ERR_INIT;
    struct buf out;
    struct detok d;
    int rc = tokenizer_encode(t, text, n, special, SIZE_MAX, &ids, &e);
    check(rc == 0 || e.text[0]);
    buf_init(&out, SIZE_MAX);
    detok_init(&d);
    for (size_t i = 0; i < ids.n; i++) {
        check(ids.ids[i] < tokenizer_vocab(t));
        detok_token(&d, t, ids.ids[i], special, &out);
    }
    detok_finish(&d, &out);
    check(utf8_check((const char *)out.data, out.len) == out.len);
    buf_fini(&out);
    token_vec_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct model_meta m;
    struct tokenizer *t = NULL;
    struct err e = ERR_INIT;
    const uint8_t *end = n ? memchr(data, 0, n) : NULL;
    size_t n_json = end ? (size_t)(end - data) : n;
    meta_init(&m);
    int rc = hf_tokenizer_parse("fuzz", (const char *)data, n_json, &m.tok, &e);
    if (rc == 0)
        rc = tokenizer_create(&t, &m.tok, &e);
    check(rc == 0 || e.text[0]);
    if (rc == 0 && end) {
        encode(t, (const char *)end + 1, n - n_json - 1, false);
        encode(t, (const char *)end + 1, n - n_json - 1, true);
    }
    tokenizer_destroy(t);
    meta_fini(&m);
    return 0;
}
