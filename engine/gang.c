/* gang.c - see gang.h. A word is a header of fixed size (kind, bytes that follow), then its body; integers little-endian. */
#include "engine/gang.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

enum word { WORD_FORWARD = 1, WORD_KV_COPY = 2, WORD_POOL_RESET = 3, WORD_IDLE = 4, WORD_END = 5 };
enum {
    HEADER_BYTES = 8,
    ROW_BYTES = 16,
    BLOCKS_MAX = 1 << 24, /* numbers travel as floats when shards agree: exact up to here */
};

struct gang {
    struct graph *graph;
    struct coll *all;
    struct graph_size size;
    uint32_t table_stride, n_vocab;
    struct buf word; /* body that is said or heard */
    /* followers */
    struct batch_row *rows; /* [max_rows] */
    uint32_t *tables;       /* [n_seqs][table_stride] */
};

static uint32_t stride_of(const struct graph_size *size)
{
    return (size->n_ctx + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

static uint64_t word_bytes(const struct graph_size *size)
{
    return 16 + (uint64_t)size->max_rows * ROW_BYTES +
           (uint64_t)size->n_seqs * (8 + 4 * (uint64_t)stride_of(size));
}

uint64_t gang_bytes(const struct graph_size *size)
{
    return word_bytes(size) + size->max_rows * sizeof(struct batch_row) +
           4 * (uint64_t)size->n_seqs * stride_of(size);
}

int gang_create(struct gang **out, struct graph *graph, struct coll *all,
                const struct graph_size *size, uint32_t n_vocab, struct err *e)
{
    struct gang *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, ERR_NOMEM, "gang: out of memory");
    g->graph = graph;
    g->all = all && all->size > 1 ? all : NULL;
    g->size = *size;
    g->n_vocab = n_vocab;
    g->table_stride = stride_of(size);
    bool ok = true;
    if (g->all) {
        buf_init(&g->word, word_bytes(size));
        ok = buf_reserve(&g->word, word_bytes(size)) != NULL;
    }
    if (ok && g->all && g->all->rank) {
        g->rows = calloc(size->max_rows, sizeof *g->rows);
        g->tables = calloc((size_t)size->n_seqs * g->table_stride, sizeof *g->tables);
        ok = g->rows && g->tables;
    }
    if (!ok) {
        gang_destroy(g);
        return err_set(e, ERR_NOMEM, "gang of %u shards: out of memory", all->size);
    }
    *out = g;
    return 0;
}

void gang_destroy(struct gang *g)
{
    if (!g)
        return;
    if (g->all)
        buf_fini(&g->word);
    free(g->rows);
    free(g->tables);
    free(g);
}

int gang_agree_blocks(struct coll *all, uint32_t mine, uint32_t *least, struct err *e)
{
    *least = mine;
    if (!all || all->size < 2)
        return 0;
    float one = (float)(mine < BLOCKS_MAX ? mine : BLOCKS_MAX);
    float *each = calloc(all->size, sizeof *each);
    if (!each)
        return err_set(e, ERR_NOMEM, "gang of %u shards: out of memory", all->size);
    int rc = all->ops->all_gather(all, each, &one, 1, e);
    for (uint32_t i = 0; i < all->size && !rc; i++)
        if (!(each[i] >= 0 && each[i] <= BLOCKS_MAX))
            rc = err_set(e, ERR_PROTO, "shard %u said a number of KV blocks that is none", i);
        else if ((uint32_t)each[i] < *least)
            *least = (uint32_t)each[i];
    free(each);
    return rc;
}

/* --- saying ----------------------------------------------------------------------------------------------- */

static void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int say(struct gang *g, enum word kind, struct err *e)
{
    uint8_t header[HEADER_BYTES];
    CHECK(buf_ok(&g->word));
    put_u32(header, kind);
    put_u32(header + 4, (uint32_t)g->word.len);
    int rc = g->all->ops->broadcast(g->all, header, sizeof header, 0, e);
    if (!rc && g->word.len)
        rc = g->all->ops->broadcast(g->all, g->word.data, g->word.len, 0, e);
    return rc;
}

/* n_rows, n_out, n_tables; rows; then for each sequence in the step its number and its blocks up to its last position. */
static void step_put(struct buf *b, const struct step *s)
{
    uint32_t n_tables = 0;
    for (uint32_t r = 0; r < s->n_rows; r++)
        n_tables += r + 1 == s->n_rows || s->rows[r + 1].seq != s->rows[r].seq;
    buf_u32(b, s->n_rows);
    buf_u32(b, s->n_out);
    buf_u32(b, n_tables);
    for (uint32_t r = 0; r < s->n_rows; r++) {
        buf_u32(b, s->rows[r].seq);
        buf_u32(b, s->rows[r].position);
        buf_u32(b, s->rows[r].token);
        buf_u32(b, s->rows[r].out);
    }
    for (uint32_t r = 0; r < s->n_rows; r++) {
        const struct batch_row *row = &s->rows[r];
        if (r + 1 < s->n_rows && s->rows[r + 1].seq == row->seq)
            continue; /* the last row of a sequence has its highest position */
        uint32_t n = row->position / KV_BLOCK_TOKENS + 1;
        buf_u32(b, row->seq);
        buf_u32(b, n);
        for (uint32_t i = 0; i < n; i++)
            buf_u32(b, s->tables[(size_t)row->seq * s->table_stride + i]);
    }
}

int gang_forward(struct gang *g, const struct step *s, struct err *e)
{
    if (g->all) {
        buf_reset(&g->word);
        step_put(&g->word, s);
        int rc = say(g, WORD_FORWARD, e);
        if (rc)
            return rc;
    }
    return graph_forward(g->graph, s, e);
}

int gang_kv_copy(struct gang *g, uint32_t from_block, uint32_t to_block, struct err *e)
{
    int rc = 0;
    if (g->all) {
        buf_reset(&g->word);
        buf_u32(&g->word, from_block);
        buf_u32(&g->word, to_block);
        rc = say(g, WORD_KV_COPY, e);
    }
    if (!rc)
        graph_kv_copy(g->graph, from_block, to_block);
    return rc;
}

int gang_pool_reset(struct gang *g, uint32_t seq, struct err *e)
{
    int rc = 0;
    if (g->all) {
        buf_reset(&g->word);
        buf_u32(&g->word, seq);
        rc = say(g, WORD_POOL_RESET, e);
    }
    if (!rc)
        graph_pool_reset(g->graph, seq);
    return rc;
}

static int say_nothing_more(struct gang *g, enum word kind, struct err *e)
{
    if (!g->all)
        return 0;
    buf_reset(&g->word);
    return say(g, kind, e);
}

int gang_idle(struct gang *g, struct err *e)
{
    return say_nothing_more(g, WORD_IDLE, e);
}

int gang_end(struct gang *g, struct err *e)
{
    return say_nothing_more(g, WORD_END, e);
}

/* --- following -------------------------------------------------------------------------------------------- */

static int nonsense(const char *what, uint64_t found, uint64_t most, struct err *e)
{
    return err_set(e, ERR_PROTO, "shard 0 said %s %" PRIu64 ", expected at most %" PRIu64, what,
                   found, most);
}

static int row_check(const struct gang *g, const struct batch_row *row, uint32_t n_out,
                     struct err *e)
{
    if (row->seq >= g->size.n_seqs)
        return nonsense("sequence", row->seq, g->size.n_seqs - 1, e);
    if (row->position >= g->size.n_ctx)
        return nonsense("position", row->position, g->size.n_ctx - 1, e);
    if (row->token >= g->n_vocab)
        return nonsense("token", row->token, g->n_vocab - 1, e);
    if (row->out != ROW_NO_OUT && row->out >= n_out)
        return nonsense("output", row->out, n_out, e);
    return 0;
}

static int tables_get(struct gang *g, struct rd *r, uint32_t n_tables, struct err *e)
{
    for (uint32_t t = 0; t < n_tables; t++) {
        uint32_t seq = rd_u32(r), n = rd_u32(r);
        if (seq >= g->size.n_seqs || n > g->table_stride)
            return nonsense("a table of sequence", seq, g->size.n_seqs - 1, e);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t block = rd_u32(r);
            if (block >= g->size.n_blocks)
                return nonsense("block", block, g->size.n_blocks - 1, e);
            g->tables[(size_t)seq * g->table_stride + i] = block;
        }
    }
    return 0;
}

