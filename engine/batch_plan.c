/* batch_plan.c - see batch.h: which rows the next step computes, who is admitted, and who gives way. */
#include "engine/batch.h"

#include <string.h>

enum {
    PROMPT_SHARE =
        4, /* at least 1 / so much of the budget is the prompts', however many streams there are */
};

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t blocks_of(uint32_t n_tokens)
{
    return (n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

/* --- giving way ------------------------------------------------------------------------------------------ */

static bool is_better(const struct request *a, const struct request *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->seq < b->seq;
}

/* Its tokens stay, and what it has drawn is not drawn again: keys and values are computed anew when there is room. */
static void preempt(struct batch *b, struct request *r)
{
    while (r->n_blocks)
        kv_release(b->kv, r->blocks[--r->n_blocks]);
    b->tenants[r->tenant].n_running--;
    r->state = REQUEST_WAITING;
    r->n_computed = r->n_published = r->n_rows = r->n_drafts = 0;
    r->leader = UINT32_MAX;
    r->n_waits = 0;
    r->skipped_at = b->n_plans; /* not back in the same step */
    b->stats.n_preempted++;
}

/* The worst of those with blocks that is worse than r; NULL: none. */
static struct request *victim_choose(const struct batch *b, const struct request *r)
{
    struct request *worst = NULL;
    for (uint32_t i = 0; i < b->n_entries; i++) {
        struct request *v = &b->requests[i];
        if (v->state == REQUEST_RUNNING && v != r && is_better(r, v) &&
            (!worst || is_better(worst, v)))
            worst = v;
    }
    return worst;
}

/* --- blocks ---------------------------------------------------------------------------------------------- */

/* The block that r writes next must be its own: a shared one is copied first. */
static bool block_own(struct batch *b, struct request *r)
{
    uint32_t at = r->n_computed / KV_BLOCK_TOKENS;
    if (at >= r->n_blocks || kv_is_own(b->kv, r->blocks[at]))
        return true;
    uint32_t block = kv_take(b->kv);
    if (block == KV_NONE)
        return false;
    b->copies[b->n_copies++] = (struct block_copy){r->blocks[at], block};
    kv_release(b->kv, r->blocks[at]);
    r->blocks[at] = block;
    return true;
}

/* Blocks for its first n tokens; false: they are short, some may be there. */
static bool blocks_have(struct batch *b, struct request *r, uint32_t n)
{
    if (!block_own(b, r))
        return false;
    while (r->n_blocks < blocks_of(n)) {
        uint32_t block = kv_take(b->kv);
        if (block == KV_NONE)
            return false;
        r->blocks[r->n_blocks++] = block;
    }
    return true;
}

/* As many of `want` tokens more as there are blocks for, taken from worse requests if need be. */
static uint32_t blocks_make(struct batch *b, struct request *r, uint32_t want)
{
    while (!blocks_have(b, r, r->n_computed + want)) {
        struct request *v = victim_choose(b, r);
        if (v) {
            preempt(b, v);
            continue;
        }
        uint32_t room = r->n_blocks * KV_BLOCK_TOKENS;
        if (room <= r->n_computed || !block_own(b, r))
            return 0;
        return least(want, room - r->n_computed);
    }
    return want;
}

/* --- what was computed before ---------------------------------------------------------------------------- */

/* Positions that r may take over: not its last token, whose logits it needs, and no row that it must see itself. */
static uint32_t reusable(const struct batch *b, const struct request *r)
{
    if (!b->c.prefix_cache || r->every_row)
        return 0;
    return r->scores ? least(r->n_scored, r->n_known - 1) : r->n_known - 1;
}

static void cache_take(struct batch *b, struct request *r)
{
    uint32_t limit = reusable(b, r);
    r->chain = kv_chain_root(b->tenants[r->tenant].id);
    r->n_computed = r->n_published = 0;
    /* the block in which the limit lies counts too, if it is cached whole: it is copied before it is written to */
    while (r->n_computed < limit && (r->n_blocks + 1) * KV_BLOCK_TOKENS <= r->n_known) {
        struct kv_chain next = r->chain;
        uint32_t block = kv_find(b->kv, &next, r->tokens + (size_t)r->n_blocks * KV_BLOCK_TOKENS);
        if (block == KV_NONE)
            break;
        r->blocks[r->n_blocks++] = block;
        r->n_computed = least(limit, r->n_blocks * KV_BLOCK_TOKENS);
        if (r->n_computed == r->n_blocks * KV_BLOCK_TOKENS) {
            r->chain = next;
            r->n_published++;
        }
    }
}

static uint32_t common_tokens(const struct request *a, const struct request *r, uint32_t limit)
{
    uint32_t n = 0;
    limit = least(limit, a->n_known);
    while (n < limit && a->tokens[n] == r->tokens[n])
        n++;
    return n;
}

/* Another request of the tenant that has, or is about to have, more of r's prefix computed than r holds; NULL: none. */
static const struct request *sibling_find(const struct batch *b, const struct request *r,
                                          uint32_t *n_common)
{
    const struct request *best = NULL;
    uint32_t limit = reusable(b, r), most = r->n_computed;
    for (uint32_t i = 0; i < b->n_entries && limit > most; i++) {
        const struct request *s = &b->requests[i];
        if (s->state != REQUEST_RUNNING || s->tenant != r->tenant || s == r)
            continue;
        uint32_t n = common_tokens(s, r, limit);
        if (n > most) {
            most = n;
            best = s;
        }
    }
    *n_common = most;
    return best;
}

/* Share s's blocks of the first n tokens, the last one perhaps half full. */
static void sibling_take(struct batch *b, struct request *r, const struct request *s, uint32_t n)
{
    while (r->n_blocks)
        kv_release(b->kv, r->blocks[--r->n_blocks]);
    r->chain = kv_chain_root(b->tenants[r->tenant].id);
    r->n_published = 0;
    for (; r->n_blocks < blocks_of(n); r->n_blocks++) {
        r->blocks[r->n_blocks] = s->blocks[r->n_blocks];
        kv_share(b->kv, s->blocks[r->n_blocks]);
    }
    r->n_computed = 0;
    batch_computed(b, r, n);
}

static void reuse_drop(struct batch *b, struct request *r)
{
    while (r->n_blocks)
        kv_release(b->kv, r->blocks[--r->n_blocks]);
    r->n_computed = r->n_published = 0;
}

/* --- admission ------------------------------------------------------------------------------------------- */

/* Does it do well to wait for the one that computes its prefix just now? */
static bool leader_works(const struct batch *b, const struct request *r)
{
    if (r->leader == UINT32_MAX || r->n_waits >= BATCH_MAX_WAITS)
        return false;
    const struct request *l = &b->requests[r->leader];
    return l->state == REQUEST_RUNNING && l->seq == r->leader_seq && l->n_computed < r->n_common;
}

static bool goes_first(const struct batch *b, const struct request *x, const struct request *y)
{
    const struct tenant *t = &b->tenants[x->tenant], *u = &b->tenants[y->tenant];
    if (x->priority != y->priority)
        return x->priority > y->priority;
    if ((x->n_drawn > 0) != (y->n_drawn > 0)) /* a stream that was interrupted */
        return x->n_drawn > 0;
    if (t->n_running != u->n_running)
        return t->n_running < u->n_running;
    if (t->served != u->served)
        return t->served < u->served;
    return x->seq < y->seq;
}

static struct request *waiting_first(const struct batch *b)
{
    struct request *first = NULL;
    for (uint32_t i = 0; i < b->n_entries; i++) {
        struct request *r = &b->requests[i];
        if (r->state == REQUEST_WAITING && r->skipped_at != b->n_plans &&
            (!first || goes_first(b, r, first)))
            first = r;
    }
    return first;
}

/* Blocks that the running ones still need for what they know, and one for each to grow. */
static uint32_t blocks_promised(const struct batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_entries; i++) {
        const struct request *r = &b->requests[i];
        if (r->state == REQUEST_RUNNING)
            n += 1 + blocks_of(r->n_known) - least(r->n_blocks, blocks_of(r->n_known));
    }
    return n;
}

static uint32_t running(const struct batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_entries; i++)
        n += b->requests[i].state == REQUEST_RUNNING;
    return n;
}

