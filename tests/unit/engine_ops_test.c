/* engine_ops_test.c - every operation of ops.h by every kernel set that this machine runs: against the truth (KERNELS_REF) within
 * ops_bounds.h; the same bits in all fast sets; and the same bits for a row alone, in any batch, on any number of threads. */
#include "engine_support.h"

#include <math.h>

#include "engine/cpu/exec_cpu.h"
#include "engine/ops_bounds.h"
#include "model/blocks.h"

enum { MAX_COLS = 2048, MAX_KV = 1024, MAX_FLOATS = 1 << 20, MAX_SETS = 8 };

static struct exec *truth;
static struct {
    const struct kernels *k;
    struct exec *one, *three; /* threads */
} sets[MAX_SETS];
static uint32_t n_sets; /* fast ones; neighbours of the same `numerics` must agree */

static float in[MAX_FLOATS], in2[MAX_FLOATS], want[MAX_FLOATS], got[MAX_FLOATS], first[MAX_FLOATS];

static struct exec *exec_of(const struct kernels *k, uint32_t n_threads)
{
    struct exec *x;
    struct err e = ERR_INIT;
    MUST(exec_cpu_create(&x, k, n_threads, MAX_COLS, MAX_KV, &e), e);
    return x;
}

static int make_sets(void **state)
{
    const struct kernels *k;
    for (uint32_t i = 0; (k = kernels_nth(i)); i++) {
        if (k == &KERNELS_REF)
            truth = exec_of(k, 1);
        else if (k->usable()) {
            sets[n_sets].k = k;
            sets[n_sets].one = exec_of(k, 1);
            sets[n_sets++].three = exec_of(k, 3);
            print_message("set %s (%s)\n", k->name, k->numerics);
        }
    }
    return truth ? 0 : -1;
}

static int drop_sets(void **state)
{
    exec_cpu_destroy(truth);
    for (uint32_t i = 0; i < n_sets; i++) {
        exec_cpu_destroy(sets[i].one);
        exec_cpu_destroy(sets[i].three);
    }
    return 0;
}

static bool floats_among; /* one of several jobs has float weights */

static uint32_t seed = 20240607;
static uint32_t below(uint32_t n)
{
    return tiny_random(&seed) % n;
}

/* About normal: sums of uniform numbers. */
static void randoms(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float s = 0;
        for (int k = 0; k < 4; k++)
            s += (float)(int)below(20001) - 10000;
        x[i] = s / 10000;
    }
}

static double nmse(const float *a, const float *truth_values, size_t n)
{
    double diff = 0, size = 1e-300;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - truth_values[i];
        diff += isnan(d) ? 1e300 : d * d;
        size += (double)truth_values[i] * truth_values[i];
    }
    return diff / size;
}

static void hold(enum ops_bound b, const char *what, const char *set, const float *a, size_t n)
{
    double d = nmse(a, want, n);
    if (!(d <= OPS_BOUNDS[b].nmse))
        fail_msg("%s, %s, set %s: NMSE %g, bound %g (%s)", OPS_BOUNDS[b].op, what, set, d,
                 OPS_BOUNDS[b].nmse, OPS_BOUNDS[b].reason);
}

static void same(const char *what, const char *set, const float *a, const float *b, size_t n)
{
    if (memcmp(a, b, n * sizeof *a))
        for (size_t i = 0; i < n; i++)
            if (memcmp(&a[i], &b[i], 4))
                fail_msg("%s, set %s: value %zu of %zu is %.9g, expected %.9g", what, set, i, n,
                         (double)a[i], (double)b[i]);
}

/* Run `fn` on every set and thread count: the bound, and equal bits wherever numerics are. fn writes n floats to its `out`. */
typedef void (*op_fn)(struct exec *x, float *out, const void *ctx);
static void every_set(enum ops_bound b, const char *what, op_fn fn, const void *ctx, size_t n)
{
    const char *numerics = "";
    assert_true(n <= MAX_FLOATS);
    fn(truth, want, ctx);
    for (uint32_t i = 0; i < n_sets; i++) {
        const struct kernels *k = sets[i].k;
        fn(sets[i].one, got, ctx);
        enum ops_bound bound = b;
        if ((b == BOUND_MATMUL_FLOAT || floats_among) && !strcmp(k->numerics, "int15-bf16"))
            bound = BOUND_MATMUL_BF16;
        hold(bound, what, k->name, got, n);
        if (strcmp(numerics, k->numerics))
            memcpy(first, got, n * sizeof *got);
        numerics = k->numerics;
        same(what, k->name, got, first, n);
        fn(sets[i].three, got, ctx);
        same(what, k->name, got, first, n);
    }
}

