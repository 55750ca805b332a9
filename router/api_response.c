/* api_response.c - see api_response.h. */
#include "router/api_response.h"

#include "router/json_text.h"

#include <inttypes.h>
#include <math.h>

static void put_head(struct buf *b, const struct reply *r, const char *object)
{
    buf_printf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":", r->id,
               object, r->created_s);
    json_put_string(b, r->model->name);
    buf_printf(b, ",\"system_fingerprint\":\"%s\",\"choices\":[", r->model->fingerprint);
}

static void put_usage(struct buf *b, const struct usage *u)
{
    buf_printf(b,
               "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
               ",\"total_tokens\":%" PRIu64 "}",
               u->prompt_tokens, u->completion_tokens, u->prompt_tokens + u->completion_tokens);
}

static void put_logprobs(struct buf *b, const struct reply *r, const struct reply_choice *c)
{
    buf_puts(b, ",\"logprobs\":");
    if (c->logprobs)
        logprobs_put(b, r->kind, r->model, c->logprobs);
    else
        buf_puts(b, "null");
    buf_puts(b, ",\"finish_reason\":");
    json_put_string(b, c->finish_reason);
    buf_puts(b, "}");
}

void reply_put_head(struct buf *b, const struct reply *r)
{
    put_head(b, r, r->kind == API_CHAT ? "chat.completion" : "text_completion");
}

void reply_put_choice(struct buf *b, const struct reply *r, const struct reply_choice *c)
{
    bool chat = r->kind == API_CHAT;
    buf_printf(b, "{\"index\":%u,", c->index);
    buf_puts(b, chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    json_put_string_n(b, c->text, c->n);
    buf_puts(b, chat ? ",\"refusal\":null}" : "");
    put_logprobs(b, r, c);
}

void reply_put_comma(struct buf *b)
{
    buf_puts(b, ",");
}

void reply_put_tail(struct buf *b, const struct usage *u)
{
    buf_puts(b, "],");
    put_usage(b, u);
    buf_puts(b, "}");
}

/* --- events ----------------------------------------------------------------------------------- */

static void event_begin(struct buf *b, const struct reply *r)
{
    buf_puts(b, "data: ");
    put_head(b, r, r->kind == API_CHAT ? "chat.completion.chunk" : "text_completion");
}

static void event_end(struct buf *b, const struct reply *r)
{
    buf_puts(b, r->include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
}

void reply_put_role(struct buf *b, const struct reply *r, uint32_t index)
{
    if (r->kind != API_CHAT)
        return;
    event_begin(b, r);
    buf_printf(b,
               "{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":"
               "null,\"finish_reason\":null}",
               index);
    event_end(b, r);
}

void reply_put_text(struct buf *b, const struct reply *r, const struct reply_choice *c)
{
    bool chat = r->kind == API_CHAT;
    event_begin(b, r);
    buf_printf(
        b, chat ? "{\"index\":%u,\"delta\":{\"content\":" : "{\"index\":%u,\"text\":", c->index);
    json_put_string_n(b, c->text, c->n);
    buf_puts(b, chat ? "}" : "");
    put_logprobs(b, r, c);
    event_end(b, r);
}

void reply_put_finish(struct buf *b, const struct reply *r, uint32_t index,
                      const char *finish_reason)
{
    event_begin(b, r);
    buf_printf(b,
               r->kind == API_CHAT ? "{\"index\":%u,\"delta\":{}" : "{\"index\":%u,\"text\":\"\"",
               index);
    buf_puts(b, ",\"logprobs\":null,\"finish_reason\":");
    json_put_string(b, finish_reason);
    buf_puts(b, "}");
    event_end(b, r);
}

void reply_put_usage(struct buf *b, const struct reply *r, const struct usage *u)
{
    event_begin(b, r);
    buf_puts(b, "],");
    put_usage(b, u);
    buf_puts(b, "}\n\n");
}

void reply_put_done(struct buf *b)
{
    buf_puts(b, "data: [DONE]\n\n");
}

void reply_put_error(struct buf *b, const struct api_error *a)
{
    buf_puts(b, "data: ");
    api_error_put(b, a);
    buf_puts(b, "\n\n");
}

/* --- embeddings ------------------------------------------------------------------------------- */

void reply_put_embeddings_head(struct buf *b)
{
    buf_puts(b, "{\"object\":\"list\",\"data\":[");
}

/* RFC 4648 section 4. */
static void put_base64(struct buf *b, const uint8_t *p, size_t n)
{
    static const char LETTERS[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16;
        v |= i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0;
        v |= i + 2 < n ? p[i + 2] : 0;
        char out[4] = {LETTERS[v >> 18], LETTERS[v >> 12 & 63],
                       i + 1 < n ? LETTERS[v >> 6 & 63] : '=', i + 2 < n ? LETTERS[v & 63] : '='};
        buf_put(b, out, 4);
    }
}

void reply_put_embedding(struct buf *b, uint32_t index, const uint8_t *f32, uint32_t n,
                         uint32_t dimensions, bool base64)
{
    double scale = 1, norm = 0;
    struct buf cut;
    if (dimensions < n) {
        for (uint32_t i = 0; i < dimensions; i++)
            norm += (double)f32_at(f32, i) * f32_at(f32, i);
        scale = norm > 0 ? 1 / sqrt(norm) : 1;
    } else {
        dimensions = n;
    }
    buf_init(&cut, 4 * (size_t)dimensions);
    for (uint32_t i = 0; i < dimensions; i++)
        buf_f32(&cut, scale == 1 ? f32_at(f32, i) : (float)(f32_at(f32, i) * scale));
    b->failed |= !buf_ok(&cut);
    buf_printf(b, "{\"object\":\"embedding\",\"index\":%u,\"embedding\":", index);
    buf_puts(b, base64 ? "\"" : "[");
    if (base64)
        put_base64(b, cut.data, cut.len);
    for (uint32_t i = 0; buf_ok(&cut) && !base64 && i < dimensions; i++)
        buf_printf(b, i ? ",%.9g" : "%.9g", (double)f32_at(cut.data, i));
    buf_puts(b, base64 ? "\"}" : "]}");
    buf_fini(&cut);
}

void reply_put_embeddings_tail(struct buf *b, const struct reply *r, uint64_t prompt_tokens)
{
    buf_puts(b, "],\"model\":");
    json_put_string(b, r->model->name);
    buf_printf(b, ",\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 "}}",
               prompt_tokens, prompt_tokens);
}

/* --- models ----------------------------------------------------------------------------------- */

void reply_put_model(struct buf *b, const struct model *m)
{
    buf_puts(b, "{\"id\":");
    json_put_string(b, m->name);
    buf_printf(b,
               ",\"object\":\"model\",\"created\":%" PRIu64
               ",\"owned_by\":\"exaserve\",\"max_model_len\":%u}",
               m->created_s, m->n_ctx);
}

void reply_put_models(struct buf *b, const struct model_set *s)
{
    buf_puts(b, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < s->n; i++) {
        if (i)
            buf_puts(b, ",");
        reply_put_model(b, s->models[i]);
    }
    buf_puts(b, "]}");
}
