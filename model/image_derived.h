/* image_derived.h - columns of some tensors of a node image as a file of their own, for one shard of a tensor-parallel replica.
 *
 * A shard maps its rows of the image as they lie there. Where it needs columns (the output projections), a row's piece is no whole row, so the
 * pieces are copied once a node into CACHE/<digest>/tp-R-of-N beside the image: whoever needs it first makes it under the folder's lock,
 * others wait and then share it. Its name, the plan's hash and a hash over its data are in its header. It lives and leaves with its image:
 * while the image is open here (image_open), neither is evicted. Blocking.
 */
#ifndef EXA_MODEL_IMAGE_DERIVED_H
#define EXA_MODEL_IMAGE_DERIVED_H

#include "model/image.h"

/* Columns first … first + count of every row of a tensor (of all its matrices, if it has three dimensions). */
struct derived_part {
    char tensor[TENSOR_NAME_BYTES];
    uint64_t first, count; /* weights; whole blocks of the tensor's format */
};

struct image_derived;

/* path: of the image (img), which must stay open. ERR_FORMAT: no such tensor, or a range that is not in it or no whole blocks (named).
 * ERR_LIMIT: the disk is full. ERR_TIMEOUT: another process of this node still holds the folder. */
int image_derived_open(struct image_derived **out, const struct image *img, const char *path,
                       uint32_t rank, uint32_t n_ranks, const struct derived_part *parts,
                       uint32_t n_parts, uint64_t lock_timeout_us, struct err *e);
void image_derived_close(struct image_derived *d);
/* Rows of part i, one after another; *row_bytes each. */
const void *image_derived_tensor(const struct image_derived *d, uint32_t i, size_t *row_bytes);
/* From now on img has these tensors with these columns only, and their bytes are d's, which must stay open as long as img is. */
int image_derived_apply(struct image *img, const struct image_derived *d,
                        const struct derived_part *parts, struct err *e);
uint64_t image_derived_bytes(const struct image_derived *d);
/* Compare with the hash that was taken when it was made. */
int image_derived_verify(const struct image_derived *d, struct err *e);

#endif
