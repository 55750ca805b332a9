/* api_response.h - answers as bytes: whole JSON, and server-sent events of a stream.
 *
 * Pure; written directly, without a JSON tree. Source: OpenAI API reference, "The chat completion
 * object", "The chat completion chunk object", "The completion object", "The embedding
 * object"; server-sent events:
 * https://html.spec.whatwg.org/multipage/server-sent-events.html.
 */
#ifndef EXA_ROUTER_API_RESPONSE_H
#define EXA_ROUTER_API_RESPONSE_H

#include "router/api_error.h"
#include "router/api_logprobs.h"
#include "router/api_request.h"
#include "router/models.h"

enum { REPLY_ID_BYTES = 48 };

struct reply {
    enum api_kind kind;
    char id[REPLY_ID_BYTES]; /* "chatcmpl-…" or "cmpl-…" */
    const struct model *model;
    uint64_t created_s;
    bool include_usage;
};

struct usage {
    uint64_t prompt_tokens, completion_tokens;
};

/* One choice, or in a stream what is new of it. */
struct reply_choice {
    uint32_t index;
    const char *text;
    size_t n;
    const char *finish_reason;       /* NULL: null */
    const struct logprobs *logprobs; /* NULL: null */
};

/* A whole answer: head, choices with reply_put_comma between them, tail. */
void reply_put_head(struct buf *b, const struct reply *r);
void reply_put_choice(struct buf *b, const struct reply *r, const struct reply_choice *c);
void reply_put_comma(struct buf *b);
void reply_put_tail(struct buf *b, const struct usage *u);
/* Events of a stream, in this order for each choice. */
void reply_put_role(struct buf *b, const struct reply *r, uint32_t index); /* chat only */
void reply_put_text(struct buf *b, const struct reply *r, const struct reply_choice *c);
void reply_put_finish(struct buf *b, const struct reply *r, uint32_t index,
                      const char *finish_reason);
void reply_put_usage(struct buf *b, const struct reply *r, const struct usage *u);
void reply_put_done(struct buf *b);
void reply_put_error(struct buf *b, const struct api_error *a);

/* Embeddings: head, vectors with reply_put_comma between them, tail. f32: [n] little-endian, of which the first `dimensions` are given,
 * made unit length again when that is fewer. */
void reply_put_embeddings_head(struct buf *b);
void reply_put_embedding(struct buf *b, uint32_t index, const uint8_t *f32, uint32_t n,
                         uint32_t dimensions, bool base64);
void reply_put_embeddings_tail(struct buf *b, const struct reply *r, uint64_t prompt_tokens);

void reply_put_model(struct buf *b, const struct model *m);
void reply_put_models(struct buf *b, const struct model_set *s);

#endif
