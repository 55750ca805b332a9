/* msg_request.c - see msg.h: submit, cancel, steps, and the records of an engine's ring. */
#include "wire/msg.h"

#include "wire/msg_limits.h"
#include "wire/msg_read.h"

#include <math.h>

enum {
    SECTION_BYTES = 4 + 4 + 8 + 8 + 4,
    SECTION_N_AT = SECTION_BYTES - 4,         /* n_entries is last, to be patched */
    ENTRY_MIN_BYTES = 16 + 4 + 1 + 2 + 2 + 4, /* no tokens, no extension */
};
_Static_assert(SECTION_BYTES == 28 && ENTRY_MIN_BYTES == 29, "frozen by PROTOCOL.md");
_Static_assert(FINISH_NONE == 0 && FINISH_REFUSED == 6, "frozen by PROTOCOL.md");

_Static_assert(SUBMIT_GENERATE == 0 && SUBMIT_EMBED == 1, "frozen by PROTOCOL.md");
_Static_assert(CONSTRAINT_NONE == 0 && CONSTRAINT_GBNF == 5, "frozen by PROTOCOL.md");

static void sampling_put(struct buf *b, const struct sampling *s)
{
    buf_f32(b, s->temperature);
    buf_f32(b, s->top_p);
    buf_u32(b, s->top_k);
    buf_u64(b, s->seed);
    buf_f32(b, s->min_p);
    buf_f32(b, s->typical_p);
    buf_f32(b, s->repetition_penalty);
    buf_f32(b, s->frequency_penalty);
    buf_f32(b, s->presence_penalty);
    buf_u32(b, s->min_tokens);
    buf_u8(b, s->want_logprobs);
    buf_u8(b, s->n_top);
    buf_u8(b, s->want_prompt_logprobs);
}

static void sampling_read(struct msg_rd *r, struct sampling *s)
{
    s->temperature = msg_rd_ratio(r, "sampling.temperature");
    s->top_p = msg_rd_ratio(r, "sampling.top_p");
    s->top_k = msg_rd_u32(r, "sampling.top_k");
    s->seed = msg_rd_u64(r, "sampling.seed");
    s->min_p = msg_rd_ratio(r, "sampling.min_p");
    s->typical_p = msg_rd_ratio(r, "sampling.typical_p");
    s->repetition_penalty = msg_rd_ratio(r, "sampling.repetition_penalty");
    s->frequency_penalty = msg_rd_finite(r, "sampling.frequency_penalty");
    s->presence_penalty = msg_rd_finite(r, "sampling.presence_penalty");
    s->min_tokens = msg_rd_u32(r, "sampling.min_tokens");
    s->want_logprobs = msg_rd_flag(r, "sampling.want_logprobs");
    s->n_top = msg_rd_enum(r, 0, MSG_MAX_TOP_LOGPROBS, "sampling.n_top");
    s->want_prompt_logprobs = msg_rd_flag(r, "sampling.want_prompt_logprobs");
}

void msg_submit_put(struct buf *b, const struct msg_submit *m)
{
    msg_put_attempt(b, &m->attempt);
    buf_u32(b, m->deployment);
    buf_u32(b, m->replica);
    buf_u64(b, m->epoch);
    buf_u8(b, m->kind);
    buf_u8(b, m->priority);
    buf_u32(b, m->tenant);
    sampling_put(b, &m->sampling);
    buf_u32(b, m->max_tokens);
    buf_u32(b, m->start);
    buf_u32(b, m->ttft_ms);
    buf_u32(b, m->total_ms);
    buf_u8(b, m->ignore_eos);
    msg_put_array(b, m->stop_ids, m->n_stop_ids, MSG_MAX_STOP_IDS, 4);
    msg_put_array(b, m->bias, m->n_bias, MSG_MAX_BIAS, 8);
    buf_u8(b, m->constraint);
    msg_put_array(b, (const uint8_t *)m->constraint_source, m->constraint_bytes,
                  MSG_MAX_CONSTRAINT_BYTES, 1);
    msg_put_array(b, m->tokens, m->n_tokens, MSG_MAX_TOKENS, 4);
}

static void bias_read(struct msg_rd *r, struct msg_submit *m)
{
    m->bias = msg_rd_array(r, &m->n_bias, MSG_MAX_BIAS, 8, "bias");
    for (uint32_t i = 0; i < m->n_bias; i++)
        if (!isfinite(f32_at(m->bias, 2 * (size_t)i + 1)))
            msg_rd_fail(r, "bias");
}

static void constraint_read(struct msg_rd *r, struct msg_submit *m)
{
    m->constraint = msg_rd_enum(r, CONSTRAINT_NONE, CONSTRAINT_GBNF, "constraint");
    m->constraint_source = (const char *)msg_rd_array(
        r, &m->constraint_bytes, MSG_MAX_CONSTRAINT_BYTES, 1, "constraint_source");
    if (m->constraint <= CONSTRAINT_JSON_OBJECT && m->constraint_bytes)
        msg_rd_fail(r, "constraint_source");
}