/* --- matrix products ------------------------------------------------------------------------------------- */

static const int TYPES[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_F8_E4M3,
                            TENSOR_Q4_0, TENSOR_Q4_1, TENSOR_Q5_0, TENSOR_Q5_1,
                            TENSOR_Q8_0, TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K};
enum { N_TYPES = sizeof TYPES / sizeof TYPES[0] };

static bool is_float(int type)
{
    return type == TENSOR_F32 || type == TENSOR_F16 || type == TENSOR_BF16 ||
           type == TENSOR_F8_E4M3;
}

/* A width that the format can have: odd ones for single floats, few and many blocks for the others. */
static uint32_t some_cols(int type)
{
    uint32_t b = tensor_type_info(type)->block_elems;
    return b == 1 ? 1 + below(900) : b * (1 + below(b == 256 ? 5 : 40));
}

/* The bytes end where they end: sanitizers see a read beside them. */
static struct weight make_weight(int type, uint32_t rows, uint32_t cols, uint32_t n_experts)
{
    const struct tensor_type_info *t = tensor_type_info(type);
    size_t row_bytes = (size_t)cols / t->block_elems * t->block_bytes;
    uint32_t n = rows * (n_experts ? n_experts : 1);
    uint8_t *data = malloc(row_bytes * n);
    float *row = malloc(cols * sizeof *row);
    for (uint32_t i = 0; i < n; i++) {
        randoms(row, cols);
        block_pack(type, data + i * row_bytes, row, cols);
    }
    free(row);
    return (struct weight){.data = data,
                           .type = type,
                           .n_rows = rows,
                           .n_cols = cols,
                           .n_experts = n_experts,
                           .row_bytes = row_bytes};
}

struct matmul_case {
    struct weight w[3];
    uint32_t n, n_jobs;
    const float *bias;
    bool accumulate, row_by_row;
};

static void matmul_op(struct exec *x, float *out, const void *ctx)
{
    const struct matmul_case *c = ctx;
    struct matmul jobs[3];
    uint32_t cols = c->w[0].n_cols;
    for (uint32_t i = 0; i < c->n_jobs; i++) {
        jobs[i] = (struct matmul){out, c->w[i].n_rows, &c->w[i], c->bias, c->accumulate};
        for (size_t k = 0; k < (size_t)c->n * c->w[i].n_rows; k++)
            *out++ = (float)(k % 7);
    }
    if (!c->row_by_row) {
        OPS_CPU.matmul(x, jobs, c->n_jobs, in, cols, c->n);
        return;
    }
    for (uint32_t r = c->n; r-- > 0;) {
        struct matmul one[3];
        for (uint32_t i = 0; i < c->n_jobs; i++) {
            one[i] = jobs[i];
            one[i].y += (size_t)r * c->w[i].n_rows;
        }
        OPS_CPU.matmul(x, one, c->n_jobs, in + (size_t)r * cols, cols, 1);
    }
}

static void matmul_check(int type, uint32_t rows, uint32_t cols, uint32_t n)
{
    struct matmul_case c = {.n = n, .n_jobs = 1, .bias = in2, .accumulate = below(2)};
    char what[64];
    c.w[0] = make_weight(type, rows, cols, 0);
    snprintf(what, sizeof what, "%s %ux%u, %u rows", tensor_type_info(type)->name, rows, cols, n);
    randoms(in, (size_t)cols * n);
    randoms(in2, rows);
    enum ops_bound b = is_float(type) ? BOUND_MATMUL_FLOAT : BOUND_MATMUL_BLOCKS;
    every_set(b, what, matmul_op, &c, (size_t)rows * n);
    for (uint32_t i = 0; i < n_sets; i++) { /* rows alone: as in the batch */
        c.row_by_row = false;
        matmul_op(sets[i].one, first, &c);
        c.row_by_row = true;
        matmul_op(sets[i].three, got, &c);
        same(what, sets[i].k->name, got, first, (size_t)rows * n);
    }
    free((void *)c.w[0].data);
}

