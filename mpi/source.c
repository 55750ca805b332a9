/* source.c - see source.h. */
#include "mpi/source.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FAILURES_MAX = 8
}; /* so many bad segments, and the file as a whole is not worth the network */

struct source {
    char *path; /* owned */
    uint32_t rank;
    int fd;
    uint32_t n_failures;
};

static void source_free(void *ctx)
{
    struct source *s = ctx;
    if (s->fd >= 0)
        close(s->fd);
    free(s->path);
    free(s);
}

static int read_all(struct source *s, struct segbuf *b, struct err *e)
{
    if (s->fd < 0)
        s->fd = open(s->path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0)
        return err_sys(e, errno, "cannot open");
    while (b->n_read < b->at.n_bytes) {
        ssize_t n = pread(s->fd, b->data + b->n_read, b->at.n_bytes - b->n_read,
                          (off_t)(b->file_offset + b->at.offset + b->n_read));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "cannot read");
        if (n == 0)
            return err_set(e, ERR_FORMAT, "the file ends %" PRIu64 " bytes too early",
                           b->at.n_bytes - b->n_read);
        b->n_read += (uint64_t)n;
    }
    uint8_t hash[SHA256_BYTES];
    sha256_of(b->data, b->at.n_bytes, hash);
    if (memcmp(hash, b->hash, sizeof hash) != 0)
        return err_set(e, ERR_FORMAT, "the hash of its bytes differs from the index");
    return 0;
}

static void source_work(void *ctx, void *job)
{
    struct source *s = ctx;
    struct segbuf *b = job;
    uint64_t from = clock_now_us();
    struct err e = ERR_INIT;
    struct trailer t = {.segment = b->segment};
    b->n_read = 0;
    t.code = read_all(s, b, &e);
    if (t.code) {
        t.state = s->fd < 0 || ++s->n_failures >= FAILURES_MAX ? READ_GAVE_UP : READ_FAILED;
        struct err whole = ERR_INIT;
        err_set(&whole, t.code, "pack %s: tensor %s, segment %u (at byte %" PRIu64 "), rank %u: %s",
                s->path, b->tensor, b->segment, b->file_offset + b->at.offset, s->rank, e.text);
        memcpy(t.text, whole.text, sizeof t.text - 1);
        t.text[sizeof t.text - 1] = 0;
    }
    trailer_put(b, &t);
    b->us = clock_now_us() - from;
}

int source_start(struct lane **out, const char *pack_path, uint32_t rank, size_t capacity,
                 struct err *e)
{
    struct source *s = calloc(1, sizeof *s);
    char *path = strdup(pack_path);
    if (!s || !path) {
        free(s);
        free(path);
        return err_set(e, ERR_NOMEM, "no memory to read %s", pack_path);
    }
    *s = (struct source){.path = path, .rank = rank, .fd = -1};
    struct lane_spec spec = {capacity, source_work, source_free, segbuf_free, s};
    return lane_start(out, &spec, e);
}
