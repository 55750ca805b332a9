/* trie.c - see trie.h. */
#include "text/trie.h"

#include "base/digest.h"

#include <stdlib.h>

static int no_memory(uint32_t n_nodes, struct err *e)
{
    return err_set(e, ERR_NOMEM, "tokenizer: out of memory for a trie of %u nodes", n_nodes);
}

int trie_init(struct trie *t, size_t n_bytes, struct err *e)
{
    *t = (struct trie){0};
    size_t n = 64;
    while (n < (n_bytes + 1) * 2 && n < TRIE_MAX_NODES)
        n *= 2;
    t->cap_nodes = (uint32_t)(n / 2);
    t->slots = calloc(n, sizeof *t->slots);
    t->values = malloc(t->cap_nodes * sizeof *t->values);
    if (!t->slots || !t->values) {
        trie_fini(t);
        return no_memory((uint32_t)n, e);
    }
    t->mask = n - 1;
    t->values[TRIE_ROOT] = TRIE_NONE;
    t->n_nodes = 1;
    random_bytes(&t->seed, sizeof t->seed); /* so that no file can be made to collide */
    return 0;
}

void trie_fini(struct trie *t)
{
    free(t->slots);
    free(t->values);
    *t = (struct trie){0};
}

static struct trie_slot *slot_of(const struct trie *t, uint32_t key)
{
    uint64_t h = (key ^ t->seed) * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(h ^ h >> 32) & t->mask;
    while (t->slots[i].node && t->slots[i].key != key)
        i = (i + 1) & t->mask;
    return &t->slots[i];
}

/* Room for twice as many nodes. */
static int grow(struct trie *t, struct err *e)
{
    if (t->cap_nodes >= TRIE_MAX_NODES / 2)
        return err_set(e, ERR_LIMIT, "tokenizer: a trie of over %u nodes", t->cap_nodes);
    struct trie more = {.mask = t->mask * 2 + 1, .seed = t->seed};
    more.slots = calloc(more.mask + 1, sizeof *more.slots);
    uint32_t *values = realloc(t->values, 2 * (size_t)t->cap_nodes * sizeof *values);
    if (values)
        t->values = values;
    if (!values || !more.slots) {
        free(more.slots);
        return no_memory(2 * t->cap_nodes, e);
    }
    for (size_t i = 0; i <= t->mask; i++)
        if (t->slots[i].node)
            *slot_of(&more, t->slots[i].key) = t->slots[i];
    free(t->slots);
    t->slots = more.slots;
    t->mask = more.mask;
    t->cap_nodes *= 2;
    return 0;
}

int trie_add(struct trie *t, const char *text, size_t n, uint32_t value, struct err *e)
{
    uint32_t node = TRIE_ROOT;
    for (size_t i = 0; i < n; i++) {
        uint32_t key = node << 8 | (uint8_t)text[i];
        struct trie_slot *slot = slot_of(t, key);
        if (!slot->node && t->n_nodes == t->cap_nodes) {
            int rc = grow(t, e);
            if (rc)
                return rc;
            slot = slot_of(t, key);
        }
        if (!slot->node) {
            t->values[t->n_nodes] = TRIE_NONE;
            *slot = (struct trie_slot){key, t->n_nodes++};
        }
        node = slot->node;
    }
    t->values[node] = value;
    return 0;
}

uint32_t trie_step(const struct trie *t, uint32_t node, uint8_t byte)
{
    const struct trie_slot *slot = slot_of(t, node << 8 | byte);
    return slot->node ? slot->node : TRIE_NONE;
}

uint32_t trie_walk(const struct trie *t, const char *text, size_t n)
{
    uint32_t node = TRIE_ROOT;
    for (size_t i = 0; i < n && node != TRIE_NONE; i++)
        node = trie_step(t, node, (uint8_t)text[i]);
    return node;
}

size_t trie_longest(const struct trie *t, uint32_t node, const char *text, size_t n,
                    uint32_t *value)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        node = trie_step(t, node, (uint8_t)text[i]);
        if (node == TRIE_NONE)
            break;
        if (t->values[node] != TRIE_NONE) {
            *value = t->values[node];
            found = i + 1;
        }
    }
    return found;
}
