/* meet.c - see meet.h. */
#include "mpi/meet.h"
#include "mpi/quarantine.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/digest.h"

#include <stdlib.h>
#include <string.h>

enum {
    NAMED = 16, /* as many missing ranks as a verdict names */
    MEET_SLEEP_US = 1000,
    FLUSH_US = 1000000, /* for handing a verdict to the network: it is one small packet each */
    LINGER_POLLS = 20,
};
enum { VERDICT_RELAY = 1, VERDICT_REUSE = 2, VERDICT_MISSING = 3 };

struct hello {
    uint64_t fingerprint, has_comms;
};
struct verdict {
    uint64_t fingerprint;
    uint32_t what, n_missing;
    uint32_t missing[NAMED];
};

/* What MPI may write or read during the meeting; goes to the quarantine as a whole when
 * something stays open. */
struct table {
    uint32_t n;
    struct verdict verdict;
    struct hello mine;
    struct hello *hello;   /* [n] inside the same memory */
    MPI_Request *requests; /* [n] */
};

uint64_t meet_fingerprint(const struct bcast_round *r)
{
    uint8_t sum[SHA256_BYTES];
    uint64_t f = 0;
    struct sha256 *s = sha256_create();
    CHECK(s != NULL);
    sha256_begin(s);
    sha256_update(s, &r->round, sizeof r->round);
    sha256_update(s, r->index->digest, sizeof r->index->digest);
    sha256_update(s, r->members, r->n_members * sizeof *r->members);
    sha256_update(s, r->missing, (r->index->n_segments + 7) / 8);
    sha256_end(s, sum);
    sha256_destroy(s);
    memcpy(&f, sum, sizeof f);
    return f ? f : 1;
}

static struct table *table_create(uint32_t n, size_t *n_bytes)
{
    *n_bytes = sizeof(struct table) + n * (sizeof(struct hello) + sizeof(MPI_Request));
    struct table *t = calloc(1, *n_bytes);
    if (!t)
        return NULL;
    t->n = n;
    t->hello = (struct hello *)(t + 1);
    t->requests = (MPI_Request *)(t->hello + n);
    for (uint32_t i = 0; i < n; i++)
        t->requests[i] = MPI_REQUEST_NULL;
    return t;
}

static void cancel_open(struct table *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->requests[i] == MPI_REQUEST_NULL)
            continue;
        int flag = 0;
        if (MPI_Cancel(&t->requests[i]) == MPI_SUCCESS)
            MPI_Test(&t->requests[i], &flag, MPI_STATUS_IGNORE);
    }
}

static int post_hello(struct table *t, const struct bcast_round *r, uint32_t i)
{
    return MPI_Irecv(&t->hello[i], sizeof t->hello[i], MPI_BYTE, (int)r->members[i].rank,
                     round_tag(r->round, TAG_HELLO), MPI_COMM_WORLD, &t->requests[i]);
}

/* First member: one pass over those still awaited. Returns an MPI code. */
static int take_hellos(struct table *t, const struct bcast_round *r, uint64_t fingerprint,
                       bool *came, uint32_t *n_came)
{
    for (uint32_t i = 1; i < t->n; i++) {
        int flag = 0;
        if (came[i])
            continue;
        int rc = MPI_Test(&t->requests[i], &flag, MPI_STATUS_IGNORE);
        if (rc == MPI_SUCCESS && flag && t->hello[i].fingerprint != fingerprint)
            rc = post_hello(t, r, i); /* of another attempt: its real one follows */
        else if (rc == MPI_SUCCESS && flag) {
            came[i] = true;
            ++*n_came;
        }
        if (rc != MPI_SUCCESS)
            came[i] = false; /* a dead peer: stays missing, and its request is NULL from now on */
    }
    return MPI_SUCCESS;
}

static void judge(struct table *t, const struct bcast_round *r, bool has_comms,
                  uint64_t fingerprint, const bool *came)
{
    struct verdict *v = &t->verdict;
    *v = (struct verdict){.fingerprint = fingerprint,
                          .what = has_comms ? VERDICT_REUSE : VERDICT_RELAY};
    for (uint32_t i = 1; i < t->n; i++) {
        if (!came[i]) {
            if (v->n_missing < NAMED)
                v->missing[v->n_missing] = r->members[i].rank;
            v->n_missing++;
        } else if (!t->hello[i].has_comms) {
            v->what = VERDICT_RELAY;
        }
    }
    if (v->n_missing)
        v->what = VERDICT_MISSING;
}

static void tell_all(struct world *w, struct table *t, const struct bcast_round *r,
                     const bool *came)
{
    for (uint32_t i = 1; i < t->n; i++)
        if (came[i])
            MPI_Isend(&t->verdict, sizeof t->verdict, MPI_BYTE, (int)r->members[i].rank,
                      round_tag(r->round, TAG_VERDICT), MPI_COMM_WORLD, &t->requests[i]);
    uint64_t until = clock_now_us() + FLUSH_US;
    struct backoff pause = {.max_us = MEET_SLEEP_US};
    for (int lingered = 0; lingered < LINGER_POLLS && clock_now_us() < until;) {
        bool open = false;
        for (uint32_t i = 1; i < t->n; i++) {
            int flag = 0;
            if (came[i] && t->requests[i] != MPI_REQUEST_NULL)
                MPI_Test(&t->requests[i], &flag, MPI_STATUS_IGNORE);
            open |= came[i] && t->requests[i] != MPI_REQUEST_NULL;
        }
        if (open)
            backoff_pause(&pause);
        else
            lingered++; /* Test drives the network even when nothing is open */
    }
}

