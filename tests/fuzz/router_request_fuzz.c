/* router_request_fuzz.c - what a client may send: HTTP bytes through the parser, JSON bodies
 * through validation, template and tokenizer.
 *
 * The first byte says how the rest is cut into pieces, as a network would. No sockets.
 */
#include "router/http_parser.h"
#include "router/prep.h"
#include "tests/tools/byte_model.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MAX_BODY = 32 << 10 };

static enum api_kind kind_of(const struct http_head *h)
{
    char c = h->url.n > 2 ? h->url.p[1] : 0;
    return c == 'c' ? API_CHAT : c == 'e' ? API_EMBEDDING : API_COMPLETION;
}

/* "m" generates, "e" embeds. */
static struct model_set *models(void)
{
    static struct model_set *set;
    if (set)
        return set;
    set = model_set_create();
    for (int i = 0; i < 2; i++) {
        struct model_meta meta;
        struct buf b;
        struct model *m;
        byte_model_meta(&meta);
        if (i)
            meta.params.pooling = POOLING_MEAN;
        buf_init(&b, META_MAX_BYTES);
        CHECK(!meta_encode(&meta, &b, NULL));
        struct msg_model msg = {.deployment = (uint32_t)i,
                                .meta = b.data,
                                .meta_bytes = (uint32_t)b.len,
                                .n_ctx = 4096};
        strcpy(msg.name, i ? "e" : "m");
        CHECK(!model_build(&m, &msg, 1, NULL));
        struct model_set *more = model_set_with(set, m);
        model_set_unref(set);
        set = more;
        model_unref(m);
        buf_fini(&b);
        meta_fini(&meta);
    }
    return set;
}

static void prepare(enum api_kind kind, const struct buf *body)
{
    struct prep p = {.kind = kind, .models = models(), .body_bytes = body->len};
    p.body = malloc(body->len ? body->len : 1);
    if (body->len)
        memcpy(p.body, body->data, body->len);
    prep_run(&p);
    if (prep_has_constraint(&p))
        prep_compile(&p);
    if (p.error.status) {
        struct buf b;
        buf_init(&b, 16384);
        CHECK(p.error.message[0]);
        api_error_put(&b, &p.error);
        json_t *v = json_loadb((char *)b.data, b.len, 0,
                               NULL); /* whatever was quoted, the answer is JSON */
        CHECK(v != NULL);
        json_decref(v);
        buf_fini(&b);
    } else {
        CHECK(p.model && p.n_prompts && p.n_choices);
        for (size_t i = 0; i < p.n_prompts; i++)
            CHECK(p.prompts[i].ids.n && p.prompts[i].ids.n + p.prompts[i].max_tokens <= 4096);
    }
    prep_fini(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n)
        return 0;
    size_t piece = data[0] ? data[0] : SIZE_MAX;
    const char *text = (const char *)data + 1;
    n--;
    struct http_parser p;
    http_parser_init(&p, MAX_BODY);
    enum http_event ev = HTTP_NEED_MORE;
    for (size_t at = 0; at < n && ev != HTTP_REFUSED;) {
        size_t len = n - at < piece ? n - at : piece, done = 0;
        while ((done < len || ev == HTTP_HEAD_DONE) && ev != HTTP_REFUSED) {
            size_t used;
            ev = http_parser_feed(&p, text + at + done, len - done, &used);
            CHECK(used <= len - done);
            done += used;
            if (ev == HTTP_BODY_DONE) {
                CHECK(p.body.len <= MAX_BODY && p.head.url.n);
                prepare(kind_of(&p.head), &p.body);
                http_parser_next(&p);
                ev = HTTP_NEED_MORE;
            }
        }
        at += len;
    }
    CHECK(ev != HTTP_REFUSED || (p.status >= 400 && p.reason));
    http_parser_fini(&p);
    return 0;
}
