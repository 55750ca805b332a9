/* api_response.c - see api_response.h. */
#include "router/api_response.h"

#include "router/json_text.h"

#include <inttypes.h>

static void put_head(struct buf *b, const struct reply *r, const char *object)
{
    buf_printf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":", r->id,
               object, r->created_s);
    json_put_string(b, r->model->name);
    buf_printf(b, ",\"system_fingerprint\":\"%s\",\"choices\":[", r->model->fingerprint);
}

static void put_usage(struct buf *b, const struct usage *u)
{
    buf_printf(
        b, "\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%" PRIu64 "}",
        u->prompt_tokens, u->completion_tokens, (uint64_t)u->prompt_tokens + u->completion_tokens);
}

void reply_put_whole(struct buf *b, const struct reply *r, const char *text, size_t n,
                     const char *finish_reason, const struct usage *u)
{
    if (r->kind == API_CHAT) {
        put_head(b, r, "chat.completion");
        buf_puts(b, "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":");
        json_put_string_n(b, text, n);
        buf_puts(b, ",\"refusal\":null},\"logprobs\":null,\"finish_reason\":");
    } else {
        put_head(b, r, "text_completion");
        buf_puts(b, "{\"index\":0,\"text\":");
        json_put_string_n(b, text, n);
        buf_puts(b, ",\"logprobs\":null,\"finish_reason\":");
    }
    json_put_string(b, finish_reason);
    buf_puts(b, "}],");
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

void reply_put_role(struct buf *b, const struct reply *r)
{
    if (r->kind != API_CHAT)
        return;
    event_begin(b, r);
    buf_puts(b,
             "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
             "\"finish_reason\":null}");
    event_end(b, r);
}

void reply_put_text(struct buf *b, const struct reply *r, const char *text, size_t n)
{
    bool chat = r->kind == API_CHAT;
    event_begin(b, r);
    buf_puts(b, chat ? "{\"index\":0,\"delta\":{\"content\":" : "{\"index\":0,\"text\":");
    json_put_string_n(b, text, n);
    buf_puts(b, chat ? "},\"logprobs\":null,\"finish_reason\":null}"
                     : ",\"logprobs\":null,\"finish_reason\":null}");
    event_end(b, r);
}

void reply_put_finish(struct buf *b, const struct reply *r, const char *finish_reason)
{
    event_begin(b, r);
    buf_puts(b, r->kind == API_CHAT ? "{\"index\":0,\"delta\":{}" : "{\"index\":0,\"text\":\"\"");
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
