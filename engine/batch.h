/* batch.h - the requests of one engine, and what the next step computes for them: pure bookkeeping, no kernels, no clock.
 *
 *   state     event                                        next      action
 *   free      batch_submit                                 waiting   refused with ERR_AGAIN when slots and queue are full
 *   waiting   a slot is free and its blocks suffice        running   takes what the prefix cache or a sibling has computed
 *   running   blocks are short and it is the worst         waiting   its blocks go; its tokens stay and are computed again later
 *   any       cancel, deadline, end id, limits, bad numbers  free    reported once
 *
 * A step (batch_plan) has a budget of `chunk` rows. Every running request whose next token is due is in every step with one row,
 * so no stream waits for a long prompt. What is left of the budget, at least a quarter of it, goes to prompts: by priority, then to the tenant that
 * was served least, then in equal parts. What prompts leave goes to speculated tokens.
 * Order among requests is (priority, arrival). Who is better never gives way to who is worse, and the best one can always have
 * all blocks: so somebody always gets on, and with the best finished the next is best.
 */
#ifndef EXA_ENGINE_BATCH_H
#define EXA_ENGINE_BATCH_H

#include "base/err.h"
#include "engine/kv_blocks.h"
#include "engine/ops.h"
#include "engine/speculate.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    BATCH_MAX_SLOTS = 256,
    BATCH_MAX_QUEUE = 4096,
    BATCH_NOTICES_PER_SLOT = 4,
    /* Steps that a request waits for another one to compute their common prefix; each of them gives that one its share. */
    BATCH_MAX_WAITS = 4096,
};

enum request_state { REQUEST_FREE, REQUEST_WAITING, REQUEST_RUNNING };

struct request {
    uint8_t state; /* enum request_state */
    bool cancel;
    uint8_t kind, priority; /* as submitted */
    uint32_t tenant;        /* index of batch.tenants */
    struct attempt attempt;
    bool ignore_eos;
    uint32_t n_stop_ids, stop_ids[MSG_MAX_STOP_IDS];
    uint32_t min_tokens, max_tokens;
    uint32_t n_prompt;   /* prompt without the log */
    uint32_t n_known;    /* prompt + log + drawn here */
    uint32_t n_computed; /* of these, how many have their keys and values in blocks */
    uint32_t n_drawn;    /* tokens drawn by this attempt */
    uint32_t n_admitted; /* times that it began to run */
    uint32_t n_reused;   /* tokens that the cache or a sibling had, the last time */
    bool scores;         /* wants log-probabilities of its prompt … */
    uint32_t n_scored;   /* … and has had those of tokens 1 … n_scored */
    bool wants_logprobs; /* of what is drawn */
    bool every_row;      /* needs all of its rows computed here: nothing can be reused */
    uint64_t seq;        /* order of arrival */
    uint64_t first_by_us, done_by_us; /* deadlines; 0: none */
    uint32_t *tokens;                 /* [n_ctx], borrowed from the batch */
    uint32_t *blocks;                 /* [table_stride]: its row of the step's tables */
    uint32_t n_blocks, n_published;
    struct kv_chain chain; /* behind its published blocks */
    /* While waiting: who computes our prefix, how much of it is common, and for how long we waited. */
    uint32_t leader, n_common, n_waits;
    uint64_t leader_seq, skipped_at;
    /* In the planned step. */
    uint32_t first_row, n_rows, n_drafts;
    uint32_t drafts[SPEC_MAX];
    struct spec spec;
};

/* An attempt that ended outside of a step: replaced by a newer one of the same router slot. */
struct notice {
    struct attempt attempt;
    uint32_t position;
};

struct tenant {
    uint32_t id, n_live, n_running;
    uint64_t served; /* rows computed for it; a newcomer starts at the least of the others */
};

struct block_copy {
    uint32_t from, to;
};

struct batch_config {
    uint32_t n_slots, n_queue; /* requests at once; more that wait */
    uint32_t n_ctx, n_vocab, chunk;
    uint32_t n_blocks;
    uint32_t max_out;    /* outputs of a step, more than n_slots */
    uint32_t max_drafts; /* speculated tokens of a request in one step; 0: none */
    bool look_up; /* batch_plan finds them in the request's own tokens; else the caller does */
    bool prefix_cache;
    bool pool_sums; /* embeddings need all rows of a request */
};

struct batch_stats {
    uint64_t n_prefill_rows, n_decode_rows, n_draft_rows, n_accepted, n_preempted, n_reused;
};

struct batch {
    struct batch_config c;
    uint32_t n_entries, table_stride;
    uint64_t next_seq, n_plans;
    struct kv_blocks *kv;
    struct request *requests; /* [n_entries] */
    uint32_t *tokens;         /* [n_entries][n_ctx] */
    uint32_t *tables;         /* [n_entries][table_stride] */
    struct tenant *tenants;   /* [n_entries] */
    uint32_t *order;          /* [n_entries] scratch of batch_plan */
    uint32_t n_notices;
    struct notice *notices; /* [n_entries * BATCH_NOTICES_PER_SLOT] */
    /* The planned step: copies first, then rows. */
    struct batch_row *rows; /* [batch_max_rows] */
    uint32_t n_rows, n_out;
    struct block_copy *copies; /* [n_entries]: each request has at most one */
    uint32_t n_copies;
    struct batch_stats stats;
};

int batch_init(struct batch *b, const struct batch_config *c, struct err *e);
void batch_fini(struct batch *b);
uint32_t batch_max_rows(const struct batch_config *c);
uint64_t batch_memory(const struct batch_config *c);
/* KV blocks that any one request may need: the least that an engine can work with. */
uint32_t batch_min_blocks(uint32_t n_ctx);

/* As engine_submit. */
int batch_submit(struct batch *b, const struct msg_submit *s, uint64_t now_us, struct request **out,
                 struct err *e);
void batch_cancel(struct batch *b, const struct attempt *a);
struct request *batch_find(const struct batch *b, const struct attempt *a); /* NULL: none */
void batch_drop(struct batch *b, struct request *r); /* it ended: blocks and entry are free */

/* Must this request end before it is computed any further? enum finish, FINISH_NONE: no. */
int batch_end_now(const struct batch *b, const struct request *r, uint64_t now_us);

/* Decide what the next step computes: n_rows and n_drafts of every request, copies. Returns how many rows. */
uint32_t batch_plan(struct batch *b);
/* Write the rows of the planned step (drafts are known now) into b->rows. */
void batch_rows(struct batch *b);
/* The first n rows of r in this step are computed, finite, and of its known tokens: count them, and publish full blocks. */
void batch_computed(struct batch *b, struct request *r, uint32_t n);
/* Its next token was drawn. Returns its enum finish. */
int batch_accept(const struct batch *b, struct request *r, uint32_t token);

static inline uint32_t
request_position(const struct request *r) /* tokens generated, log included */
{
    return r->n_known - r->n_prompt;
}
static inline uint32_t request_pending(const struct request *r)
{
    return r->n_known - r->n_computed;
}
/* Is it behind its prompt, one row a token? */
static inline bool request_decodes(const struct request *r)
{
    return r->state == REQUEST_RUNNING && request_pending(r) == 1 && r->kind == SUBMIT_GENERATE &&
           (!r->scores || r->n_scored + 1 >= r->n_prompt);
}
uint32_t batch_active(const struct batch *b);  /* waiting and running */
uint32_t batch_waiting(const struct batch *b); /* of them, those without blocks */
/* Blocks that nobody has or was promised. */
uint32_t batch_free_blocks(const struct batch *b);

#endif
