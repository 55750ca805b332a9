/* Collectives of shards: sums in the order of ranks and equal everywhere, deadlines instead of hangs, deaths noticed. Each kind runs the
 * same cases: shared memory between threads and between processes, and the relay's wire over real channels with a thread that passes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/coll_relay.h"
#include "engine/coll_shm.h"

enum { MAX = 8, LONG_US = 120000000, SHORT_US = 300000 };

struct shards { /* one gang of tp * pp shards, all in this process */
    uint32_t tp, pp, n;
    int fd; /* shm */
    struct coll *all[MAX], *stage[MAX];
    struct coll_relay *relay[MAX];
    struct channel *worker[MAX]; /* the workers' ends */
    pthread_t passer;
    _Atomic bool stop;
};

/* --- how gangs come to be ------------------------------------------------------------------------------- */

static void shm_make(struct shards *s, uint32_t tp, uint32_t pp, uint64_t deadline_us)
{
    struct err e = ERR_INIT;
    *s = (struct shards){.tp = tp, .pp = pp, .n = tp * pp};
    assert_int_equal(coll_shm_segment(&s->fd, tp, pp, &e), 0);
    for (uint32_t i = 0; i < s->n; i++)
        if (coll_shm_attach(&s->all[i], &s->stage[i], s->fd, tp, pp, i, deadline_us, &e))
            fail_msg("%s", e.text);
}

/* What workers do, without the plane: take a record from one engine's ring and put it into another's. */
static void *pass_on(void *ctx)
{
    struct shards *s = ctx;
    struct buf b;
    buf_init(&b, RING_MAX_RECORD);
    while (!atomic_load(&s->stop)) {
        bool idle = true;
        for (uint32_t i = 0; i < s->n; i++) {
            uint16_t type;
            struct msg_shard m;
            if (!s->worker[i] || channel_recv(s->worker[i], &type, &b, NULL) != 1)
                continue;
            idle = false;
            if (msg_shard_get(&m, b.data, b.len, NULL) || m.from != i || m.to >= s->n)
                abort();
            while (channel_send(s->worker[m.to], MSG_SHARD, b.data, b.len, NULL) == ERR_AGAIN)
                clock_sleep_us(100);
        }
        if (idle)
            clock_sleep_us(50);
    }
    buf_fini(&b);
    return NULL;
}

/* The engine's end of a channel, as if its descriptors had been passed to another process. */
static struct channel *engine_end(struct channel *worker, const int fds[CHANNEL_FDS])
{
    enum { FIRST = 100 };
    struct channel *c;
    struct err e = ERR_INIT;
    for (int i = 0; i < CHANNEL_FDS; i++)
        assert_int_equal(dup2(fds[i], FIRST + i), FIRST + i);
    if (channel_attach(&c, FIRST, &e))
        fail_msg("%s", e.text);
    return c;
}

static void relay_make(struct shards *s, uint32_t tp, uint32_t pp, uint64_t deadline_us)
{
    struct err e = ERR_INIT;
    *s = (struct shards){.tp = tp, .pp = pp, .n = tp * pp, .fd = -1};
    for (uint32_t i = 0; i < s->n; i++) {
        int fds[CHANNEL_FDS];
        struct shard_name name = {1, 2, 3, 4};
        assert_int_equal(channel_create(&s->worker[i], fds, &e), 0);
        struct channel *c = engine_end(s->worker[i], fds);
        assert_int_equal(coll_relay_create(&s->relay[i], c, &name, i, s->n, deadline_us, &e), 0);
        struct coll_wire wire = coll_relay_wire(s->relay[i]);
        assert_int_equal(coll_p2p_create(&s->all[i], &wire, 0, s->n, i, &e), 0);
        if (tp > 1)
            assert_int_equal(coll_p2p_create(&s->stage[i], &wire, i / tp * tp, tp, i % tp, &e), 0);
    }
    pthread_create(&s->passer, NULL, pass_on, s);
}

static void unmake(struct shards *s)
{
    if (s->relay[0]) {
        atomic_store(&s->stop, true);
        pthread_join(s->passer, NULL);
    } else {
        close(s->fd);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        s->all[i]->ops->destroy(s->all[i]);
        if (s->stage[i])
            s->stage[i]->ops->destroy(s->stage[i]);
        coll_relay_destroy(s->relay[i]);
        channel_destroy(s->worker[i]);
    }
}

