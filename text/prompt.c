/* prompt.c - see prompt.h. */
#include "text/prompt.h"

#include "text/tokenizer_internal.h"

#include <stdlib.h>

/* NUL-terminated copy of a token's text: "" for id < 0; NULL: out of memory. */
static char *token_text_dup(const struct tokenizer *tok, int32_t id)
{
    size_t n = 0;
    const char *bytes = id < 0 ? NULL : tokenizer_bytes(tok, (uint32_t)id, true, &n);
    char *copy = malloc(n + 1);
    if (!copy)
        return NULL;
    if (n)
        memcpy(copy, bytes, n);
    copy[n] = 0;
    return copy;
}

/* The texts of a model's bos and eos, for a template. */
struct special_texts {
    char *bos, *eos; /* owned */
};

static int special_texts_get(const struct tokenizer *tok, struct special_texts *s, struct err *e)
{
    s->bos = token_text_dup(tok, tokenizer_bos(tok));
    s->eos = token_text_dup(tok, tokenizer_eos(tok));
    return s->bos && s->eos ? 0 : err_set(e, ERR_NOMEM, "prompt: out of memory");
}

static void special_texts_free(struct special_texts *s)
{
    free(s->bos);
    free(s->eos);
}

int prompt_from_chat(const struct chat_template *tmpl, const struct tokenizer *tok,
                     const struct chat_message *messages, size_t n_messages,
                     bool add_generation_prompt, size_t max_bytes, size_t max_tokens,
                     struct token_vec *out, struct err *e)
{
    struct special_texts special;
    struct buf text;
    buf_init(&text, max_bytes);
    int rc = special_texts_get(tok, &special, e);
    if (rc == 0)
        rc = chat_template_render(tmpl, messages, n_messages, special.bos, special.eos,
                                  add_generation_prompt, &text, e);
    if (rc == 0)
        rc = tokenizer_encode(tok, (const char *)text.data, text.len, true, max_tokens, out, e);
    buf_fini(&text);
    special_texts_free(&special);
    return rc;
}

static int render_adapted(const struct chat_template *tmpl, const struct chat_inputs *in,
                          bool as_objects, struct buf *text, struct err *e)
{
    struct chat_inputs adapted = *in;
    json_t *messages = NULL;
    int rc = chat_template_adapt(tmpl, in->messages, as_objects, &messages, e);
    adapted.messages = messages;
    if (rc == 0)
        rc = chat_template_render_inputs(tmpl, &adapted, text, e);
    json_decref(messages);
    return rc;
}

/* Most templates write arguments with tojson or walk them; a few join them to a text. There is no
 * telling but by trying. */
static int render_request(const struct chat_template *tmpl, const struct chat_inputs *in,
                          struct buf *text, struct err *e)
{
    struct err second = ERR_INIT;
    int rc = render_adapted(tmpl, in, true, text, e);
    if (rc == ERR_FORMAT && render_adapted(tmpl, in, false, text, &second) == 0) {
        if (e)
            *e = (struct err)ERR_INIT;
        return 0;
    }
    return rc;
}

int prompt_from_request(const struct chat_template *tmpl, const struct tokenizer *tok,
                        const struct chat_inputs *in, size_t max_bytes, size_t max_tokens,
                        struct token_vec *out, struct err *e)
{
    struct special_texts special;
    struct chat_inputs full = *in;
    struct buf text;
    buf_init(&text, max_bytes);
    int rc = special_texts_get(tok, &special, e);
    full.bos = special.bos;
    full.eos = special.eos;
    if (rc == 0)
        rc = render_request(tmpl, &full, &text, e);
    if (rc == 0)
        rc = tokenizer_encode(tok, (const char *)text.data, text.len, true, max_tokens, out, e);
    buf_fini(&text);
    special_texts_free(&special);
    return rc;
}

int prompt_from_text(const struct tokenizer *tok, const char *text, size_t n, size_t max_tokens,
                     struct token_vec *out, struct err *e)
{
    size_t had = out->n;
    size_t n_prefix;
    const uint32_t *prefix = tokenizer_prefix(tok, &n_prefix);
    if (n_prefix > max_tokens)
        return err_set(e, ERR_LIMIT, "text gives more than %zu tokens", max_tokens);
    for (size_t i = 0; i < n_prefix; i++)
        if (token_vec_push(out, prefix[i])) {
            out->n = had;
            return err_set(e, ERR_NOMEM, "prompt: out of memory");
        }
    max_tokens -= n_prefix;
    int rc = tokenizer_encode(tok, text, n, true, max_tokens, out, e);
    if (rc)
        out->n = had;
    return rc;
}
