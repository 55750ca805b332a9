/* mpi_bcast_tool.c - broadcasts an artificial pack among ranks of mpirun (t0200-bcast.t).
 *
 *   mpi_bcast_tool make DIR [SEGMENTS]   writes DIR/pack and DIR/index
 *   mpi_bcast_tool run DIR [OPTIONS]     under mpirun: every rank fills DIR/cache.RANK in rounds
 *                                        and writes a line for each to DIR/result.RANK; files in
 *                                        DIR stand for the message plane
 *     --racks 0,0,1,…    rack of each rank           --pack PATH      another pack file
 *     --stall MS         a round's stall time        --rounds N       at most so many (default 3)
 *     --kill RANK:N      it kills itself in round 1 when N segments are in its image
 *     --absent RANK      this rank stays out of round 1, but lives
 *     --partial          rank r holds segments s with s % 2 == 0 or (s + r) % 3 == 0 beforehand
 *     --full RANK        this rank holds everything beforehand
 *     --relay            no communicators: segments are relayed
 *     --repeat           after the last round another one, with everything missing again
 */
#include "tests/tools/mpi_pack.h"

#include "mpi/bcast.h"
#include "mpi/world.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RANKS = 256, WAIT_US = 60 * 1000 * 1000 };

struct options {
    const char *dir, *pack;
    uint32_t rack[MAX_RANKS];
    uint64_t stall_us;
    uint32_t rounds;
    int kill_rank, kill_at, absent, full;
    bool partial, repeat, relay;
};

struct run {
    struct options o;
    struct world *w;
    uint32_t rank, size;
    struct model_index index;
    uint64_t *file_offset;
    struct image_writer *writer;
    FILE *result;
};

/* --- files instead of the message plane
 * ----------------------------------------------------------------- */

static void say(const struct run *t, const char *what, uint32_t round, const void *data, size_t n)
{
    char path[512];
    struct err e = ERR_INIT;
    snprintf(path, sizeof path, "%s/say.%s.%u.%u", t->o.dir, what, round, t->rank);
    if (file_publish(path, data, n, 0600, &e))
        die(path, &e);
}

static void hear(const struct run *t, const char *what, uint32_t round, uint32_t rank,
                 struct buf *b)
{
    char path[512];
    struct err e = ERR_INIT;
    snprintf(path, sizeof path, "%s/say.%s.%u.%u", t->o.dir, what, round, rank);
    uint64_t until = clock_now_us() + WAIT_US;
    while (access(path, F_OK) != 0) {
        if (clock_now_us() > until)
            die(path, NULL);
        clock_sleep_us(2000);
    }
    buf_reset(b);
    if (file_read(path, b, &e))
        die(path, &e);
}

static void barrier(const struct run *t, const char *what)
{
    struct buf b;
    buf_init(&b, 4096);
    say(t, what, 0, "x", 1);
    for (uint32_t i = 0; i < t->size; i++)
        hear(t, what, 0, i, &b);
    buf_fini(&b);
}

/* --- one rank
 * ------------------------------------------------------------------------------------------- */

static uint32_t count_have(const struct run *t)
{
    const uint8_t *have = image_writer_have(t->writer);
    uint32_t n = 0;
    for (uint32_t i = 0; i < (t->index.n_segments + 7) / 8; i++)
        n += (uint32_t)__builtin_popcount(__atomic_load_n(&have[i], __ATOMIC_RELAXED));
    return n;
}

