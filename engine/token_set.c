/* token_set.c - see token_set.h. */
#include "engine/token_set.h"

#include "base/err.h"

static uint32_t index_size(uint32_t max_tokens)
{
    uint32_t n = 2;
    while (n < 2 * (uint64_t)max_tokens)
        n *= 2;
    return n;
}

size_t token_set_bytes(uint32_t max_tokens)
{
    return max_tokens * sizeof(struct token_seen) + index_size(max_tokens) * sizeof(uint32_t);
}

void token_set_init(struct token_set *t, uint32_t max_tokens, void *memory)
{
    *t = (struct token_set){.max = max_tokens, .n_index = index_size(max_tokens), .seen = memory};
    t->index = (uint32_t *)(t->seen + max_tokens);
}

/* The place of id in the index: its own, or the free one where it belongs. */
static uint32_t place_of(const struct token_set *t, uint32_t id)
{
    uint32_t at = id * 0x9e3779b1u & (t->n_index - 1); /* multiplicative: neighbouring ids spread */
    while (t->index[at] && t->seen[t->index[at] - 1].id != id)
        at = (at + 1) & (t->n_index - 1);
    return at;
}

void token_set_clear(struct token_set *t)
{
    while (t->n) { /* backwards: what was put later may stand behind what was put earlier */
        t->n--;
        t->index[place_of(t, t->seen[t->n].id)] = 0;
    }
}

void token_set_add(struct token_set *t, uint32_t id, uint32_t n_answer)
{
    uint32_t at = place_of(t, id);
    if (!t->index[at]) {
        CHECK(t->n < t->max);
        t->seen[t->n] = (struct token_seen){.id = id};
        t->index[at] = ++t->n;
    }
    t->seen[t->index[at] - 1].n_answer += n_answer;
}
