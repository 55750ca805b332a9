/* pack_write.c - see pack.h: making a pack.
 *
 * Everything goes into PATH.tmp under an flock (what a killed run left there is taken over), and
 * gets its name by rename when all of it is on the disk. Space is reserved beforehand: a full disk
 * shows before the long part. Every byte is asked for once, hashed and written; the index is last.
 */
#include "hdf5io/pack.h"

#include "base/file.h"
#include "hdf5io/h5.h"
#include "hdf5io/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    /* What HDF5 itself needs at most for a dataset's header, its attributes and its entry in the
     * group, each aligned. */
    H5_TENSOR_BYTES = 3 * TENSOR_ALIGN,
    H5_FILE_BYTES = 1 << 20,
};

struct writer {
    char path[PATH_MAX], tmp[PATH_MAX];
    int fd; /* of tmp: the lock, the reservation, fsync */
    hid_t file;
    struct model_index *index;
    const struct model_meta *meta;
    const struct tensor_source *source;
    uint8_t *piece; /* owned: SEGMENT_BYTES for the source to fill */
    struct buf meta_bytes, index_bytes;
    uint64_t need; /* bytes of the whole pack, estimated from above */
    pack_progress_fn progress;
    void *ctx;
};

static int disk_full(const struct writer *w, struct err *e)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", w->path);
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir] = 0;
    struct statvfs v;
    uint64_t free_bytes =
        statvfs(slash ? dir : ".", &v) == 0 ? (uint64_t)v.f_bavail * v.f_frsize : 0;
    return err_set(e, ERR_LIMIT, "disk full: %s needs %" PRIu64 " bytes, %" PRIu64 " are free",
                   w->path, w->need, free_bytes);
}

/* The meta bytes, and how long the index will be: its hashes come with the tensors. */
static int encode_early(struct writer *w, struct err *e)
{
    int rc = meta_encode(w->meta, &w->meta_bytes, e);
    if (rc)
        return rc;
    sha256_of(w->meta_bytes.data, w->meta_bytes.len, w->index->meta_hash);
    return index_encode(w->index, &w->index_bytes, e);
}

/* The index with every hash, and the digest. */
static int encode_index(struct writer *w, struct err *e)
{
    buf_reset(&w->index_bytes);
    int rc = index_seal(w->index, e);
    return rc ? rc : index_encode(w->index, &w->index_bytes, e);
}

