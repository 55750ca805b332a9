/* flight_output.c - what a client sees of its flight: events while it runs, or the whole of it. */
#include "router/flight_parts.h"

#include <math.h>
#include <stdlib.h>

static uint64_t prompt_tokens(const struct flight *f)
{
    uint64_t n = 0;
    for (size_t i = 0; i < f->prep.n_prompts; i++)
        n += f->prep.prompts[i].ids.n;
    return n;
}

/* An echo alone: the one token that is drawn for it is not shown. */
static bool shows_prompt_alone(const struct flight *f)
{
    const struct api_request *q = &f->prep.request;
    return q->has_max_tokens && !q->max_tokens;
}

static struct usage usage_of(const struct flight *f)
{
    struct usage u = {.prompt_tokens = prompt_tokens(f)};
    for (uint32_t i = 0; i < f->n_choices && !shows_prompt_alone(f); i++)
        u.completion_tokens += f->choices[i].answer.n_counted;
    return u;
}

static const char *finish_reason(const struct choice *c)
{
    return shows_prompt_alone(c->flight) ? "length" : c->answer.finish_reason;
}

/* The prompt's text, as it stands before the answer of an echo. b is empty. */
static void put_prompt_text(struct choice *c, struct buf *b)
{
    struct detok detok;
    size_t n;
    detok_init(&detok);
    for (size_t i = 0; i < c->prompt->ids.n; i++) {
        const char *bytes =
            tokenizer_bytes(c->flight->model->tokenizer, c->prompt->ids.ids[i], false, &n);
        if (n)
            detok_push(&detok, bytes, n, b);
    }
    detok_finish(&detok, b);
    for (size_t i = 0; buf_ok(b) && i < b->len; i++)
        c->n_prompt_chars += (b->data[i] & 0xC0) != 0x80;
}

/* What is new of c: text, and log-probabilities of what can be shown of it. true: there is something. */
static bool take_new(struct choice *c, struct buf *text, struct logprobs *l)
{
    const struct api_request *q = &c->flight->prep.request;
    struct answer *an = &c->answer;
    bool first = !c->role_sent, alone = shows_prompt_alone(c->flight);
    if (q->echo && first)
        put_prompt_text(c, text);
    if (an->text.len && !alone)
        buf_put(text, an->text.data, an->text.len);
    buf_reset(&an->text);
    *l = (struct logprobs){.has_top = q->sampling.n_top > 0};
    if (!q->want_logprobs)
        return text->len > 0;
    size_t n = alone ? 0 : scores_ready(&an->scores, an->n_shown, an->finish_reason != NULL);
    l->parts[0] = (struct logprobs_part){&an->prompt, 0, first ? an->prompt.n : 0, 0};
    l->parts[1] = (struct logprobs_part){&an->scores, c->n_scores_sent, n, c->n_prompt_chars};
    bool any = text->len || l->parts[0].to || n > c->n_scores_sent;
    c->n_scores_sent = n;
    return any;
}

/* --- streams ---------------------------------------------------------------------------------- */

static void put_choice_events(struct choice *c, struct buf *b)
{
    struct flight *f = c->flight;
    struct buf text;
    struct logprobs l;
    buf_init(&text, FLIGHT_OUT_MAX_BYTES);
    bool any = take_new(c, &text, &l);
    if (!c->role_sent)
        reply_put_role(b, &f->reply, c->index);
    c->role_sent = true;
    if (any)
        reply_put_text(b, &f->reply,
                       &(struct reply_choice){
                           .index = c->index,
                           .text = (const char *)text.data,
                           .n = text.len,
                           .logprobs = f->prep.request.want_logprobs ? &l : NULL,
                       });
    b->failed |= !buf_ok(&text);
    buf_fini(&text);
    if (c->answer.finish_reason) {
        reply_put_finish(b, &f->reply, c->index, finish_reason(c));
        c->is_told_end = true;
    }
}

void flight_put_events(struct flight *f, struct buf *b)
{
    bool failed = f->has_failed;
    for (uint32_t i = 0; i < f->n_begun; i++) {
        struct choice *c = &f->choices[i];
        /* the answer of an echo comes behind all of its prompt */
        if (!c->is_new || c->is_told_end || !answer_knows_prompt(&c->answer))
            continue;
        c->is_new = false;
        if (!failed || c->answer.text.len)
            put_choice_events(c, b);
    }
    if (failed || f->n_done < f->n_choices)
        return;
    struct usage u = usage_of(f);
    if (f->reply.include_usage)
        reply_put_usage(b, &f->reply, &u);
    reply_put_done(b);
}

/* --- whole answers ---------------------------------------------------------------------------- */

static double mean_logprob(const struct choice *c)
{
    return c->answer.n_counted ? c->answer.logprob_sum / c->answer.n_counted : 0;
}

static int by_mean(const void *a, const void *b)
{
    const struct choice *x = *(struct choice *const *)a, *y = *(struct choice *const *)b;
    double mx = mean_logprob(x), my = mean_logprob(y);
    return mx != my ? (mx < my) - (mx > my) : (x->number > y->number) - (x->number < y->number);
}

static void put_whole_choice(struct choice *c, uint32_t index, struct buf *b)
{
    struct flight *f = c->flight;
    struct buf text;
    struct logprobs l;
    buf_init(&text, FLIGHT_OUT_MAX_BYTES);
    take_new(c, &text, &l);
    if (index)
        reply_put_comma(b);
    reply_put_choice(b, &f->reply,
                     &(struct reply_choice){
                         .index = index,
                         .text = (const char *)text.data,
                         .n = text.len,
                         .finish_reason = finish_reason(c),
                         .logprobs = f->prep.request.want_logprobs ? &l : NULL,
                     });
    b->failed |= !buf_ok(&text);
    buf_fini(&text);
}

static void put_embeddings(struct flight *f, struct buf *b)
{
    const struct api_request *q = &f->prep.request;
    reply_put_embeddings_head(b);
    for (uint32_t i = 0; i < f->n_choices; i++) {
        const struct buf *v = &f->choices[i].answer.embedding;
        uint32_t n = (uint32_t)(v->len / 4);
        if (i)
            reply_put_comma(b);
        reply_put_embedding(b, i, v->data, n, q->dimensions ? q->dimensions : n, q->base64);
    }
    reply_put_embeddings_tail(b, &f->reply, prompt_tokens(f));
}

void flight_put_whole(struct flight *f, struct buf *b)
{
    const struct api_request *q = &f->prep.request;
    if (f->reply.kind == API_EMBEDDING) {
        put_embeddings(f, b);
        return;
    }
    struct choice *best[API_MAX_N];
    uint32_t index = 0;
    struct usage u = usage_of(f);
    reply_put_head(b, &f->reply);
    for (size_t p = 0; p < f->prep.n_prompts; p++) {
        for (uint32_t i = 0; i < q->best_of; i++)
            best[i] = &f->choices[p * q->best_of + i];
        if (q->best_of > q->n)
            qsort(best, q->best_of, sizeof best[0], by_mean);
        for (uint32_t i = 0; i < q->n; i++)
            put_whole_choice(best[i], index++, b);
    }
    reply_put_tail(b, &u);
}
