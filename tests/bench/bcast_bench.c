/* bcast_bench.c - the rate of a broadcast round against a bare MPI_Bcast of the same bytes in
 * the same run, and a world's start.
 *
 *   mpirun … bcast_bench DIR SEGMENTS REPEATS      (DIR/pack and DIR/index are made by rank 0)
 * Rank r sits in rack r / 3. The variants take turns, so that a slow moment of the machine meets
 * all of them; medians are printed.
 *   bare      MPI_Bcast of each segment from rank 0, from memory to memory
 *   forward   a round with communicators: read, SHA-256 at the reader, send; nobody keeps it
 *   relay     the same without communicators, as after a death
 *   image     a round with communicators into an image at every rank: hash and write as well
 */
#include "tests/tools/mpi_pack.h"

#include "mpi/bcast.h"
#include "mpi/world.h"

#include "base/clock.h"
#include "base/file.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RACK_SIZE = 3, MAX_RANKS = 256, MAX_REPEATS = 32, WAIT_US = 120 * 1000 * 1000 };
enum variant { BARE, FORWARD, RELAY, IMAGE, VARIANTS };
static const char *const NAMES[] = {"bare", "forward", "relay", "image"};

struct bench {
    const char *dir;
    struct world *w;
    struct model_index index;
    uint64_t *file_offset;
    struct bcast_member members[MAX_RANKS];
    uint32_t n, round;
    uint8_t *missing, *buffer;
};

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, compare);
    return v[n / 2];
}

static void bare(struct bench *b)
{
    for (uint32_t s = 0; s < b->index.n_segments; s++)
        MPI_Bcast(b->buffer, (int)index_segment(&b->index, s).n_bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void round_run(struct bench *b, enum variant v, struct image_writer *writer)
{
    char pack[512];
    struct err e = ERR_INIT;
    snprintf(pack, sizeof pack, "%s/pack", b->dir);
    /* other rack numbers: other members than those prepared, so the round relays */
    for (uint32_t i = 0; i < b->n; i++)
        b->members[i] = (struct bcast_member){i, i / RACK_SIZE + (v == RELAY ? 100 : 0)};
    struct bcast_round r = {.round = ++b->round,
                            .index = &b->index,
                            .pack_path = pack,
                            .file_offset = b->file_offset,
                            .members = b->members,
                            .n_members = b->n,
                            .missing = b->missing,
                            .stall_us = WAIT_US};
    if (bcast_round_run(b->w, &r, writer, NULL, NULL, &e))
        die("round", &e);
}

/* Seconds, the same on every rank: from the moment all are ready until all have finished. */
static double measure(struct bench *b, enum variant v)
{
    struct image_writer *writer = NULL;
    char cache[512];
    struct err e = ERR_INIT;
    snprintf(cache, sizeof cache, "%s/cache.%u", b->dir, world_rank(b->w));
    if (v == IMAGE &&
        (dir_make_private(cache, &e) ||
         image_writer_open(&writer, cache, &b->index, PACK_META, PACK_META_BYTES, 1000000, &e)))
        die("image", &e);
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t from = clock_now_us();
    if (v == BARE)
        bare(b);
    else
        round_run(b, v, writer);
    MPI_Barrier(MPI_COMM_WORLD);
    double s = (double)(clock_now_us() - from) * 1e-6;
    image_writer_close(writer);
    dir_remove(cache, NULL);
    return s;
}

static void run(struct bench *b, int repeats)
{
    double s[VARIANTS][MAX_REPEATS], mb = (double)b->index.data_bytes * 1e-6;
    for (int i = 0; i < repeats; i++)
        for (int v = 0; v < VARIANTS; v++)
            s[v][i] = measure(b, v);
    double base = median(s[BARE], repeats);
    for (int v = 0; v < VARIANTS && world_rank(b->w) == 0; v++) {
        double t = median(s[v], repeats);
        printf("bcast %-8s %7.1f MB/s to each of %u ranks, %.2f of bare\n", NAMES[v], mb / t, b->n,
               base / t);
    }
}

static void start(struct bench *b, int *argc, char ***argv)
{
    struct err e = ERR_INIT;
    uint64_t t[5];
    t[0] = clock_now_us();
    if (world_init(&b->w, argc, argv, WAIT_US, NULL, NULL, &e))
        die("init", &e);
    t[1] = clock_now_us();
    MPI_Barrier(MPI_COMM_WORLD);
    t[2] = clock_now_us();
    if (world_warm_up(b->w, WAIT_US, &e))
        die("warm-up", &e);
    t[3] = clock_now_us();
    b->n = world_size(b->w) < MAX_RANKS ? world_size(b->w) : MAX_RANKS;
    for (uint32_t i = 0; i < b->n; i++)
        b->members[i] = (struct bcast_member){i, i / RACK_SIZE};
    if (bcast_prepare(b->w, b->members, b->n, WAIT_US, &e))
        die("prepare", &e);
    MPI_Barrier(MPI_COMM_WORLD);
    t[4] = clock_now_us();
    if (world_detach(b->w, WAIT_US, &e))
        die("detach", &e);
    if (world_rank(b->w) == 0)
        printf("start of %u ranks: init %.1f ms, warm-up %.1f ms, communicators %.1f ms, "
               "detach %.1f ms\n",
               world_size(b->w), (double)(t[1] - t[0]) * 1e-3, (double)(t[3] - t[2]) * 1e-3,
               (double)(t[4] - t[3]) * 1e-3, (double)(clock_now_us() - t[4]) * 1e-3);
}

int main(int argc, char **argv)
{
    static struct bench b;
    int repeats = argc > 3 ? atoi(argv[3]) : 5;
    if (argc < 3 || repeats < 1 || repeats > MAX_REPEATS)
        die("usage: bcast_bench DIR SEGMENTS [REPEATS]", NULL);
    b.dir = argv[1];
    start(&b, &argc, &argv);
    if (world_rank(b.w) == 0 && atoi(argv[2]) > 0)
        pack_make(b.dir, (uint32_t)atoi(argv[2]));
    MPI_Barrier(MPI_COMM_WORLD);
    if (atoi(argv[2]) > 0) {
        b.file_offset = pack_load(b.dir, &b.index);
        b.missing = malloc(b.index.n_segments / 8 + 1);
        b.buffer = calloc(1, SEGMENT_BYTES);
        memset(b.missing, 0xff, b.index.n_segments / 8 + 1);
        run(&b, repeats);
    }
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    world_leave(0);
}