/* Take PATH.tmp for ourselves. */
static int lock_tmp(struct writer *w, struct err *e)
{
    struct stat st, there;
    if (stat(w->path, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(e, ERR_CONFIG, "%s is there already and is no file", w->path);
    w->fd = open(w->tmp, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (w->fd < 0)
        return err_sys(e, errno, "cannot create %s", w->tmp);
    if (flock(w->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        goto held; /* other errors: no locks here, two writers are then the user's care */
    if (fstat(w->fd, &st) != 0 || lstat(w->tmp, &there) != 0 || st.st_ino != there.st_ino ||
        st.st_dev != there.st_dev)
        goto held; /* renamed by its owner just now */
    return 0;
held:
    close(w->fd);
    w->fd = -1; /* not ours to remove */
    return err_set(e, ERR_AGAIN, "%s is being written by another process", w->tmp);
}

static int create_file(struct writer *w, struct err *e)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    /* Alignment for all sizes: also the smallest tensor begins at a multiple of 4096. HDF5's own
     * lock is off: ours is held, and some shared file systems refuse it. */
    if (access >= 0 && H5Pset_fapl_sec2(access) >= 0 &&
        H5Pset_alignment(access, 1, TENSOR_ALIGN) >= 0 &&
        H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V110) >= 0 &&
        H5Pset_file_locking(access, 0, 1) >= 0)
        w->file = H5Fcreate(w->tmp, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    int rc = w->file < 0 ? h5_error(e, ERR_SYS, "cannot create %s", w->tmp) : 0;
    h5_close_list(access);
    return rc;
}

static int reserve(struct writer *w, struct err *e)
{
    const struct model_index *x = w->index;
    w->need = x->image_bytes + (uint64_t)x->n_tensors * H5_TENSOR_BYTES + w->index_bytes.len +
              4 * w->meta_bytes.len +
              H5_FILE_BYTES; /* the tokenizer is there twice, once as a heap of strings */
    struct statvfs v;
    if (fstatvfs(w->fd, &v) == 0 && (uint64_t)v.f_bavail * v.f_frsize < w->need)
        return disk_full(w, e);
    /* A reservation is a help, not a must: file systems without it fail later, on a write. */
    if (fallocate(w->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)w->need) != 0 &&
        (errno == ENOSPC || errno == EDQUOT))
        return disk_full(w, e);
    return 0;
}

static int write_segment(struct writer *w, hid_t set, hid_t space, uint32_t tensor,
                         const struct segment *seg, uint32_t number, struct err *e)
{
    const struct tensor_info *t = &w->index->tensors[tensor];
    const uint8_t *bytes;
    int rc =
        w->source->read(w->source->ctx, tensor, seg->offset, seg->n_bytes, w->piece, &bytes, e);
    if (rc)
        return rc;
    sha256_of(bytes, seg->n_bytes, w->index->hashes[number]);
    hsize_t start = seg->offset, n = seg->n_bytes;
    hid_t memory = H5Screate_simple(1, &n, NULL);
    if (memory < 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &n, NULL) < 0 ||
        H5Dwrite(set, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, bytes) < 0)
        rc = h5_error(e, ERR_SYS, "cannot write tensor %s at byte %" PRIu64, t->name, seg->offset);
    h5_close_space(memory);
    return rc;
}

static int write_segments(struct writer *w, hid_t set, uint32_t tensor, uint64_t *done,
                          struct err *e)
{
    const struct tensor_info *t = &w->index->tensors[tensor];
    hsize_t dims = t->n_bytes;
    hid_t space = H5Screate_simple(1, &dims, NULL);
    int rc = space < 0 ? h5_error(e, ERR_SYS, "tensor %s", t->name) : 0;
    for (uint32_t i = 0; i < t->n_segments && !rc; i++) {
        struct segment seg = index_segment(w->index, t->first_segment + i);
        rc = write_segment(w, set, space, tensor, &seg, t->first_segment + i, e);
        *done += seg.n_bytes;
        if (!rc && w->progress)
            w->progress(w->ctx, *done, w->index->data_bytes);
    }
    h5_close_space(space);
    return rc;
}

static int write_tensors(struct writer *w, struct err *e)
{
    const struct model_index *x = w->index;
    uint64_t done = 0;
    hid_t group;
    int rc = h5_group_create(w->file, "tensors", &group, e);
    for (uint32_t i = 0; i < x->n_tensors && !rc; i++) {
        const struct tensor_info *t = &x->tensors[i];
        hid_t set = -1;
        rc = h5_data_bytes(group, t->name, NULL, t->n_bytes, &set, e);
        if (!rc)
            rc = h5_attr_text(set, "type", tensor_type_info(t->type)->name, e);
        if (!rc)
            rc = h5_attr_u64s(set, "shape", t->dims, t->n_dims, e);
        if (!rc)
            rc = write_segments(w, set, i, &done, e);
        h5_close_data(set);
    }
    h5_close_group(group);
    return rc;
}

static int write_config(struct writer *w, struct err *e)
{
    const struct model_params *p = &w->meta->params;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"n_layers", p->n_layers},
        {"n_embd", p->n_embd},
        {"n_ff", p->n_ff},
        {"n_heads", p->n_heads},
        {"n_kv_heads", p->n_kv_heads},
        {"head_dim", p->head_dim},
        {"rope_dim", p->rope_dim},
        {"n_ctx", p->n_ctx},
        {"n_vocab", p->n_vocab},
        {"tied_embeddings", p->tied_embeddings},
    };
    const struct { /* only where the model has such a thing */
        const char *name;
        int64_t value;
    } extras[] = {
        {"rope_scaling", p->rope_scaling},
        {"rope_orig_ctx", p->rope_orig_ctx},
        {"window", p->window},
        {"window_from", p->window_from},
        {"nope_every", p->nope_every},
        {"n_experts", p->n_experts},
        {"n_experts_used", p->n_experts_used},
        {"n_ff_expert", p->n_ff_expert},
        {"experts_renorm", p->experts_renorm},
        {"pooling", p->pooling},
    };
    hid_t group;
    int rc = h5_group_create(w->file, "config", &group, e);
    if (!rc)
        rc = h5_attr_text(group, "name", w->meta->name, e);
    if (!rc)
        rc = h5_attr_text(group, "arch", p->arch, e);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && !rc; i++)
        rc = h5_attr_i64(group, numbers[i].name, numbers[i].value, e);
    for (size_t i = 0; i < sizeof extras / sizeof extras[0] && !rc; i++)
        if (extras[i].value)
            rc = h5_attr_i64(group, extras[i].name, extras[i].value, e);
    if (!rc && p->rope_factor > 0)
        rc = h5_attr_f64(group, "rope_factor", (double)p->rope_factor, e);
    if (!rc)
        rc = h5_attr_f64(group, "rope_base", (double)p->rope_base, e);
    if (!rc)
        rc = h5_attr_f64(group, "norm_eps", (double)p->norm_eps, e);
    h5_close_group(group);
    return rc;
}