static void test_matmul(void **state)
{
    for (int t = 0; t < N_TYPES; t++) {
        uint32_t b = tensor_type_info(TYPES[t])->block_elems;
        matmul_check(TYPES[t], 37, b == 1 ? 577 : b == 32 ? 576 : 768, 19);
        for (int i = 0; i < (INSTRUMENTED ? 2 : 8); i++)
            matmul_check(TYPES[t], 1 + below(70), some_cols(TYPES[t]), 1 + below(24));
        matmul_check(TYPES[t], 16, b == 256 ? 2048 : 1600, 3); /* several stretches */
    }
}

static void test_matmul_of_several_jobs(void **state)
{
    static const int MIXED[] = {TENSOR_Q4_K, TENSOR_Q6_K, TENSOR_F16};
    struct matmul_case c = {.n = 5, .n_jobs = 3};
    size_t n = 0;
    for (int i = 0; i < 3; i++) {
        c.w[i] = make_weight(MIXED[i], 20 + 13 * (uint32_t)i, 512, 0);
        n += (size_t)c.n * c.w[i].n_rows;
    }
    randoms(in, 5 * 512);
    floats_among = true;
    every_set(BOUND_MATMUL_BLOCKS, "three jobs", matmul_op, &c, n);
    floats_among = false;
    for (int i = 0; i < 3; i++)
        free((void *)c.w[i].data);
}

/* More rows than one slice of activations. */
static void test_matmul_of_many_rows(void **state)
{
    struct matmul_case c = {.n = KERNELS_SLICE_ROWS + 9, .n_jobs = 1};
    c.w[0] = make_weight(TENSOR_Q4_1, 24, 64, 0);
    randoms(in, (size_t)c.n * 64);
    every_set(BOUND_MATMUL_BLOCKS, "many rows", matmul_op, &c, (size_t)c.n * 24);
    free((void *)c.w[0].data);
}

struct experts_case {
    struct weight w;
    uint32_t n, in_div, choice[64];
    bool one_by_one;
};

static void experts_op(struct exec *x, float *out, const void *ctx)
{
    const struct experts_case *c = ctx;
    uint32_t rows = c->w.n_rows, cols = c->w.n_cols;
    if (!c->one_by_one) {
        OPS_CPU.matmul_experts(x, out, rows, &c->w, c->choice, in, cols, c->in_div, c->n);
        return;
    }
    for (uint32_t i = 0; i < c->n; i++) /* the same product by matmul */
        OPS_CPU.matmul(
            x,
            &(struct matmul){.y = out + (size_t)i * rows,
                             .y_stride = rows,
                             .w = &(struct weight){.data = (const uint8_t *)c->w.data +
                                                           c->choice[i] * rows * c->w.row_bytes,
                                                   .type = c->w.type,
                                                   .n_rows = rows,
                                                   .n_cols = cols,
                                                   .row_bytes = c->w.row_bytes}},
            1, in + (size_t)(i / c->in_div) * cols, cols, 1);
}

static void test_experts(void **state)
{
    static const int EXPERT_TYPES[] = {TENSOR_Q4_0, TENSOR_Q6_K, TENSOR_F16};
    for (int t = 0; t < 3; t++)
        for (uint32_t div = 1; div <= 4; div += 3) {
            struct experts_case c = {make_weight(EXPERT_TYPES[t], 21, 256, 6), 28, div, {0}, false};
            for (uint32_t i = 0; i < c.n; i++)
                c.choice[i] = below(6);
            randoms(in, 28 * 256);
            enum ops_bound b = is_float(EXPERT_TYPES[t]) ? BOUND_MATMUL_FLOAT : BOUND_MATMUL_BLOCKS;
            every_set(b, "experts", experts_op, &c, 28 * 21);
            for (uint32_t i = 0; i < n_sets; i++) {
                c.one_by_one = false;
                experts_op(sets[i].three, first, &c);
                c.one_by_one = true;
                experts_op(sets[i].one, got, &c);
                same("experts as plain products", sets[i].k->name, got, first, 28 * 21);
            }
            free((void *)c.w.data);
        }
}

