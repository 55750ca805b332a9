/* world.c - see world.h. */
#include "mpi/world.h"
#include "mpi/shield.h"
#include "mpi/watchdog.h"
#include "mpi/world_priv.h"

#include "base/buf.h"
#include "base/clock.h"

#include <pmix.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    YIELDS = 16,         /* polls before the first sleep: a busy network answers within them */
    SLEEP_FIRST_US = 10, /* about what the kernel's timer slack lets through anyway */
    WARM_UP_WINDOW = 32, /* sends at once: connections are set up in step, not 4,096 at one time */
    WARM_UP_SLEEP_US =
        2000,          /* more ranks than cores: whoever waits must leave the cores to the others */
    LINGER_POLLS = 20, /* after the last wait: lets the library flush what it still has queued */
    NAMED_RANKS = 16,  /* as many missing ranks as an error names */
};

void backoff_pause(struct backoff *b)
{
    if (b->n++ < YIELDS) {
        sched_yield();
        return;
    }
    uint32_t step = (b->n - YIELDS) / 8;
    uint64_t us = step > 10 ? b->max_us : (uint64_t)SLEEP_FIRST_US << step;
    clock_sleep_us(us < b->max_us ? us : b->max_us);
}

int mpi_err(struct err *e, int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (MPI_Error_string(rc, text, &n) != MPI_SUCCESS)
        snprintf(text, sizeof text, "error %d", rc);
    return err_set(e, ERR_PEER, "%s: %s", what, text);
}

int world_init(struct world **out, int *argc, char ***argv, uint64_t timeout_us,
               world_stuck_fn *stuck, void *arg, struct err *e)
{
    int started = 0, provided = 0, rank = 0, size = 0;
    /* A survivor writes into connections of the killed: an error, not the end of the process. */
    signal(SIGPIPE, SIG_IGN);
    MPI_Initialized(&started);
    if (started)
        return err_set(e, ERR_PROTO, "the MPI world was started already");
    struct world *w = calloc(1, sizeof *w);
    struct watchdog *dog = NULL;
    if (!w)
        return err_set(e, ERR_NOMEM, "no memory for the world");
    w->stuck = stuck;
    w->stuck_arg = arg;
    int rc = watchdog_start(&dog, w, "MPI_Init", timeout_us, e);
    if (rc)
        return rc; /* the process ends */
    rc = MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
    watchdog_stop(dog);
    if (rc != MPI_SUCCESS)
        return err_set(e, ERR_SYS, "MPI_Init failed: error %d", rc);
    if (provided < MPI_THREAD_FUNNELED)
        return err_set(e, ERR_SYS, "this MPI library allows no threads beside it");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    w->rank = (uint32_t)rank;
    w->size = (uint32_t)size;
    *out = w;
    return 0;
}

uint32_t world_rank(const struct world *w)
{
    return w->rank;
}

uint32_t world_size(const struct world *w)
{
    return w->size;
}

/* --- warm-up
 * -------------------------------------------------------------------------------------------- */

/* One exchange with every other rank. Index i is the rank i+1 further on (sends) or back
 * (receives). Sends are synchronous: a plain small send may count as done while it still waits
 * in this process for its connection, and nobody would move it on after this rank has left the
 * warm-up. */
struct sweep {
    uint32_t n;        /* other ranks */
    MPI_Request *send; /* [n] */
    MPI_Request *recv; /* [n] */
    int *got;          /* [n] */
    int *done;         /* [n] scratch of Testsome */
    uint32_t n_posted, n_sent, n_received;
    int mine;
};

static void sweep_fini(struct sweep *s)
{
    free(s->send);
    free(s->recv);
    free(s->got);
    free(s->done);
    free(s);
}

static struct sweep *sweep_create(const struct world *w)
{
    struct sweep *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->n = w->size - 1;
    s->mine = (int)w->rank;
    s->send = malloc((s->n + 1) * sizeof *s->send);
    s->recv = malloc((s->n + 1) * sizeof *s->recv);
    s->got = calloc(s->n + 1, sizeof *s->got);
    s->done = calloc(s->n + 1, sizeof *s->done);
    if (!s->send || !s->recv || !s->got || !s->done) {
        sweep_fini(s);
        return NULL;
    }
    for (uint32_t i = 0; i < s->n; i++)
        s->send[i] = s->recv[i] = MPI_REQUEST_NULL;
    return s;
}

static uint32_t sweep_from(const struct world *w, uint32_t i)
{
    return (w->rank + w->size - (i + 1)) % w->size;
}

static uint32_t sweep_to(const struct world *w, uint32_t i)
{
    return (w->rank + i + 1) % w->size;
}

static int sweep_post_receives(const struct world *w, struct sweep *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        int rc = MPI_Irecv(&s->got[i], 1, MPI_INT, (int)sweep_from(w, i), TAG_WARM_UP,
                           MPI_COMM_WORLD, &s->recv[i]);
        if (rc != MPI_SUCCESS)
            return rc;
    }
    return MPI_SUCCESS;
}

static int testsome(uint32_t n, MPI_Request *requests, int *scratch, uint32_t *n_done)
{
    int done = 0;
    int rc = MPI_Testsome((int)n, requests, &done, scratch, MPI_STATUSES_IGNORE);
    if (rc == MPI_SUCCESS && done != MPI_UNDEFINED)
        *n_done += (uint32_t)done;
    return rc;
}

