/* grammar_masks.c - see grammar_masks.h.
 *
 * An entry is a set of tokens found once. Entries of the first kind belong to a state: tokens that a reading in that state can
 * take without leaving its rule, and the places in the tries where the rule may end in the middle of a token. Below such an
 * entry there is one for each state that its call returns to: tokens that go on from those places. It may have such places
 * again, and so on outwards. The mask of a reading is the union along that path; a state's mask the union of its readings.
 */
#include "text/grammar_masks.h"

#include "base/clock.h"
#include "text/grammar_readings.h"

#include <stdlib.h>
#include <string.h>

enum { IN_PLAIN = 1u << 31 /* marks a node of the plain trie */ };
enum { MIN_POOL_BYTES = 1 << 20, MIN_MASKS = 8 };

struct entry {
    uint32_t parent, key; /* parent 0: key is a state; else the state that is returned to */
    uint32_t n_exits;
    uint32_t n_ids;      /* UINT32_MAX: a whole bit set */
    uint32_t ids, exits; /* into words */
    uint32_t plain;      /* with token_table.plain_upto[this]; 0: none */
};
struct grammar_masks {
    struct grammar *g;
    const struct token_table *t;
    struct readings readings;
    struct entry *entries; /* entry 0 is not used */
    uint32_t n_entries, cap_entries;
    uint32_t *table, table_cap; /* (parent, key) → entry */
    uint32_t *words;            /* ids, bit sets and exits of all entries */
    size_t n_words, cap_words;
    uint32_t *found;             /* [t->n_words] the set being made */
    uint32_t *exits, n_exits;    /* [nodes of both tries] the same for its exits */
    uint32_t *exit_round, round; /* [nodes of both tries] */
    uint32_t *path;              /* [t->max_depth + 1] sets of readings on the way down */
    struct grammar_masks_stats stats;
};

static const uint32_t NO_ROOM = UINT32_MAX;

/* ---- memory ---- */

static void clear(struct grammar_masks *m)
{
    readings_clear(&m->readings);
    memset(m->table, 0, m->table_cap * sizeof *m->table);
    m->n_entries = 1;
    m->n_words = 0;
}

static int alloc_all(struct grammar_masks *m, size_t max_bytes, struct err *e)
{
    const struct token_table *t = m->t;
    size_t n_nodes = (size_t)t->plain.n_nodes + t->rest.n_nodes + 1;
    size_t fixed = sizeof *m + 2 * n_nodes * sizeof(uint32_t) +
                   ((size_t)t->n_words + t->max_depth + 1) * sizeof(uint32_t);
    size_t least = fixed + MIN_POOL_BYTES + MIN_MASKS * (size_t)t->n_words * sizeof(uint32_t);
    if (max_bytes < least)
        return err_set(e, ERR_LIMIT,
                       "grammar masks: %zu bytes for a vocabulary of %u, at least %zu", max_bytes,
                       t->n_vocab, least);
    size_t pool = max_bytes - fixed;
    m->cap_entries = (uint32_t)(pool / 8 / (sizeof(struct entry) + 4 * sizeof(uint32_t)));
    if (m->cap_entries > 1 << 18)
        m->cap_entries = 1 << 18;
    m->table_cap = 1;
    while (m->table_cap < m->cap_entries)
        m->table_cap *= 2;
    m->table_cap *= 2;
    m->cap_words = pool / 2 / sizeof(uint32_t);
    m->found = calloc(t->n_words, sizeof *m->found);
    m->exits = malloc(n_nodes * sizeof *m->exits);
    m->exit_round = calloc(n_nodes, sizeof *m->exit_round);
    m->path = calloc((size_t)t->max_depth + 1, sizeof *m->path);
    m->entries = malloc(m->cap_entries * sizeof *m->entries);
    m->table = calloc(m->table_cap, sizeof *m->table);
    m->words = malloc(m->cap_words * sizeof *m->words);
    if (!m->found || !m->exits || !m->exit_round || !m->path || !m->entries || !m->table ||
        !m->words || !readings_init(&m->readings, m->g, pool / 4))
        return err_set(e, ERR_NOMEM, "grammar masks: no memory for %zu bytes", max_bytes);
    return 0;
}

