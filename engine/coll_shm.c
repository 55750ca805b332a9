/* coll_shm.c - see coll_shm.h. */
#include "engine/coll_shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    MAGIC = 0x4c4f4345, /* "ECOL" */
    LINE = 64,
    AREA_BYTES = 1 << 20, /* one piece: large enough that a meeting costs little beside its copy */
    MAIL_BYTES = 256 << 10,
    N_AREAS = 2,
    /* About 5 µs of pauses: with fewer cores than shards the others cannot run while we spin. */
    SPIN_ROUNDS = 100,
    SLEEP_SLICE_US = 50000, /* how late a lost wake-up or an abort is noticed */
};

/* One rank's side of a group: how many meetings it has come to, and its areas. */
struct seat {
    _Alignas(LINE) _Atomic uint64_t arrived;
    _Alignas(LINE) uint8_t area[N_AREAS][AREA_BYTES];
};

/* One direction between two ranks: the sender fills the mail, the receiver empties it. */
struct mail {
    _Alignas(LINE) _Atomic uint64_t n_sent;
    _Alignas(LINE) _Atomic uint64_t n_taken;
    _Alignas(LINE) uint8_t data[MAIL_BYTES];
};

struct group {
    _Alignas(
        LINE) _Atomic uint32_t bell; /* futex: rung whenever somebody waits and something changed */
    _Atomic uint32_t n_asleep;
};

struct segment_header {
    uint32_t magic, tp, pp;
    _Atomic uint32_t broken; /* 1 + the rank (of all) that broke it */
};

/* Layout: header; for each group (all, then one a stage if tp > 1): group, seats; then the mails between all. */
struct layout {
    size_t groups, seats, mails, bytes;
    uint32_t n_groups, n_seats;
};

struct coll_shm {
    struct coll base;
    struct segment_header *map;
    size_t map_bytes;
    struct group *group;
    struct seat *seats; /* [size] */
    struct mail *mails; /* [shards][shards]; of the group of all only */
    uint32_t shard;     /* our rank among all, for the broken mark */
    uint64_t deadline_us;
    uint64_t n_pieces; /* meetings so far */
};

