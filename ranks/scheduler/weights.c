/* weights.c - see weights.h. */
#include "ranks/scheduler/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WAIT_BASE_US = 120 * 1000000, /* opening files, a busy node */
    SLOWEST_BYTES_PER_US = 20,    /* 20 MB/s: below it a node or file system counts as broken */
};

static size_t bits_bytes(const struct weights *w)
{
    return (w->n_segments + 7u) / 8u;
}

static bool bit(const uint8_t *bits, uint32_t i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

static uint32_t count_bits(const struct weights *w, const uint8_t *bits)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < w->n_segments; s++)
        n += bit(bits, s);
    return n;
}

static struct weights_node *find(struct weights *w, uint32_t member)
{
    for (uint32_t i = 0; i < w->n_nodes; i++)
        if (w->nodes[i].member == member)
            return &w->nodes[i];
    return NULL;
}

const struct weights_node *weights_find(const struct weights *w, uint32_t member)
{
    for (uint32_t i = 0; i < w->n_nodes; i++)
        if (w->nodes[i].member == member)
            return &w->nodes[i];
    return NULL;
}

static void set_deadline(struct weights *w, uint64_t now_us)
{
    w->deadline_us = now_us + WAIT_BASE_US + w->n_bytes / SLOWEST_BYTES_PER_US;
}

int weights_init(struct weights *w, const uint32_t *members, const uint32_t *racks, uint32_t n,
                 uint32_t n_segments, uint64_t n_bytes, uint64_t now_us, struct err *e)
{
    *w = (struct weights){.n_nodes = n,
                          .n_segments = n_segments,
                          .n_bytes = n_bytes,
                          .last_round = WEIGHTS_MAX_ROUNDS};
    w->nodes = calloc(n ? n : 1, sizeof *w->nodes);
    w->missing = calloc(1, bits_bytes(w) + 1);
    if (!w->nodes || !w->missing) {
        weights_fini(w);
        return err_set(e, ERR_NOMEM, "no memory for the weights of %u nodes", n);
    }
    for (uint32_t i = 0; i < n; i++)
        w->nodes[i] = (struct weights_node){
            .member = members[i], .rack = racks[i], .live = true, .state = WEIGHTS_ASKED};
    set_deadline(w, now_us);
    return 0;
}

void weights_fini(struct weights *w)
{
    for (uint32_t i = 0; w->nodes && i < w->n_nodes; i++)
        free(w->nodes[i].have);
    free(w->nodes);
    free(w->missing);
    w->nodes = NULL;
    w->missing = NULL;
    w->n_nodes = 0;
}

static void fail(struct weights_node *node, const char *text)
{
    node->state = WEIGHTS_FAILED;
    snprintf(node->text, sizeof node->text, "%s", text);
}

/* What another try on the same node could not mend. */
static bool is_final(int code)
{
    return code == ERR_LIMIT || code == ERR_SYS || code == ERR_CONFIG || code == ERR_NOMEM ||
           code == ERR_PROTO;
}

void weights_have(struct weights *w, const struct msg_have *h, uint64_t now_us)
{
    struct weights_node *node = find(w, h->member);
    if (!node || !node->live || node->state == WEIGHTS_FAILED)
        return;
    if (node->state == WEIGHTS_COMPLETE) {
        if (h->round ||
            (!h->code && h->n_segments == w->n_segments && count_bits(w, h->bits) == w->n_segments))
            return;
        node->told = false; /* its image was lost or damaged after it was complete */
        w->last_round = w->round + WEIGHTS_MAX_ROUNDS;
    }
    if (h->round != (node->state == WEIGHTS_IN_ROUND ? w->round : 0))
        return; /* an answer to a round that was given up */
    if (h->code &&
        h->round == 0) { /* its cache: without one it would only hold up the rounds of others */
        fail(node, h->text);
        return;
    }
    if (h->code == ERR_FORMAT) { /* the pack itself is wrong: no other node will read it better */
        for (uint32_t i = 0; i < w->n_nodes; i++)
            if (w->nodes[i].state != WEIGHTS_COMPLETE && w->nodes[i].state != WEIGHTS_FAILED)
                fail(&w->nodes[i], h->text);
        return;
    }
    if (is_final(h->code)) {
        fail(node, h->text);
        return;
    }
    if (h->n_segments != w->n_segments) {
        fail(node, "its index has another number of segments");
        return;
    }
    if (!node->have)
        node->have = malloc(bits_bytes(w) + 1);
    if (!node->have) {
        fail(node, "the scheduler has no memory for its have-bits");
        return;
    }
    memcpy(node->have, h->bits, bits_bytes(w));
    node->n_have = count_bits(w, node->have);
    node->state = node->n_have == w->n_segments ? WEIGHTS_COMPLETE : WEIGHTS_INCOMPLETE;
    if (h->code)
        snprintf(node->text, sizeof node->text, "%s", h->text);
    (void)now_us;
}

