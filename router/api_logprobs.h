/* api_logprobs.h - log-probabilities as OpenAI clients expect them. Pure.
 *
 * Source: OpenAI API reference: "logprobs" of the chat completion object (token, logprob, bytes,
 * top_logprobs), and of the completion object (tokens, token_logprobs, top_logprobs, text_offset). A
 * token of a completion that is no whole text is written as "bytes:\xe2\x80".
 */
#ifndef EXA_ROUTER_API_LOGPROBS_H
#define EXA_ROUTER_API_LOGPROBS_H

#include "router/api_request.h"
#include "router/scores.h"

struct logprobs_part { /* items from … to - 1 */
    const struct scores *scores;
    size_t from, to;
    uint32_t chars_before; /* of the text before these scores' first token */
};
struct logprobs {
    struct logprobs_part parts[2]; /* the prompt's (echo) and the answer's */
    bool has_top;                  /* completions: others were asked for */
};

/* The value of "logprobs". Chats leave the token out that ended the answer: it is no content. */
void logprobs_put(struct buf *b, enum api_kind kind, const struct model *m,
                  const struct logprobs *l);

#endif