int msg_submit_get(struct msg_submit *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("SUBMIT", rd_make(p, n));
    msg_rd_attempt(&r, &m->attempt);
    m->deployment = msg_rd_u32(&r, "deployment");
    m->replica = msg_rd_u32(&r, "replica");
    m->epoch = msg_rd_u64(&r, "epoch");
    m->kind = msg_rd_enum(&r, SUBMIT_GENERATE, SUBMIT_EMBED, "kind");
    m->priority = msg_rd_u8(&r, "priority");
    m->tenant = msg_rd_u32(&r, "tenant");
    sampling_read(&r, &m->sampling);
    m->max_tokens = msg_rd_u32(&r, "max_tokens");
    m->start = msg_rd_u32(&r, "start");
    m->ttft_ms = msg_rd_u32(&r, "ttft_ms");
    m->total_ms = msg_rd_u32(&r, "total_ms");
    m->ignore_eos = msg_rd_flag(&r, "ignore_eos");
    m->stop_ids = msg_rd_array(&r, &m->n_stop_ids, MSG_MAX_STOP_IDS, 4, "stop_ids");
    bias_read(&r, m);
    constraint_read(&r, m);
    m->tokens = msg_rd_array(&r, &m->n_tokens, MSG_MAX_TOKENS, 4, "tokens");
    if (m->start > m->n_tokens) /* the log is a part of the tokens */
        msg_rd_fail(&r, "start");
    return msg_rd_end(&r, e);
}

void msg_cancel_put(struct buf *b, const struct msg_cancel *m)
{
    msg_put_attempt(b, &m->attempt);
    buf_u32(b, m->deployment);
    buf_u32(b, m->replica);
}

int msg_cancel_get(struct msg_cancel *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("CANCEL", rd_make(p, n));
    msg_rd_attempt(&r, &m->attempt);
    m->deployment = msg_rd_u32(&r, "deployment");
    m->replica = msg_rd_u32(&r, "replica");
    return msg_rd_end(&r, e);
}

/* --- steps ----------------------------------------------------------------------------------------------- */
void msg_section_put(struct buf *b, const struct step_section *s)
{
    buf_u32(b, s->deployment);
    buf_u32(b, s->replica);
    buf_u64(b, s->epoch);
    buf_u64(b, s->step);
    buf_u32(b, s->n_entries);
}

void msg_section_patch(struct buf *b, size_t section_at, uint32_t n_entries)
{
    if (!buf_ok(b)) /* the section may not be there */
        return;
    CHECK(section_at + SECTION_BYTES <= b->len);
    for (int i = 0; i < 4; i++)
        b->data[section_at + SECTION_N_AT + (size_t)i] = (uint8_t)(n_entries >> (8 * i));
}

void msg_entry_put(struct buf *b, const struct step_entry *s)
{
    msg_put_attempt(b, &s->attempt);
    buf_u32(b, s->position);
    buf_u8(b, s->finish);
    buf_u16(b, s->n_tokens);
    buf_put(b, s->tokens, (size_t)s->n_tokens * 4);
    buf_u16(b, s->ext_type);
    msg_put_array(b, s->ext, s->ext_bytes, MAX_EXT_BYTES, 1);
}

int msg_section_get(struct rd *rd, struct step_section *s, struct err *e)
{
    struct msg_rd r = msg_rd_make("STEPS", *rd);
    s->deployment = msg_rd_u32(&r, "section.deployment");
    s->replica = msg_rd_u32(&r, "section.replica");
    s->epoch = msg_rd_u64(&r, "section.epoch");
    s->step = msg_rd_u64(&r, "section.step");
    s->n_entries = msg_rd_u32(&r, "section.n_entries");
    if (s->n_entries > rd_left(&r.r) / ENTRY_MIN_BYTES) {
        s->n_entries = 0;
        msg_rd_fail(&r, "section.n_entries");
    }
    *rd = r.r;
    return msg_rd_part(&r, e);
}

int msg_entry_get(struct rd *rd, struct step_entry *s, struct err *e)
{
    struct msg_rd r = msg_rd_make("STEPS", *rd);
    msg_rd_attempt(&r, &s->attempt);
    s->position = msg_rd_u32(&r, "entry.position");
    s->finish = msg_rd_enum(&r, FINISH_NONE, FINISH_REFUSED, "entry.finish");
    uint16_t n_tokens = msg_rd_u16(&r, "entry.n_tokens");
    s->tokens = rd_bytes(&r.r, (size_t)n_tokens * 4);
    s->n_tokens = s->tokens ? n_tokens : 0;
    if (!s->tokens)
        msg_rd_fail(&r, "entry.tokens");
    s->ext_type = msg_rd_u16(&r, "entry.ext_type"); /* an unknown type is skipped by its length */
    s->ext = msg_rd_array(&r, &s->ext_bytes, MAX_EXT_BYTES, 1, "entry.ext");
    *rd = r.r;
    return msg_rd_part(&r, e);
}

/* --- engine ring ----------------------------------------------------------------------------------------- */
void msg_engine_ready_put(struct buf *b, const struct msg_engine_ready *m)
{
    buf_u32(b, m->n_slots);
    buf_u32(b, m->n_ctx);
    buf_u32(b, m->kv_total_tokens);
    buf_u32(b, m->n_threads);
    buf_u64(b, m->load_us);
    buf_u64(b, m->warm_us);
    buf_u64(b, m->memory_bytes);
    msg_put_str(b, m->kernels, sizeof m->kernels);
    buf_put(b, m->numerics, sizeof m->numerics);
}

int msg_engine_ready_get(struct msg_engine_ready *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("ENGINE_READY", rd_make(p, n));
    m->n_slots = msg_rd_u32(&r, "n_slots");
    m->n_ctx = msg_rd_u32(&r, "n_ctx");
    m->kv_total_tokens = msg_rd_u32(&r, "kv_total_tokens");
    m->n_threads = msg_rd_u32(&r, "n_threads");
    m->load_us = msg_rd_u64(&r, "load_us");
    m->warm_us = msg_rd_u64(&r, "warm_us");
    m->memory_bytes = msg_rd_u64(&r, "memory_bytes");
    msg_rd_str(&r, m->kernels, sizeof m->kernels, "kernels");
    msg_rd_digest(&r, m->numerics, "numerics");
    return msg_rd_end(&r, e);
}