/* One poll. Returns an MPI code. */
static int sweep_step(const struct world *w, struct sweep *s)
{
    while (s->n_posted < s->n && s->n_posted - s->n_sent < WARM_UP_WINDOW) {
        uint32_t i = s->n_posted;
        int rc = MPI_Issend(&s->mine, 1, MPI_INT, (int)sweep_to(w, i), TAG_WARM_UP, MPI_COMM_WORLD,
                            &s->send[i]);
        if (rc != MPI_SUCCESS)
            return rc;
        s->n_posted++;
    }
    int rc = testsome(s->n_posted, s->send, s->done, &s->n_sent);
    if (rc == MPI_SUCCESS)
        rc = testsome(s->n, s->recv, s->done, &s->n_received);
    return rc;
}

static int sweep_missing(const struct world *w, const struct sweep *s, struct err *e)
{
    struct buf names;
    buf_init(&names, 512);
    uint32_t n_missing = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        /* not heard from it, or it has not taken our message: either names the rank that is
         * missing */
        uint32_t rank = sweep_from(w, i), j = s->n - 1 - i; /* sweep_to(j) == rank */
        bool sent = j < s->n_posted && s->send[j] == MPI_REQUEST_NULL;
        if (s->recv[i] == MPI_REQUEST_NULL && (sent || j >= s->n_posted))
            continue;
        if (n_missing++ < NAMED_RANKS)
            buf_printf(&names, "%s%u", names.len ? ", " : "", rank);
    }
    int rc =
        err_set(e, ERR_TIMEOUT, "MPI warm-up of rank %u: %u of %u ranks did not answer: %s%s",
                w->rank, n_missing, s->n, buf_cstr(&names), n_missing > NAMED_RANKS ? ", …" : "");
    buf_fini(&names);
    return rc;
}

/* Nobody may stop driving MPI before all have finished. */
static int wait_for_all(const struct world *w, uint64_t until_us, struct err *e)
{
    MPI_Request *barrier = malloc(sizeof *barrier); /* stays with MPI when it is given up */
    if (!barrier)
        return err_set(e, ERR_NOMEM, "no memory for a barrier");
    int rc = MPI_Ibarrier(MPI_COMM_WORLD, barrier), done = 0;
    struct backoff pause = {.max_us = WARM_UP_SLEEP_US};
    while (rc == MPI_SUCCESS) {
        rc = MPI_Test(barrier, &done, MPI_STATUS_IGNORE);
        if (done || rc != MPI_SUCCESS)
            break;
        if (clock_now_us() >= until_us)
            return err_set(
                e, ERR_TIMEOUT,
                "MPI warm-up of rank %u: all ranks answered, but not all of them finished",
                w->rank);
        backoff_pause(&pause);
    }
    free(barrier);
    if (rc != MPI_SUCCESS)
        return mpi_err(e, rc, "MPI warm-up");
    for (int i = 0; i < LINGER_POLLS; i++) {
        int flag;
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_WARM_UP, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        sched_yield();
    }
    return 0;
}

int world_warm_up(struct world *w, uint64_t timeout_us, struct err *e)
{
    uint64_t until_us = clock_now_us() + timeout_us;
    struct sweep *s = sweep_create(w);
    if (!s)
        return err_set(e, ERR_NOMEM, "no memory to greet %u ranks", w->size);
    int rc = sweep_post_receives(w, s);
    struct backoff pause = {.max_us = WARM_UP_SLEEP_US};
    while (rc == MPI_SUCCESS && (s->n_sent < s->n || s->n_received < s->n)) {
        uint32_t before = s->n_sent + s->n_received;
        rc = sweep_step(w, s);
        if (s->n_sent + s->n_received != before)
            backoff_reset(&pause);
        else if (clock_now_us() >= until_us)
            return sweep_missing(w, s, e); /* the sweep stays: MPI may still write into it */
        else
            backoff_pause(&pause);
    }
    if (rc != MPI_SUCCESS)
        return mpi_err(e, rc, "MPI warm-up");
    sweep_fini(s);
    int out = wait_for_all(w, until_us, e);
    if (out == 0)
        w->warm = true;
    return out;
}

/* --- detach and end
 * ------------------------------------------------------------------------------------- */

int world_detach(struct world *w, uint64_t timeout_us, struct err *e)
{
    if (w->detached)
        return 0;
    if (!w->warm)
        return err_set(e, ERR_PROTO, "detach before the warm-up: connections could not open later");
    if (PMIx_Initialized()) {
        /* MPI_Init holds the only reference: once is enough, and a second call would end what
         * others still use. */
        struct watchdog *dog = NULL;
        int rc = watchdog_start(&dog, w, "detaching from PMIx", timeout_us, e);
        if (rc)
            return rc;
        pmix_status_t status = PMIx_Finalize(NULL, 0);
        watchdog_stop(dog);
        if (status != PMIX_SUCCESS)
            return err_set(e, ERR_SYS, "rank %u cannot detach from PMIx: %s", w->rank,
                           PMIx_Error_string(status));
    }
    shield_raise();
    w->detached = true;
    return 0;
}

_Noreturn void world_leave(int status)
{
    _exit(status);
}