/* Somebody of lower priority, who gives way to a newcomer as well as to those who run. */
static bool lower_gives_way(struct batch *b, const struct request *r)
{
    struct request *v = victim_choose(b, r);
    if (!v || v->priority >= r->priority)
        return false;
    preempt(b, v);
    return true;
}

enum admission { ADMITTED, SKIPPED, FULL };

/* All slots are taken and nobody gives way: then nothing is looked up for it, step after step. */
static bool no_slot(struct batch *b, const struct request *r)
{
    if (running(b) < b->c.n_slots)
        return false;
    const struct request *v = victim_choose(b, r);
    return !v || v->priority >= r->priority;
}

static enum admission admit(struct batch *b, struct request *r)
{
    if (leader_works(b, r)) {
        r->n_waits++;
        return SKIPPED;
    }
    if (no_slot(b, r))
        return FULL;
    cache_take(b, r);
    uint32_t n_common;
    const struct request *s = sibling_find(b, r, &n_common);
    uint32_t there = s ? least(n_common, s->n_computed) : 0;
    if (s && there < n_common && n_common - r->n_computed >= KV_BLOCK_TOKENS &&
        s->priority >= r->priority && r->n_waits < BATCH_MAX_WAITS) {
        r->leader = (uint32_t)(s - b->requests);
        r->leader_seq = s->seq;
        r->n_common = n_common;
        r->n_waits++;
        reuse_drop(b, r);
        return SKIPPED;
    }
    if (there > r->n_computed)
        sibling_take(b, r, s, there);
    for (;;) {
        /* one for a copy, one to grow */
        uint32_t need = blocks_of(r->n_known) - r->n_blocks + 2, promised = blocks_promised(b);
        uint32_t n_running = running(b);
        if (!n_running) /* alone it must fit, and does: batch_min_blocks */
            need = promised = 0;
        if (n_running < b->c.n_slots && kv_available(b->kv) >= promised + need)
            break;
        if (!lower_gives_way(b, r)) {
            reuse_drop(b, r);
            return FULL;
        }
    }
    r->state = REQUEST_RUNNING;
    r->n_admitted++;
    r->n_reused = r->n_computed;
    b->stats.n_reused += r->n_reused;
    b->tenants[r->tenant].n_running++;
    return ADMITTED;
}

