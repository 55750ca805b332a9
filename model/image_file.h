/* image_file.h - the node image as bytes: its header, its places in the cache folder, whole reads
 * and writes.
 *
 * Inside the room only. CACHE/<digest>/ holds `image` (finished), `image.part` (being made) and
 * `lock`: a writer and an evictor hold an exclusive flock on `lock` for all they do in that folder;
 * a user of an image holds a shared flock on the image itself. Whoever removes the folder removes
 * `lock` last and while holding it, so a flock counts only if the path still leads to the locked
 * file.
 */
#ifndef EXA_MODEL_IMAGE_FILE_H
#define EXA_MODEL_IMAGE_FILE_H

#include "base/digest.h"
#include "base/err.h"
#include "model/index.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct image_header {
    uint64_t file_bytes; /* the whole file: data_end + index_bytes + meta_bytes */
    uint64_t data_end;   /* index->image_bytes */
    uint32_t index_bytes, meta_bytes;
    uint8_t digest[SHA256_BYTES];
};
/* out: IMAGE_DATA_OFFSET bytes */
void image_header_encode(const struct image_header *h, uint8_t *out);
/* Read and check: magic, version, checksum, sizes against each other and against the file's.
 * ERR_FORMAT names path. */
int image_header_read(struct image_header *h, int fd, const char *path, struct err *e);

struct image_paths {
    char dir[PATH_MAX], image[PATH_MAX], part[PATH_MAX], lock[PATH_MAX];
};
int image_paths_make(struct image_paths *p, const char *cache_dir,
                     const uint8_t digest[SHA256_BYTES], struct err *e);

/* Make the folder and take its lock, waiting until timeout_us (0: try once). ERR_TIMEOUT when
 * another has it. */
int image_lock(int *fd, const struct image_paths *p, uint64_t timeout_us, struct err *e);
/* flock op on fd, and whether path still leads to that file: 1 locked, 0 not now (held, or path
 * changed), else an error. */
int image_flock(int fd, int op, const char *path, struct err *e);

/* The whole n bytes: 0, or ERR_SYS; ERR_FORMAT at the end of the file. */
int image_pread(int fd, void *dst, size_t n, uint64_t offset, const char *path, struct err *e);
/* The whole n bytes: 0, ERR_SYS, or ERR_LIMIT when the disk is full. */
int image_pwrite(int fd, const void *src, size_t n, uint64_t offset, const char *path,
                 struct err *e);

#endif
