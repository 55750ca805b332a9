/* prompt.h - from what a client sent to the ids an engine gets.
 *
 * As the reference does (transformers' apply_chat_template, then encode): special tokens are
 * recognised in the whole rendered text, also where they come from a message's content.
 */
#ifndef EXA_TEXT_PROMPT_H
#define EXA_TEXT_PROMPT_H

#include "text/template.h"
#include "text/tokenizer.h"

/* Render the messages and append the ids to out. max_bytes bounds the rendered text, max_tokens
 * the ids (ERR_LIMIT). No bos is added: a template that wants one writes it. */
int prompt_from_chat(const struct chat_template *tmpl, const struct tokenizer *tok,
                     const struct chat_message *messages, size_t n_messages,
                     bool add_generation_prompt, size_t max_bytes, size_t max_tokens,
                     struct token_vec *out, struct err *e);

/* The same for what a client sent: messages, tools and named variables in any of the forms that
 * OpenAI's API allows are made into those that the template knows (chat_template_adapt). in->bos and
 * in->eos are taken from the tokenizer. */
int prompt_from_request(const struct chat_template *tmpl, const struct tokenizer *tok,
                        const struct chat_inputs *in, size_t max_bytes, size_t max_tokens,
                        struct token_vec *out, struct err *e);

/* A plain completion prompt: special tokens are recognised; bos goes first where the model's
 * tokenizer asks for it. */
int prompt_from_text(const struct tokenizer *tok, const char *text, size_t n, size_t max_tokens,
                     struct token_vec *out, struct err *e);

#endif