static int host(struct world *w, const struct bcast_round *r, struct table *t, bool has_comms,
                const _Atomic uint32_t *stop, struct err *e)
{
    uint64_t fingerprint = meet_fingerprint(r), until = clock_now_us() + r->stall_us;
    bool *came = calloc(t->n, sizeof *came);
    if (!came)
        return err_set(e, ERR_NOMEM, "no memory for a round of %u members", t->n);
    uint32_t n_came = 1;
    for (uint32_t i = 1; i < t->n; i++)
        post_hello(t, r, i);
    struct backoff pause = {.max_us = MEET_SLEEP_US};
    while (n_came < t->n && clock_now_us() < until && !round_is_stopped(r, stop)) {
        uint32_t before = n_came;
        take_hellos(t, r, fingerprint, came, &n_came);
        if (n_came == before)
            backoff_pause(&pause);
    }
    cancel_open(t);
    judge(t, r, has_comms, fingerprint, came);
    tell_all(w, t, r, came);
    free(came);
    return 0;
}

static int guest(struct world *w, const struct bcast_round *r, struct table *t, bool has_comms,
                 const _Atomic uint32_t *stop, struct err *e)
{
    uint64_t fingerprint = meet_fingerprint(r);
    /* longer than the host: its verdict names who is really missing */
    uint64_t until = clock_now_us() + r->stall_us + r->stall_us / 2;
    int root = (int)r->members[0].rank, flag = 0, rc;
    t->mine = (struct hello){fingerprint, has_comms};
    rc = MPI_Isend(&t->mine, sizeof t->mine, MPI_BYTE, root, round_tag(r->round, TAG_HELLO),
                   MPI_COMM_WORLD, &t->requests[0]);
    if (rc == MPI_SUCCESS)
        rc = MPI_Irecv(&t->verdict, sizeof t->verdict, MPI_BYTE, root,
                       round_tag(r->round, TAG_VERDICT), MPI_COMM_WORLD, &t->requests[1]);
    struct backoff pause = {.max_us = MEET_SLEEP_US};
    while (rc == MPI_SUCCESS && clock_now_us() < until) {
        if (round_is_stopped(r, stop))
            return err_set(e, ERR_CANCELED, "round %u was stopped", r->round);
        if (t->requests[0] != MPI_REQUEST_NULL)
            rc = MPI_Test(&t->requests[0], &flag, MPI_STATUS_IGNORE);
        if (rc == MPI_SUCCESS)
            rc = MPI_Test(&t->requests[1], &flag, MPI_STATUS_IGNORE);
        if (rc == MPI_SUCCESS && flag && t->verdict.fingerprint == fingerprint)
            return 0;
        if (rc == MPI_SUCCESS && flag)
            rc = MPI_Irecv(&t->verdict, sizeof t->verdict, MPI_BYTE, root,
                           round_tag(r->round, TAG_VERDICT), MPI_COMM_WORLD, &t->requests[1]);
        else
            backoff_pause(&pause);
    }
    cancel_open(t);
    return err_set(e, ERR_PEER, "round %u: no answer from rank %d, which gathers its members",
                   r->round, root);
}

static int missing_error(const struct bcast_round *r, const struct verdict *v, struct err *e)
{
    struct buf names;
    buf_init(&names, 512);
    for (uint32_t i = 0; i < v->n_missing && i < NAMED; i++)
        buf_printf(&names, "%s%u", i ? ", " : "", v->missing[i]);
    int rc =
        err_set(e, ERR_PEER,
                "round %u: %u of %u members did not come, or came for another round: rank%s %s%s",
                r->round, v->n_missing, r->n_members, v->n_missing == 1 ? "" : "s",
                buf_cstr(&names), v->n_missing > NAMED ? ", …" : "");
    buf_fini(&names);
    return rc;
}

int meet(struct world *w, const struct bcast_round *r, bool has_comms, const _Atomic uint32_t *stop,
         bool *reuse, struct err *e)
{
    size_t n_bytes;
    struct table *t = table_create(r->n_members < 2 ? 2 : r->n_members, &n_bytes);
    if (!t)
        return err_set(e, ERR_NOMEM, "no memory for a round of %u members", r->n_members);
    t->n = r->n_members;
    int rc = r->members[0].rank == w->rank ? host(w, r, t, has_comms, stop, e)
                                           : guest(w, r, t, has_comms, stop, e);
    struct verdict v = t->verdict;
    quarantine_add(w, t, n_bytes, t->requests, t->n, false);
    if (rc)
        return rc;
    if (v.what == VERDICT_MISSING && round_is_stopped(r, stop))
        return err_set(e, ERR_CANCELED, "round %u was stopped", r->round);
    if (v.what == VERDICT_MISSING)
        return missing_error(r, &v, e);
    if (v.what != VERDICT_RELAY && v.what != VERDICT_REUSE)
        return err_set(e, ERR_PROTO, "round %u: verdict %u is unknown", r->round, v.what);
    *reuse = v.what == VERDICT_REUSE;
    return 0;
}