/* NaN and infinity stay visible, and in their own row. */
static void test_bad_numbers_stay_in_their_row(void **state)
{
    static const float BAD[] = {NAN, INFINITY, -INFINITY};
    struct matmul_case c = {.n = 3, .n_jobs = 1};
    c.w[0] = make_weight(TENSOR_Q4_1, 20, 96, 0);
    for (int k = 0; k < 3; k++)
        for (uint32_t i = 0; i < n_sets; i++) {
            randoms(in, 3 * 96);
            in[96 + 40] = BAD[k];
            matmul_op(sets[i].one, got, &c);
            uint16_t bad[3] = {0};
            OPS_CPU.mark_nonfinite(sets[i].one, bad, 7, got, 3, 20);
            assert_true(!bad[0] && bad[1] == 7 && !bad[2]);
            for (int o = 0; o < 20; o++)
                assert_true(!isfinite(got[20 + o]));
        }
    free((void *)c.w[0].data);
}

/* --- rows ------------------------------------------------------------------------------------------------ */

struct rows_case {
    uint32_t n, width, heads, rope_dim;
    enum rope_style style;
    const struct batch_row *rows;
};

static void norm_op(struct exec *x, float *out, const void *ctx)
{
    const struct rows_case *c = ctx;
    OPS_CPU.norm(x, out, in, in2, c->n, c->width, 1e-5f);
}

static void silu_op(struct exec *x, float *out, const void *ctx)
{
    const struct rows_case *c = ctx;
    for (size_t i = 0; i < (size_t)c->n * c->width; i++)
        out[i] = in[i] * 12; /* both tails */
    OPS_CPU.silu_mul(x, out, in2, c->n, c->width);
}

static void add_op(struct exec *x, float *out, const void *ctx)
{
    const struct rows_case *c = ctx;
    memcpy(out, in, (size_t)c->n * c->width * sizeof *out);
    OPS_CPU.add(x, out, in2, c->n, c->width);
}

static void experts_sum_op(struct exec *x, float *out, const void *ctx)
{
    const struct rows_case *c = ctx;
    memset(out, 0, (size_t)c->n * c->width * sizeof *out);
    OPS_CPU.experts_sum(x, out, in, in2, 3, c->n, c->width);
}

static void rope_op(struct exec *x, float *out, const void *ctx)
{
    const struct rows_case *c = ctx;
    memcpy(out, in, (size_t)c->n * c->width * sizeof *out);
    OPS_CPU.rope(x, out, c->heads, c->width / c->heads, c->rope_dim, c->style, in2, c->rows, c->n);
}

static void test_rows(void **state)
{
    static const uint32_t WIDTHS[] = {1, 7, 16, 64, 100, 576, 1537};
    randoms(in, 1 << 16);
    randoms(in2, 1 << 16);
    for (size_t i = 0; i < sizeof WIDTHS / sizeof WIDTHS[0]; i++) {
        struct rows_case c = {.n = 9, .width = WIDTHS[i]};
        size_t n = (size_t)9 * c.width;
        every_set(BOUND_NORM, "norm", norm_op, &c, n);
        every_set(BOUND_SILU_MUL, "silu", silu_op, &c, n);
        every_set(BOUND_ADD, "add", add_op, &c, n);
        every_set(BOUND_EXPERTS_SUM, "sum of 3", experts_sum_op, &c, n);
    }
}

static void test_rope(void **state)
{
    static const struct {
        uint32_t dim, rope_dim;
    } SHAPES[] = {{64, 64}, {128, 128}, {80, 32}, {16, 10}, {72, 44}, {8, 8}};
    struct batch_row rows[5];
    for (uint32_t i = 0; i < 5; i++)
        rows[i].position = below(40);
    randoms(in, 1 << 16);
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++)
        for (int style = ROPE_PAIRS; style <= ROPE_HALVES; style++) {
            uint32_t half = SHAPES[i].rope_dim / 2;
            for (uint32_t k = 0; k < 40 * half; k++) {
                double a = k / half * pow(10000, -(double)(k % half) / half);
                in2[2 * k] = (float)cos(a);
                in2[2 * k + 1] = (float)sin(a);
            }
            struct rows_case c = {.n = 5,
                                  .width = 3 * SHAPES[i].dim,
                                  .heads = 3,
                                  .rope_dim = SHAPES[i].rope_dim,
                                  .style = style,
                                  .rows = rows};
            every_set(BOUND_ROPE, style == ROPE_PAIRS ? "pairs" : "halves", rope_op, &c,
                      (size_t)5 * c.width);
        }
}

