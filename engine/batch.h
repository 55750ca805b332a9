/* batch.h - the requests of one engine and what the next step computes for them: pure bookkeeping, no kernels, no clock.
 *
 * Life of a request, one row a step of its life:
 *   free      --submit-->            prefill   (tokens known > tokens computed + 1)
 *   prefill   --plan, rows chosen--> prefill | decode
 *   decode    --plan: one row-->     decode    (batch_accept appends the drawn token)
 *   any       --cancel, deadline, stop id, limits, bad numbers--> ended: reported once, then free
 * Every decoding request is in every step; prefill shares what is left of `chunk`, oldest first and in equal parts, so
 * neither a long prompt holds up streams nor two long prompts each other.
 */
#ifndef EXA_ENGINE_BATCH_H
#define EXA_ENGINE_BATCH_H

#include "base/err.h"
#include "engine/ops.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

enum { BATCH_MAX_SLOTS = 256, BATCH_NOTICES_PER_SLOT = 4 };

struct request {
    bool used, cancel;
    struct attempt attempt;
    struct sampling sampling;
    bool ignore_eos;
    uint32_t n_stop_ids, stop_ids[MSG_MAX_STOP_IDS];
    uint32_t max_tokens;
    uint32_t n_prompt;                /* prompt without the log */
    uint32_t n_known;                 /* prompt + log + drawn here */
    uint32_t n_computed;              /* of these, how many are in the KV region */
    uint32_t n_drawn;                 /* tokens drawn by this attempt */
    uint64_t seq;                     /* order of arrival */
    uint64_t first_by_us, done_by_us; /* deadlines; 0: none */
    uint32_t *tokens;                 /* [n_ctx], borrowed from the batch */
};

/* An attempt that ended outside of a step: replaced by a newer one of the same router slot. */
struct notice {
    struct attempt attempt;
    uint32_t position;
};

struct batch {
    uint32_t n_slots, n_ctx, n_vocab, chunk;
    uint64_t next_seq;
    struct request *requests; /* [n_slots] */
    uint32_t *tokens;         /* [n_slots][n_ctx] */
    uint32_t *by_age, *share; /* [n_slots] scratch of batch_plan */
    uint32_t n_notices;
    struct notice *notices; /* [n_slots * BATCH_NOTICES_PER_SLOT] */
    struct batch_row *rows; /* [batch_max_rows] of the planned step */
    uint32_t n_out;         /* of them with outputs */
};

int batch_init(struct batch *b, uint32_t n_slots, uint32_t n_ctx, uint32_t n_vocab, uint32_t chunk,
               struct err *e);
void batch_fini(struct batch *b);
uint32_t batch_max_rows(uint32_t n_slots, uint32_t chunk);
uint64_t batch_memory(uint32_t n_slots, uint32_t n_ctx, uint32_t chunk);

/* As engine_submit. */
int batch_submit(struct batch *b, const struct msg_submit *s, uint64_t now_us, struct err *e);
void batch_cancel(struct batch *b, const struct attempt *a);
struct request *batch_find(const struct batch *b, const struct attempt *a); /* NULL: none */

/* Must this request end before it is computed any further? enum finish, FINISH_NONE: no. */
int batch_end_now(const struct batch *b, const struct request *r, uint64_t now_us);
/* Choose the rows of the next step, into b->rows; returns how many. Marks them computed. */
uint32_t batch_plan(struct batch *b);
/* The row with logits of this request drew a token. Returns its enum finish. */
int batch_accept(const struct batch *b, struct request *r, uint32_t token);
static inline uint32_t
request_position(const struct request *r) /* tokens generated, log included */
{
    return r->n_known - r->n_prompt;
}
uint32_t batch_active(const struct batch *b);
uint32_t batch_waiting(const struct batch *b); /* active, nothing computed yet */

#endif
