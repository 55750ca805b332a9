/* engine_kv_test.c - KV blocks: counts, the prefix cache, eviction, and that nothing but the same tokens of the same tenant is ever found. */
#include "engine_support.h"

#include "engine/kv_blocks.h"
#include "engine/siphash.h"

enum { T = KV_BLOCK_TOKENS };

static struct kv_blocks *blocks(uint32_t n, bool cache)
{
    struct kv_blocks *b;
    struct err e = ERR_INIT;
    MUST(kv_blocks_create(&b, n, cache, &e), e);
    return b;
}

static void fill(uint32_t *tokens, uint32_t salt)
{
    for (uint32_t i = 0; i < T; i++)
        tokens[i] = salt * 1000 + i;
}

/* Publishes a chain of n blocks, one salt after the other, and lets go of them, last first. */
static void chain_put(struct kv_blocks *b, uint32_t tenant, uint32_t salt, uint32_t n)
{
    struct kv_chain c = kv_chain_root(tenant);
    uint32_t held[64], tokens[T];
    for (uint32_t i = 0; i < n; i++) {
        fill(tokens, salt + i);
        held[i] = kv_take(b);
        assert_int_not_equal(held[i], KV_NONE);
        held[i] = kv_publish(b, held[i], &c, tokens);
    }
    while (n)
        kv_release(b, held[--n]);
}

/* How many blocks of the chain are found; they are let go again. */
static uint32_t chain_find(struct kv_blocks *b, uint32_t tenant, uint32_t salt, uint32_t n)
{
    struct kv_chain c = kv_chain_root(tenant);
    uint32_t held[64], tokens[T], found = 0;
    for (; found < n; found++) {
        fill(tokens, salt + found);
        held[found] = kv_find(b, &c, tokens);
        if (held[found] == KV_NONE)
            break;
    }
    for (uint32_t i = found; i;)
        kv_release(b, held[--i]);
    return found;
}

