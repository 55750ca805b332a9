/* mover.c - see mover.h. */
#include "ranks/mover.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/paths.h"
#include "hdf5io/pack.h"
#include "model/image.h"
#include "mpi/bcast.h"
#include "ranks/task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    POLL_US = 1000000,
    CACHE_LOCK_US = 600 * 1000000, /* another job of the user fills the same image: wait for it */
    STALL_US = 20 * 1000000,
};

struct mover {
    struct mover_config config;
    struct world *world;
    struct queue *from_loop, *to_loop;
    _Atomic uint32_t given_up; /* the last round that should end early */
    /* the image being filled */
    struct model_index index;
    bool have_index;
    struct image_writer *writer;
};

int mover_create(struct mover **out, const struct mover_config *c, struct world *world,
                 struct queue *from_loop, struct queue *to_loop, struct err *e)
{
    struct mover *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_NOMEM, "no memory for the mover");
    m->config = *c;
    m->world = world;
    m->from_loop = from_loop;
    m->to_loop = to_loop;
    *out = m;
    return 0;
}

void mover_give_up(struct mover *m, uint32_t round)
{
    if (round > m->given_up)
        m->given_up = round;
}

static void open_pack(struct mover *m, struct task *t)
{
    struct pack p;
    uint64_t t0 = clock_now_us();
    if (pack_open(&p, m->config.pack_path, &t->err)) {
        char host[64] = "";
        gethostname(host, sizeof host - 1);
        if (access(m->config.pack_path, F_OK) != 0 && errno == ENOENT)
            err_set(&t->err, ERR_CONFIG,
                    "there is no %s on %s: a pack must lie on a file system that all nodes share",
                    m->config.pack_path, host);
        return;
    }
    if (index_encode(&p.index, &t->a, &t->err) == 0) {
        buf_put(&t->b, p.meta_bytes, p.meta_n_bytes);
        for (uint32_t i = 0; i < p.index.n_tensors; i++)
            buf_u64(&t->c, p.file_offset[i]);
        t->n = p.index.n_tensors;
        if (!buf_ok(&t->a) || !buf_ok(&t->b) || !buf_ok(&t->c))
            err_set(&t->err, ERR_NOMEM, "no memory for the index of %s", m->config.pack_path);
        log_info("pack: opened tensors=%u segments=%u bytes=%llu ms=%llu", p.index.n_tensors,
                 p.index.n_segments, (unsigned long long)p.index.data_bytes,
                 (unsigned long long)(clock_now_us() - t0) / 1000);
    }
    pack_close(&p);
}

/* What this node holds, into the task's answer. Finishes a complete image. */
static void report_have(struct mover *m, struct task *t, uint32_t round)
{
    struct msg_have *h = &t->have;
    h->member = m->config.rank;
    h->round = round;
    memcpy(h->digest, m->index.digest, sizeof h->digest);
    h->n_segments = m->index.n_segments;
    buf_reset(&t->c);
    size_t n = (m->index.n_segments + 7u) / 8u;
    if (m->writer) {
        buf_put(&t->c, image_writer_have(m->writer), n);
        if (image_writer_complete(m->writer)) {
            struct err e = ERR_INIT;
            if (image_writer_finish(m->writer, t->path, sizeof t->path, &e)) {
                t->path[0] = 0;
                t->err = e;
            } else {
                image_writer_close(m->writer);
                m->writer = NULL;
            }
        }
    } else {
        for (size_t i = 0; i < n; i++)
            buf_u8(&t->c, 0);
    }
    h->bits = t->c.data;
    h->code = t->err.code;
    memcpy(h->text, t->err.text,
           sizeof h->text < sizeof t->err.text ? sizeof h->text : sizeof t->err.text);
    h->text[sizeof h->text - 1] = 0;
}

static void open_cache(struct mover *m, struct task *t)
{
    uint64_t t0 = clock_now_us();
    if (m->writer) {
        image_writer_close(m->writer);
        m->writer = NULL;
    }
    if (m->have_index)
        index_fini(&m->index);
    m->have_index = index_decode(&m->index, t->a.data, t->a.len, &t->err) == 0;
    if (!m->have_index) {
        memset(&m->index, 0, sizeof m->index);
        t->err.code = ERR_SYS; /* rank 0 reads this index well: it is this node that cannot */
        log_error("cache: %s", t->err.text);
        report_have(m, t, 0);
        return;
    }
    if (m->config.cache_bytes) {
        struct err e = ERR_INIT;
        if (image_evict(m->config.cache_dir, m->config.cache_bytes, m->index.digest, &e))
            log_warn("cache: cannot make room: %s", e.text);
    }
    if (image_writer_open(&m->writer, m->config.cache_dir, &m->index, t->b.data, t->b.len,
                          CACHE_LOCK_US, &t->err))
        m->writer = NULL;
    report_have(m, t, 0);
    char digest[SHA256_HEX];
    hex_encode(m->index.digest, SHA256_BYTES, digest);
    if (t->err.code)
        log_error("cache: %s", t->err.text);
    else
        log_info("cache: %s digest=%.12s ms=%llu", t->path[0] ? "hit" : "miss or incomplete",
                 digest, (unsigned long long)(clock_now_us() - t0) / 1000);
}

/* An engine died: is its image still there and whole? Headers and sizes only; hashes are for open_cache. */
static void check_image(struct task *t)
{
    struct image img;
    if (image_open(&img, t->path, false, &t->err) == 0)
        image_close(&img);
}