int grammar_masks_create(struct grammar_masks **out, struct grammar *g, const struct token_table *t,
                         size_t max_bytes, struct err *e)
{
    struct grammar_masks *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_NOMEM, "grammar masks: no memory");
    m->g = grammar_ref(g);
    m->t = t;
    int rc = alloc_all(m, max_bytes, e);
    if (rc) {
        grammar_masks_destroy(m);
        return rc;
    }
    clear(m);
    *out = m;
    return 0;
}

void grammar_masks_destroy(struct grammar_masks *m)
{
    if (!m)
        return;
    readings_fini(&m->readings);
    grammar_unref(m->g);
    free(m->found);
    free(m->exits);
    free(m->exit_round);
    free(m->path);
    free(m->entries);
    free(m->table);
    free(m->words);
    free(m);
}

/* ---- finding a set ---- */

static void found_tokens(struct grammar_masks *m, const struct token_trie *r,
                         const struct token_trie_node *x)
{
    for (uint32_t i = x->first; i < (uint32_t)x->first + x->n; i++)
        m->found[r->ids[i] / 32] |= 1u << (r->ids[i] % 32);
}

/* The rule may end after node i: what is below depends on the caller. */
static void found_exit(struct grammar_masks *m, const struct token_trie *r, uint32_t i)
{
    uint32_t mark = r == &m->t->plain ? m->t->rest.n_nodes + i : i;
    if (r->nodes[i].skip == i + 1 || m->exit_round[mark] == m->round)
        return;
    m->exit_round[mark] = m->round;
    m->exits[m->n_exits++] = r == &m->t->plain ? i | IN_PLAIN : i;
}

/* Nodes from … to - 1, whose parent was reached with readings `set` at depth `depth`. Nodes without a token of more than
 * `upto` characters are left out. false: no room. */
static bool walk(struct grammar_masks *m, const struct token_trie *r, uint32_t from, uint32_t to,
                 uint32_t set, uint32_t depth, uint32_t upto)
{
    struct readings *q = &m->readings;
    const uint8_t *class_of = m->g->class_of;
    m->path[depth] = set;
    for (uint32_t i = from; i < to;) {
        const struct token_trie_node *x = &r->nodes[i];
        if (upto && x->max_chars <= upto) {
            i = x->skip;
            continue;
        }
        uint32_t at = m->path[x->depth - 1];
        uint8_t class = class_of[x->byte];
        uint32_t next = q->rows[(size_t)at * m->g->n_classes + class];
        if (next == READINGS_UNKNOWN) {
            next = readings_next(q, at, class);
            if (next == READINGS_FULL)
                return false;
        }
        if (next == READINGS_DEAD) {
            i = x->skip;
            continue;
        }
        if (x->n)
            found_tokens(m, r, x);
        if (q->sets[next].exits)
            found_exit(m, r, i);
        m->path[x->depth] = next;
        i = q->sets[next].n ? i + 1 : x->skip;
    }
    return true;
}

/* Which plain tokens need no walk, and how many characters those may have that do; -1: no walk at all. */
static int plain_part(const struct grammar_masks *m, uint16_t state, uint32_t *plain)
{
    const struct grammar *g = m->g;
    uint32_t chain = g->plain_chain[state], top = TOKEN_TABLE_PLAIN_STEPS;
    *plain = 0;
    if (g->plain_next[state] == 0)
        return -1;
    if (g->plain_next[state] == PLAIN_MIXED || chain == 0)
        return 0;
    if (chain == PLAIN_ENDLESS) {
        *plain = top;
        return -1;
    }
    *plain = chain < top - 1 ? chain : top - 1;
    bool ends = *plain == chain && g->plain_next[g->plain_end[state]] == 0;
    return ends ? -1 : (int)*plain;
}

