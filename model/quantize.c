/* quantize.c - see quantize.h. A piece is made row by row: unpack, pack, unpack again to count the error. Threads share the
 * rows of a piece; its bytes do not depend on how many there are. */
#include "model/quantize.h"

#include "model/blocks.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_THREADS = 64 };

static const int TYPES[] = {TENSOR_F16,  TENSOR_BF16, TENSOR_Q4_0,   TENSOR_Q4_1,
                            TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_Q8_0,   TENSOR_Q4_K,
                            TENSOR_Q5_K, TENSOR_Q6_K, TENSOR_F8_E4M3};
const char QUANTIZE_NAMES[] = "F16, BF16, Q8_0, Q6_K, Q5_K, Q5_1, Q5_0, Q4_K, Q4_1, Q4_0, F8_E4M3";

int quantize_type(const char *name)
{
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++)
        if (strcasecmp(tensor_type_info(TYPES[i])->name, name) == 0)
            return TYPES[i];
    return -1;
}

/* What one thread needs for a row. */
struct lane {
    float *x, *y;    /* [longest row]: the source's weights, and what became of them */
    uint8_t *packed; /* one packed row */
};

struct quantize_work {
    const struct model_index *from;
    struct tensor_source source;
    unsigned n_threads;
    uint8_t *in; /* SEGMENT_BYTES for the source to fill */
    struct lane lanes[MAX_THREADS];
};

/* --- which tensor becomes what --------------------------------------------------------------------- */

