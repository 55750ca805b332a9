/* byte_model.h - a tiny tokenizer for tests: three control tokens, then one token for each byte.
 *
 * Ids: 0 <|endoftext|>, 1 <|im_start|>, 2 <|im_end|> (end of generation: 0 and 2), 3 + b for byte
 * b. With it tests write token streams by hand, split characters between tokens, and need no model
 * file. The chat template is ChatML.
 */
#ifndef EXA_TESTS_BYTE_MODEL_H
#define EXA_TESTS_BYTE_MODEL_H

#include "model/meta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTE_MODEL_EOS = 2, BYTE_MODEL_FIRST = 3, BYTE_MODEL_VOCAB = 256 + 3 };

/* GPT-2's byte alphabet: printable Latin-1 stands for itself, the rest for U+0100 …, in order. */
static inline void byte_model_letter(int b, char out[4])
{
    int next = 0x100, cp = 0;
    for (int i = 0; i <= b; i++) {
        bool plain =
            (i >= 0x21 && i <= 0x7E) || (i >= 0xA1 && i <= 0xAC) || (i >= 0xAE && i <= 0xFF);
        cp = plain ? i : next++;
    }
    if (cp < 0x80) {
        snprintf(out, 4, "%c", cp);
    } else {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        out[2] = 0;
    }
}

/* Fill m; meta_fini frees it. */
static inline void byte_model_meta(struct model_meta *m)
{
    static const char *const CONTROL[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    static const char TEMPLATE[] =
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
        "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    meta_init(m);
    strcpy(m->name, "bytes");
    m->params = (struct model_params){.arch = "llama",
                                      .n_layers = 1,
                                      .n_embd = 32,
                                      .n_ff = 32,
                                      .n_heads = 1,
                                      .n_kv_heads = 1,
                                      .head_dim = 32,
                                      .rope_dim = 32,
                                      .rope_base = 10000,
                                      .norm_eps = 1e-5f,
                                      .n_ctx = 4096,
                                      .n_vocab = BYTE_MODEL_VOCAB,
                                      .tied_embeddings = true};
    struct tokenizer_data *t = &m->tok;
    strcpy(t->model, "gpt2");
    strcpy(t->pre, "smollm");
    t->n_tokens = BYTE_MODEL_VOCAB;
    t->tokens = calloc(BYTE_MODEL_VOCAB + 1, sizeof *t->tokens);
    t->types = calloc(BYTE_MODEL_VOCAB + 1, 1);
    t->merges = calloc(1, sizeof *t->merges);
    for (int i = 0; i < BYTE_MODEL_VOCAB; i++) {
        char letter[4];
        if (i >= BYTE_MODEL_FIRST)
            byte_model_letter(i - BYTE_MODEL_FIRST, letter);
        t->tokens[i] = strdup(i < BYTE_MODEL_FIRST ? CONTROL[i] : letter);
        t->types[i] = i < BYTE_MODEL_FIRST ? TOKEN_CONTROL : TOKEN_NORMAL;
    }
    t->bos = 1;
    t->eos = BYTE_MODEL_EOS;
    t->unk = t->pad = -1;
    m->chat_template = strdup(TEMPLATE);
}

#endif
