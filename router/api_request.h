/* api_request.h - a request body → a validated struct, or the error that the client gets.
 *
 * Pure; may run on any thread. Every field that would change the result and is not supported is
 * refused by name, every unknown one too: nothing a client asks for is dropped silently. null means
 * absent. Source: OpenAI API reference, "Create chat completion", "Create completion", "Create
 * embeddings"; vLLM's extensions are top_k, min_p, typical_p, repetition_penalty, min_tokens,
 * ignore_eos, stop_token_ids, priority (lower is earlier), guided_* and structured_outputs.
 */
#ifndef EXA_ROUTER_API_REQUEST_H
#define EXA_ROUTER_API_REQUEST_H

#include "router/api_error.h"
#include "text/stops.h"
#include "text/template.h"
#include "wire/msg.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum api_kind { API_CHAT = 1, API_COMPLETION = 2, API_EMBEDDING = 4 };
enum {
    API_MAX_DEPTH = 64, /* of nested JSON: schemas go deep */
    API_MAX_MESSAGES = 65536,
    API_MAX_PROMPTS = 2048,
    API_MAX_N = 128,
    API_MAX_CHOICES = 2048, /* prompts * best_of */
};

struct api_prompt {   /* one of `prompt` or `input` */
    const char *text; /* NULL: ids */
    size_t n;         /* bytes, or ids from `first` on */
    size_t first;
};
struct api_bias {
    uint32_t id;
    float value;
};

struct api_request {
    enum api_kind kind;
    json_t *root;               /* owns most strings below */
    const char *model;          /* NUL-terminated */
    json_t *messages;           /* chat: owned; checked, each content a text or null */
    json_t *tools;              /* chat: owned; NULL: none, or none wanted */
    json_t *template_kwargs;    /* chat: owned; NULL: none */
    bool hides_tools;           /* tool_choice "none" */
    struct api_prompt *prompts; /* completion, embedding: owned array */
    size_t n_prompts;
    uint32_t *ids; /* owned: of all prompts that are ids */
    size_t n_ids;
    bool has_max_tokens, has_seed, stream, include_usage, ignore_eos;
    bool want_logprobs, echo;
    bool base64; /* embedding: encoding_format */
    uint32_t max_tokens, n, best_of;
    uint32_t dimensions; /* embedding; 0: the model's */
    /* As the client has it: temperature and top_p default to 1, a top_p of 0 is the likeliest token
     * alone. seed counts when has_seed. */
    struct sampling sampling;
    uint8_t priority; /* as in msg_submit */
    uint32_t tenant;  /* of `user` */
    size_t n_stops;
    const char *stops[STOPS_MAX];
    size_t stop_bytes[STOPS_MAX];
    uint32_t n_stop_ids, stop_ids[MSG_MAX_STOP_IDS];
    uint32_t n_bias;
    struct api_bias *bias; /* owned */
    enum constraint_kind constraint;
    const char *constraint_param; /* static: the field that has it */
    char *constraint_source;      /* owned */
    size_t constraint_bytes;
};

/* 0, or -1 with a filled. r must be fini'd in both cases. */
int api_request_parse(struct api_request *r, enum api_kind kind, const char *body, size_t n,
                      struct api_error *a);
void api_request_fini(struct api_request *r);
/* Free all texts and ids; numbers, flags, bias and constraint stay. For requests that are prepared:
 * they may run long. */
void api_request_drop_texts(struct api_request *r);

#endif
