/* sample.c - see sample.h. */
#include "engine/sample.h"

#include <math.h>

enum { MAX_TEMPERATURE = 100 };

int sample_check(const struct sampling *s, struct err *e)
{
    /* written so that NaN fails */
    if (!(s->temperature >= 0 && s->temperature <= MAX_TEMPERATURE))
        return err_set(e, ERR_FORMAT, "temperature %g: expected 0 to %d", (double)s->temperature,
                       MAX_TEMPERATURE);
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return err_set(e, ERR_FORMAT, "top_p %g: expected 0 to 1", (double)s->top_p);
    return 0;
}

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

uint32_t sample_greedy(const float *logits, uint32_t n_vocab)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* --- a heap of ids, the most likely on top --------------------------------------------------------------- */

static bool before(const float *logits, uint32_t a, uint32_t b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

static void sift_down(uint32_t *heap, uint32_t n, uint32_t i, const float *logits)
{
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= n)
            return;
        if (child + 1 < n && before(logits, heap[child + 1], heap[child]))
            child++;
        if (before(logits, heap[i], heap[child]))
            return;
        uint32_t t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
        i = child;
    }
}

/* Take the top off: it lands behind the shrunken heap, so that the best of all ends at heap[n_vocab - 1]. */
static void heap_pop(uint32_t *heap, uint32_t n, const float *logits)
{
    uint32_t t = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = t;
    sift_down(heap, n - 1, 0, logits);
}

uint32_t sample_token(const struct sampling *s, uint32_t position, const float *logits,
                      uint32_t n_vocab, uint32_t *order)
{
    uint32_t best = sample_greedy(logits, n_vocab);
    if (s->temperature == 0 || s->top_k == 1)
        return best;
    double u = sample_uniform(s->seed, position), top = logits[best], t = s->temperature;
    uint32_t k = s->top_k && s->top_k < n_vocab ? s->top_k : n_vocab;
    double total = 0, sum = 0;
    if (k == n_vocab && s->top_p >= 1) { /* everything may come: no order needed */
        for (uint32_t i = 0; i < n_vocab; i++)
            total += exp((logits[i] - top) / t);
        for (uint32_t i = 0; i < n_vocab; i++)
            if ((sum += exp((logits[i] - top) / t)) > u * total)
                return i;
        return best; /* rounding at the very end */
    }

    for (uint32_t i = 0; i < n_vocab; i++)
        order[i] = i;
    for (uint32_t i = n_vocab / 2; i-- > 0;)
        sift_down(order, n_vocab, i, logits);
    uint32_t n = n_vocab; /* what is left in the heap; order[n ...] is taken, best last */
    if (k < n_vocab)
        for (; n > n_vocab - k; n--) {
            total += exp((logits[order[0]] - top) / t);
            heap_pop(order, n, logits);
        }
    else
        for (uint32_t i = 0; i < n_vocab; i++)
            total += exp((logits[i] - top) / t);
    /* the shortest run of the best whose share reaches top_p; at least one */
    uint32_t n_kept = 0;
    while (n_kept < k && (!n_kept || sum < s->top_p * total)) {
        if (n_vocab - n == n_kept)
            heap_pop(order, n--, logits);
        sum += exp((logits[order[n_vocab - 1 - n_kept++]] - top) / t);
    }
    double kept = sum;
    sum = 0;
    for (uint32_t i = 0; i < n_kept; i++)
        if ((sum += exp((logits[order[n_vocab - 1 - i]] - top) / t)) > u * kept)
            return order[n_vocab - 1 - i];
    return order[n_vocab - n_kept];
}