void weights_lose(struct weights *w, uint32_t member)
{
    struct weights_node *node = find(w, member);
    if (!node || !node->live)
        return;
    node->live = false;
    if (node->state == WEIGHTS_IN_ROUND)
        w->give_up = true;
    if (node->state != WEIGHTS_COMPLETE)
        fail(node, "the node was lost");
    node->told = true;
}

void weights_return(struct weights *w, uint32_t member, bool asked, uint64_t now_us)
{
    struct weights_node *node = find(w, member);
    if (!node || node->live)
        return;
    node->live = true;
    if (!asked)
        return;
    node->told = false;
    node->text[0] = 0;
    node->state = WEIGHTS_ASKED;
    set_deadline(w, now_us);
}

static void expire(struct weights *w, uint64_t now_us)
{
    if (now_us < w->deadline_us)
        return;
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        struct weights_node *node = &w->nodes[i];
        if (node->state == WEIGHTS_ASKED)
            fail(node, "no word about its cache before the deadline");
        else if (node->state == WEIGHTS_IN_ROUND)
            fail(node, "no word about the broadcast round before the deadline");
    }
}

static bool begin_round(struct weights *w, uint64_t now_us)
{
    bool any = false;
    memset(w->missing, 0, bits_bytes(w));
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        struct weights_node *node = &w->nodes[i];
        if (node->state != WEIGHTS_INCOMPLETE)
            continue;
        if (w->round >= w->last_round) {
            if (!node->text[0])
                snprintf(node->text, sizeof node->text,
                         "segments are still missing after %d rounds", WEIGHTS_MAX_ROUNDS);
            node->state = WEIGHTS_FAILED;
            continue;
        }
        for (uint32_t s = 0; s < w->n_segments; s++)
            if (!bit(node->have, s))
                w->missing[s / 8] |= (uint8_t)(1u << (s % 8));
        any = true;
    }
    if (!any)
        return false;
    for (uint32_t i = 0; i < w->n_nodes; i++)
        if (w->nodes[i].state == WEIGHTS_INCOMPLETE)
            w->nodes[i].state = WEIGHTS_IN_ROUND;
    w->round++;
    set_deadline(w, now_us);
    return true;
}

enum weights_action weights_next(struct weights *w, uint64_t now_us, uint32_t *which)
{
    expire(w, now_us);
    if (w->give_up) {
        w->give_up = false;
        return WEIGHTS_GIVE_UP;
    }
    bool waiting = false, incomplete = false;
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        struct weights_node *node = &w->nodes[i];
        if ((node->state == WEIGHTS_COMPLETE || node->state == WEIGHTS_FAILED) && !node->told) {
            node->told = true;
            *which = i;
            return WEIGHTS_TELL;
        }
        waiting = waiting || node->state == WEIGHTS_ASKED || node->state == WEIGHTS_IN_ROUND;
        incomplete = incomplete || node->state == WEIGHTS_INCOMPLETE;
    }
    if (waiting || !incomplete)
        return WEIGHTS_WAIT;
    if (begin_round(w, now_us))
        return WEIGHTS_ROUND;
    return weights_next(w, now_us,
                        which); /* nodes failed for want of rounds: they are to be told */
}

double weights_progress(const struct weights *w)
{
    uint64_t held = 0, all = 0;
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        if (!w->nodes[i].live)
            continue;
        all += w->n_segments;
        held += w->nodes[i].n_have;
    }
    return all ? (double)held / (double)all : 0;
}
