/* comms.c - see comms.h. */
#include "mpi/comms.h"

#include "mpi/meet.h"
#include "mpi/watchdog.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void comms_destroy(struct round_comms *c)
{
    if (!c)
        return;
    free(c->members);
    free(c->leaders);
    free(c);
}

void comms_abandon(struct world *w)
{
    comms_destroy(w->comms);
    w->comms = NULL;
}

/* Of a round that ended well, so nothing is under way in them: freeing is local. */
static void comms_release(struct world *w)
{
    if (w->comms && w->comms->rack_comm != MPI_COMM_NULL)
        MPI_Comm_free(&w->comms->rack_comm);
    if (w->comms && w->comms->leaders_comm != MPI_COMM_NULL)
        MPI_Comm_free(&w->comms->leaders_comm);
    comms_abandon(w);
}

static int check_round(const struct world *w, const struct bcast_round *r, struct err *e)
{
    bool found = false;
    if (r->n_members == 0)
        return err_set(e, ERR_PROTO, "round %u has no members", r->round);
    for (uint32_t i = 0; i < r->n_members; i++) {
        if (r->members[i].rank >= w->size)
            return err_set(e, ERR_PROTO, "round %u: member rank %u, the world has %u ranks",
                           r->round, r->members[i].rank, w->size);
        if (i > 0 && r->members[i].rank <= r->members[i - 1].rank)
            return err_set(e, ERR_PROTO, "round %u: member ranks do not ascend at %u", r->round,
                           r->members[i].rank);
        found |= r->members[i].rank == w->rank;
    }
    if (!found)
        return err_set(e, ERR_PROTO, "round %u: rank %u is no member", r->round, w->rank);
    return 0;
}

static bool same_members(const struct round_comms *c, const struct bcast_round *r)
{
    return c && c->n_members == r->n_members &&
           memcmp(c->members, r->members, r->n_members * sizeof *r->members) == 0;
}

static struct round_comms *comms_create(const struct bcast_round *r, uint64_t id)
{
    struct round_comms *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->id = id;
    c->n_members = r->n_members;
    c->members = malloc(r->n_members * sizeof *c->members);
    c->leaders = malloc(r->n_members * sizeof *c->leaders);
    c->rack_comm = c->leaders_comm = MPI_COMM_NULL;
    if (!c->members || !c->leaders) {
        comms_destroy(c);
        return NULL;
    }
    memcpy(c->members, r->members, r->n_members * sizeof *c->members);
    return c;
}

/* Number the racks and write the ranks of mine to mine[]. */
static void find_racks(struct round_comms *c, uint32_t self, int *mine, uint32_t *rack_name)
{
    uint32_t my_name = 0;
    for (uint32_t i = 0; i < c->n_members; i++)
        if (c->members[i].rank == self)
            my_name = c->members[i].rack;
    for (uint32_t i = 0; i < c->n_members; i++) {
        const struct bcast_member *m = &c->members[i];
        uint32_t k = 0;
        while (k < c->n_racks && rack_name[k] != m->rack)
            k++;
        if (k == c->n_racks) {
            rack_name[k] = m->rack;
            c->leaders[c->n_racks++] = m->rank;
        }
        if (m->rack == my_name) {
            c->rack = k;
            mine[c->rack_size++] = (int)m->rank;
        }
    }
    c->leader = c->leaders[c->rack] == self;
}

static int make_comm(const int *ranks, uint32_t n, int tag, MPI_Comm *out)
{
    MPI_Group world, group;
    int rc = MPI_Comm_group(MPI_COMM_WORLD, &world);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = MPI_Group_incl(world, (int)n, ranks, &group);
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
static int make_comms(struct world *w, const struct bcast_round *r, struct round_comms *c,
                      int *ranks, struct err *e)
{
    int tag = round_tag(r->round, TAG_CREATE_RACK), rc = MPI_SUCCESS;
    struct watchdog *dog = NULL;
    int failed = watchdog_start(&dog, w, r->stall_us, r->round, e);
    if (failed)
        return failed;
    if (c->rack_size > 1)
        rc = make_comm(ranks, c->rack_size, tag, &c->rack_comm);
    if (rc == MPI_SUCCESS && c->leader && c->n_racks > 1) {
        for (uint32_t k = 0; k < c->n_racks; k++)
            ranks[k] = (int)c->leaders[k];
        rc =
            make_comm(ranks, c->n_racks, round_tag(r->round, TAG_CREATE_LEADERS), &c->leaders_comm);
    }
    watchdog_stop(dog);
    return rc == MPI_SUCCESS ? 0 : mpi_err(e, rc, "making a round's communicators");
}

int comms_prepare(struct world *w, const struct bcast_round *r, const volatile int *stop,
                  struct err *e)
{
    int rc = check_round(w, r, e);
    if (rc)
        return rc;
    uint64_t id = meet_fingerprint(r);
    bool reuse = false;
    rc = meet(w, r, same_members(w->comms, r) ? w->comms->id : 0, stop, &reuse, e);
    if (rc || reuse)
        return rc;
    comms_release(w);
    struct round_comms *c = comms_create(r, id);
    int *ranks = malloc(r->n_members * sizeof *ranks);
    uint32_t *rack_name = malloc(r->n_members * sizeof *rack_name);
    if (c && ranks && rack_name) {
        find_racks(c, w->rank, ranks, rack_name);
        rc = make_comms(w, r, c, ranks, e);
    } else {
        rc = err_set(e, ERR_NOMEM, "no memory for a round of %u members", r->n_members);
    }
    free(ranks);
    free(rack_name);
    if (rc) {
        comms_destroy(c);
        return rc;
    }
    w->comms = c;
    return 0;
}
