/* result.c - see result.h. */
#include "engine/result.h"

#include <stdio.h>

#include "engine/sampler.h"

_Static_assert((int)RESULT_MAX_TOKENS <= (int)MSG_LOGPROBS_PER_EXT, "one extension carries them");

static void logprobs_put(struct buf *ext, uint32_t first, uint32_t n, const struct drawn *drawn)
{
    msg_logprobs_begin_put(ext, first, n);
    for (uint32_t i = 0; i < n; i++)
        msg_logprob_put(ext, drawn[i].logprob, drawn[i].rank, drawn[i].n_top, drawn[i].top);
}

static void entry_put(struct buf *out, const struct buf *ext, struct step_entry *entry,
                      enum step_ext type)
{
    entry->ext_type = (uint16_t)type;
    entry->ext = ext->data;
    entry->ext_bytes = (uint32_t)ext->len;
    if (!buf_ok(ext))
        out->failed = true;
    else
        msg_entry_put(out, entry);
}

static uint32_t prompt_put(struct buf *out, struct buf *ext, const struct step_result *r)
{
    uint32_t n_entries = 0;
    for (uint32_t i = 0; i < r->n_prompt_drawn; n_entries++) {
        uint32_t n = r->n_prompt_drawn - i;
        n = n < MSG_LOGPROBS_PER_EXT ? n : MSG_LOGPROBS_PER_EXT;
        buf_reset(ext);
        logprobs_put(ext, r->prompt_first + i, n, r->prompt_drawn + i);
        entry_put(out, ext, &(struct step_entry){.attempt = r->attempt, .position = r->position},
                  EXT_PROMPT_LOGPROBS);
        i += n;
    }
    return n_entries;
}

/* What comes with the tokens; an error goes before all else, since an entry carries one extension. */
static enum step_ext ext_put(struct buf *ext, const struct step_result *r)
{
    if (r->error) {
        struct msg_text text = {.code = r->error->code};
        snprintf(text.text, sizeof text.text, "%s", r->error->text);
        msg_text_put(ext, &text);
        return EXT_ERROR;
    }
    if (r->n_embedding) {
        msg_embedding_put(ext, r->embedding, r->n_embedding);
        return EXT_EMBEDDING;
    }
    if (r->drawn && r->n_tokens) {
        logprobs_put(ext, r->position, r->n_tokens, r->drawn);
        return EXT_LOGPROBS;
    }
    return EXT_NONE;
}

uint32_t result_put(struct buf *out, struct buf *ext, const struct step_result *r)
{
    uint8_t tokens[4 * RESULT_MAX_TOKENS];
    CHECK(r->n_tokens <= RESULT_MAX_TOKENS);
    uint32_t n_entries = prompt_put(out, ext, r);
    if (n_entries && !r->n_tokens && r->finish == FINISH_NONE)
        return n_entries;
    for (uint32_t i = 0; i < r->n_tokens; i++)
        for (uint32_t k = 0; k < 4; k++)
            tokens[4 * i + k] = (uint8_t)(r->tokens[i] >> (8 * k));
    buf_reset(ext);
    enum step_ext type = ext_put(ext, r);
    entry_put(out, ext,
              &(struct step_entry){
                  .attempt = r->attempt,
                  .position = r->position,
                  .n_tokens = r->n_tokens,
                  .finish = r->finish,
                  .tokens = tokens,
              },
              type);
    return n_entries + 1;
}