/* The first in line that does not fit keeps the others back, or a large one would never get in. */
static void admit_all(struct batch *b)
{
    struct request *r;
    while ((r = waiting_first(b))) {
        enum admission a = admit(b, r);
        if (a == FULL)
            return;
        if (a == SKIPPED)
            r->skipped_at = b->n_plans;
    }
}

/* --- rows ------------------------------------------------------------------------------------------------ */

/* Running requests, best first, into b->order. */
static uint32_t order_running(struct batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_entries; i++) {
        if (b->requests[i].state != REQUEST_RUNNING)
            continue;
        uint32_t at = n++;
        for (; at && is_better(&b->requests[i], &b->requests[b->order[at - 1]]); at--)
            b->order[at] = b->order[at - 1];
        b->order[at] = i;
    }
    return n;
}

static uint32_t plan_decodes(struct batch *b)
{
    uint32_t n = order_running(b), n_rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = &b->requests[b->order[i]];
        if (!request_decodes(r)) /* or has given way to an earlier one */
            continue;
        if (!blocks_make(b, r, 1))
            preempt(b, r);
        else
            r->n_rows = 1;
    }
    for (uint32_t i = 0; i < b->n_entries; i++) {
        const struct request *r = &b->requests[i];
        if (r->state == REQUEST_RUNNING && r->n_rows) {
            b->tenants[r->tenant].served++;
            n_rows++;
        }
    }
    return n_rows;
}

/* Outputs that the first n rows of a prompt need for its log-probabilities, without that of its last token. */
static uint32_t score_outs(const struct request *r, uint32_t n)
{
    if (!r->scores || r->n_prompt < 2)
        return 0;
    uint32_t from = r->n_computed > r->n_scored ? r->n_computed : r->n_scored;
    uint32_t to = least(r->n_computed + n, r->n_prompt - 1);
    return to > from ? to - from : 0;
}

static bool wants_rows(const struct request *r, uint32_t outs_left)
{
    return r->state == REQUEST_RUNNING && !request_decodes(r) && r->n_rows < request_pending(r) &&
           score_outs(r, r->n_rows + 1) <= score_outs(r, r->n_rows) + outs_left;
}

/* Who gets the next few prompt rows. */
static struct request *prompt_choose(const struct batch *b, uint32_t outs_left)
{
    struct request *best = NULL;
    for (uint32_t i = 0; i < b->n_entries; i++) {
        struct request *r = &b->requests[i];
        if (!wants_rows(r, outs_left))
            continue;
        if (!best) {
            best = r;
            continue;
        }
        uint64_t mine = b->tenants[r->tenant].served, other = b->tenants[best->tenant].served;
        if (r->priority != best->priority                ? r->priority > best->priority
            : r->tenant != best->tenant && mine != other ? mine < other
            : r->n_rows != best->n_rows                  ? r->n_rows < best->n_rows
                                                         : r->seq < best->seq)
            best = r;
    }
    return best;
}

static uint32_t prompts_open(const struct batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_entries; i++)
        n += wants_rows(&b->requests[i], UINT32_MAX / 2);
    return n;
}

/* Hand out `left` rows in small parts. */
static void share_prompts(struct batch *b, uint32_t left, uint32_t outs_left)
{
    uint32_t n_open = prompts_open(b);
    uint32_t part = n_open ? left / n_open : 0;
    part = part < 1 ? 1 : least(part, KV_BLOCK_TOKENS);
    struct request *r;
    while (left && (r = prompt_choose(b, outs_left))) {
        uint32_t n = least(least(part, left), request_pending(r) - r->n_rows);
        while (score_outs(r, r->n_rows + n) > score_outs(r, r->n_rows) + outs_left)
            n--;
        outs_left -= score_outs(r, r->n_rows + n) - score_outs(r, r->n_rows);
        r->n_rows += n;
        left -= n;
        b->tenants[r->tenant].served += n;
    }
}

