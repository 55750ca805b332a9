/* bandwidth_bench.c - how fast THREADS cores read memory together, in GB/s: bandwidth_bench THREADS. The best of five passes over 256 MB each. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { BYTES = 256 << 20, PASSES = 5, MAX_THREADS = 256 };

static pthread_barrier_t gate;
static uint32_t n_threads;

static void *read_all(void *arg)
{
    uint64_t *p = aligned_alloc(4096, BYTES), sum[8] = {0}, *best_us = arg;
    if (!p)
        return NULL;
    memset(p, 1, BYTES);
    for (int pass = 0; pass < PASSES; pass++) {
        pthread_barrier_wait(&gate);
        uint64_t start = clock_now_us();
        for (size_t i = 0; i < BYTES / 8; i += 8) /* eight sums: one vector */
            for (int k = 0; k < 8; k++)
                sum[k] += p[i + (size_t)k];
        uint64_t us = clock_now_us() - start;
        *best_us = pass == 0 || us < *best_us ? us : *best_us;
    }
    *(volatile uint64_t *)p = sum[0] + sum[7]; /* the sums are wanted */
    free(p);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[MAX_THREADS];
    uint64_t best_us[MAX_THREADS] = {0};
    n_threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return 4;
    pthread_barrier_init(&gate, NULL, n_threads);
    for (uint32_t i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, read_all, &best_us[i]))
            return 1;
    double total = 0;
    for (uint32_t i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
        total += best_us[i] ? BYTES / (double)best_us[i] / 1e3 : 0;
    }
    printf("%.1f\n", total);
    return 0;
}