static size_t up(size_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

static struct layout layout_of(uint32_t tp, uint32_t pp)
{
    uint32_t n = tp * pp;
    struct layout l = {.n_groups = 1 + (tp > 1 ? pp : 0), .n_seats = n + (tp > 1 ? n : 0)};
    l.groups = up(sizeof(struct segment_header));
    l.seats = l.groups + l.n_groups * sizeof(struct group);
    l.mails = l.seats + l.n_seats * sizeof(struct seat);
    l.bytes = l.mails + (size_t)n * n * sizeof(struct mail);
    return l;
}

static int shape_check(uint32_t tp, uint32_t pp, struct err *e)
{
    if (tp < 1 || pp < 1 || tp > COLL_MAX_SHARDS || pp > COLL_MAX_SHARDS ||
        tp * pp > COLL_MAX_SHARDS)
        return err_set(e, ERR_CONFIG, "%u tensor shards by %u stages: expected at most %d in all",
                       tp, pp, COLL_MAX_SHARDS);
    return 0;
}

int coll_shm_segment(int *fd, uint32_t tp, uint32_t pp, struct err *e)
{
    int rc = shape_check(tp, pp, e);
    if (rc)
        return rc;
    struct layout l = layout_of(tp, pp);
    struct segment_header h = {.magic = MAGIC, .tp = tp, .pp = pp};
    int f = memfd_create("exaserve-shards", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (f < 0)
        return err_sys(e, errno, "shared memory of %u shards", tp * pp);
    if (ftruncate(f, (off_t)l.bytes) || pwrite(f, &h, sizeof h, 0) != (ssize_t)sizeof h ||
        fcntl(f, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)) {
        rc = err_sys(e, errno, "shared memory of %u shards", tp * pp);
        close(f);
        return rc;
    }
    *fd = f;
    return 0;
}

/* --- waiting --------------------------------------------------------------------------------------------- */

static int broken_error(const struct coll_shm *c, struct err *e)
{
    uint32_t who = atomic_load_explicit(&c->map->broken, memory_order_acquire);
    return err_set(e, ERR_PEER, "shard %u left the gang", who ? who - 1 : 0);
}

static void ring_bell(struct group *g)
{
    atomic_fetch_add_explicit(&g->bell, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&g->n_asleep, memory_order_seq_cst))
        syscall(SYS_futex, (uint32_t *)&g->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void break_group(struct coll_shm *c)
{
    uint32_t none = 0;
    atomic_compare_exchange_strong(&c->map->broken, &none, 1 + c->shard);
    ring_bell(c->group);
}

/* Wait until *word is at least `want`. who: the rank whose word it is, for the error. */
static int wait_word(struct coll_shm *c, const _Atomic uint64_t *word, uint64_t want, uint32_t who,
                     struct err *e)
{
    uint64_t end = 0;
    for (uint32_t round = 0;; round++) {
        uint32_t bell = atomic_load_explicit(&c->group->bell, memory_order_seq_cst);
        if (atomic_load_explicit(word, memory_order_acquire) >= want)
            return 0;
        if (atomic_load_explicit(&c->map->broken, memory_order_acquire))
            return broken_error(c, e);
        if (round < SPIN_ROUNDS) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
            continue;
        }
        uint64_t now = clock_now_us();
        end = end ? end : now + c->deadline_us;
        if (now >= end) {
            break_group(c);
            return err_set(e, ERR_TIMEOUT, "shard %u of %u did not come within %llu ms", who,
                           c->base.size, (unsigned long long)c->deadline_us / 1000);
        }
        struct timespec slice = {0, SLEEP_SLICE_US * 1000};
        atomic_fetch_add_explicit(&c->group->n_asleep, 1, memory_order_seq_cst);
        if (atomic_load_explicit(word, memory_order_acquire) < want)
            syscall(SYS_futex, (uint32_t *)&c->group->bell, FUTEX_WAIT, bell, &slice, NULL, 0);
        atomic_fetch_sub_explicit(&c->group->n_asleep, 1, memory_order_seq_cst);
    }
}

/* All ranks have written their piece when this returns 0; the areas may be read until the meeting after the next. */
static int meet(struct coll_shm *c, struct err *e)
{
    atomic_store_explicit(&c->seats[c->base.rank].arrived, ++c->n_pieces, memory_order_release);
    ring_bell(c->group);
    for (uint32_t r = 0; r < c->base.size; r++) {
        int rc = wait_word(c, &c->seats[r].arrived, c->n_pieces, r, e);
        if (rc)
            return rc;
    }
    return 0;
}

static void *area_of(const struct coll_shm *c, uint32_t rank)
{
    return c->seats[rank].area[c->n_pieces % N_AREAS]; /* of the piece that is being written */
}

static const void *area_met(const struct coll_shm *c, uint32_t rank)
{
    return c->seats[rank].area[(c->n_pieces - 1) % N_AREAS];
}

static int check_open(struct coll_shm *c, struct err *e)
{
    return atomic_load_explicit(&c->map->broken, memory_order_acquire) ? broken_error(c, e) : 0;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- collectives ----------------------------------------------------------------------------------------- */

static int shm_all_reduce(struct coll *base, float *x, size_t n, struct err *e)
{
    struct coll_shm *c = (struct coll_shm *)base;
    int rc = check_open(c, e);
    for (size_t at = 0; at < n && !rc; at += AREA_BYTES / sizeof *x) {
        size_t count = least(n - at, AREA_BYTES / sizeof *x);
        memcpy(area_of(c, base->rank), x + at, count * sizeof *x);
        rc = meet(c, e);
        if (rc)
            break;
        memcpy(x + at, area_met(c, 0), count * sizeof *x);
        for (uint32_t r = 1; r < base->size; r++) {
            const float *from = area_met(c, r);
            for (size_t i = 0; i < count; i++)
                x[at + i] += from[i];
        }
    }
    return rc;
}

static int shm_all_gather(struct coll *base, float *out, const float *in, size_t n, struct err *e)
{
    struct coll_shm *c = (struct coll_shm *)base;
    int rc = check_open(c, e);
    for (size_t at = 0; at < n && !rc; at += AREA_BYTES / sizeof *in) {
        size_t count = least(n - at, AREA_BYTES / sizeof *in);
        memcpy(area_of(c, base->rank), in + at, count * sizeof *in);
        rc = meet(c, e);
        for (uint32_t r = 0; r < base->size && !rc; r++)
            memcpy(out + r * n + at, area_met(c, r), count * sizeof *in);
    }
    return rc;
}

static int shm_broadcast(struct coll *base, void *p, size_t n_bytes, uint32_t root, struct err *e)
{
    struct coll_shm *c = (struct coll_shm *)base;
    int rc = check_open(c, e);
    for (size_t at = 0; at < n_bytes && !rc; at += AREA_BYTES) {
        size_t count = least(n_bytes - at, AREA_BYTES);
        if (base->rank == root)
            memcpy(area_of(c, root), (uint8_t *)p + at, count);
        rc = meet(c, e);
        if (!rc && base->rank != root)
            memcpy((uint8_t *)p + at, area_met(c, root), count);
    }
    return rc;
}

/* --- from one to one -------------------------------------------------------------------------------------- */

static struct mail *mail_of(const struct coll_shm *c, uint32_t from, uint32_t to)
{
    return &c->mails[(size_t)from * c->base.size + to];
}

static int pair_check(const struct coll_shm *c, uint32_t other, struct err *e)
{
    if (!c->mails || other >= c->base.size || other == c->base.rank)
        return err_set(e, ERR_PROTO, "no mail between shards %u and %u of %u", c->base.rank, other,
                       c->base.size);
    return 0;
}

static int shm_send(struct coll *base, const void *p, size_t n_bytes, uint32_t to, struct err *e)
{
    struct coll_shm *c = (struct coll_shm *)base;
    int rc = pair_check(c, to, e);
    if (!rc)
        rc = check_open(c, e);
    struct mail *m = rc ? NULL : mail_of(c, base->rank, to);
    for (size_t at = 0; at < n_bytes && !rc; at += MAIL_BYTES) {
        uint64_t sent = atomic_load_explicit(&m->n_sent, memory_order_relaxed);
        rc = wait_word(c, &m->n_taken, sent, to, e); /* the last one was taken */
        if (rc)
            break;
        memcpy(m->data, (const uint8_t *)p + at, least(n_bytes - at, MAIL_BYTES));
        atomic_store_explicit(&m->n_sent, sent + 1, memory_order_release);
        ring_bell(c->group);
    }
    return rc;
}

static int shm_recv(struct coll *base, void *p, size_t n_bytes, uint32_t from, struct err *e)
{
    struct coll_shm *c = (struct coll_shm *)base;
    int rc = pair_check(c, from, e);
    if (!rc)
        rc = check_open(c, e);
    struct mail *m = rc ? NULL : mail_of(c, from, base->rank);
    for (size_t at = 0; at < n_bytes && !rc; at += MAIL_BYTES) {
        uint64_t taken = atomic_load_explicit(&m->n_taken, memory_order_relaxed);
        rc = wait_word(c, &m->n_sent, taken + 1, from, e);
        if (rc)
            break;
        memcpy((uint8_t *)p + at, m->data, least(n_bytes - at, MAIL_BYTES));
        atomic_store_explicit(&m->n_taken, taken + 1, memory_order_release);
        ring_bell(c->group);
    }
    return rc;
}

static void shm_abort(struct coll *base)
{
    break_group((struct coll_shm *)base);
}

static void shm_destroy(struct coll *base)
{
    struct coll_shm *c = (struct coll_shm *)base;
    if (c && c->map)
        munmap(c->map, c->map_bytes);
    free(c);
}

static const struct coll_ops SHM = {
    .kind = "shm",
    .all_reduce = shm_all_reduce,
    .all_gather = shm_all_gather,
    .broadcast = shm_broadcast,
    .send = shm_send,
    .recv = shm_recv,
    .abort = shm_abort,
    .destroy = shm_destroy,
};

/* --- attaching -------------------------------------------------------------------------------------------- */

/* Each group has a mapping of its own, so that each can be destroyed by itself. */
static int map_group(struct coll_shm **out, int fd, const struct layout *l, uint32_t tp,
                     uint32_t pp, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) || st.st_size != (off_t)l->bytes)
        return err_set(e, ERR_PROTO, "shared memory of shards: descriptor %d has not %zu bytes", fd,
                       l->bytes);
    struct coll_shm *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_NOMEM, "shared memory of shards: out of memory");
    void *p = mmap(NULL, l->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        free(c);
        return err_sys(e, errno, "shared memory of shards");
    }
    c->base.ops = &SHM;
    c->map = p;
    c->map_bytes = l->bytes;
    if (c->map->magic != MAGIC || c->map->tp != tp || c->map->pp != pp) {
        int rc = err_set(e, ERR_PROTO,
                         "shared memory of shards: made for %u by %u shards, expected %u by %u",
                         c->map->tp, c->map->pp, tp, pp);
        shm_destroy(&c->base);
        return rc;
    }
    *out = c;
    return 0;
}

