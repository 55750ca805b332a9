/* template.h - chat templates: the Jinja2 that published templates use, limited in steps, depth,
 * memory and output.
 *
 * Source: https://jinja.palletsprojects.com/en/3.1.x/templates/ and the templates in GGUF files.
 * It behaves as transformers' apply_chat_template sets Jinja2 up: the immutable sandbox with
 * trim_blocks, lstrip_blocks, loop controls and {% generation %}, its own tojson, raise_exception
 * and strftime_now. docs/internals/templates.md lists the language. Hostile templates and data meet
 * the limits: ERR_LIMIT, never a crash or an endless run.
 */
#ifndef EXA_TEXT_TEMPLATE_H
#define EXA_TEXT_TEMPLATE_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chat_template; /* compiled, immutable, usable from several threads */

/* What a conversation brings. All is borrowed, and nothing is changed; objects keep the order of
 * their keys. */
struct chat_inputs {
    const json_t *messages;  /* array of objects: role, content (a string, a list of parts or null),
                                tool_calls, tool_call_id, name, reasoning_content … */
    const json_t *tools;     /* array; NULL: the template sees none */
    const json_t *documents; /* array; NULL: the template sees none */
    const json_t *kwargs;    /* object, may be NULL: further variables by name, as clients send them
                                in chat_template_kwargs: {"enable_thinking": false} */
    const char *bos, *eos, *unk, *pad; /* texts of those tokens; NULL: bos_token … is not defined */
    bool add_generation_prompt;
    int64_t now_s; /* seconds since 1970: what strftime_now() shows, in local time; 0: the clock */
};

struct chat_message {
    const char *role;    /* NUL-terminated */
    const char *content; /* UTF-8 */
    size_t content_bytes;
};

/* ERR_FORMAT with line and what was found; ERR_LIMIT: source too large or nested too deeply. */
int chat_template_create(struct chat_template **out, const char *source, size_t n, struct err *e);
void chat_template_destroy(struct chat_template *t);

/* Messages as OpenAI's clients send them, as this template wants them: *out is a new reference.
 *  - content that is a list of texts, for a template that knows texts only: joined by newlines; any
 *    other part is ERR_CONFIG; and a text for a template that knows lists only: a list of one;
 *  - content that is null or missing: an empty text;
 *  - arguments of tool calls that are the text of a JSON object: the object, if as_objects.
 * What a template knows was found when it was created, by rendering a message of each kind. */
int chat_template_adapt(const struct chat_template *t, const json_t *messages, bool as_objects,
                        json_t **out, struct err *e);

/* Append the prompt to out (its cap bounds the output: ERR_LIMIT); nothing is appended on failure.
 * raise_exception() in the template gives ERR_CONFIG with its text; what the template cannot do
 * with this conversation gives ERR_FORMAT with the template's line; a budget gives ERR_LIMIT. */
int chat_template_render_inputs(const struct chat_template *t, const struct chat_inputs *in,
                                struct buf *out, struct err *e);
/* The same for messages that are a role and a text each. */
int chat_template_render(const struct chat_template *t, const struct chat_message *messages,
                         size_t n_messages, const char *bos, const char *eos,
                         bool add_generation_prompt, struct buf *out, struct err *e);

#endif