static int step_get(struct gang *g, struct step *s, struct err *e)
{
    struct rd r = rd_make(g->word.data, g->word.len);
    uint32_t n_rows = rd_u32(&r), n_out = rd_u32(&r), n_tables = rd_u32(&r);
    if (n_rows > g->size.max_rows || n_out > g->size.max_out || n_tables > g->size.n_seqs)
        return nonsense("a step of rows", n_rows, g->size.max_rows, e);
    int rc = 0;
    for (uint32_t i = 0; i < n_rows && !rc; i++) {
        struct batch_row *row = &g->rows[i];
        row->seq = rd_u32(&r);
        row->position = rd_u32(&r);
        row->token = rd_u32(&r);
        row->out = rd_u32(&r);
        rc = row_check(g, row, n_out, e);
    }
    if (!rc)
        rc = tables_get(g, &r, n_tables, e);
    if (!rc && !rd_done(&r))
        rc = err_set(e, ERR_PROTO, "shard 0 said a step of %zu bytes that does not end there",
                     g->word.len);
    *s = (struct step){g->rows, n_rows, n_out, g->tables, g->table_stride};
    return rc;
}

static int do_word(struct gang *g, uint32_t kind, struct err *e)
{
    struct step s;
    struct rd r = rd_make(g->word.data, g->word.len);
    int rc;
    switch (kind) {
    case WORD_FORWARD:
        rc = step_get(g, &s, e);
        return rc ? rc : graph_forward(g->graph, &s, e);
    case WORD_KV_COPY: {
        uint32_t from = rd_u32(&r), to = rd_u32(&r);
        if (!rd_done(&r) || from >= g->size.n_blocks || to >= g->size.n_blocks)
            return nonsense("a copy to block", to, g->size.n_blocks - 1, e);
        graph_kv_copy(g->graph, from, to);
        return 0;
    }
    case WORD_POOL_RESET: {
        uint32_t seq = rd_u32(&r);
        if (!rd_done(&r) || seq >= g->size.n_seqs)
            return nonsense("a pool of sequence", seq, g->size.n_seqs - 1, e);
        graph_pool_reset(g->graph, seq);
        return 0;
    }
    case WORD_IDLE:
        return 0;
    case WORD_END:
        return 1;
    default:
        return err_set(e, ERR_PROTO, "shard 0 said word %" PRIu32 ", which is none", kind);
    }
}

int gang_follow(struct gang *g, struct err *e)
{
    uint8_t header[HEADER_BYTES];
    CHECK(g->all && g->all->rank);
    int rc = g->all->ops->broadcast(g->all, header, sizeof header, 0, e);
    if (rc)
        return rc;
    uint32_t kind = get_u32(header), n = get_u32(header + 4);
    if (n > g->word.max)
        return nonsense("bytes", n, g->word.max, e);
    buf_reset(&g->word);
    if (n) {
        void *p = buf_reserve(&g->word, n);
        CHECK(p);
        rc = g->all->ops->broadcast(g->all, p, n, 0, e);
        g->word.len = n;
    }
    return rc ? rc : do_word(g, kind, e);
}
