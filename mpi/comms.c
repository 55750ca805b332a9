/* comms.c - see comms.h. */
#include "mpi/comms.h"

#include "mpi/meet.h"
#include "mpi/watchdog.h"

#include <stdlib.h>
#include <string.h>

void comms_abandon(struct world *w)
{
    if (!w->comms)
        return;
    free(w->comms->members);
    free(w->comms);
    w->comms = NULL;
}

static int check_members(const struct world *w, const struct bcast_member *members, uint32_t n,
                         struct err *e)
{
    bool found = false;
    if (n == 0)
        return err_set(e, ERR_PROTO, "a broadcast without members");
    for (uint32_t i = 0; i < n; i++) {
        if (members[i].rank >= w->size)
            return err_set(e, ERR_PROTO, "a broadcast with rank %u, but the world has %u ranks",
                           members[i].rank, w->size);
        if (i > 0 && members[i].rank <= members[i - 1].rank)
            return err_set(e, ERR_PROTO, "a broadcast whose ranks do not ascend at %u",
                           members[i].rank);
        found |= members[i].rank == w->rank;
    }
    if (!found)
        return err_set(e, ERR_PROTO, "a broadcast that rank %u is no member of", w->rank);
    return 0;
}

/* --- groups
 * --------------------------------------------------------------------------------------------- */

void groups_fini(struct groups *g)
{
    free(g->leaders.ranks);
    free(g->mine.ranks);
    g->leaders.ranks = g->mine.ranks = NULL;
}

static void group_add(struct group *g, uint32_t rank, uint32_t self)
{
    if (rank == self)
        g->self = g->n;
    g->ranks[g->n++] = rank;
}

static void find_racks(struct groups *g, const struct bcast_member *members, uint32_t n,
                       uint32_t self, uint32_t *rack_name)
{
    uint32_t my_name = 0;
    for (uint32_t i = 0; i < n; i++)
        if (members[i].rank == self)
            my_name = members[i].rack;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = 0;
        while (k < g->n_racks && rack_name[k] != members[i].rack)
            k++;
        if (k == g->n_racks) {
            rack_name[g->n_racks++] = members[i].rack;
            group_add(&g->leaders, members[i].rank, self);
        }
        if (members[i].rack == my_name) {
            g->rack = k;
            group_add(&g->mine, members[i].rank, self);
        }
    }
    g->leader = g->mine.self == 0;
}

static int groups_init(struct groups *g, const struct world *w, const struct bcast_member *members,
                       uint32_t n, struct err *e)
{
    *g = (struct groups){0};
    g->leaders.comm = g->mine.comm = MPI_COMM_NULL;
    g->leaders.self = g->mine.self = UINT32_MAX;
    g->leaders.ranks = malloc(n * sizeof *g->leaders.ranks);
    g->mine.ranks = malloc(n * sizeof *g->mine.ranks);
    uint32_t *rack_name = malloc(n * sizeof *rack_name);
    if (!g->leaders.ranks || !g->mine.ranks || !rack_name) {
        free(rack_name);
        groups_fini(g);
        return err_set(e, ERR_NOMEM, "no memory for a broadcast among %u", n);
    }
    find_racks(g, members, n, w->rank, rack_name);
    free(rack_name);
    return 0;
}

static bool fits(const struct round_comms *c, const struct bcast_round *r)
{
    return c && c->n_members == r->n_members &&
           memcmp(c->members, r->members, r->n_members * sizeof *r->members) == 0;
}

int groups_meet(struct groups *g, struct world *w, const struct bcast_round *r,
                const _Atomic uint32_t *stop, struct err *e)
{
    bool reuse = false;
    int rc = check_members(w, r->members, r->n_members, e);
    if (rc == 0)
        rc = meet(w, r, fits(w->comms, r), stop, &reuse, e);
    if (rc == 0)
        rc = groups_init(g, w, r->members, r->n_members, e);
    if (rc)
        return rc;
    g->leaders.tag = relay_tag(r->round, 0);
    g->mine.tag = relay_tag(r->round, 1);
    g->leaders.end_tag = round_tag(r->round, TAG_END_LEADERS);
    g->mine.end_tag = round_tag(r->round, TAG_END_RACK);
    g->collective = reuse;
    if (reuse) {
        g->leaders.comm = w->comms->leaders;
        g->mine.comm = w->comms->mine;
    }
    return 0;
}

/* --- communicators
 * -------------------------------------------------------------------------------------- */

static int make_comm(const struct group *g, int tag, MPI_Comm *out)
{
    MPI_Group world, group;
    *out = MPI_COMM_NULL;
    if (g->self == UINT32_MAX || g->n < 2)
        return MPI_SUCCESS;
    int rc = MPI_Comm_group(MPI_COMM_WORLD, &world);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = MPI_Group_incl(world, (int)g->n, (const int *)g->ranks, &group);
    if (rc == MPI_SUCCESS) {
        rc = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, out);
        MPI_Group_free(&group);
    }
    MPI_Group_free(&world);
    if (rc == MPI_SUCCESS)
        MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN);
    return rc;
}

/* Racks first, then leaders: the same order everywhere, so nobody waits in a circle. */
static int make_comms(struct world *w, struct round_comms *c, const struct groups *g,
                      uint64_t timeout_us, struct err *e)
{
    struct watchdog *dog = NULL;
    int failed = watchdog_start(&dog, w, "making communicators", timeout_us, e);
    if (failed)
        return failed;
    int rc = make_comm(&g->mine, TAG_PREPARE_RACK, &c->mine);
    if (rc == MPI_SUCCESS)
        rc = make_comm(&g->leaders, TAG_PREPARE_LEADERS, &c->leaders);
    watchdog_stop(dog);
    return rc == MPI_SUCCESS ? 0 : mpi_err(e, rc, "making the communicators of the broadcast");
}

int bcast_prepare(struct world *w, const struct bcast_member *members, uint32_t n_members,
                  uint64_t timeout_us, struct err *e)
{
    struct groups g;
    if (w->detached || w->comms)
        return err_set(e, ERR_PROTO, "communicators are made once, before the detach");
    int rc = check_members(w, members, n_members, e);
    if (rc == 0)
        rc = groups_init(&g, w, members, n_members, e);
    if (rc)
        return rc;
    struct round_comms *c = calloc(1, sizeof *c);
    if (c)
        c->members = malloc(n_members * sizeof *members);
    if (!c || !c->members) {
        rc = err_set(e, ERR_NOMEM, "no memory for a broadcast among %u", n_members);
    } else {
        c->n_members = n_members;
        memcpy(c->members, members, n_members * sizeof *members);
        rc = make_comms(w, c, &g, timeout_us, e);
    }
    groups_fini(&g);
    if (rc) {
        if (c)
            free(c->members);
        free(c);
        return rc;
    }
    w->comms = c;
    return 0;
}
