/* leg.c - see leg.h. */
#include "mpi/leg.h"

#include "mpi/meet.h"

static int test(MPI_Request *request, bool *completed, struct err *e)
{
    int flag = 0;
    int rc = MPI_Test(request, &flag, MPI_STATUS_IGNORE);
    *completed = flag != 0;
    return rc == MPI_SUCCESS ? 0 : mpi_err(e, rc, "a segment's transfer failed");
}

/* How far behind the root this member stands in the chain. */
static uint32_t chain_position(const struct group *g, uint32_t root)
{
    return (g->self + g->n - root) % g->n;
}

static int relay_on(struct leg *l, const struct group *g, uint32_t root, uint32_t k,
                    const void *data, size_t n)
{
    if (chain_position(g, root) + 1 == g->n) {
        l->done = true;
        return MPI_SUCCESS;
    }
    return MPI_Isend(data, (int)n, MPI_BYTE, (int)g->ranks[(g->self + 1) % g->n],
                     g->tag + relay_offset(k), MPI_COMM_WORLD, &l->request);
}

void leg_init(struct leg *l)
{
    *l = (struct leg){.request = MPI_REQUEST_NULL};
}

int leg_post(struct leg *l, const struct group *g, uint32_t root, uint32_t k, void *data, size_t n,
             struct err *e)
{
    int rc = MPI_SUCCESS;
    l->posted = true;
    l->here = g->self == root;
    if (g->n == 1)
        l->done = true;
    else if (g->comm != MPI_COMM_NULL)
        rc = MPI_Ibcast(data, (int)n, MPI_BYTE, (int)root, g->comm, &l->request);
    else if (l->here)
        rc = relay_on(l, g, root, k, data, n);
    else
        rc = MPI_Irecv(data, (int)n, MPI_BYTE, (int)g->ranks[(g->self + g->n - 1) % g->n],
                       g->tag + relay_offset(k), MPI_COMM_WORLD, &l->request);
    if (rc == MPI_SUCCESS)
        return 0;
    l->broken = true;
    return mpi_err(e, rc, "a segment's transfer cannot begin");
}

int leg_step(struct leg *l, const struct group *g, uint32_t root, uint32_t k, void *data, size_t n,
             bool *moved, struct err *e)
{
    bool completed = false;
    if (!l->posted || l->done)
        return 0;
    int rc = test(&l->request, &completed, e);
    l->broken = rc != 0;
    if (rc || !completed)
        return rc;
    *moved = true;
    if (g->comm != MPI_COMM_NULL || l->here) {
        l->here = l->done = true;
        return 0;
    }
    l->here = true;
    rc = relay_on(l, g, root, k, data, n);
    if (rc == MPI_SUCCESS)
        return 0;
    l->broken = true;
    return mpi_err(e, rc, "a segment cannot be relayed");
}

/* --- the end
 * -------------------------------------------------------------------------------------------- */

/* Relayed: an empty message goes up the places and back down. Phases: 0 take from below, 1 pass
 * up, 2 take from above, 3 pass down. */
enum { PHASES = 4, PHASE_POSTED = 0x100 };

void leg_end_init(struct leg_end *l)
{
    *l = (struct leg_end){MPI_REQUEST_NULL, 0};
}

static int post_phase(struct leg_end *l, const struct group *g)
{
    bool below = g->self > 0, above = g->self + 1 < g->n;
    bool up = l->phase == 1 || l->phase == 2;
    if (!(up ? above : below))
        return MPI_SUCCESS; /* nobody there: the request stays NULL, which tests as complete */
    int peer = (int)g->ranks[up ? g->self + 1 : g->self - 1];
    if (l->phase % 2 == 0)
        return MPI_Irecv(NULL, 0, MPI_BYTE, peer, g->end_tag, MPI_COMM_WORLD, &l->request);
    return MPI_Isend(NULL, 0, MPI_BYTE, peer, g->end_tag, MPI_COMM_WORLD, &l->request);
}

int leg_end_step(struct leg_end *l, const struct group *g, bool *moved, bool *done, struct err *e)
{
    *done = g->self == UINT32_MAX || g->n < 2 || l->phase == PHASES;
    while (!*done) {
        int rc = MPI_SUCCESS;
        bool completed = false;
        if (!(l->phase & PHASE_POSTED)) {
            rc = g->comm != MPI_COMM_NULL ? MPI_Ibarrier(g->comm, &l->request) : post_phase(l, g);
            l->phase |= PHASE_POSTED;
            *moved = true;
        }
        if (rc != MPI_SUCCESS)
            return mpi_err(e, rc, "the end of a round");
        rc = test(&l->request, &completed, e);
        if (rc || !completed)
            return rc;
        l->phase = (g->comm != MPI_COMM_NULL ? PHASES - 1 : l->phase & ~(uint32_t)PHASE_POSTED) + 1;
        *moved = true;
        *done = l->phase == PHASES;
    }
    return 0;
}
