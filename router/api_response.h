/* api_response.h - answers as bytes: whole JSON, and server-sent events of a stream.
 *
 * Pure; written directly, without a JSON tree. Source: OpenAI API reference, "The chat completion
 * object", "The chat completion chunk object", "The completion object"; server-sent events:
 * https://html.spec.whatwg.org/multipage/server-sent-events.html.
 */
#ifndef EXA_ROUTER_API_RESPONSE_H
#define EXA_ROUTER_API_RESPONSE_H

#include "router/api_error.h"
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
    uint32_t prompt_tokens, completion_tokens;
};

void reply_put_whole(struct buf *b, const struct reply *r, const char *text, size_t n,
                     const char *finish_reason, const struct usage *u);
/* Events of a stream, in this order. */
void reply_put_role(struct buf *b, const struct reply *r); /* chat only; nothing for completions */
void reply_put_text(struct buf *b, const struct reply *r, const char *text, size_t n);
void reply_put_finish(struct buf *b, const struct reply *r, const char *finish_reason);
void reply_put_usage(struct buf *b, const struct reply *r, const struct usage *u);
void reply_put_done(struct buf *b);
void reply_put_error(struct buf *b, const struct api_error *a);

void reply_put_model(struct buf *b, const struct model *m);
void reply_put_models(struct buf *b, const struct model_set *s);

#endif