/* --- keys, values, attention ----------------------------------------------------------------------------- */

enum { MAX_SEQS = 3, SEQ_BLOCKS = 48, MAX_LEN = SEQ_BLOCKS * KV_BLOCK_TOKENS };

struct attend_case {
    struct kv_cache kv;
    uint32_t n_heads, window, n_seqs, len[MAX_SEQS], tables[MAX_SEQS * SEQ_BLOCKS];
    uint32_t last;         /* only so many rows of each sequence are computed, the last ones */
    uint32_t chunk;        /* rows of a step */
    struct exec *store_by; /* NULL: the set itself */
};

/* Keys and values are functions of sequence and position. */
static void kv_rows(const struct attend_case *c, float *k, float *v, uint32_t seq, uint32_t pos)
{
    uint32_t s = 1 + seq * 7919 + pos * 104729, n = c->kv.n_kv_heads * c->kv.head_dim;
    for (uint32_t i = 0; i < n; i++) {
        k[i] = (float)((int)(tiny_random(&s) % 2001) - 1000) / 400;
        v[i] = (float)((int)(tiny_random(&s) % 2001) - 1000) / 1000;
    }
}

static void attend_step(struct exec *x, float *out, const struct attend_case *c,
                        const struct batch_row *rows, uint32_t n)
{
    static float q[MAX_FLOATS], k[MAX_FLOATS], v[MAX_FLOATS];
    uint32_t kv_dim = c->kv.n_kv_heads * c->kv.head_dim, q_dim = c->n_heads * c->kv.head_dim;
    assert_true((size_t)n * q_dim <= MAX_FLOATS);
    const struct step s = {rows, n, 0, c->tables, SEQ_BLOCKS};
    for (uint32_t r = 0; r < n; r++) {
        kv_rows(c, k + (size_t)r * kv_dim, v + (size_t)r * kv_dim, rows[r].seq, rows[r].position);
        uint32_t state = 77 + rows[r].seq * 31 + rows[r].position * 1009;
        for (uint32_t i = 0; i < q_dim; i++)
            q[(size_t)r * q_dim + i] = (float)((int)(tiny_random(&state) % 2001) - 1000) / 500;
    }
    OPS_CPU.kv_store(c->store_by ? c->store_by : x, &c->kv, 1, k, v, &s);
    OPS_CPU.attend(x, out, q, c->n_heads, &c->kv, 1, c->window, &s);
}

/* All sequences, rows of different ones mixed in steps of `chunk` rows each; out: the last rows of each, in order. */
static void attend_op(struct exec *x, float *out, const void *ctx)
{
    const struct attend_case *c = ctx;
    static float step_out[MAX_FLOATS];
    struct batch_row rows[512];
    uint32_t done[MAX_SEQS] = {0}, q_dim = c->n_heads * c->kv.head_dim;
    memset(c->kv.data, 0xff, c->kv.n_blocks * c->kv.block_bytes); /* stale blocks are NaN */
    for (bool more = true; more;) {
        uint32_t n = 0;
        for (uint32_t s = 0; s < c->n_seqs; s++)
            for (uint32_t i = 0; i < c->chunk && done[s] < c->len[s]; i++)
                rows[n++] = (struct batch_row){s, done[s]++, 0, ROW_NO_OUT};
        more = n > 0;
        if (!n)
            break;
        attend_step(x, step_out, c, rows, n);
        for (uint32_t r = 0; r < n; r++) {
            uint32_t s = rows[r].seq, from_end = c->len[s] - 1 - rows[r].position;
            if (from_end < c->last)
                memcpy(out + ((size_t)s * c->last + from_end) * q_dim, step_out + (size_t)r * q_dim,
                       q_dim * sizeof *out);
        }
    }
}

