/* template.h - chat templates: the subset of Jinja2 that published templates use, limited in
 * steps, depth and output.
 *
 * Source: https://jinja.palletsprojects.com/en/3.1.x/templates/ and the templates in GGUF files.
 * trim_blocks and lstrip_blocks are on, as transformers' apply_chat_template sets them. Hostile
 * templates meet the limits: ERR_LIMIT, never a crash or an endless run.
 */
#ifndef EXA_TEXT_TEMPLATE_H
#define EXA_TEXT_TEMPLATE_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct chat_template; /* compiled, immutable, usable from several threads */

struct chat_message {
    const char *role;    /* NUL-terminated */
    const char *content; /* UTF-8 */
    size_t content_bytes;
};

/* ERR_FORMAT with line and what was found. */
int chat_template_create(struct chat_template **out, const char *source, size_t n, struct err *e);
void chat_template_destroy(struct chat_template *t);
/* Render into out (its cap bounds the output: ERR_LIMIT). bos/eos: texts of those tokens.
 * raise_exception() in the template gives ERR_CONFIG with its text. */
int chat_template_render(const struct chat_template *t, const struct chat_message *messages,
                         size_t n_messages, const char *bos, const char *eos,
                         bool add_generation_prompt, struct buf *out, struct err *e);

#endif
