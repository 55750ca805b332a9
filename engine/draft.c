/* draft.c - see draft.h. */
#include "engine/draft.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Tokens of a stream that this model has not seen, because it was not asked for a while. So many are made up for in one step, and
     * only when no more are missing does it guess. */
    CATCH_UP_ROWS = 32,
};

struct known { /* of one request */
    uint64_t seq;
    uint32_t n_admitted, n_computed;
};

struct draft {
    struct image img;
    const struct ops *ops;
    struct exec *x;
    struct graph *graph;
    struct graph_size size;
    struct known *known;    /* [n_entries] */
    struct batch_row *rows; /* [max_rows] */
    uint32_t *asking;       /* [n_slots]: requests with an output in this pass */
    uint32_t n_rows, n_out;
    float *host; /* [n_vocab]: logits on their way to the host */
};

static int vocabulary_check(const struct model_meta *a, const struct model_meta *b, struct err *e)
{
    if (a->params.n_vocab != b->params.n_vocab || a->tok.n_tokens != b->tok.n_tokens)
        return err_set(e, ERR_FORMAT, "draft model %s has %u tokens, %s has %u", a->name,
                       a->params.n_vocab, b->name, b->params.n_vocab);
    for (uint32_t i = 0; i < a->tok.n_tokens; i++)
        if (strcmp(a->tok.tokens[i], b->tok.tokens[i]))
            return err_set(e, ERR_FORMAT, "token %u of draft model %s is not that of %s", i,
                           a->name, b->name);
    return 0;
}

int draft_open(struct draft **out, const char *path, const struct model_meta *model, struct err *e)
{
    struct draft *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_NOMEM, "draft model: out of memory");
    int rc = image_open(&d->img, path, false, e);
    if (rc) {
        free(d);
        return rc;
    }
    rc = meta_check(&d->img.meta, e);
    if (!rc)
        rc = graph_check(&d->img.meta.params, e);
    if (!rc)
        rc = vocabulary_check(&d->img.meta, model, e);
    if (rc) {
        draft_close(d, NULL);
        return err_prefix(e, "draft model: ");
    }
    *out = d;
    return 0;
}

void draft_close(struct draft *d, const struct backend *backend)
{
    if (!d)
        return;
    graph_destroy(d->graph);
    image_close(&d->img);
    free(d->known);
    free(d->rows);
    free(d->asking);
    free(d->host);
    free(d);
}

const struct model_params *draft_params(const struct draft *d)
{
    return &d->img.meta.params;
}

static struct graph_size size_of(const struct graph_size *large, uint32_t n_slots)
{
    struct graph_size size = *large;
    size.max_out = n_slots;
    size.all = size.tp = NULL;
    return size;
}

int draft_memory(const struct draft *d, const struct ops *ops, const struct graph_size *large,
                 struct graph_memory *need, uint64_t *block_bytes, struct err *e)
{
    struct graph_size size = size_of(large, large->n_seqs);
    size.n_blocks = 1;
    if (size.n_ctx > d->img.meta.params.n_ctx)
        return err_set(e, ERR_CONFIG, "draft model %s was made for %u tokens of context, not %u",
                       d->img.meta.name, d->img.meta.params.n_ctx, size.n_ctx);
    int rc = graph_memory(need, &d->img, &size, ops, e);
    *block_bytes = need->kv_bytes;
    need->scratch_bytes += size.max_rows * sizeof *d->rows + 4ull * d->img.meta.params.n_vocab +
                           size.n_seqs * (sizeof *d->known + sizeof *d->asking);
    return rc;
}

int draft_start(struct draft *d, const struct ops *ops, struct exec *x,
                const struct graph_size *large, const struct batch_config *plan, struct err *e)
{
    d->ops = ops;
    d->x = x;
    d->size = size_of(large, plan->n_slots);
    d->known = calloc(d->size.n_seqs, sizeof *d->known);
    d->rows = calloc(d->size.max_rows, sizeof *d->rows);
    d->asking = calloc(plan->n_slots, sizeof *d->asking);
    d->host = calloc(plan->n_vocab, sizeof *d->host);
    if (!d->known || !d->rows || !d->asking || !d->host)
        return err_set(e, ERR_NOMEM, "draft model: out of memory");
    int rc = graph_create(&d->graph, &d->img, &d->size, ops, x, e);
    return rc ? err_prefix(e, "draft model: ") : 0;
}

/* --- guessing -------------------------------------------------------------------------------------------- */