int coll_shm_attach(struct coll **all, struct coll **tp_group, int fd, uint32_t tp, uint32_t pp,
                    uint32_t shard, uint64_t deadline_us, struct err *e)
{
    int rc = shape_check(tp, pp, e);
    if (rc)
        return rc;
    if (shard >= tp * pp)
        return err_set(e, ERR_CONFIG, "shard %u of %u", shard, tp * pp);
    struct layout l = layout_of(tp, pp);
    struct coll_shm *a = NULL, *t = NULL;
    rc = map_group(&a, fd, &l, tp, pp, e);
    if (!rc && tp > 1)
        rc = map_group(&t, fd, &l, tp, pp, e);
    if (rc) {
        shm_destroy(a ? &a->base : NULL);
        return rc;
    }
    uint8_t *p = (uint8_t *)a->map;
    a->group = (struct group *)(void *)(p + l.groups);
    a->seats = (struct seat *)(void *)(p + l.seats);
    a->mails = (struct mail *)(void *)(p + l.mails);
    a->base.rank = shard;
    a->base.size = tp * pp;
    a->shard = shard;
    a->deadline_us = deadline_us;
    if (t) {
        uint32_t stage = shard / tp;
        p = (uint8_t *)t->map;
        t->group = (struct group *)(void *)(p + l.groups) + 1 + stage;
        t->seats = (struct seat *)(void *)(p + l.seats) + tp * pp + stage * tp;
        t->base.rank = shard % tp;
        t->base.size = tp;
        t->shard = shard;
        t->deadline_us = deadline_us;
    }
    *all = &a->base;
    *tp_group = t ? &t->base : NULL;
    return 0;
}
