/* sampler_choose.c - which token is drawn: temperature, top_k, top_p, min_p, typical_p, and the random number.
 *
 * All but typical_p keep a run of the most likely tokens, so few candidates are looked at: those within some reach of the highest
 * logit, a wider one if these turn out too few. The result never depends on the reach.
 */
#include "engine/sampler_parts.h"

#include <math.h>

/* Reaches in units of temperature: e^-8 of the best leaves a few dozen tokens of usual logits; the last has all with a weight. */
static const double REACHES[] = {8, 14, LOGITS_REACH + 1};

/* The finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection with full avalanche. */
static uint64_t mix64(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double sample_uniform(uint64_t seed, uint32_t position)
{
    /* the seed goes through the mixer first: neighbouring seeds must not give shifted copies of one stream */
    uint64_t z =
        mix64(mix64(seed + 0x9e3779b97f4a7c15u) + (uint64_t)position * 0x9e3779b97f4a7c15u);
    return (double)(mix64(z) >> 11) * 0x1p-53;
}

/* What is on, with its neutral forms taken away. */
struct filters {
    uint32_t top_k; /* UINT32_MAX: off */
    double top_p, min_p, typical_p;
    bool has_top_k, has_top_p, has_min_p, has_typical_p;
};

static struct filters filters_of(const struct sampling *p, uint32_t n_vocab)
{
    struct filters f = {.top_k = UINT32_MAX};
    f.has_top_k = p->top_k && p->top_k < n_vocab;
    f.top_k = f.has_top_k ? p->top_k : UINT32_MAX;
    f.top_p = p->top_p;
    f.has_top_p = p->top_p > 0 && p->top_p < 1;
    f.min_p = p->min_p;
    f.has_min_p = p->min_p > 0;
    f.typical_p = p->typical_p;
    f.has_typical_p = p->typical_p > 0 && p->typical_p < 1;
    return f;
}

static double sum_of(const double *w, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += w[i];
    return sum;
}

/* --- candidates ------------------------------------------------------------------------------------------- */

static bool are_enough(const struct filters *f, const struct scratch *c, uint32_t n, double reach)
{
    if (f->has_top_k)
        return n >= f->top_k;
    if (f->has_top_p)
        return sum_of(c->weights, n) >= f->top_p * c->now.total;
    return f->has_min_p && reach > -log(f->min_p) + 1;
}

/* At least n logits are not below this one: the n-th highest of the blocks' highest. n <= n_blocks */
static float floor_of(struct scratch *c, uint32_t n)
{
    const struct logits *l = &c->now;
    for (uint32_t b = 0; b < l->n_blocks; b++) {
        c->keys[b] = select_key_logit(l->block_max[b], b);
        c->weights[b] = 0;
    }
    uint64_t cut = select_cut(c->keys, c->weights, l->n_blocks, n, INFINITY, c->rest);
    return l->block_max[(uint32_t)cut];
}

/* Candidates in order of ids, with weights; all that the first filters can keep. Returns how many. */
static uint32_t collect(const struct filters *f, double temperature, struct scratch *c)
{
    double inv_t = 1 / temperature;
    uint32_t n = 0;
    if (f->has_top_p && !f->has_top_k)
        logits_sum(&c->now, inv_t);
    if (f->has_top_k && f->top_k <= c->now.n_blocks) {
        n = logits_collect(&c->now, floor_of(c, f->top_k), c->ids);
        logits_weigh(&c->now, inv_t, c->ids, n, c->weights);
        return n;
    }
    for (size_t i = 0; i < sizeof REACHES / sizeof REACHES[0]; i++) {
        float least = (float)(c->now.max - REACHES[i] * temperature);
        n = logits_collect(&c->now, least, c->ids);
        logits_weigh(&c->now, inv_t, c->ids, n, c->weights);
        if (are_enough(f, c, n, REACHES[i]))
            break;
    }
    return n;
}

/* Those with a key up to `cut` stay, in their order. */
static uint32_t keep(struct scratch *c, uint32_t n, uint64_t cut)
{
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (c->keys[i] > cut)
            continue;
        c->ids[n_kept] = c->ids[i];
        c->weights[n_kept] = c->weights[i];
        c->keys[n_kept++] = c->keys[i];
    }
    return n_kept;
}

static uint32_t keep_typical(double typical_p, double inv_t, struct scratch *c, uint32_t n)
{
    const struct logits *l = &c->now;
    double total = sum_of(c->weights, n), mean = 0;
    /* -log p is log(total) - x / t for every token, the entropy is the mean of it: log(total) drops out of their difference */
    for (uint32_t i = 0; i < n; i++)
        mean += c->weights[i] * (((double)l->x[c->ids[i]] - l->max) * inv_t);
    mean /= total;
    for (uint32_t i = 0; i < n; i++) {
        double x = ((double)l->x[c->ids[i]] - l->max) * inv_t;
        c->keys[i] = select_key_distance(fabs(x - mean), c->ids[i]);
    }
    return keep(c, n, select_cut(c->keys, c->weights, n, UINT32_MAX, typical_p * total, c->rest));
}

static uint32_t filter(const struct filters *f, double inv_t, struct scratch *c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        c->keys[i] = select_key_logit(c->now.x[c->ids[i]], c->ids[i]);
    if (f->has_top_k)
        n = keep(c, n, select_cut(c->keys, c->weights, n, f->top_k, INFINITY, c->rest));
    if (f->has_top_p) {
        double total = f->has_top_k ? sum_of(c->weights, n) : c->now.total;
        n = keep(c, n, select_cut(c->keys, c->weights, n, UINT32_MAX, f->top_p * total, c->rest));
    }
    if (f->has_min_p) { /* the best has weight 1 and stays */
        uint32_t n_kept = 0;
        for (uint32_t i = 0; i < n; i++) {
            c->ids[n_kept] = c->ids[i];
            c->weights[n_kept] = c->weights[i];
            n_kept += c->weights[i] >= f->min_p;
        }
        n = n_kept;
    }
    return f->has_typical_p ? keep_typical(f->typical_p, inv_t, c, n) : n;
}

uint32_t sampler_choose(const struct sampling *p, uint32_t position, struct scratch *c)
{
    if (p->temperature == 0 || p->top_k == 1)
        return logits_best(&c->now);
    struct filters f = filters_of(p, c->now.n);
    double t = p->temperature, u = sample_uniform(p->seed, position);
    if (!f.has_top_k && !f.has_top_p && !f.has_min_p && !f.has_typical_p) {
        logits_sum(&c->now, 1 / t);
        return logits_draw(&c->now, u);
    }
    uint32_t n = filter(&f, 1 / t, c, collect(&f, t, c));
    double sum = 0, limit = u * sum_of(c->weights, n);
    uint32_t last = c->ids[0];
    for (uint32_t i = 0; i < n; i++) {
        if (c->weights[i] > 0)
            last = c->ids[i];
        if ((sum += c->weights[i]) > limit)
            break;
    }
    return last;
}