static void attend_case_make(struct attend_case *c, int type, uint32_t n_kv, uint32_t group,
                             uint32_t dim)
{
    c->kv = (struct kv_cache){.type = type,
                              .n_blocks = MAX_SEQS * SEQ_BLOCKS,
                              .n_layers = 2,
                              .n_kv_heads = n_kv,
                              .head_dim = dim,
                              .block_bytes = OPS_CPU.kv_block_bytes(type, 2, n_kv, dim)};
    c->kv.data = malloc(c->kv.n_blocks * c->kv.block_bytes);
    c->n_heads = n_kv * group;
    for (uint32_t i = 0; i < MAX_SEQS * SEQ_BLOCKS; i++)
        c->tables[i] = i * 53 % (MAX_SEQS * SEQ_BLOCKS); /* 53 and 144 share no factor */
}

static void attend_check(struct attend_case *c, const char *what)
{
    static const uint32_t CHUNKS[] = {1, 7, 150};
    size_t n = (size_t)c->n_seqs * c->last * c->n_heads * c->kv.head_dim;
    c->store_by = truth; /* the same stored bits for all: attention alone is compared */
    c->chunk = 32;
    every_set(BOUND_ATTEND, what, attend_op, c, n);
    c->store_by = NULL;
    every_set(c->kv.type == KV_Q8 ? BOUND_KV_Q8 : BOUND_KV_F16, what, attend_op, c, n);
    for (uint32_t i = 0; i < n_sets; i++)
        for (int k = 0; k < 3; k++) { /* `first` is of chunks of 32 */
            c->chunk = CHUNKS[k];
            attend_op(k ? sets[i].one : sets[i].three, got, c);
            same(what, sets[i].k->name, got, first, n);
        }
    /* a sequence alone, by parts on three threads */
    size_t one = n / c->n_seqs;
    c->n_seqs = 1;
    c->chunk = 1;
    for (uint32_t i = 0; i < n_sets; i++) {
        attend_op(sets[i].three, got, c);
        same("alone", sets[i].k->name, got, first, one);
    }
    free(c->kv.data);
}

static void test_attention(void **state)
{
    static const struct {
        uint32_t n_kv, group, dim, window;
    } SHAPES[] = {{3, 3, 64, 0}, {2, 1, 128, 100}, {1, 7, 40, 0}, {1, 64, 16, 9}, {2, 4, 256, 33}};
    for (int type = KV_F32; type <= KV_Q8; type++)
        for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
            struct attend_case c = {.window = SHAPES[i].window, .n_seqs = MAX_SEQS, .last = 3};
            char what[64];
            attend_case_make(&c, type, SHAPES[i].n_kv, SHAPES[i].group, SHAPES[i].dim);
            for (uint32_t s = 0; s < MAX_SEQS; s++)
                c.len[s] = s == 0 ? (INSTRUMENTED ? 140 : 300) + below(40) : 5 + below(60);
            snprintf(what, sizeof what, "%s, %u x %u heads of %u, window %u", kv_type_name(type),
                     SHAPES[i].n_kv, SHAPES[i].group, SHAPES[i].dim, SHAPES[i].window);
            attend_check(&c, what);
        }
}

/* --- outputs --------------------------------------------------------------------------------------------- */

enum { VOCAB = 3001, LOGIT_ROWS = 5 };

static void log_sum_exp_op(struct exec *x, float *out, const void *ctx)
{
    double sums[LOGIT_ROWS];
    OPS_CPU.log_sum_exp(x, sums, in, LOGIT_ROWS, VOCAB);
    for (int i = 0; i < LOGIT_ROWS; i++)
        out[i] = (float)sums[i];
}

static void argmax_op(struct exec *x, float *out, const void *ctx)
{
    uint32_t ids[LOGIT_ROWS];
    OPS_CPU.argmax(x, ids, in, LOGIT_ROWS, VOCAB);
    for (int i = 0; i < LOGIT_ROWS; i++)
        out[i] = (float)ids[i];
}

