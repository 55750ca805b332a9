/* select.c - see select.h. */
#include "engine/select.h"

#include <string.h>

enum { RADIX_BITS = 8, RADIX = 1 << RADIX_BITS, KEY_ID_BITS = 20 };

uint64_t select_key_logit(float logit, uint32_t id)
{
    uint32_t bits;
    logit += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &logit, sizeof bits);
    bits = bits >> 31 ? bits : ~(bits | 0x80000000u); /* so that higher floats give lower numbers */
    return (uint64_t)bits << 32 | id;
}

uint64_t select_key_distance(double distance, uint32_t id)
{
    uint64_t bits;
    memcpy(&bits, &distance, sizeof bits);
    return bits >> KEY_ID_BITS << KEY_ID_BITS | id;
}

struct digits {
    uint32_t n[RADIX];
    double weight[RADIX];
};

/* Of what has reached the limits so far: the digit at which it goes over, or RADIX. */
static uint32_t digit_over(const struct digits *d, uint32_t *n, uint32_t n_max, double *sum,
                           double weight)
{
    for (uint32_t i = 0; i < RADIX; i++) {
        if (!d->n[i])
            continue;
        if (*n + d->n[i] >= n_max || *sum + d->weight[i] >= weight)
            return i;
        *n += d->n[i];
        *sum += d->weight[i];
    }
    return RADIX;
}

uint64_t select_cut(const uint64_t *keys, const double *weights, uint32_t n, uint32_t n_max,
                    double weight, uint32_t *rest)
{
    struct digits d;
    uint32_t n_rest = n, n_before = 0;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        rest[i] = i;
    for (int shift = 64 - RADIX_BITS; n_rest; shift -= RADIX_BITS) {
        memset(&d, 0, sizeof d);
        for (uint32_t i = 0; i < n_rest; i++) {
            uint32_t digit = keys[rest[i]] >> shift & (RADIX - 1);
            d.n[digit]++;
            d.weight[digit] += weights[rest[i]];
        }
        uint32_t over = digit_over(&d, &n_before, n_max, &sum, weight);
        if (over == RADIX) {
            if (n_rest == n)
                return UINT64_MAX;
            /* these reached it when summed in another order: the last of them is it */
            for (over = RADIX - 1; !d.n[over];)
                over--;
        }
        uint32_t n_kept = 0;
        for (uint32_t i = 0; i < n_rest; i++)
            if ((keys[rest[i]] >> shift & (RADIX - 1)) == over)
                rest[n_kept++] = rest[i];
        n_rest = n_kept;
        if (n_rest == 1 || !shift)
            break;
    }
    return n_rest ? keys[rest[0]] : UINT64_MAX;
}
