/* table.h - which replicas there are, how loaded they are, and which one takes the next request.
 *
 * Pure: no sockets, no clock; time comes in with each call, randomness from the seed. Fed by
 * heartbeats. Of each (deployment, replica) only the highest epoch seen counts. A pick samples a
 * few replicas and takes the one with the largest remaining token budget: what its last heartbeat
 * said is free, less what this router has put on it since (power of d choices, Mitzenmacher 2001).
 */
#ifndef EXA_ROUTER_TABLE_H
#define EXA_ROUTER_TABLE_H

#include "base/err.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TABLE_MAX_ROWS = 1 << 16,
    TABLE_SAMPLES = 4,           /* candidates compared in a pick */
    TABLE_UNREACHABLE_MS = 1000, /* a worker that did not take a submit is left alone for so long */
};

struct table_row {
    uint32_t worker;
    uint64_t worker_incarnation;
    struct replica_load load;
    uint32_t own_n,
        own_tokens; /* this router's running attempts there and the tokens they may need */
    uint32_t own_n_then, own_tokens_then; /* the same, when the last load report came */
    bool refused;                         /* said no since the worker's heartbeat refused_seq */
    uint64_t refused_seq;
};

struct table_worker {
    uint32_t member;
    uint64_t incarnation, seq;
    uint64_t heard_us;
    uint64_t unreachable_until_us;
    bool draining, known; /* known: a heartbeat came */
    char host[MSG_HOST_BYTES], rack[MSG_RACK_BYTES];
};

/* Who has been running on what is no more: the owner of requests ends them. epoch and incarnation
 * are the lost ones. */
struct table_lost {
    uint32_t worker, deployment, replica;
    uint64_t epoch;
    uint32_t incarnation;
    const char *why; /* static */
};
typedef void (*table_lost_fn)(void *ctx, const struct table_lost *l);

struct table;

int table_create(struct table **out, uint64_t seed, uint32_t suspect_ms, struct err *e);
void table_destroy(struct table *t);
/* full: h is whole; else it only says that the member lives. Old ones (by sequence) are ignored. */
void table_on_heartbeat(struct table *t, const struct msg_heartbeat *h, bool full, uint64_t now_us,
                        table_lost_fn lost, void *ctx);
void table_on_host(struct table *t, uint32_t worker, const char *host, const char *rack);
void table_on_worker_lost(struct table *t, uint32_t worker);
void table_on_unreachable(struct table *t, uint32_t worker, uint64_t now_us);

struct table_pick {
    uint32_t worker, deployment, replica;
    uint64_t epoch;
    uint32_t incarnation;
};
/* false: none can take a request now. */
bool table_pick(struct table *t, uint32_t deployment, uint64_t now_us, struct table_pick *out);
/* An attempt of `tokens` (prompt and expected output) went to p / ended. A row that has changed
 * since is left alone. */
void table_commit(struct table *t, const struct table_pick *p, uint32_t tokens);
void table_release(struct table *t, const struct table_pick *p, uint32_t tokens);
void table_on_refused(struct table *t, const struct table_pick *p);

/* Ready replicas of the deployment (UINT32_MAX: of any) on workers heard of lately. */
uint32_t table_n_live(const struct table *t, uint32_t deployment, uint64_t now_us);
uint32_t table_n_rows(const struct table *t);
const struct table_row *table_row(const struct table *t, uint32_t i);
/* NULL: never heard of. */
const struct table_worker *table_worker(const struct table *t, uint32_t member);

#endif
