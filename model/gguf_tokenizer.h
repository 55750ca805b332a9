/* gguf_tokenizer.h - the keys tokenizer.ggml.* become struct tokenizer_data. Inside the room only. */
#ifndef EXA_MODEL_GGUF_TOKENIZER_H
#define EXA_MODEL_GGUF_TOKENIZER_H

#include "model/gguf_doc.h"
#include "model/meta.h"

/* t is initialised (meta_init); the caller calls meta_fini also on failure. ERR_FORMAT names file, key, expected and found. Which
 * pre-tokenizers there are is for text/ to say. */
int gguf_tokenizer_read(const struct gguf_doc *d, struct tokenizer_data *t, struct err *e);

#endif
