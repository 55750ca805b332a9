/* grammar_cache.h - compiled grammars by their source, least recently used ones leaving first.
 *
 * Thread-safe but for grammar_cache_masks. The router has one without a vocabulary: it compiles only to answer 400 early. The
 * engine has one with the model's vocabulary; its step thread takes masks from it. Compiling happens outside of the lock: two
 * threads that ask for the same new source at once may both compile it, and the first result is kept.
 */
#ifndef EXA_TEXT_GRAMMAR_CACHE_H
#define EXA_TEXT_GRAMMAR_CACHE_H

#include "text/grammar.h"
#include "text/grammar_masks.h"

struct grammar_cache;

struct grammar_cache_options {
    size_t max_entries; /* idle grammars kept when a new one comes; those in use do not count */
    size_t masks_bytes; /* for each grammar's masks; 0: GRAMMAR_MASKS_BYTES */
    const struct grammar_limits *limits; /* NULL: GRAMMAR_LIMITS; outlives the cache */
    const struct token_table *table;     /* outlives the cache; NULL: no masks are asked for */
};

int grammar_cache_create(struct grammar_cache **out, const struct grammar_cache_options *o,
                         struct err *e);
void grammar_cache_destroy(
    struct grammar_cache *c); /* grammars still held elsewhere live on; masks do not */

/* The grammar of that source, compiled when it is not there. *out is the caller's reference (grammar_unref). Errors as of
 * grammar_create; failures are not kept. */
int grammar_cache_get(struct grammar_cache *c, enum grammar_kind kind, const char *source, size_t n,
                      struct grammar **out, struct err *e);

/* The masks of g, which came from this cache; made when first asked for. They live at least as long as the caller holds g. Not
 * thread-safe: all calls, and all use of masks, from one thread. ERR_NOMEM, ERR_LIMIT as grammar_masks_create. */
int grammar_cache_masks(struct grammar_cache *c, const struct grammar *g,
                        struct grammar_masks **out, struct err *e);

struct grammar_cache_stats {
    uint64_t hits, misses, dropped;
    size_t entries;
};
void grammar_cache_stats(struct grammar_cache *c, struct grammar_cache_stats *out);

#endif
