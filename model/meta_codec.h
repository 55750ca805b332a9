/* meta_codec.h - the parts that meta.c and meta_params.c share. Inside the room only. */
#ifndef EXA_MODEL_META_CODEC_H
#define EXA_MODEL_META_CODEC_H

#include "model/meta.h"

void meta_params_put(struct buf *out, const struct model_params *p);
int meta_params_get(struct rd *r, struct model_params *p, struct err *e);
/* Finite numbers, known enum values. */
int meta_params_validate(const struct model_params *p, struct err *e);

/* Checked readers; `what` names the field in the error. */
int meta_text_get(struct rd *r, char *dst, size_t cap, const char *what, struct err *e);
int meta_bool_get(struct rd *r, bool *v, const char *what, struct err *e);

#endif
