/* grammar_masks.c - see grammar_masks.h.
 *
 * An entry is a set of tokens found once. Entries of the first kind belong to a state: tokens that a reading in that state can
 * take without leaving its rule, and the places in the tries where the rule may end in the middle of a token; there is one for
 * each trie. Below such an
 * entry there is one for each state that its call returns to: tokens that go on from those places. It may have such places
 * again, and so on outwards. The mask of a reading is the union along that path; a state's mask the union of its readings.
 */
#include "text/grammar_masks.h"

#include "base/clock.h"
#include "text/grammar_readings.h"
#include "text/grammar_run.h"

#include <stdlib.h>
#include <string.h>

enum { IN_PLAIN = 1 << 16 /* in the key of a state's entry: its tokens of the plain trie */ };
enum { MIN_POOL_BYTES = 1 << 20, MIN_MASKS = 8 };

struct entry {
    uint32_t parent,
        key; /* parent 0: key is a state and the trie; else the state that is returned to */
    uint32_t n_exits;
    uint32_t n_ids;      /* UINT32_MAX: a whole bit set */
    uint32_t ids, exits; /* into words */
    bool plain;          /* which trie */
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
    uint32_t *exits, n_exits;    /* [n_nodes] the same for its exits */
    uint32_t *exit_round, round; /* [n_nodes] */
    size_t n_nodes;              /* of the larger trie */
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
    size_t n_nodes = (t->plain.n_nodes > t->rest.n_nodes ? t->plain.n_nodes : t->rest.n_nodes) + 1;
    size_t fixed = sizeof *m + 2 * n_nodes * sizeof(uint32_t) +
                   ((size_t)t->n_words + t->max_depth + 1) * sizeof(uint32_t);
    size_t least = fixed + MIN_POOL_BYTES + MIN_MASKS * (size_t)t->n_words * sizeof(uint32_t);
    if (max_bytes < least)
        return err_set(e, ERR_LIMIT,
                       "grammar masks: %zu bytes for a vocabulary of %u, at least %zu", max_bytes,
                       t->n_vocab, least);
    size_t pool = max_bytes - fixed;
    m->n_nodes = n_nodes;
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
    if (r->nodes[i].skip == i + 1 || m->exit_round[i] == m->round)
        return;
    m->exit_round[i] = m->round;
    m->exits[m->n_exits++] = i;
}

