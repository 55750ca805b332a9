/* quantize.h - a model's weights in a smaller format: a source between an importer and the pack, which counts the error it
 * brings.
 *
 * Matrices become `type`. As they are stay vectors (norms, biases), routers, rotary divisors, and what would not become
 * smaller. token_embd.weight and output.weight become Q8_0 at least (each token's logit hangs on them), unless a format of
 * 16 bits is asked for. Rows that are no whole number of blocks get the next format that fits and errs no more:
 * Q4_K → Q5_0, Q5_K → Q5_1, Q6_K → Q8_0, and F16 where 32 do not fit either.
 */
#ifndef EXA_MODEL_QUANTIZE_H
#define EXA_MODEL_QUANTIZE_H

#include "model/source.h"

#include <stdbool.h>

/* What became of one tensor. */
struct quantize_tensor {
    int from, to;    /* enum tensor_type; the same: untouched */
    bool substitute; /* rows did not fit the blocks of what was meant */
    double error;    /* sum of squared differences to the source's weights; of pieces read so far */
    double square;   /* sum of the source's squared weights */
    uint64_t n_weights;
};

struct quantize {
    struct model_index index;        /* owned: the new types; hashes and digest are not filled */
    struct quantize_tensor *tensors; /* owned [index.n_tensors] */
    struct quantize_work *work;      /* owned: buffers and threads */
};

/* `from` and `source` are the importer's; they outlive q. n_threads: 1 … 64. */
int quantize_open(struct quantize *q, const struct model_index *from,
                  const struct tensor_source *source, int type, unsigned n_threads, struct err *e);
void quantize_close(struct quantize *q);
/* Reading fails with ERR_FORMAT, naming the tensor, when a weight is not finite or too large for the format. */
struct tensor_source quantize_source(struct quantize *q);

/* "Q4_K", in any case, to its number; -1: no format that weights can be quantised to. */
int quantize_type(const char *name);
/* The names for help and errors: "F16, BF16, …". */
extern const char QUANTIZE_NAMES[];

#endif
