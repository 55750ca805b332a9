/* api_logprobs.c - see api_logprobs.h. */
#include "router/api_logprobs.h"

#include "router/json_text.h"

typedef void put_fn(struct buf *b, const struct model *m, const struct logprobs_part *p,
                    const struct score *item);

static const char *token_bytes(const struct model *m, uint32_t id, size_t *n)
{
    const char *s = tokenizer_bytes(m->tokenizer, id, true, n);
    *n = s ? *n : 0;
    return s ? s : "";
}

static void put_number(struct buf *b, float v)
{
    buf_printf(b, "%.7g", (double)(v + 0.0f)); /* -0 becomes 0 */
}

/* --- chat ------------------------------------------------------------------------------------- */

static void put_chat_token(struct buf *b, const struct model *m, uint32_t id, float logprob)
{
    size_t n;
    const char *s = token_bytes(m, id, &n);
    buf_puts(b, "{\"token\":");
    json_put_string_n(b, s, n);
    buf_puts(b, ",\"logprob\":");
    put_number(b, logprob);
    buf_puts(b, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++)
        buf_printf(b, i ? ",%u" : "%u", (uint8_t)s[i]);
    buf_puts(b, "]");
}

static void put_chat_item(struct buf *b, const struct model *m, const struct logprobs_part *p,
                          const struct score *item)
{
    const struct token_logprob *top = p->scores->tops + item->first_top;
    put_chat_token(b, m, item->id, item->logprob);
    buf_puts(b, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < item->n_top; i++) {
        if (i)
            buf_puts(b, ",");
        put_chat_token(b, m, top[i].id, top[i].logprob);
        buf_puts(b, "}");
    }
    buf_puts(b, "]}");
}

/* --- completions ------------------------------------------------------------------------------ */

static void put_token_name(struct buf *b, const struct model *m, uint32_t id)
{
    size_t n;
    const char *s = token_bytes(m, id, &n);
    if (utf8_valid_prefix(s, n) == n) {
        json_put_string_n(b, s, n);
        return;
    }
    buf_puts(b, "\"bytes:");
    for (size_t i = 0; i < n; i++)
        buf_printf(b, "\\\\x%02x", (uint8_t)s[i]);
    buf_puts(b, "\"");
}

static void put_name(struct buf *b, const struct model *m, const struct logprobs_part *p,
                     const struct score *item)
{
    put_token_name(b, m, item->id);
}

static void put_logprob(struct buf *b, const struct model *m, const struct logprobs_part *p,
                        const struct score *item)
{
    if (item->has_logprob)
        put_number(b, item->logprob);
    else
        buf_puts(b, "null");
}

static void put_offset(struct buf *b, const struct model *m, const struct logprobs_part *p,
                       const struct score *item)
{
    buf_printf(b, "%u", p->chars_before + item->chars);
}

static void put_pair(struct buf *b, const struct model *m, uint32_t id, float logprob, bool first)
{
    if (!first)
        buf_puts(b, ",");
    put_token_name(b, m, id);
    buf_puts(b, ":");
    put_number(b, logprob);
}

/* The best ones, and the token itself if it is none of them. */
static void put_others(struct buf *b, const struct model *m, const struct logprobs_part *p,
                       const struct score *item)
{
    const struct token_logprob *top = p->scores->tops + item->first_top;
    bool has_itself = false;
    if (!item->has_logprob) {
        buf_puts(b, "null");
        return;
    }
    buf_puts(b, "{");
    for (uint32_t i = 0; i < item->n_top; i++) {
        put_pair(b, m, top[i].id, top[i].logprob, !i);
        has_itself |= top[i].id == item->id;
    }
    if (!has_itself)
        put_pair(b, m, item->id, item->logprob, !item->n_top);
    buf_puts(b, "}");
}

/* --- both ------------------------------------------------------------------------------------- */

static void put_list(struct buf *b, const char *name, const struct model *m,
                     const struct logprobs *l, bool with_end, put_fn *put)
{
    bool first = true;
    buf_printf(b, "\"%s\":[", name);
    for (int k = 0; k < 2; k++) {
        const struct logprobs_part *p = &l->parts[k];
        for (size_t i = p->from; i < p->to; i++) {
            if (p->scores->items[i].is_end && !with_end)
                continue;
            if (!first)
                buf_puts(b, ",");
            first = false;
            put(b, m, p, &p->scores->items[i]);
        }
    }
    buf_puts(b, "]");
}

void logprobs_put(struct buf *b, enum api_kind kind, const struct model *m,
                  const struct logprobs *l)
{
    buf_puts(b, "{");
    if (kind == API_CHAT) {
        put_list(b, "content", m, l, false, put_chat_item);
        buf_puts(b, ",\"refusal\":null}");
        return;
    }
    put_list(b, "tokens", m, l, true, put_name);
    buf_puts(b, ",");
    put_list(b, "token_logprobs", m, l, true, put_logprob);
    buf_puts(b, ",");
    if (l->has_top)
        put_list(b, "top_logprobs", m, l, true, put_others);
    else
        buf_puts(b, "\"top_logprobs\":null");
    buf_puts(b, ",");
    put_list(b, "text_offset", m, l, true, put_offset);
    buf_puts(b, "}");
}