static void mask_op(struct exec *x, float *out, const void *ctx)
{
    static uint32_t bits[(VOCAB + 31) / 32];
    const uint32_t *masks[LOGIT_ROWS] = {bits, NULL, bits, NULL, bits};
    for (uint32_t i = 0; i < VOCAB / 32; i++)
        bits[i] = i * 2654435761u;
    memcpy(out, in, sizeof(float) * LOGIT_ROWS * VOCAB);
    OPS_CPU.mask(x, out, masks, LOGIT_ROWS, VOCAB);
    for (uint32_t i = 0; i < LOGIT_ROWS * VOCAB; i++) {
        bool kept = i / VOCAB % 2 || bits[i % VOCAB / 32] >> i % VOCAB % 32 & 1;
        assert_true(kept ? out[i] == in[i] : out[i] == -INFINITY);
        out[i] = kept ? out[i] : -1e6f;
    }
}

static void test_outputs(void **state)
{
    randoms(in, LOGIT_ROWS * VOCAB);
    in[7] = in[77] = 9; /* equals: the lower id */
    in[VOCAB + 3000] = 11;
    in[2 * VOCAB] = 12;
    in[3 * VOCAB + 16] = INFINITY;
    every_set(BOUND_ADD, "argmax", argmax_op, NULL, LOGIT_ROWS);
    assert_true(want[0] == 7 && want[1] == 3000 && want[2] == 0 && want[3] == 16);
    in[3 * VOCAB + 16] = 1;
    for (int i = 0; i < VOCAB; i++)
        in[4 * VOCAB + i] *= 20; /* far apart */
    every_set(BOUND_LOG_SUM_EXP, "logits", log_sum_exp_op, NULL, LOGIT_ROWS);
    every_set(BOUND_ADD, "mask", mask_op, NULL, LOGIT_ROWS * VOCAB);
}

static void test_routing(void **state)
{
    static const float LOGITS[2 * 5] = {1, 3, 2, 3, -1, 0, 0, 0, 0, 0};
    for (uint32_t i = 0; i <= n_sets; i++) {
        struct exec *x = i < n_sets ? sets[i].three : truth;
        uint32_t choice[4];
        float share[4];
        OPS_CPU.route(x, choice, share, LOGITS, 5, 2, true, 2);
        assert_true(choice[0] == 1 && choice[1] == 3 && choice[2] == 0 && choice[3] == 1);
        assert_true(share[0] == 0.5f && share[1] == 0.5f && share[2] == 0.5f);
        OPS_CPU.route(x, choice, share, LOGITS, 5, 2, false, 2);
        double sum = exp(-2) + 1 + exp(-1) + 1 + exp(-4);
        assert_true(fabs(share[0] - 1 / sum) < 1e-7 && fabsf(share[2] - 0.2f) < 1e-7f);
    }
}

static void test_gather_and_pooling(void **state)
{
    const struct batch_row rows[] = {{0, 0, 0, ROW_NO_OUT},
                                     {0, 1, 0, 1},
                                     {1, 0, 0, ROW_NO_OUT},
                                     {1, 1, 0, ROW_NO_OUT},
                                     {1, 2, 0, 0}};
    const struct step s = {rows, 5, 2, NULL, 0};
    enum { WIDTH = 600 };
    randoms(in, 5 * WIDTH);
    for (uint32_t i = 0; i <= n_sets; i++) {
        struct exec *x = i < n_sets ? sets[i].three : truth;
        OPS_CPU.gather(x, got, in, WIDTH, &s);
        assert_memory_equal(got, in + 4 * WIDTH, WIDTH * sizeof *got);
        assert_memory_equal(got + WIDTH, in + WIDTH, WIDTH * sizeof *got);
        memset(got, 0, 2 * WIDTH * sizeof *got);
        OPS_CPU.pool_sum(x, got, in, WIDTH, &s);
        for (int c = 0; c < WIDTH; c++) {
            assert_true(got[c] == in[c] + in[WIDTH + c]);
            assert_true(got[WIDTH + c] ==
                        in[2 * WIDTH + c] + in[3 * WIDTH + c] + in[4 * WIDTH + c]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_matmul_of_several_jobs),
        cmocka_unit_test(test_matmul_of_many_rows),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_bad_numbers_stay_in_their_row),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_routing),
        cmocka_unit_test(test_gather_and_pooling),
    };
    return cmocka_run_group_tests_name("engine_ops", tests, make_sets, drop_sets);
}