/* What is computed here of request i; a new admission starts from what its blocks brought. */
static struct known *known_of(struct draft *d, const struct request *r, uint32_t i)
{
    struct known *k = &d->known[i];
    if (k->seq != r->seq || k->n_admitted != r->n_admitted)
        *k = (struct known){r->seq, r->n_admitted, r->n_reused};
    return k;
}

static void row_add(struct draft *d, uint32_t seq, uint32_t position, uint32_t token, bool out)
{
    d->rows[d->n_rows++] = (struct batch_row){seq, position, token, out ? d->n_out : ROW_NO_OUT};
    if (out)
        d->asking[d->n_out++] = seq;
}

static int pass(struct draft *d, const struct batch *b, struct err *e)
{
    struct step s = {d->rows, d->n_rows, d->n_out, b->tables, b->table_stride};
    int rc = d->n_rows ? graph_forward(d->graph, &s, e) : 0;
    return rc ? err_prefix(e, "draft model: ") : 0;
}

/* The likeliest token of output i; numbers that are not finite make some token or other, which will not hold. */
static uint32_t best_token(struct draft *d, uint32_t i)
{
    uint32_t best = 0, n = d->img.meta.params.n_vocab;
    d->ops->copy(d->x, d->host, graph_logits(d->graph, i), n * sizeof *d->host);
    for (uint32_t t = 1; t < n; t++)
        if (d->host[t] > d->host[best])
            best = t;
    return best;
}

/* The first pass: all that is known and not computed here, with the first guess from its end. */
static void first_rows(struct draft *d, struct batch *b)
{
    d->n_rows = d->n_out = 0;
    for (uint32_t i = 0; i < b->n_entries; i++) {
        struct request *r = &b->requests[i];
        if (r->state != REQUEST_RUNNING || !r->n_drafts)
            continue;
        struct known *k = known_of(d, r, i);
        uint32_t n = r->n_known - k->n_computed;
        if (n > CATCH_UP_ROWS) {
            n = CATCH_UP_ROWS;
            r->n_drafts = 0;
        }
        if (n > d->size.max_rows - d->n_rows) {
            r->n_drafts = 0;
            continue;
        }
        for (uint32_t p = k->n_computed; p < k->n_computed + n; p++)
            row_add(d, i, p, r->tokens[p], r->n_drafts && p + 1 == r->n_known);
        k->n_computed += n;
    }
}

/* The next pass: one row for each that asks for more than n_made guesses. */
static void next_rows(struct draft *d, struct batch *b, uint32_t n_made)
{
    uint32_t n_asked = d->n_out;
    d->n_rows = d->n_out = 0;
    for (uint32_t k = 0; k < n_asked; k++) {
        uint32_t i = d->asking[k];
        struct request *r = &b->requests[i];
        if (r->n_drafts <= n_made)
            continue;
        row_add(d, i, r->n_known + n_made - 1, r->drafts[n_made - 1], true);
        d->known[i].n_computed++;
    }
}

int draft_propose(struct draft *d, struct batch *b, struct err *e)
{
    first_rows(d, b);
    for (uint32_t n_made = 1; d->n_rows; n_made++) {
        int rc = pass(d, b, e);
        if (rc)
            return rc;
        for (uint32_t i = 0; i < d->n_out; i++)
            b->requests[d->asking[i]].drafts[n_made - 1] = best_token(d, i);
        next_rows(d, b, n_made);
    }
    return 0;
}

int draft_follow(struct draft *d, const struct batch *b, struct err *e)
{
    d->n_rows = d->n_out = 0;
    for (uint32_t i = 0; i < b->n_entries; i++) {
        const struct request *r = &b->requests[i];
        if (r->state != REQUEST_RUNNING || !r->n_rows || request_decodes(r))
            continue;
        struct known *k = known_of(d, r, i);
        if (k->n_computed != r->n_computed)
            continue;
        for (uint32_t p = 0; p < r->n_rows; p++)
            row_add(d, i, r->n_computed + p, r->tokens[r->n_computed + p], false);
        k->n_computed += r->n_rows;
    }
    return pass(d, b, e);
}

/* Computed here: all up to the last guess but one. What did not hold is written over. */
void draft_learn(struct draft *d, const struct batch *b, const struct request *r, uint32_t n_held)
{
    struct known *k = &d->known[r - b->requests];
    uint32_t most = r->n_known - 1; /* the last token drawn was no guess, or was not computed on */
    k->n_computed = k->n_computed < most ? k->n_computed : most;
}

void draft_kv_copy(struct draft *d, uint32_t from, uint32_t to)
{
    graph_kv_copy(d->graph, from, to);
}