static int read_round(struct mover *m, struct task *t, struct bcast_round *r,
                      struct bcast_member **members, uint64_t **offsets, struct msg_round *msg)
{
    int rc = msg_round_get(msg, t->a.data, t->a.len, &t->err);
    if (rc)
        return rc;
    if (!m->have_index || memcmp(msg->digest, m->index.digest, sizeof msg->digest) != 0 ||
        msg->n_segments != m->index.n_segments || msg->n_tensors != m->index.n_tensors ||
        !m->writer)
        return err_set(&t->err, ERR_PROTO,
                       "broadcast round %u is not of the model this node prepares", msg->round);
    *members = calloc(msg->n_members + 1, sizeof **members);
    *offsets = calloc(msg->n_tensors + 1, sizeof **offsets);
    if (!*members || !*offsets)
        return err_set(&t->err, ERR_NOMEM, "no memory for broadcast round %u", msg->round);
    for (uint32_t i = 0; i < msg->n_members; i++)
        (*members)[i] =
            (struct bcast_member){u32_at(msg->members, 2 * i), u32_at(msg->members, 2 * i + 1)};
    struct rd rd = rd_make(msg->file_offsets, 8 * (size_t)msg->n_tensors);
    for (uint32_t i = 0; i < msg->n_tensors; i++)
        (*offsets)[i] = rd_u64(&rd);
    *r = (struct bcast_round){.round = msg->round,
                              .index = &m->index,
                              .pack_path = msg->pack_path,
                              .file_offset = *offsets,
                              .members = *members,
                              .n_members = msg->n_members,
                              .missing = msg->missing,
                              .stall_us = STALL_US};
    return 0;
}

static void run_round(struct mover *m, struct task *t)
{
    struct bcast_round r;
    struct bcast_member *members = NULL;
    uint64_t *offsets = NULL;
    struct msg_round msg = {0};
    struct bcast_stats stats = {0};
    if (read_round(m, t, &r, &members, &offsets, &msg) == 0) {
        bcast_round_run(m->world, &r, m->writer, &m->given_up, &stats, &t->err);
        /* Another node could not read: that node's trouble alone, unless the pack is wrong for everybody. */
        if (t->err.code && t->err.code != ERR_FORMAT && !stats.mine)
            t->err.code = ERR_PEER;
        double s = (double)stats.us_total / 1e6;
        log_info(
            "weights: round=%u nodes=%u read_bytes=%llu received_bytes=%llu ms=%llu MB/s=%.0f%s%s",
            r.round, r.n_members, (unsigned long long)stats.bytes_read,
            (unsigned long long)stats.bytes_received, (unsigned long long)stats.us_total / 1000,
            s > 0 ? (double)(stats.bytes_read + stats.bytes_received) / 1e6 / s : 0.0,
            t->err.code ? " " : "", t->err.text);
    }
    report_have(m, t, msg.round);
    free(members);
    free(offsets);
}

/* The job script reads both: who failed its part, and that this world never came to serve. */
static void mark_unled(struct mover *m, const struct task *t)
{
    char path[RUNDIR_PATH_BYTES + 64];
    struct err e = ERR_INIT;
    int rc = path_join(path, sizeof path, &e, "%s/blame", m->config.attempt_dir);
    if (!rc)
        rc = file_publish(path, t->a.data, t->a.len, 0600, &e);
    if (!rc)
        rc = path_join(path, sizeof path, &e, "%s/unled", m->config.attempt_dir);
    if (!rc)
        rc = file_publish(path, "", 0, 0600, &e);
    if (rc)
        log_warn("mover: %s", e.text);
}

/* The job script ends by force who has not left some time after this. A few ranks write it: thousands would wear out the file system. */
static void mark_ended(struct mover *m)
{
    char path[RUNDIR_PATH_BYTES + 64];
    struct err e = ERR_INIT;
    int rc = path_join(path, sizeof path, &e, "%s/ended", m->config.attempt_dir);
    if (!rc)
        rc = file_publish(path, "", 0, 0600, &e);
    if (rc)
        log_warn("mover: %s", e.text);
}

static void restate(struct mover *m, const struct task *t)
{
    struct endpoint p;
    struct err e = ERR_INIT;
    int rc = endpoint_read(m->config.run_dir, &p, &e);
    if (!rc) {
        memcpy(p.state, t->endpoint.state, sizeof p.state);
        memcpy(p.progress, t->endpoint.progress, sizeof p.progress);
        p.n_ready = t->endpoint.n_ready;
        p.updated_wall_s = t->endpoint.updated_wall_s;
        rc = endpoint_write(m->config.run_dir, &p, &e);
    }
    if (rc)
        log_warn("endpoint: %s", e.text);
}

int mover_run(struct mover *m)
{
    for (;;) {
        struct task *t = queue_pop_wait(m->from_loop, POLL_US);
        if (!t)
            continue;
        switch (t->kind) {
        case TASK_PUBLISH:
            if (endpoint_write(m->config.run_dir, &t->endpoint, &t->err))
                log_warn("endpoint: %s", t->err.text);
            break;
        case TASK_UNLED:
            mark_unled(m, t);
            task_destroy(t);
            continue;
        case TASK_RESTATE:
            restate(m, t);
            task_destroy(t);
            continue;
        case TASK_OPEN_PACK:
            open_pack(m, t);
            break;
        case TASK_OPEN_CACHE:
            open_cache(m, t);
            break;
        case TASK_CHECK_IMAGE:
            check_image(t);
            break;
        case TASK_ROUND:
            run_round(m, t);
            break;
        case TASK_LEAVE: {
            int status = t->status;
            if (t->ends)
                mark_ended(m);
            if (m->writer)
                image_writer_close(m->writer);
            task_destroy(t);
            return status;
        }
        default:
            task_destroy(t); /* a release or abort that nobody waits for any more */
            continue;
        }
        if (queue_push(m->to_loop, t)) {
            log_error("mover: the loop thread takes no results, kind=%d", (int)t->kind);
            task_destroy(t);
        }
    }
}
