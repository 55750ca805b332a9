/* grammar_cache.c - see grammar_cache.h. Few entries: a list in order of use is enough. */
#include "text/grammar_cache.h"

#include "base/digest.h"
#include "text/grammar_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct cached {
    struct cached *next; /* less recently used */
    uint8_t key[SHA256_BYTES];
    struct grammar *grammar;
    struct grammar_masks *masks; /* holds a reference, too */
};
struct grammar_cache {
    struct grammar_cache_options o;
    pthread_mutex_t lock; /* of all below; masks are made outside of it */
    struct cached *first;
    struct grammar_cache_stats stats;
};

int grammar_cache_create(struct grammar_cache **out, const struct grammar_cache_options *o,
                         struct err *e)
{
    struct grammar_cache *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_NOMEM, "grammar cache: no memory");
    c->o = *o;
    if (!c->o.masks_bytes)
        c->o.masks_bytes = GRAMMAR_MASKS_BYTES;
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return 0;
}

static void cached_free(struct cached *x)
{
    grammar_masks_destroy(x->masks);
    grammar_unref(x->grammar);
    free(x);
}

void grammar_cache_destroy(struct grammar_cache *c)
{
    if (!c)
        return;
    while (c->first) {
        struct cached *next = c->first->next;
        cached_free(c->first);
        c->first = next;
    }
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* Nobody but the cache (and the masks that it holds) knows the grammar. */
static bool is_idle(const struct cached *x)
{
    return atomic_load_explicit(&x->grammar->refs, memory_order_acquire) == (x->masks ? 2u : 1u);
}

/* Unlink the least recently used idle entries beyond the limit; the caller frees them outside of the lock. */
static struct cached *take_surplus(struct grammar_cache *c)
{
    struct cached *out = NULL;
    size_t idle = 0;
    for (struct cached **p = &c->first; *p;) {
        struct cached *x = *p;
        if (is_idle(x) && ++idle > c->o.max_entries) {
            *p = x->next;
            x->next = out;
            out = x;
            c->stats.entries--;
            c->stats.dropped++;
        } else {
            p = &x->next;
        }
    }
    return out;
}

static void free_all(struct cached *x)
{
    while (x) {
        struct cached *next = x->next;
        cached_free(x);
        x = next;
    }
}

/* Found: moved to the front, with a reference for the caller. */
static struct grammar *find(struct grammar_cache *c, const uint8_t *key)
{
    for (struct cached **p = &c->first; *p; p = &(*p)->next) {
        struct cached *x = *p;
        if (memcmp(x->key, key, SHA256_BYTES) == 0) {
            *p = x->next;
            x->next = c->first;
            c->first = x;
            return grammar_ref(x->grammar);
        }
    }
    return NULL;
}

static int key_of(enum grammar_kind kind, const char *source, size_t n, uint8_t *key, struct err *e)
{
    uint8_t head = (uint8_t)kind;
    struct sha256 *h = sha256_create();
    if (!h)
        return err_set(e, ERR_NOMEM, "grammar cache: no memory");
    sha256_begin(h);
    sha256_update(h, &head, 1);
    if (n)
        sha256_update(h, source, n);
    sha256_end(h, key);
    sha256_destroy(h);
    return 0;
}

/* Keep g under that key unless another thread was first; then that one's is used. */
static int keep(struct grammar_cache *c, const uint8_t *key, struct grammar *g,
                struct grammar **out, struct err *e)
{
    struct cached *x = calloc(1, sizeof *x);
    if (!x) {
        grammar_unref(g);
        return err_set(e, ERR_NOMEM, "grammar cache: no memory");
    }
    memcpy(x->key, key, sizeof x->key);
    pthread_mutex_lock(&c->lock);
    struct grammar *other = find(c, key);
    if (!other) {
        x->grammar = g;
        x->next = c->first;
        c->first = x;
        c->stats.entries++;
        *out = grammar_ref(g);
    }
    struct cached *surplus = take_surplus(c);
    pthread_mutex_unlock(&c->lock);
    free_all(surplus);
    if (other) {
        free(x);
        grammar_unref(g);
        *out = other;
    }
    return 0;
}

int grammar_cache_get(struct grammar_cache *c, enum grammar_kind kind, const char *source, size_t n,
                      struct grammar **out, struct err *e)
{
    uint8_t key[SHA256_BYTES];
    int rc = key_of(kind, source, n, key, e);
    if (rc)
        return rc;
    pthread_mutex_lock(&c->lock);
    struct grammar *g = find(c, key);
    c->stats.hits += g != NULL;
    c->stats.misses += g == NULL;
    pthread_mutex_unlock(&c->lock);
    if (g) {
        *out = g;
        return 0;
    }
    rc = grammar_create(&g, kind, source, n, c->o.limits, e);
    return rc ? rc : keep(c, key, g, out, e);
}

int grammar_cache_masks(struct grammar_cache *c, const struct grammar *g,
                        struct grammar_masks **out, struct err *e)
{
    pthread_mutex_lock(&c->lock);
    struct cached *x = c->first;
    while (x && x->grammar != g)
        x = x->next;
    pthread_mutex_unlock(&c->lock);
    CHECK(x && c->o.table);             /* the caller holds g, so its entry stays */
    struct grammar_masks *m = x->masks; /* written by this thread alone */
    if (!m) {
        int rc = grammar_masks_create(&m, x->grammar, c->o.table, c->o.masks_bytes, e);
        if (rc)
            return rc;
        pthread_mutex_lock(&c->lock);
        x->masks = m;
        pthread_mutex_unlock(&c->lock);
    }
    *out = m;
    return 0;
}

void grammar_cache_stats(struct grammar_cache *c, struct grammar_cache_stats *out)
{
    pthread_mutex_lock(&c->lock);
    *out = c->stats;
    pthread_mutex_unlock(&c->lock);
}
