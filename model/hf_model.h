/* hf_model.h - a model from a Hugging Face folder: config.json, model.safetensors or its shards, tokenizer.json and its
 * neighbours, for packing.
 *
 * Tensors get the names and the shapes that GGUF files use (blk.N.attn_q.weight, …), so that an engine sees no difference:
 *  - experts are stacked to one tensor [columns, rows, experts];
 *  - for architectures that rotate dimensions 2i and 2i + 1 rows of q and k (and their biases) change places within a head:
 *    row 2i + h of a head is row i + h * head_dim / 2 of the file;
 *  - norms, biases and routers become F32; other weights keep their format, F8 with scales becomes F8_E4M3 (F32 where rows
 *    are no whole blocks of 32);
 *  - divisors of the rotations (llama3, longrope) become tensors rope_freqs.weight, rope_factors_{short,long}.weight.
 * The files stay mapped; tensors are made piece by piece when a pack is written.
 */
#ifndef EXA_MODEL_HF_MODEL_H
#define EXA_MODEL_HF_MODEL_H

#include "model/meta.h"
#include "model/source.h"

struct hf_model {
    struct model_meta meta;
    struct model_index index; /* hashes and digest are not filled */
    struct hf_plan *plan;     /* owned: the mapped files, and how each tensor is made of them */
};

/* Fills m->tok and m->chat_template from the folder: hf_tokenizer_read (model/hf_tokenizer.h), or a test's own. */
typedef int (*hf_tokenizer_fn)(const char *folder, struct model_meta *m, struct err *e);

/* Everything is checked here but the values of weights: keys, names, shapes, types. ERR_FORMAT names file, key or tensor,
 * expected and found. */
int hf_open(struct hf_model *h, const char *folder, hf_tokenizer_fn tokenizer, struct err *e);
void hf_close(struct hf_model *h);
/* One reader at a time. h must stay open. */
struct tensor_source hf_source(struct hf_model *h);

#endif