static bool find_of_state(struct grammar_masks *m, uint16_t state, uint32_t *plain)
{
    uint32_t set = readings_at(&m->readings, state);
    if (set == READINGS_FULL)
        return false;
    int upto = plain_part(m, state, plain);
    return (upto < 0 || walk(m, &m->t->plain, 0, m->t->plain.n_nodes, set, 0, (uint32_t)upto)) &&
           walk(m, &m->t->rest, 0, m->t->rest.n_nodes, set, 0, 0);
}

static bool find_of_return(struct grammar_masks *m, const struct entry *parent, uint16_t ret)
{
    uint32_t set = readings_return(&m->readings, ret);
    if (set == READINGS_FULL)
        return false;
    if (set == READINGS_DEAD)
        return true;
    bool exits = m->readings.sets[set].exits;
    for (uint32_t i = 0; i < parent->n_exits; i++) {
        uint32_t x = m->words[parent->exits + i], node = x & ~(uint32_t)IN_PLAIN;
        const struct token_trie *r = x & IN_PLAIN ? &m->t->plain : &m->t->rest;
        if (exits)
            found_exit(m, r, node);
        if (!walk(m, r, node + 1, r->nodes[node].skip, set, r->nodes[node].depth, 0))
            return false;
    }
    return true;
}

/* ---- entries ---- */

static uint32_t count_bits(const uint32_t *words, uint32_t n)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (uint32_t)__builtin_popcount(words[i]);
    return sum;
}

/* Take over what was found; false: no room. */
static bool entry_fill(struct grammar_masks *m, struct entry *x)
{
    uint32_t n = count_bits(m->found, m->t->n_words), n_words = m->t->n_words;
    bool whole = n > n_words / 4;
    size_t need = (whole ? n_words : n) + (size_t)m->n_exits;
    if (m->cap_words - m->n_words < need)
        return false;
    uint32_t *out = m->words + m->n_words;
    x->n_ids = whole ? UINT32_MAX : n;
    x->ids = (uint32_t)m->n_words;
    if (whole) {
        memcpy(out, m->found, n_words * sizeof *out);
        out += n_words;
    }
    for (uint32_t w = 0; !whole && w < n_words; w++)
        for (uint32_t bits = m->found[w]; bits; bits &= bits - 1)
            *out++ = w * 32 + (uint32_t)__builtin_ctz(bits);
    x->n_exits = m->n_exits;
    x->exits = (uint32_t)(out - m->words);
    if (m->n_exits)
        memcpy(out, m->exits, m->n_exits * sizeof *out);
    m->n_words += need;
    return true;
}

static uint32_t entry_make(struct grammar_masks *m, uint32_t parent, uint16_t key, uint32_t slot)
{
    struct entry x = {.parent = parent, .key = key};
    if (m->n_entries == m->cap_entries)
        return NO_ROOM;
    memset(m->found, 0, m->t->n_words * sizeof *m->found);
    m->n_exits = 0;
    if (++m->round == 0) { /* it came round: old marks could look new */
        memset(m->exit_round, 0,
               ((size_t)m->t->plain.n_nodes + m->t->rest.n_nodes) * sizeof *m->exit_round);
        m->round = 1;
    }
    bool ok =
        parent ? find_of_return(m, &m->entries[parent], key) : find_of_state(m, key, &x.plain);
    if (!ok || !entry_fill(m, &x))
        return NO_ROOM;
    m->entries[m->n_entries] = x;
    m->table[slot] = m->n_entries;
    return m->n_entries++;
}

static uint32_t entry_of(struct grammar_masks *m, uint32_t parent, uint16_t key)
{
    uint64_t hash = ((uint64_t)parent << 16 | key) * 0x9E3779B97F4A7C15u;
    uint32_t h = (uint32_t)(hash >> 32) & (m->table_cap - 1);
    for (; m->table[h]; h = (h + 1) & (m->table_cap - 1)) {
        const struct entry *x = &m->entries[m->table[h]];
        if (x->parent == parent && x->key == key) {
            m->stats.entry_hits++;
            return m->table[h];
        }
    }
    m->stats.entry_misses++;
    return entry_make(m, parent, key, h);
}

