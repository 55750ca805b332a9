/* pack.h - a model pack: HDF5, one contiguous 4096-aligned dataset a tensor, hashes in an index,
 * manifest written last.
 *
 *   /tensors/<name>   uint8[n_bytes], contiguous, attributes `type` ("Q4_1"), `shape`
 *                     (uint64[n_dims], GGUF order)
 *   /config           attributes: one a hyper-parameter, readable names
 *   /tokenizer        datasets tokens, types, merges; attributes model, pre, bos, eos, …
 *   /chat_template    string dataset
 *   /index            uint8[]: index_encode bytes (model/index.h)
 *   /meta             uint8[]: meta_encode bytes (model/meta.h)
 *   / attribute `manifest`: JSON with format version, digest, sizes. Written last: without it a
 *                     pack does not exist.
 *
 * Readers trust only /index, /meta and the manifest; the readable groups are for people and h5py.
 * Blocking. One thread at a time (Debian's HDF5 is not thread-safe): the mover thread, or a
 * command-line program.
 */
#ifndef EXA_HDF5IO_PACK_H
#define EXA_HDF5IO_PACK_H

#include "base/err.h"
#include "model/index.h"
#include "model/meta.h"
#include "model/source.h"

/* Called with bytes done and in all; may be NULL. */
typedef void (*pack_progress_fn)(void *ctx, uint64_t done, uint64_t total);

/* Write path (as path.tmp…, renamed at the end). Segments are asked of the source in the index's order, each once, and kept
 * no longer than it takes to write them; hashes, meta_hash and digest of *index are filled here. A full disk: ERR_LIMIT with
 * needed and free bytes, nothing left behind. */
int pack_write_from(const char *path, struct model_index *index, const struct model_meta *meta,
                    const struct tensor_source *source, pack_progress_fn progress, void *ctx,
                    struct err *e);
/* The same of tensors in memory: tensor_data[i] has index->tensors[i].n_bytes bytes. */
int pack_write(const char *path, struct model_index *index, const struct model_meta *meta,
               const uint8_t *const *tensor_data, pack_progress_fn progress, void *ctx,
               struct err *e);

struct pack {
    struct model_index index;
    uint8_t *meta_bytes; /* owned: meta_encode bytes */
    size_t meta_n_bytes;
    /* owned [n_tensors]: where each tensor's bytes start in the file (H5Dget_offset) */
    uint64_t *file_offset;
};
/* Open, read index, meta and offsets, close the file again. Checks manifest, digest, that every
 * tensor's dataset is contiguous, of the right size and inside the file. Reads no tensor data.
 * ERR_FORMAT names what is wrong; "not a pack" for foreign files. */
int pack_open(struct pack *p, const char *path, struct err *e);
void pack_close(struct pack *p);
/* Read every segment and compare hashes: ERR_FORMAT names tensor and segment. */
int pack_verify(const char *path, pack_progress_fn progress, void *ctx, struct err *e);

#endif