typedef void (*make_fn)(struct shards *s, uint32_t tp, uint32_t pp, uint64_t deadline_us);

/* --- one thread a shard ---------------------------------------------------------------------------------- */

typedef void (*body_fn)(struct shards *s, uint32_t shard, void *ctx);
struct runner {
    struct shards *s;
    uint32_t shard;
    body_fn body;
    void *ctx;
};

static void *run(void *p)
{
    struct runner *r = p;
    r->body(r->s, r->shard, r->ctx);
    return NULL;
}

static void run_all(struct shards *s, uint32_t n, body_fn body, void *ctx)
{
    pthread_t threads[MAX];
    struct runner r[MAX];
    for (uint32_t i = 0; i < n; i++) {
        r[i] = (struct runner){s, i, body, ctx};
        pthread_create(&threads[i], NULL, run, &r[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

static void must(int rc, const struct err *e)
{
    if (rc) {
        fprintf(stderr, "unexpected: %s\n", e->text);
        abort(); /* not on cmocka's thread */
    }
}

static float value(uint32_t rank, size_t i)
{
    return sinf((float)(rank * 7919 + i)) * (float)(1 << (i % 20)); /* sums depend on their order */
}

/* --- cases ------------------------------------------------------------------------------------------------ */

enum { N_SIZES = 5 };
static const size_t SIZES[N_SIZES] = {1, 100, 16384, 16385, 700001};

struct sums {
    float *got[MAX];
};

static void sum_all(struct shards *s, uint32_t shard, void *ctx)
{
    struct sums *sums = ctx;
    struct err e = ERR_INIT;
    size_t at = 0;
    for (int k = 0; k < N_SIZES; k++) {
        float *x = sums->got[shard] + at;
        for (size_t i = 0; i < SIZES[k]; i++)
            x[i] = value(shard, i);
        must(s->all[shard]->ops->all_reduce(s->all[shard], x, SIZES[k], &e), &e);
        at += SIZES[k];
    }
}

static void sums_case(make_fn make, uint32_t tp, uint32_t pp)
{
    struct shards s;
    struct sums sums;
    size_t total = 0;
    for (int k = 0; k < N_SIZES; k++)
        total += SIZES[k];
    make(&s, tp, pp, LONG_US);
    for (uint32_t r = 0; r < s.n; r++)
        sums.got[r] = malloc(total * sizeof(float));
    run_all(&s, s.n, sum_all, &sums);
    size_t at = 0;
    for (int k = 0; k < N_SIZES; k++)
        for (size_t i = 0; i < SIZES[k]; i++, at++) {
            float want = value(0, i);
            for (uint32_t r = 1; r < s.n; r++)
                want += value(r, i);
            for (uint32_t r = 0; r < s.n; r++)
                if (memcmp(&sums.got[r][at], &want, sizeof want))
                    fail_msg("rank %u, size %zu, element %zu: %g, expected %g", r, SIZES[k], i,
                             (double)sums.got[r][at], (double)want);
        }
    for (uint32_t r = 0; r < s.n; r++)
        free(sums.got[r]);
    unmake(&s);
}

/* Stage sums, gathers, broadcasts and a pipeline's mail, mixed for a while: groups must not disturb each other. */
static void mixed_body(struct shards *s, uint32_t shard, void *ctx)
{
    enum { N = 5000, BIG = 150000 };
    struct err e = ERR_INIT;
    struct coll *all = s->all[shard], *stage = s->stage[shard];
    uint32_t tp = s->tp, first = shard / tp * tp, next = shard + tp, before = shard - tp;
    float *x = malloc(BIG * sizeof *x), *y = malloc(MAX * N * sizeof *y);
    uint32_t least = 0;
    must(coll_least(all, 100 + (shard ^ 1), &least, &e), &e);
    if (least != (s->n > 1 ? 100 : 101))
        abort();
    for (uint32_t round = 0; round < 20; round++) {
        uint32_t root = round % s->n;
        for (size_t i = 0; i < BIG; i++)
            x[i] = shard == root ? (float)(round * 31 + i) : -1;
        must(all->ops->broadcast(all, x, BIG * sizeof *x, root, &e), &e);
        for (size_t i = 0; i < BIG; i += 997)
            if (x[i] != (float)(round * 31 + i))
                abort();
        if (stage) {
            for (size_t i = 0; i < N; i++)
                x[i] = value(shard, i + round);
            must(stage->ops->all_gather(stage, y, x, N, &e), &e);
            for (uint32_t r = 0; r < tp; r++)
                for (size_t i = 0; i < N; i++)
                    if (y[r * N + i] != value(first + r, i + round))
                        abort();
            must(stage->ops->all_reduce(stage, x, N, &e), &e);
            for (size_t i = 0; i < N; i++) {
                float want = value(first, i + round);
                for (uint32_t r = 1; r < tp; r++)
                    want += value(first + r, i + round);
                if (x[i] != want)
                    abort();
            }
        }
        if (shard >= tp)
            must(all->ops->recv(all, x, BIG * sizeof *x, before, &e), &e);
        for (size_t i = 0; i < BIG; i++)
            x[i] = shard >= tp ? x[i] + 1 : (float)i;
        if (next < s->n)
            must(all->ops->send(all, x, BIG * sizeof *x, next, &e), &e);
        for (size_t i = 0; i < BIG; i += 991)
            if (x[i] != (float)i + (float)(shard / tp))
                abort();
    }
    free(x);
    free(y);
}

static void mixed_case(make_fn make, uint32_t tp, uint32_t pp)
{
    struct shards s;
    make(&s, tp, pp, LONG_US);
    run_all(&s, s.n, mixed_body, NULL);
    unmake(&s);
}

/* The logits of a large batch: more than a wire holds back. */
static void large_body(struct shards *s, uint32_t shard, void *ctx)
{
    enum { N = 36 << 18 };
    struct err e = ERR_INIT;
    struct coll *all = s->all[shard];
    uint32_t *x = malloc(N * sizeof *x);
    for (uint32_t i = 0; i < N; i++)
        x[i] = shard ? i * 7 : 0;
    must(shard ? all->ops->send(all, x, N * sizeof *x, 0, &e)
               : all->ops->recv(all, x, N * sizeof *x, 1, &e),
         &e);
    for (uint32_t i = 0; i < N; i++)
        if (x[i] != i * 7)
            abort();
    free(x);
}

static void large_case(make_fn make)
{
    struct shards s;
    make(&s, 1, 2, LONG_US);
    run_all(&s, 2, large_body, NULL);
    unmake(&s);
}

/* The last shard never comes. */
static void late_body(struct shards *s, uint32_t shard, void *ctx)
{
    int *codes = ctx;
    struct err e = ERR_INIT;
    float x = 1;
    codes[shard] = s->all[shard]->ops->all_reduce(s->all[shard], &x, 1, &e);
    struct err again = ERR_INIT;
    if (!codes[shard] || !s->all[shard]->ops->all_reduce(s->all[shard], &x, 1, &again) ||
        !strstr(e.text, "shard"))
        abort();
}

static void late_case(make_fn make)
{
    struct shards s;
    int codes[MAX] = {0};
    make(&s, 3, 1, SHORT_US);
    run_all(&s, 2, late_body, codes);
    for (int i = 0; i < 2; i++)
        assert_true(codes[i] == ERR_TIMEOUT || codes[i] == ERR_PEER);
    assert_true(codes[0] == ERR_TIMEOUT || codes[1] == ERR_TIMEOUT);
    unmake(&s);
}

static void abort_body(struct shards *s, uint32_t shard, void *ctx)
{
    int *codes = ctx;
    float x = 1;
    if (shard == 2) {
        clock_sleep_us(100000);
        for (uint32_t i = 0; i < s->n; i++) /* as each one's own worker would */
            s->all[i]->ops->abort(s->all[i]);
        return;
    }
    codes[shard] = s->all[shard]->ops->all_reduce(s->all[shard], &x, 1, NULL);
}

static void abort_case(make_fn make)
{
    struct shards s;
    int codes[MAX] = {0};
    make(&s, 3, 1, LONG_US);
    run_all(&s, 3, abort_body, codes);
    assert_int_equal(codes[0], ERR_PEER);
    assert_int_equal(codes[1], ERR_PEER);
    unmake(&s);
}

static void test_shm(void **state)
{
    sums_case(shm_make, 1, 1);
    sums_case(shm_make, 2, 1);
    sums_case(shm_make, 4, 1);
    sums_case(shm_make, 2, 2);
    mixed_case(shm_make, 2, 2);
    mixed_case(shm_make, 1, 3);
    large_case(shm_make);
}

static void test_shm_ends(void **state)
{
    late_case(shm_make);
    abort_case(shm_make);
}

static void test_relay(void **state)
{
    sums_case(relay_make, 2, 1);
    sums_case(relay_make, 4, 1);
    mixed_case(relay_make, 2, 2);
    mixed_case(relay_make, 1, 3);
    large_case(relay_make);
}

static void test_relay_ends(void **state)
{
    late_case(relay_make);
    abort_case(relay_make);
}

/* A member dies in the middle; the one who sees it (its parent) breaks the gang. */
static void test_death_between_processes(void **state)
{
    int fd, status;
    struct err e = ERR_INIT;
    assert_int_equal(coll_shm_segment(&fd, 2, 1, &e), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct coll *all, *stage;
        float x = 1;
        if (coll_shm_attach(&all, &stage, fd, 2, 1, 1, LONG_US, NULL))
            _exit(2);
        for (int i = 0; i < 100; i++)
            if (all->ops->all_reduce(all, &x, 1, NULL))
                _exit(3);
        raise(SIGKILL);
    }
    struct coll *all, *stage;
    float x = 1;
    int rc = 0;
    assert_int_equal(coll_shm_attach(&all, &stage, fd, 2, 1, 0, SHORT_US * 10, &e), 0);
    for (int i = 0; i < 100 && !rc; i++)
        rc = all->ops->all_reduce(all, &x, 1, &e);
    assert_int_equal(rc, 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    rc = all->ops->all_reduce(all, &x, 1, &e);
    assert_int_equal(rc, ERR_TIMEOUT);
    assert_non_null(strstr(e.text, "shard 1 of 2"));
    all->ops->destroy(all);
    stage->ops->destroy(stage);
    close(fd);
}

static void test_wrong_segments_are_refused(void **state)
{
    int fd, other = memfd_create("other", MFD_CLOEXEC);
    struct err e = ERR_INIT;
    struct coll *all, *stage;
    assert_int_equal(coll_shm_segment(&fd, 5, 4, &e), ERR_CONFIG);
    assert_int_equal(coll_shm_segment(&fd, 0, 1, &e), ERR_CONFIG);
    assert_int_equal(coll_shm_segment(&fd, 2, 2, &e), 0);
    assert_int_equal(coll_shm_attach(&all, &stage, fd, 4, 1, 0, LONG_US, &e), ERR_PROTO);
    assert_int_equal(coll_shm_attach(&all, &stage, fd, 2, 2, 4, LONG_US, &e), ERR_CONFIG);
    assert_int_equal(coll_shm_attach(&all, &stage, other, 2, 2, 0, LONG_US, &e), ERR_PROTO);
    close(fd);
    close(other);
}

/* Bytes that do not follow the last ones, or from nowhere: an error, not a wrong sum. */
static void test_relay_checks_what_comes(void **state)
{
    static const struct {
        struct msg_shard m;
        const char *text;
    } BAD[] = {
        {{.from = 1, .to = 0, .at = 4, .n_bytes = 4}, "expected byte 0 of shard 1, found 4"},
        {{.from = 2, .to = 0, .n_bytes = 4}, "from shard 2"},
        {{.from = 1, .to = 1, .n_bytes = 4}, "to shard 1"},
        {{.from = 0, .to = 0, .n_bytes = 4}, "from shard 0"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct shards s;
        struct err e = ERR_INIT;
        struct buf b;
        struct msg_shard m = BAD[i].m;
        float x = 0;
        relay_make(&s, 2, 1, LONG_US);
        m.bytes = (const uint8_t *)"\0\0\0\0";
        buf_init(&b, 1 << 20);
        msg_shard_put(&b, &m);
        assert_int_equal(channel_send(s.worker[0], MSG_SHARD, b.data, b.len, &e), 0);
        assert_int_equal(s.all[0]->ops->recv(s.all[0], &x, sizeof x, 1, &e), ERR_PROTO);
        assert_non_null(strstr(e.text, BAD[i].text));
        assert_int_equal(s.all[0]->ops->all_reduce(s.all[0], &x, 1, &e), ERR_PROTO);
        buf_fini(&b);
        unmake(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm),
        cmocka_unit_test(test_shm_ends),
        cmocka_unit_test(test_relay),
        cmocka_unit_test(test_relay_ends),
        cmocka_unit_test(test_death_between_processes),
        cmocka_unit_test(test_wrong_segments_are_refused),
        cmocka_unit_test(test_relay_checks_what_comes),
    };
    return cmocka_run_group_tests_name("engine_coll", tests, NULL, NULL);
}