/* Blocks for the shares, best first; who gets fewer blocks computes fewer rows. */
static void back_prompts(struct batch *b)
{
    uint32_t n = order_running(b);
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = &b->requests[b->order[i]];
        if (r->state != REQUEST_RUNNING || request_decodes(r) || !r->n_rows)
            continue;
        r->n_rows = blocks_make(b, r, r->n_rows);
    }
}

/* --- speculation ----------------------------------------------------------------------------------------- */

/* Guesses take what is left: rows, outputs, and blocks that nobody else needs. */
static void plan_drafts(struct batch *b, uint32_t left, uint32_t outs_left)
{
    for (uint32_t i = 0; i < b->n_entries && left && outs_left; i++) {
        struct request *r = &b->requests[i];
        if (!request_decodes(r) || !r->n_rows)
            continue;
        uint32_t position = request_position(r), n = spec_wish(&r->spec);
        /* a guess at the last token there may be, but not behind it */
        uint32_t most = least(b->c.n_ctx - r->n_known, r->max_tokens - position);
        n = least(least(n, most ? most - 1 : 0), least(left, outs_left));
        while (n && blocks_of(r->n_known + n) > r->n_blocks &&
               kv_available(b->kv) < blocks_promised(b) + blocks_of(r->n_known + n) - r->n_blocks)
            n--;
        if (n && b->c.look_up)
            n = spec_look_up(r->drafts, n, r->tokens, r->n_known);
        if (!n || !blocks_have(b, r, r->n_known + n))
            continue;
        r->n_drafts = n;
        left -= n;
        outs_left -= n;
    }
}

/* --- a step ---------------------------------------------------------------------------------------------- */

uint32_t batch_plan(struct batch *b)
{
    b->n_plans++;
    b->n_rows = b->n_out = b->n_copies = 0;
    for (uint32_t i = 0; i < b->n_entries; i++)
        b->requests[i].n_rows = b->requests[i].n_drafts = 0;
    admit_all(b);
    uint32_t n_decodes = plan_decodes(b);
    uint32_t floor = b->c.chunk < PROMPT_SHARE ? 1 : b->c.chunk / PROMPT_SHARE;
    uint32_t left = b->c.chunk > n_decodes + floor ? b->c.chunk - n_decodes : floor;
    uint32_t n_running = running(b);
    share_prompts(b, left, b->c.max_out - n_running);
    back_prompts(b);
    uint32_t n_rows = 0, n_outs = running(b);
    for (uint32_t i = 0; i < b->n_entries; i++) {
        n_rows += b->requests[i].n_rows;
        n_outs += score_outs(&b->requests[i], b->requests[i].n_rows);
    }
    if (b->c.max_drafts && n_rows < b->c.chunk && n_outs < b->c.max_out)
        plan_drafts(b, b->c.chunk - n_rows, b->c.max_out - n_outs);
    return n_rows;
}

static bool row_has_out(const struct request *r, uint32_t position)
{
    if (position + 1 >= r->n_known)
        return true;
    return r->scores && position >= r->n_scored && position + 1 < r->n_prompt;
}

static void rows_put(struct batch *b, struct request *r)
{
    uint32_t seq = (uint32_t)(r - b->requests);
    r->first_row = b->n_rows;
    for (uint32_t i = 0; i < r->n_rows + r->n_drafts; i++) {
        uint32_t position = r->n_computed + i;
        bool draft = i >= r->n_rows;
        b->rows[b->n_rows++] = (struct batch_row){
            .seq = seq,
            .position = position,
            .token = draft ? r->drafts[i - r->n_rows] : r->tokens[position],
            .out = draft || row_has_out(r, position) ? b->n_out++ : ROW_NO_OUT,
        };
    }
    if (request_decodes(r))
        b->stats.n_decode_rows += r->n_rows;
    else
        b->stats.n_prefill_rows += r->n_rows;
    b->stats.n_draft_rows += r->n_drafts;
}

void batch_rows(struct batch *b)
{
    b->n_rows = b->n_out = 0;
    for (uint32_t i = 0; i < b->n_entries; i++)
        if (b->requests[i].state == REQUEST_RUNNING && b->requests[i].n_rows)
            rows_put(b, &b->requests[i]);
    CHECK(b->n_rows <= batch_max_rows(&b->c) && b->n_out <= b->c.max_out);
}

void batch_computed(struct batch *b, struct request *r, uint32_t n)
{
    r->n_computed += n;
    while (b->c.prefix_cache && (r->n_published + 1) * KV_BLOCK_TOKENS <= r->n_computed) {
        uint32_t *block = &r->blocks[r->n_published];
        *block = kv_publish(b->kv, *block, &r->chain,
                            r->tokens + (size_t)r->n_published * KV_BLOCK_TOKENS);
        r->n_published++;
    }
}
