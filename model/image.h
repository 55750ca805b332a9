/* image.h - the node image: CACHE/<digest hex>/image, raw tensors of one pack, shared read-only by
 * all engines of a node.
 *
 * Layout: a fixed header (magic "EXAIMG01", version, sizes, digest), tensors at their image_offset
 * from IMAGE_DATA_OFFSET on, then, at index->image_bytes, the index bytes and the meta bytes. Built
 * as `image.part` and renamed to `image` when every segment's hash agrees; a half-filled .part is
 * finished, not started over. All sizes are checked against the real file. Blocking; called from
 * the mover thread and from engines at start, never from a loop thread.
 */
#ifndef EXA_MODEL_IMAGE_H
#define EXA_MODEL_IMAGE_H

#include "base/err.h"
#include "model/index.h"
#include "model/meta.h"

#include <stdbool.h>

enum { IMAGE_DATA_OFFSET = 4096 };

/* --- building --------------------------------------------------------------------------------- */

/* A writer owns CACHE/<digest>/image.part under an flock: two jobs of one user on one node do not
 * write it at once (the second waits up to lock_timeout_us, then takes what the first has made). */
struct image_writer;

/* Open or create the part file, full size reserved with posix_fallocate: a full disk is ERR_LIMIT
 * here, naming folder, bytes needed and free, and nothing is left behind. If a finished image
 * exists it is verified first (every hash): good, then image_writer_complete() is true at once;
 * else the bad segments are missing ones again (repair). A part file's segments are verified the
 * same way. A bad image is not written to (engines may have it mapped): a new part file takes its
 * good segments, and it leaves the folder. x is not copied and must outlive the writer. meta: the
 * bytes of meta_encode. */
int image_writer_open(struct image_writer **out, const char *cache_dir, const struct model_index *x,
                      const void *meta, size_t meta_bytes, uint64_t lock_timeout_us, struct err *e);
/* have-bits: [ceil(n_segments/8)] bytes, bit s%8 of byte s/8; valid until close. */
const uint8_t *image_writer_have(const struct image_writer *w);
bool image_writer_complete(const struct image_writer *w);
/* Check the hash of the segment's bytes and write them. ERR_FORMAT: hash differs (none written). */
int image_writer_put(struct image_writer *w, uint32_t segment, const void *data, size_t n,
                     struct err *e);
/* fsync and rename; path (of the finished image) is filled. ERR_AGAIN if segments are missing. */
int image_writer_finish(struct image_writer *w, char *path, size_t path_cap, struct err *e);
void image_writer_close(struct image_writer *w); /* keeps an unfinished .part for the next try */

/* Remove images other than keep_digest, least recently used first, until the folder is under
 * max_bytes. An image in use (shared flock held by an engine) or being written is never removed:
 * the folder may stay over the limit, and that is no error. */
int image_evict(const char *cache_dir, uint64_t max_bytes, const uint8_t keep_digest[SHA256_BYTES],
                struct err *e);
/* Digests of the finished images in the folder, at most max; returns how many. Unreadable entries
 * are skipped. */
uint32_t image_list(const char *cache_dir, uint8_t (*digests)[SHA256_BYTES], uint32_t max);

/* --- using ------------------------------------------------------------------------------------ */

struct image {
    struct model_index index;
    struct model_meta meta;
    const uint8_t *map; /* the whole file, read-only, shared */
    size_t map_bytes;
    int fd; /* holds a shared flock: in use */
    const uint8_t **
        moved; /* owned [n_tensors], NULL: where tensors lie that are not in the map (image_derived.h) */
};
/* Map an image. verify: also check every segment hash (slow). Header, sizes, index and meta are
 * always checked. */
int image_open(struct image *img, const char *path, bool verify, struct err *e);
void image_close(struct image *img);
/* Tensor bytes, or NULL if there is none of that name. */
const void *image_tensor(const struct image *img, const char *name,
                         const struct tensor_info **info);

/* The bytes of one of index.tensors. */
const void *image_data(const struct image *img, const struct tensor_info *t);

#endif
