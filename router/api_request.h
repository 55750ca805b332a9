/* api_request.h - a request body → a validated struct, or the error that the client gets.
 *
 * Pure; may run on any thread. Every field that would change the result and is not supported is
 * refused by name, every unknown one too: nothing a client asks for is dropped silently. null means
 * absent. Source: OpenAI API reference, "Create chat completion" and "Create completion"; top_k,
 * ignore_eos, min_tokens, repetition_penalty and min_p are vLLM's extensions (the last three in
 * their neutral value only).
 */
#ifndef EXA_ROUTER_API_REQUEST_H
#define EXA_ROUTER_API_REQUEST_H

#include "router/api_error.h"
#include "text/stops.h"
#include "text/template.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum api_kind { API_CHAT = 1, API_COMPLETION = 2 };
enum { API_MAX_DEPTH = 32 /* of nested JSON */, API_MAX_MESSAGES = 65536 };

struct api_request {
    enum api_kind kind;
    json_t *root;                  /* owns most strings below */
    const char *model;             /* NUL-terminated */
    struct chat_message *messages; /* chat: owned array; contents are borrowed or in `joined` */
    size_t n_messages;
    char **joined; /* owned: contents put together from several text parts */
    size_t n_joined;
    const char *prompt; /* completion: text … */
    size_t prompt_bytes;
    uint32_t *prompt_ids; /* … or token ids, owned */
    size_t n_prompt_ids;
    bool has_max_tokens, has_seed, stream, include_usage, ignore_eos;
    uint32_t max_tokens;
    float temperature; /* default 1 */
    float top_p;       /* default 1 */
    uint32_t top_k;    /* 0: off */
    uint64_t seed;
    size_t n_stops;
    const char *stops[STOPS_MAX];
    size_t stop_bytes[STOPS_MAX];
};

/* 0, or -1 with a filled. r must be fini'd in both cases. */
int api_request_parse(struct api_request *r, enum api_kind kind, const char *body, size_t n,
                      struct api_error *a);
void api_request_fini(struct api_request *r);
/* Free all texts and ids; numbers and flags stay. For requests that are prepared: they may run
 * long. */
void api_request_drop_texts(struct api_request *r);

#endif
