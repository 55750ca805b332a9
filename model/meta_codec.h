/* meta_codec.h - the parts that meta.c, meta_params.c and meta_tokenizer.c share. Inside the room only. */
#ifndef EXA_MODEL_META_CODEC_H
#define EXA_MODEL_META_CODEC_H

#include "model/meta.h"

void meta_params_put(struct buf *out, const struct model_params *p);
int meta_params_get(struct rd *r, struct model_params *p, struct err *e);
/* Finite numbers, known enum values. */
int meta_params_validate(const struct model_params *p, struct err *e);

void meta_tokenizer_put(struct buf *out, const struct tokenizer_data *t);
/* What was read is there also on failure, for meta_tokenizer_fini. */
int meta_tokenizer_get(struct rd *r, struct tokenizer_data *t, struct err *e);
/* Ids inside the vocabulary, known types, steps and flags, finite scores. */
int meta_tokenizer_validate(const struct tokenizer_data *t, struct err *e);
void meta_tokenizer_fini(struct tokenizer_data *t);
/* The next string as a new one; NULL with e set. */
char *meta_text_dup(struct rd *r, size_t max, const char *what, struct err *e);

/* Checked readers; `what` names the field in the error. */
int meta_text_get(struct rd *r, char *dst, size_t cap, const char *what, struct err *e);
int meta_bool_get(struct rd *r, bool *v, const char *what, struct err *e);

#endif
