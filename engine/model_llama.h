/* model_llama.h - the `llama` family as a graph over ops.h: RMSNorm, rotary attention with grouped queries, SwiGLU.
 *
 * Sources: arXiv:2302.13971, arXiv:2305.13245 (grouped queries); tensor names as in GGUF files. Rotary pairs are (2i, 2i+1); without
 * an output.weight the embedding serves as the head. Owns the KV cache and all activations: taken at creation.
 */
#ifndef EXA_ENGINE_MODEL_LLAMA_H
#define EXA_ENGINE_MODEL_LLAMA_H

#include "base/err.h"
#include "engine/ops.h"
#include "model/image.h"

struct llama;

struct llama_size {
    uint32_t n_ctx, n_slots;
    uint32_t max_rows; /* rows of one step */
};
struct llama_memory {
    uint64_t kv_bytes, scratch_bytes;
};

/* ERR_FORMAT: parameters that the graph or the kernels cannot run (named). */
int llama_check(const struct model_params *p, struct err *e);
struct llama_memory llama_memory(const struct model_params *p, const struct llama_size *size);
uint32_t llama_max_cols(const struct model_params *p);

/* img must outlive the model. ERR_FORMAT: a tensor missing, or of another shape or type (named, expected and found). */
int llama_create(struct llama **out, const struct image *img, const struct llama_size *size,
                 const struct ops *ops, struct exec *x, struct err *e);
void llama_destroy(struct llama *m);

/* Compute n rows (at most max_rows, at most n_slots of which want logits; rows of one slot in order of position). */
void llama_forward(struct llama *m, const struct batch_row *rows, uint32_t n);
/* After llama_forward: logits [n_vocab] of the i-th row that wanted them. */
const float *llama_logits(const struct llama *m, uint32_t i);
/* Where row r first had a NaN or an infinity: 0 nowhere, 1 + layer, or 1 + n_layers for the logits. */
uint32_t llama_bad_layer(const struct llama *m, uint32_t r);

#endif
