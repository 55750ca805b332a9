/* gguf_model.h - from a GGUF file's keys to the neutral struct model_meta. Inside the room only. */
#ifndef EXA_MODEL_GGUF_MODEL_H
#define EXA_MODEL_GGUF_MODEL_H

#include "model/gguf_doc.h"
#include "model/meta.h"

/* m is initialised; the caller calls meta_fini also on failure. ERR_FORMAT names file, key,
 * expected and found. */
int gguf_model_read(const struct gguf_doc *d, struct model_meta *m, struct err *e);

/* The part of it that is the architecture's: m->params but for arch, n_vocab and tied_embeddings. (gguf_params.c) */
int gguf_params_read(const struct gguf_doc *d, struct model_meta *m, struct err *e);

#endif
