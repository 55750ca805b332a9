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

int prompt_from_chat(const struct chat_template *tmpl, const struct tokenizer *tok,
                     const struct chat_message *messages, size_t n_messages,
                     bool add_generation_prompt, size_t max_bytes, size_t max_tokens,
                     struct token_vec *out, struct err *e)
{
    char *bos = token_text_dup(tok, tokenizer_bos(tok));
    char *eos = token_text_dup(tok, tokenizer_eos(tok));
    struct buf text;
    buf_init(&text, max_bytes);
    int rc;
    if (!bos || !eos)
        rc = err_set(e, ERR_NOMEM, "prompt: out of memory");
    else
        rc = chat_template_render(tmpl, messages, n_messages, bos, eos, add_generation_prompt,
                                  &text, e);
    if (rc == 0)
        rc = tokenizer_encode(tok, (const char *)text.data, text.len, true, max_tokens, out, e);
    buf_fini(&text);
    free(bos);
    free(eos);
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