/* The reference implementation's vectors: key 00 01 … 0f, message 00 01 … of 0, 4, 8 and 12 bytes. */
static void test_siphash_vectors(void **state)
{
    const uint64_t key[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    const uint32_t words[] = {0x03020100, 0x07060504, 0x0b0a0908};
    assert_true(siphash(key, words, 0) == 0x726fdb47dd0e0e31u);
    assert_true(siphash(key, words, 1) == 0xcf2794e0277187b7u);
    assert_true(siphash(key, words, 2) == 0x93f5f5799a932462u);
    assert_true(siphash(key, words, 3) == 0x751e8fbc860ee5fbu);
}

static void test_blocks_are_counted(void **state)
{
    struct kv_blocks *b = blocks(3, true);
    assert_int_equal(kv_available(b), 3);
    uint32_t x = kv_take(b), y = kv_take(b), z = kv_take(b);
    assert_int_equal(kv_take(b), KV_NONE);
    assert_true(x != y && y != z && x != z);
    kv_share(b, y);
    assert_int_equal(kv_refs(b, y), 2);
    assert_true(kv_is_own(b, x));
    assert_false(kv_is_own(b, y));
    kv_release(b, y);
    assert_int_equal(kv_available(b), 0);
    kv_release(b, y);
    assert_int_equal(kv_available(b), 1);
    assert_int_equal(kv_take(b), y);
    kv_release(b, x);
    kv_release(b, y);
    kv_release(b, z);
    assert_int_equal(kv_available(b), 3);
    kv_blocks_destroy(b);
}

static void test_prefixes_are_found_by_all_their_tokens(void **state)
{
    struct kv_blocks *b = blocks(16, true);
    chain_put(b, 0, 100, 4);
    assert_int_equal(kv_available(b), 16); /* idle ones can be had */
    assert_int_equal(chain_find(b, 0, 100, 6), 4);
    assert_int_equal(chain_find(b, 1, 100, 6), 0); /* another tenant's */
    assert_int_equal(chain_find(b, 0, 101, 6), 0); /* the same block, but not at this place */
    uint32_t tokens[T];
    fill(tokens, 100);
    for (uint32_t i = 0; i < T; i++) { /* one token differs */
        struct kv_chain c = kv_chain_root(0);
        tokens[i] ^= 1;
        assert_int_equal(kv_find(b, &c, tokens), KV_NONE);
        tokens[i] ^= 1;
    }
    struct kv_stats s;
    kv_blocks_stats(b, &s);
    assert_int_equal(s.n_idle, 4);
    assert_int_equal(s.n_free, 12);
    assert_int_equal(s.n_published, 4);
    assert_int_equal(s.n_hits, 4);
    kv_blocks_destroy(b);
}

/* Two that computed the same hold one block afterwards. */
static void test_the_same_is_kept_once(void **state)
{
    struct kv_blocks *b = blocks(4, true);
    struct kv_chain c = kv_chain_root(7), d = kv_chain_root(7);
    uint32_t tokens[T];
    fill(tokens, 1);
    uint32_t x = kv_take(b), y = kv_take(b);
    assert_int_equal(kv_publish(b, x, &c, tokens), x);
    assert_int_equal(kv_publish(b, y, &d, tokens), x);
    assert_int_equal(c.parent, d.parent);
    assert_int_equal(kv_refs(b, x), 2);
    assert_int_equal(kv_available(b), 3);
    assert_false(kv_is_own(b, x));
    kv_release(b, x);
    assert_false(kv_is_own(b, x)); /* others may find it: nobody writes to it */
    kv_blocks_destroy(b);
}

static void test_the_oldest_leave_first_and_from_their_ends(void **state)
{
    struct kv_blocks *b = blocks(8, true);
    struct kv_stats s;
    chain_put(b, 0, 100, 3);
    chain_put(b, 0, 200, 3);
    assert_int_equal(chain_find(b, 0, 100, 3), 3); /* used again: the other one is older now */
    uint32_t held[4];
    for (uint32_t i = 0; i < 4; i++) /* two free ones, then two of 200, its last ones */
        held[i] = kv_take(b);
    assert_int_equal(chain_find(b, 0, 200, 3), 1);
    assert_int_equal(chain_find(b, 0, 100, 3), 3);
    kv_blocks_stats(b, &s);
    assert_int_equal(s.n_evicted, 2);
    for (uint32_t i = 0; i < 4; i++)
        kv_release(b, held[i]);
    kv_blocks_destroy(b);
}

/* A child whose parent left must not be found under a new parent of the same place. */
static void test_an_orphan_is_not_found(void **state)
{
    struct kv_blocks *b = blocks(3, true);
    uint32_t tokens[T];
    struct kv_chain c = kv_chain_root(0);
    fill(tokens, 1);
    uint32_t parent = kv_publish(b, kv_take(b), &c, tokens);
    fill(tokens, 2);
    uint32_t child = kv_publish(b, kv_take(b), &c, tokens);
    kv_release(b, parent); /* the wrong way round: the parent is the older one */
    uint32_t third = kv_take(b), fourth = kv_take(b);
    assert_int_equal(fourth, parent); /* evicted while its child is held */
    c = kv_chain_root(0);
    fill(tokens, 1);
    assert_int_equal(kv_find(b, &c, tokens), KV_NONE);
    kv_publish(b, third, &c, tokens);
    fill(tokens, 2);
    assert_int_equal(kv_find(b, &c, tokens), KV_NONE);
    kv_release(b, child);
    kv_release(b, third);
    kv_release(b, fourth);
    assert_int_equal(kv_available(b), 3);
    kv_blocks_destroy(b);
}

static void test_without_a_cache_nothing_is_found(void **state)
{
    struct kv_blocks *b = blocks(8, false);
    struct kv_stats s;
    chain_put(b, 0, 100, 3);
    assert_int_equal(chain_find(b, 0, 100, 3), 0);
    kv_blocks_stats(b, &s);
    assert_int_equal(s.n_free, 8);
    kv_blocks_destroy(b);
}

static uint32_t dice(uint32_t *state, uint32_t n)
{
    return (tiny_random(state) >> 8) % n; /* the lowest bits of such a generator repeat soon */
}

/* Random work against a model that keeps everything: what is found is what was published, and counts always agree. */
static void test_random_work(void **state)
{
    enum { N = 40, HELD = 24, STEPS = INSTRUMENTED ? 20000 : 200000 };
    struct kv_blocks *b = blocks(N, true);
    struct {
        uint32_t block, depth;
    } held[HELD];
    uint32_t n_held = 0, random = 99, content[N][2]; /* [block]: tenant, path of its chain */
    for (uint32_t i = 0; i < STEPS; i++) {
        bool drop = dice(&random, 4) > 0; /* a chain takes three */
        if (drop && n_held) {
            uint32_t at = dice(&random, n_held);
            kv_release(b, held[at].block);
            held[at] = held[--n_held];
            continue;
        }
        if (n_held + 3 > HELD)
            continue;
        /* a chain of up to three blocks, each of four kinds */
        uint32_t tenant = dice(&random, 2), path = 1, tokens[T];
        struct kv_chain c = kv_chain_root(tenant);
        for (uint32_t depth = 0; depth < 3; depth++) {
            uint32_t kind = dice(&random, 4);
            path = path * 4 + kind;
            fill(tokens, kind);
            uint32_t block = kv_find(b, &c, tokens);
            if (block != KV_NONE) {
                assert_int_equal(content[block][0], tenant);
                assert_int_equal(content[block][1], path);
            } else {
                block = kv_take(b);
                if (block == KV_NONE)
                    break;
                block = kv_publish(b, block, &c, tokens);
                content[block][0] = tenant;
                content[block][1] = path;
            }
            held[n_held].block = block;
            held[n_held++].depth = depth;
        }
        struct kv_stats s;
        uint32_t n_refs = 0, n_live = 0;
        kv_blocks_stats(b, &s);
        for (uint32_t k = 0; k < N; k++) {
            n_refs += kv_refs(b, k);
            n_live += kv_refs(b, k) > 0;
        }
        assert_int_equal(n_refs, n_held);
        assert_int_equal(n_live + s.n_free + s.n_idle, N);
    }
    struct kv_stats end;
    kv_blocks_stats(b, &end);
    assert_true(end.n_hits > STEPS / 10 && end.n_evicted > STEPS / 100); /* it was no idle run */
    while (n_held)
        kv_release(b, held[--n_held].block);
    assert_int_equal(kv_available(b), N);
    kv_blocks_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_siphash_vectors),
        cmocka_unit_test(test_blocks_are_counted),
        cmocka_unit_test(test_prefixes_are_found_by_all_their_tokens),
        cmocka_unit_test(test_the_same_is_kept_once),
        cmocka_unit_test(test_the_oldest_leave_first_and_from_their_ends),
        cmocka_unit_test(test_an_orphan_is_not_found),
        cmocka_unit_test(test_without_a_cache_nothing_is_found),
        cmocka_unit_test(test_random_work),
    };
    return cmocka_run_group_tests_name("engine_kv", tests, NULL, NULL);
}