/* Nodes from … to - 1, whose parent was reached with readings `set` at depth `depth`. false: no room. */
static bool walk(struct grammar_masks *m, const struct token_trie *r, uint32_t from, uint32_t to,
                 uint32_t set, uint32_t depth)
{
    struct readings *q = &m->readings;
    const uint8_t *class_of = m->g->class_of;
    m->path[depth] = set;
    for (uint32_t i = from; i < to;) {
        const struct token_trie_node *x = &r->nodes[i];
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

static bool find_of_state(struct grammar_masks *m, uint16_t state, const struct token_trie *r)
{
    uint32_t set = readings_at(&m->readings, state);
    return set != READINGS_FULL && walk(m, r, 0, r->n_nodes, set, 0);
}

static bool find_of_return(struct grammar_masks *m, const struct entry *parent, uint16_t ret,
                           const struct token_trie *r)
{
    uint32_t set = readings_return(&m->readings, ret);
    if (set == READINGS_FULL || set == READINGS_DEAD)
        return set == READINGS_DEAD;
    bool exits = m->readings.sets[set].exits;
    for (uint32_t i = 0; i < parent->n_exits; i++) {
        uint32_t node = m->words[parent->exits + i];
        if (exits)
            found_exit(m, r, node);
        if (!walk(m, r, node + 1, r->nodes[node].skip, set, r->nodes[node].depth))
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

static uint32_t entry_make(struct grammar_masks *m, uint32_t parent, uint32_t key, uint32_t slot)
{
    struct entry x = {.parent = parent, .key = key};
    if (m->n_entries == m->cap_entries)
        return NO_ROOM;
    memset(m->found, 0, m->t->n_words * sizeof *m->found);
    m->n_exits = 0;
    if (++m->round == 0) { /* it came round: old marks could look new */
        memset(m->exit_round, 0, m->n_nodes * sizeof *m->exit_round);
        m->round = 1;
    }
    x.plain = parent ? m->entries[parent].plain : key & IN_PLAIN;
    const struct token_trie *r = x.plain ? &m->t->plain : &m->t->rest;
    bool ok = parent ? find_of_return(m, &m->entries[parent], (uint16_t)key, r)
                     : find_of_state(m, (uint16_t)key, r);
    if (!ok || !entry_fill(m, &x))
        return NO_ROOM;
    m->entries[m->n_entries] = x;
    m->table[slot] = m->n_entries;
    return m->n_entries++;
}

static uint32_t entry_of(struct grammar_masks *m, uint32_t parent, uint32_t key)
{
    uint64_t hash = ((uint64_t)parent << 20 | key) * 0x9E3779B97F4A7C15u;
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
    if (x->n_ids == UINT32_MAX)
        unite(mask, m->words + x->ids, m->t->n_words);
    else
        for (uint32_t i = 0; i < x->n_ids; i++) {
            uint32_t id = m->words[x->ids + i];
            mask[id / 32] |= 1u << (id % 32);
        }
}

/* Plain tokens of at most `chars` characters. */
static void add_plain(const struct token_table *t, uint32_t chars, uint32_t *mask)
{
    uint32_t k = chars < TOKEN_TABLE_PLAIN_STEPS ? chars : TOKEN_TABLE_PLAIN_STEPS;
    if (k)
        unite(mask, t->plain_upto + (size_t)k * t->n_words, t->n_words);
    for (uint32_t i = 0; i < t->n_long && t->long_chars[i] <= chars; i++)
        mask[t->long_ids[i] / 32] |= 1u << (t->long_ids[i] % 32);
}

/* One reading's tokens of one trie. false: the cache has no room. */
static bool add_reading(struct grammar_masks *m, const struct grammar_state *s,
                        struct grammar_thread t, uint32_t trie, uint32_t *mask)
{
    uint32_t x = entry_of(m, 0, t.state | trie);
    while (x != NO_ROOM) {
        add_entry(m, &m->entries[x], mask);
        if (!t.frame || !m->entries[x].n_exits)
            return true;
        x = entry_of(m, x, s->frames[t.frame].ret);
        t.frame = s->frames[t.frame].parent;
    }
    return false;
}

static bool add_readings(struct grammar_masks *m, const struct grammar_state *s, uint32_t *mask)
{
    int32_t longest_run = 0;
    for (uint32_t i = 0; i < s->n_threads; i++) {
        struct grammar_thread t = s->threads[i];
        int32_t run = grammar_plain_run(s, t, m->t->plain_longest);
        longest_run = run > longest_run ? run : longest_run;
        if ((run == RUN_UNKNOWN && !add_reading(m, s, t, IN_PLAIN, mask)) ||
            !add_reading(m, s, t, 0, mask))
            return false;
    }
    add_plain(m->t, (uint32_t)longest_run, mask);
    return true;
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
        m->stats.over++;
        return GRAMMAR_MASK_OVER;
    }
    if (s->complete)
        for (uint32_t i = 0; i < t->n_eog; i++)
            mask[t->eog_ids[i] / 32] |= 1u << (t->eog_ids[i] % 32);
    return count_bits(mask, t->n_words);
}

/* The plain trie only where runs of plain characters do not tell. */
static bool warm_state(struct grammar_masks *m, uint32_t s)
{
    uint16_t next = m->g->plain_next[s], last = m->g->plain_next[m->g->plain_end[s]];
    bool mixed = next == PLAIN_MIXED ||
                 (next && last == PLAIN_MIXED && m->g->plain_chain[s] < m->t->plain_longest);
    return entry_of(m, 0, s) != NO_ROOM && (!mixed || entry_of(m, 0, s | IN_PLAIN) != NO_ROOM);
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
                clock_now_us() - start < budget_us && warm_state(m, s);
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