static void *kill_self(void *arg)
{
    const struct run *t = arg;
    while (count_have(t) < (uint32_t)t->o.kill_at)
        clock_sleep_us(100);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void open_writer(struct run *t)
{
    char cache[512];
    struct err e = ERR_INIT;
    snprintf(cache, sizeof cache, "%s/cache.%u", t->o.dir, t->rank);
    if (dir_make_private(cache, &e) ||
        image_writer_open(&t->writer, cache, &t->index, PACK_META, sizeof PACK_META, 1000000, &e))
        die("image_writer_open", &e);
}

static void prepack_fill(struct run *t)
{
    struct err e = ERR_INIT;
    uint8_t *data = malloc(SEGMENT_BYTES);
    for (uint32_t s = 0; s < t->index.n_segments; s++) {
        if (t->o.full != (int)t->rank && !(t->o.partial && (s % 2 == 0 || (s + t->rank) % 3 == 0)))
            continue;
        struct segment seg = index_segment(&t->index, s);
        pack_fill(data, seg.n_bytes, s);
        if (image_writer_put(t->writer, s, data, seg.n_bytes, &e))
            die("prefill", &e);
    }
    free(data);
}

static bool is_member(const struct run *t, uint32_t rank, uint32_t round)
{
    if (round == 1)
        return true;
    return (int)rank != t->o.kill_rank;
}

/* Exchange have-bits; false when nobody misses anything. */
static bool find_missing(struct run *t, uint32_t round, uint8_t *missing, size_t n_bytes)
{
    struct buf b;
    bool any = false;
    buf_init(&b, 1 << 20);
    say(t, "have", round, image_writer_have(t->writer), n_bytes);
    memset(missing, 0, n_bytes);
    for (uint32_t i = 0; i < t->size; i++) {
        if (!is_member(t, i, round))
            continue;
        hear(t, "have", round, i, &b);
        for (uint32_t s = 0; s < t->index.n_segments; s++) {
            if (!(b.data[s / 8] >> (s % 8) & 1)) {
                missing[s / 8] |= (uint8_t)(1u << (s % 8));
                any = true;
            }
        }
    }
    buf_fini(&b);
    return any;
}

static void run_round(struct run *t, uint32_t round, const uint8_t *missing,
                      struct image_writer *writer)
{
    struct bcast_member members[MAX_RANKS];
    uint32_t n = 0;
    struct err e = ERR_INIT;
    struct bcast_stats stats = {0};
    for (uint32_t i = 0; i < t->size; i++)
        if (is_member(t, i, round))
            members[n++] = (struct bcast_member){i, t->o.rack[i]};
    struct bcast_round r = {.round = round,
                            .index = &t->index,
                            .pack_path = t->o.pack,
                            .file_offset = t->file_offset,
                            .members = members,
                            .n_members = n,
                            .missing = missing,
                            .stall_us = t->o.stall_us};
    uint64_t missing_bytes = 0;
    for (uint32_t s = 0; s < t->index.n_segments; s++)
        if (missing[s / 8] >> (s % 8) & 1)
            missing_bytes += index_segment(&t->index, s).n_bytes;
    pthread_t killer;
    if (round == 1 && t->o.kill_rank == (int)t->rank)
        pthread_create(&killer, NULL, kill_self, t);
    int rc = 0;
    if (!(round == 1 && t->o.absent == (int)t->rank))
        rc = bcast_round_run(t->w, &r, writer, NULL, &stats, &e);
    fprintf(t->result,
            "round %u rc %s missing %" PRIu64 " read %" PRIu64 " received %" PRIu64
            " have %u of %u us %" PRIu64 " mine %d text %s\n",
            round, rc ? err_name(rc) : "OK", missing_bytes, stats.bytes_read, stats.bytes_received,
            count_have(t), t->index.n_segments, stats.us_total, stats.mine, e.text);
    fflush(t->result);
}

/* The finished image against the pattern, not against its hashes. */
static void check_image(struct run *t)
{
    char path[600];
    struct err e = ERR_INIT;
    uint8_t *want = malloc(SEGMENT_BYTES), *found = malloc(SEGMENT_BYTES);
    if (image_writer_finish(t->writer, path, sizeof path, &e)) {
        fprintf(t->result, "image %s\n", err_name(e.code));
        return;
    }
    int fd = open(path, O_RDONLY);
    bool same = fd >= 0;
    for (uint32_t s = 0; s < t->index.n_segments && same; s++) {
        struct segment seg = index_segment(&t->index, s);
        pack_fill(want, seg.n_bytes, s);
        same = pread(fd, found, seg.n_bytes, (off_t)seg.image_offset) == (ssize_t)seg.n_bytes &&
               memcmp(want, found, seg.n_bytes) == 0;
    }
    close(fd);
    free(want);
    free(found);
    fprintf(t->result, "image %s\n", same ? "GOOD" : "BAD");
}

static void run_rounds(struct run *t)
{
    size_t n_bytes = (t->index.n_segments + 7) / 8;
    uint8_t *missing = calloc(n_bytes, 1);
    uint32_t round = 1;
    while (round <= t->o.rounds && find_missing(t, round, missing, n_bytes))
        run_round(t, round++, missing, t->writer);
    if (t->o.repeat) {
        for (uint32_t s = 0; s < t->index.n_segments; s++)
            missing[s / 8] |= (uint8_t)(1u << (s % 8));
        run_round(t, round, missing, NULL);
    }
    check_image(t);
    fprintf(t->result, "end\n");
    fclose(t->result);
    free(missing);
}

static void prepare(struct run *t)
{
    struct bcast_member members[MAX_RANKS];
    struct err e = ERR_INIT;
    for (uint32_t i = 0; i < t->size; i++)
        members[i] = (struct bcast_member){i, t->o.rack[i]};
    if (!t->o.relay && bcast_prepare(t->w, members, t->size, WAIT_US, &e))
        die("bcast_prepare", &e);
}

static void start_world(struct run *t, int *argc, char ***argv)
{
    struct err e = ERR_INIT;
    uint64_t t0 = clock_now_us();
    if (world_init(&t->w, argc, argv, WAIT_US, NULL, NULL, &e))
        die("world_init", &e);
    t->rank = world_rank(t->w);
    t->size = world_size(t->w);
    uint64_t t1 = clock_now_us();
    barrier(t, "init");
    uint64_t t2 = clock_now_us();
    if (world_warm_up(t->w, WAIT_US, &e))
        die("world_warm_up", &e);
    uint64_t t3 = clock_now_us();
    barrier(t, "all warm");
    prepare(t);
    barrier(t, "warm");
    uint64_t t4 = clock_now_us();
    if (world_detach(t->w, WAIT_US, &e) || world_detach(t->w, WAIT_US, &e))
        die("world_detach", &e);
    barrier(t, "detached");
    char path[512];
    snprintf(path, sizeof path, "%s/result.%u", t->o.dir, t->rank);
    t->result = fopen(path, "w");
    if (!t->result)
        die(path, NULL);
    fprintf(t->result, "start init %" PRIu64 " warm_up %" PRIu64 " detach %" PRIu64 "\n", t1 - t0,
            t3 - t2, clock_now_us() - t4);
}

static void parse(struct options *o, int argc, char **argv)
{
    for (int i = 3; i < argc; i++) {
        const char *key = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(key, "--partial") == 0)
            o->partial = true;
        else if (strcmp(key, "--relay") == 0)
            o->relay = true;
        else if (strcmp(key, "--repeat") == 0)
            o->repeat = true;
        else if (i++, strcmp(key, "--racks") == 0) {
            char *p = (char *)value;
            for (int r = 0; *p && r < MAX_RANKS; r++)
                o->rack[r] = (uint32_t)strtoul(*p == ',' ? p + 1 : p, &p, 10);
        } else if (strcmp(key, "--stall") == 0)
            o->stall_us = strtoull(value, NULL, 10) * 1000;
        else if (strcmp(key, "--rounds") == 0)
            o->rounds = (uint32_t)atoi(value);
        else if (strcmp(key, "--pack") == 0)
            o->pack = value;
        else if (strcmp(key, "--absent") == 0)
            o->absent = atoi(value);
        else if (strcmp(key, "--full") == 0)
            o->full = atoi(value);
        else if (strcmp(key, "--kill") != 0 ||
                 sscanf(value, "%d:%d", &o->kill_rank, &o->kill_at) != 2)
            die(key, NULL);
    }
}

int main(int argc, char **argv)
{
    static struct run t;
    char pack[512];
    if (argc >= 3 && strcmp(argv[1], "make") == 0)
        return pack_make(argv[2], argc > 3 ? (uint32_t)atoi(argv[3]) : 12);
    if (argc < 3 || strcmp(argv[1], "run") != 0)
        die("usage: mpi_bcast_tool make|run DIR …", NULL);
    t.o = (struct options){.dir = argv[2], .rounds = 3, .kill_rank = -1, .absent = -1, .full = -1};
    snprintf(pack, sizeof pack, "%s/pack", t.o.dir);
    t.o.pack = pack;
    parse(&t.o, argc, argv);
    t.file_offset = pack_load(t.o.dir, &t.index);
    start_world(&t, &argc, &argv);
    open_writer(&t);
    prepack_fill(&t);
    run_rounds(&t);
    image_writer_close(t.writer);
    world_leave(0);
}
