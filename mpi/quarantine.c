/* quarantine.c - see quarantine.h. */
#include "mpi/quarantine.h"

#include <stdlib.h>
#include <string.h>

struct item {
    struct item *next;
    void *mem;
    size_t n_bytes;
    bool for_ever; /* a request failed: nobody knows what else of it is still under way */
    uint32_t n;
    MPI_Request requests[];
};

struct quarantine {
    struct item *first;
    size_t n_bytes;
};

/* True when MPI is done with every request. */
static bool item_done(struct item *it)
{
    for (uint32_t i = 0; i < it->n && !it->for_ever; i++) {
        int flag = 0;
        if (it->requests[i] == MPI_REQUEST_NULL)
            continue;
        if (MPI_Test(&it->requests[i], &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            it->for_ever = true;
        else if (!flag)
            return false;
    }
    return !it->for_ever;
}

void quarantine_add(struct world *w, void *mem, size_t n_bytes, const MPI_Request *requests,
                    uint32_t n, bool for_ever)
{
    uint32_t n_open = for_ever;
    for (uint32_t i = 0; i < n; i++)
        n_open += requests[i] != MPI_REQUEST_NULL;
    if (n_open == 0) {
        free(mem);
        return;
    }
    if (!w->quarantine)
        w->quarantine = calloc(1, sizeof *w->quarantine);
    struct item *it = malloc(sizeof *it + n * sizeof *requests);
    if (!w->quarantine || !it) {
        free(it);
        return;
    }
    *it = (struct item){w->quarantine->first, mem, n_bytes, for_ever, n};
    memcpy(it->requests, requests, n * sizeof *requests);
    w->quarantine->first = it;
    w->quarantine->n_bytes += n_bytes;
}

int quarantine_sweep(struct world *w, struct err *e)
{
    struct quarantine *q = w->quarantine;
    if (!q)
        return 0;
    for (struct item **at = &q->first; *at;) {
        struct item *it = *at;
        if (!item_done(it)) {
            at = &it->next;
            continue;
        }
        *at = it->next;
        q->n_bytes -= it->n_bytes;
        free(it->mem);
        free(it);
    }
    if (q->n_bytes > QUARANTINE_MAX_BYTES)
        return err_set(e, ERR_LIMIT,
                       "rank %u: %zu MiB are held by broadcasts that were given up; this process "
                       "must be replaced before it takes part in another",
                       w->rank, q->n_bytes >> 20);
    return 0;
}