static bool bits_fewer(int a, int b)
{
    const struct tensor_type_info *x = tensor_type_info(a), *y = tensor_type_info(b);
    return x->block_bytes * y->block_elems < y->block_bytes * x->block_elems;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

/* A format whose blocks fit rows of `row`, and errs no more than `type`. */
static int type_fitting(int type, uint64_t row)
{
    if (row % tensor_type_info(type)->block_elems == 0)
        return type;
    if (row % BLOCK_WEIGHTS)
        return TENSOR_F16;
    return type == TENSOR_Q4_K ? TENSOR_Q5_0 : type == TENSOR_Q5_K ? TENSOR_Q5_1 : TENSOR_Q8_0;
}

static void choose(const struct tensor_info *t, int type, struct quantize_tensor *q)
{
    q->from = q->to = t->type;
    bool sixteen = type == TENSOR_F16 || type == TENSOR_BF16;
    bool ends = strcmp(t->name, "token_embd.weight") == 0 || strcmp(t->name, "output.weight") == 0;
    if (t->n_dims < 2 || !ends_with(t->name, ".weight") ||
        ends_with(t->name, "ffn_gate_inp.weight") || t->dims[0] > SEGMENT_BYTES / sizeof(float))
        return;
    int meant = ends && !sixteen ? TENSOR_Q8_0 : type, to = type_fitting(meant, t->dims[0]);
    if (!bits_fewer(to, t->type))
        return;
    q->to = to;
    q->substitute = to != meant;
}

/* --- one piece -------------------------------------------------------------------------------------- */

/* Rows first … end of a tensor, for one thread. */
struct share {
    const struct quantize_tensor *t;
    const struct lane *lane;
    const uint8_t *in; /* row `first` */
    uint64_t first, end, columns;
    size_t in_bytes, out_bytes; /* of a row */
    uint64_t offset;            /* of the piece, in the tensor */
    uint32_t n;
    uint8_t *out; /* the piece */
    double error, square;
    bool bad_in, bad_out;
};

static void row_count(struct share *s)
{
    const float *x = s->lane->x, *y = s->lane->y;
    double error = 0, square = 0;
    for (uint64_t i = 0; i < s->columns; i++) {
        double off = (double)y[i] - (double)x[i];
        error += off * off;
        square += (double)x[i] * (double)x[i];
    }
    s->bad_in = s->bad_in || !isfinite(square);
    s->bad_out = s->bad_out || !isfinite(error);
    s->error += error;
    s->square += square;
}

static void *share_run(void *arg)
{
    struct share *s = arg;
    for (uint64_t r = s->first; r < s->end; r++) {
        uint64_t at = r * s->out_bytes, skip = at < s->offset ? s->offset - at : 0;
        uint64_t end = at + s->out_bytes, last = s->offset + s->n;
        block_unpack(s->t->from, s->lane->x, s->in + (r - s->first) * s->in_bytes, s->columns);
        block_pack(s->t->to, s->lane->packed, s->lane->x, s->columns);
        memcpy(s->out + (at + skip - s->offset), s->lane->packed + skip,
               (end < last ? end : last) - at - skip);
        if (skip) /* counted with the piece that has its start */
            continue;
        block_unpack(s->t->to, s->lane->y, s->lane->packed, s->columns);
        row_count(s);
    }
    return NULL;
}

/* Divide rows among threads; a thread that cannot start is replaced by this one. */
static void rows_run(struct quantize_work *w, struct share all, struct quantize_tensor *t,
                     bool *bad_in, bool *bad_out)
{
    struct share shares[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    uint64_t rows = all.end - all.first;
    unsigned n = rows < w->n_threads ? (unsigned)rows : w->n_threads;
    bool started[MAX_THREADS];
    for (unsigned i = 0; i < n; i++) {
        shares[i] = all;
        shares[i].lane = &w->lanes[i];
        shares[i].first = all.first + rows * i / n;
        shares[i].end = all.first + rows * (i + 1) / n;
        shares[i].in = all.in + (shares[i].first - all.first) * all.in_bytes;
        started[i] = i > 0 && pthread_create(&threads[i], NULL, share_run, &shares[i]) == 0;
    }
    for (unsigned i = 0; i < n; i++)
        if (!started[i])
            share_run(&shares[i]);
    for (unsigned i = 0; i < n; i++) {
        if (started[i])
            pthread_join(threads[i], NULL);
        t->error += shares[i].error;
        t->square += shares[i].square;
        *bad_in = *bad_in || shares[i].bad_in;
        *bad_out = *bad_out || shares[i].bad_out;
    }
}

static int quantize_read(void *ctx, uint32_t tensor, uint64_t offset, uint32_t n, uint8_t *buf,
                         const uint8_t **bytes, struct err *e)
{
    struct quantize *q = ctx;
    struct quantize_work *w = q->work;
    struct quantize_tensor *t = &q->tensors[tensor];
    const struct tensor_info *in = &w->from->tensors[tensor], *out = &q->index.tensors[tensor];
    if (t->from == t->to)
        return w->source.read(w->source.ctx, tensor, offset, n, buf, bytes, e);
    uint64_t rows = t->n_weights / in->dims[0];
    struct share all = {.t = t,
                        .columns = in->dims[0],
                        .in_bytes = in->n_bytes / rows,
                        .out_bytes = out->n_bytes / rows,
                        .offset = offset,
                        .n = n,
                        .out = buf};
    uint64_t end = (offset + n + all.out_bytes - 1) / all.out_bytes;
    uint64_t step = SEGMENT_BYTES / all.in_bytes; /* at least 1: choose() */
    bool bad_in = false, bad_out = false;
    for (uint64_t r = offset / all.out_bytes; r < end; r = all.end) {
        all.first = r;
        all.end = end - r < step ? end : r + step;
        int rc = w->source.read(w->source.ctx, tensor, r * all.in_bytes,
                                (uint32_t)((all.end - r) * all.in_bytes), w->in, &all.in, e);
        if (rc)
            return rc;
        rows_run(w, all, t, &bad_in, &bad_out);
    }
    if (bad_in || bad_out)
        return err_set(e, ERR_FORMAT, "tensor %s: %s %s", in->name,
                       bad_in ? "a weight is not finite: cannot be quantised to"
                              : "a weight is too large for",
                       tensor_type_info(t->to)->name);
    *bytes = buf;
    return 0;
}

struct tensor_source quantize_source(struct quantize *q)
{
    return (struct tensor_source){quantize_read, q};
}

/* --- opening ------------------------------------------------------------------------------------------ */

static int make_room(struct quantize *q, struct err *e)
{
    struct quantize_work *w = q->work;
    uint64_t longest = 1;
    for (uint32_t i = 0; i < q->index.n_tensors; i++)
        if (q->tensors[i].from != q->tensors[i].to && w->from->tensors[i].dims[0] > longest)
            longest = w->from->tensors[i].dims[0];
    bool ok = (w->in = malloc(SEGMENT_BYTES)) != NULL;
    for (unsigned i = 0; i < w->n_threads && ok; i++) {
        struct lane *l = &w->lanes[i];
        l->x = malloc(longest * sizeof *l->x);
        l->y = malloc(longest * sizeof *l->y);
        l->packed = malloc(longest * sizeof(float)); /* no format is longer */
        ok = l->x && l->y && l->packed;
    }
    return ok ? 0
              : err_set(e, ERR_NOMEM, "out of memory for quantising rows of %" PRIu64 " weights",
                        longest);
}

int quantize_open(struct quantize *q, const struct model_index *from,
                  const struct tensor_source *source, int type, unsigned n_threads, struct err *e)
{
    struct quantize new = {.tensors = calloc(from->n_tensors, sizeof *new.tensors),
                           .work = calloc(1, sizeof *new.work)};
    struct tensor_info *infos = malloc(from->n_tensors * sizeof *infos);
    int rc = 0;
    if (!new.tensors || !new.work || !infos) {
        rc = err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " tensors", from->n_tensors);
        goto out;
    }
    new.work->from = from;
    new.work->source = *source;
    new.work->n_threads = n_threads < 1 ? 1 : n_threads > MAX_THREADS ? MAX_THREADS : n_threads;
    memcpy(infos, from->tensors, from->n_tensors * sizeof *infos);
    for (uint32_t i = 0; i < from->n_tensors; i++) {
        const struct tensor_info *t = &from->tensors[i];
        choose(t, type, &new.tensors[i]);
        new.tensors[i].n_weights = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        infos[i].type = new.tensors[i].to;
    }
    rc = index_build(&new.index, infos, from->n_tensors, e);
    if (!rc)
        rc = make_room(&new, e);
out:
    free(infos);
    if (rc)
        quantize_close(&new);
    else
        *q = new;
    return rc;
}

void quantize_close(struct quantize *q)
{
    for (unsigned i = 0; q->work && i < MAX_THREADS; i++) {
        free(q->work->lanes[i].x);
        free(q->work->lanes[i].y);
        free(q->work->lanes[i].packed);
    }
    if (q->work)
        free(q->work->in);
    free(q->work);
    free(q->tensors);
    index_fini(&q->index);
    *q = (struct quantize){0};
}
