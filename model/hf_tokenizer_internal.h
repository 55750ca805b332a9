/* hf_tokenizer_internal.h - the parts of reading a tokenizer.json. Inside the room only. */
#ifndef EXA_MODEL_HF_TOKENIZER_INTERNAL_H
#define EXA_MODEL_HF_TOKENIZER_INTERNAL_H

#include "model/hf_at.h"
#include "model/meta.h"

/* A tokenizer.json in the reading. */
struct hf_reader {
    struct tokenizer_data *t;
    struct hf_at top;
    json_t *ids; /* object: every token's text → its id, added ones included */
    struct err *e;
};

/* The vocabulary, merges or scores, and added tokens. */
int hf_read_model(struct hf_reader *r);
int hf_read_added(struct hf_reader *r);
/* Normalizer, pre-tokenizer and decoder become steps; the post-processor what is put around a text. */
int hf_read_steps(struct hf_reader *r);
int hf_read_post(struct hf_reader *r);
/* The id of a token's text, or -1. */
int64_t hf_token_id(const struct hf_reader *r, const char *text);

#endif