static int write_tokenizer(struct writer *w, struct err *e)
{
    const struct tokenizer_data *t = &w->meta->tok;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"bos", t->bos}, {"eos", t->eos},         {"unk", t->unk},
        {"pad", t->pad}, {"add_bos", t->add_bos}, {"add_eos", t->add_eos},
    };
    hid_t group;
    int rc = h5_group_create(w->file, "tokenizer", &group, e);
    if (!rc)
        rc = h5_attr_text(group, "model", t->model, e);
    if (!rc)
        rc = h5_attr_text(group, "pre", t->pre, e);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && !rc; i++)
        rc = h5_attr_i64(group, numbers[i].name, numbers[i].value, e);
    if (!rc)
        rc =
            h5_data_strings(group, "tokens", (const char *const *)t->tokens, t->n_tokens, false, e);
    if (!rc && t->n_tokens)
        rc = h5_data_bytes(group, "types", t->types, t->n_tokens, NULL, e);
    if (!rc)
        rc =
            h5_data_strings(group, "merges", (const char *const *)t->merges, t->n_merges, false, e);
    h5_close_group(group);
    return rc;
}

static int write_contents(struct writer *w, struct err *e)
{
    int rc = write_config(w, e);
    if (!rc)
        rc = write_tokenizer(w, e);
    if (!rc && w->meta->chat_template)
        rc = h5_data_strings(w->file, "chat_template", (const char *const *)&w->meta->chat_template,
                             1, true, e);
    if (!rc)
        rc = write_tensors(w, e);
    if (!rc)
        rc = encode_index(w, e);
    if (!rc)
        rc = h5_data_bytes(w->file, "index", w->index_bytes.data, w->index_bytes.len, NULL, e);
    if (!rc)
        rc = h5_data_bytes(w->file, "meta", w->meta_bytes.data, w->meta_bytes.len, NULL, e);
    if (!rc && H5Fflush(w->file, H5F_SCOPE_GLOBAL) < 0)
        rc = h5_error(e, ERR_SYS, "cannot write %s", w->tmp);
    char manifest[MANIFEST_BYTES];
    manifest_make(manifest, w->index, w->index_bytes.len, w->meta_bytes.len);
    return rc ? rc : h5_attr_text(w->file, "manifest", manifest, e);
}

static int publish(struct writer *w, struct err *e)
{
    if (H5Fclose(w->file) < 0)
        return h5_error(e, ERR_SYS, "cannot write %s", w->tmp);
    w->file = -1;
    struct stat st;
    /* The reservation reached past the end: give that back. */
    if (fstat(w->fd, &st) != 0 || ftruncate(w->fd, st.st_size) != 0 || fsync(w->fd) != 0)
        return errno == ENOSPC || errno == EDQUOT ? disk_full(w, e)
                                                  : err_sys(e, errno, "cannot write %s", w->tmp);
    if (rename(w->tmp, w->path) != 0)
        return err_sys(e, errno, "cannot rename %s to %s", w->tmp, w->path);
    return 0;
}

static int write_pack(struct writer *w, struct err *e)
{
    int rc = path_join(w->tmp, sizeof w->tmp, e, "%s.tmp", w->path);
    if (!rc)
        rc = lock_tmp(w, e);
    if (!rc)
        rc = encode_early(w, e);
    if (!rc)
        rc = create_file(w, e);
    if (!rc)
        rc = reserve(w, e);
    if (!rc)
        rc = write_contents(w, e);
    if (!rc)
        rc = publish(w, e);
    if (rc == ERR_LIMIT && w->need)
        rc = disk_full(w, e);
    return rc;
}

int pack_write_from(const char *path, struct model_index *index, const struct model_meta *meta,
                    const struct tensor_source *source, pack_progress_fn progress, void *ctx,
                    struct err *e)
{
    struct writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, ERR_NOMEM, "out of memory for writing %s", path);
    *w = (struct writer){
        .fd = -1,
        .file = -1,
        .index = index,
        .meta = meta,
        .source = source,
        .piece = malloc(SEGMENT_BYTES),
        .progress = progress,
        .ctx = ctx,
    };
    buf_init(&w->meta_bytes, META_MAX_BYTES);
    buf_init(&w->index_bytes, INDEX_MAX_BYTES);
    struct h5_quiet quiet;
    h5_quiet_begin(&quiet);
    int rc = w->piece ? path_join(w->path, sizeof w->path, e, "%s", path)
                      : err_set(e, ERR_NOMEM, "out of memory for writing %s", path);
    if (!rc)
        rc = write_pack(w, e);
    /* A file that cannot be written cannot be closed either, and would keep its space: empty it. */
    if (rc && w->fd >= 0) {
        (void)!ftruncate(w->fd, 0);
        unlink(w->tmp);
    }
    if (w->file >= 0)
        H5Fclose(w->file);
    if (w->fd >= 0)
        close(w->fd);
    h5_quiet_end(&quiet);
    buf_fini(&w->meta_bytes);
    buf_fini(&w->index_bytes);
    free(w->piece);
    free(w);
    return rc;
}

int pack_write(const char *path, struct model_index *index, const struct model_meta *meta,
               const uint8_t *const *tensor_data, pack_progress_fn progress, void *ctx,
               struct err *e)
{
    struct tensor_source source = source_mapped(tensor_data);
    return pack_write_from(path, index, meta, &source, progress, ctx, e);
}