static void unite(uint32_t *restrict mask, const uint32_t *restrict with, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        mask[i] |= with[i];
}

static void add_entry(const struct grammar_masks *m, const struct entry *x, uint32_t *mask)
{
    uint32_t n_words = m->t->n_words;
    if (x->plain)
        unite(mask, m->t->plain_upto + (size_t)x->plain * n_words, n_words);
    if (x->n_ids == UINT32_MAX)
        unite(mask, m->words + x->ids, n_words);
    else
        for (uint32_t i = 0; i < x->n_ids; i++) {
            uint32_t id = m->words[x->ids + i];
            mask[id / 32] |= 1u << (id % 32);
        }
}

/* false: the cache has no room for all that this state needs. */
static bool add_readings(struct grammar_masks *m, const struct grammar_state *s, uint32_t *mask)
{
    for (uint32_t i = 0; i < s->n_threads; i++) {
        uint16_t frame = s->threads[i].frame;
        uint32_t x = entry_of(m, 0, s->threads[i].state);
        while (x != NO_ROOM) {
            add_entry(m, &m->entries[x], mask);
            if (!frame || !m->entries[x].n_exits)
                break;
            x = entry_of(m, x, s->frames[frame].ret);
            frame = s->frames[frame].parent;
        }
        if (x == NO_ROOM)
            return false;
    }
    return true;
}

/* Token by token: only when the cache cannot hold what one mask needs. */
static void add_slowly(struct grammar_masks *m, const struct grammar_state *s, uint32_t *mask)
{
    m->stats.slow++;
    for (uint32_t id = 0; id < m->t->n_vocab; id++) {
        size_t n;
        const uint8_t *bytes = token_table_get(m->t, id, &n);
        struct grammar_state copy = *s;
        if (n && grammar_accept_bytes(&copy, bytes, n, NULL) == 0)
            mask[id / 32] |= 1u << (id % 32);
    }
}

uint32_t grammar_mask(struct grammar_masks *m, const struct grammar_state *s, uint32_t *mask)
{
    const struct token_table *t = m->t;
    CHECK(s->grammar == m->g);
    m->stats.masks++;
    memset(mask, 0, t->n_words * sizeof *mask);
    bool done = add_readings(m, s, mask);
    if (!done) {
        m->stats.resets++;
        clear(m);
        memset(mask, 0, t->n_words * sizeof *mask);
        done = add_readings(m, s, mask);
    }
    if (!done) {
        memset(mask, 0, t->n_words * sizeof *mask);
        add_slowly(m, s, mask);
    }
    if (s->complete)
        for (uint32_t i = 0; i < t->n_eog; i++)
            mask[t->eog_ids[i] / 32] |= 1u << (t->eog_ids[i] % 32);
    return count_bits(mask, t->n_words);
}

uint32_t grammar_masks_warm(struct grammar_masks *m, uint64_t budget_us)
{
    uint64_t start = clock_now_us();
    uint32_t left = 0;
    bool going = true;
    for (uint32_t s = 1; s < m->g->n_states; s++) {
        if (!(m->g->flags[s] & STATE_BYTES))
            continue;
        going = going && m->n_words < m->cap_words / 2 && m->n_entries < m->cap_entries / 2 &&
                clock_now_us() - start < budget_us && entry_of(m, 0, (uint16_t)s) != NO_ROOM;
        left += !going;
    }
    return left;
}

void grammar_masks_stats(const struct grammar_masks *m, struct grammar_masks_stats *out)
{
    *out = m->stats;
    out->used_bytes = readings_bytes(&m->readings) + m->n_words * sizeof *m->words +
                      m->n_entries * sizeof *m->entries;
}
