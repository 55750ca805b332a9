/* grammar_bench.c - what constrained output costs a token: MODEL.gguf [STEPS]
 *
 * Two vocabularies: the model's, and one of 131,072 that has pairs of its tokens besides. For each grammar: compiling; then
 * random walks under the masks, first with an empty cache ("cold"), then with what is in it ("warm"): time of one grammar_mask
 * and one grammar_accept. The walks prefer tokens that close things, so that they come to an end and begin anew.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "model/gguf.h"
#include "text/grammar_masks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BIG_VOCAB = 131072, DEFAULT_STEPS = 20000 };

static const struct {
    const char *name;
    enum grammar_kind kind;
    const char *source;
} CASES[] = {
    {"json_object", GRAMMAR_JSON_OBJECT, ""},
    {"schema: person", GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
     "\"integer\",\"minimum\":0,"
     "\"maximum\":150},\"emails\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":"
     "\"email\"},\"maxItems\":5},"
     "\"address\":{\"type\":\"object\",\"properties\":{\"street\":{\"type\":\"string\","
     "\"maxLength\":80},\"city\":{\"type\":"
     "\"string\"},\"zip\":{\"type\":\"string\",\"pattern\":\"^[0-9]{5}$\"}},\"required\":["
     "\"street\",\"city\"]},\"role\":"
     "{\"enum\":[\"admin\",\"user\",\"guest\"]},\"born\":{\"type\":\"string\",\"format\":\"date\"}}"
     ",\"required\":[\"name\","
     "\"age\",\"address\",\"role\"]}"},
    {"schema: tree", GRAMMAR_JSON_SCHEMA,
     "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"label\":{\"type\":\"string\","
     "\"maxLength\":40},\"kids\":"
     "{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
     "n\"}}},\"required\":[\"label\",\"kids\"],\"additionalProperties\":"
     "false}},\"$ref\":\"#/$defs/n\"}"},
    {"schema: free strings", GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\",\"minLength\":5,"
     "\"maxLength\":2000},\"tags\":{\"type\":"
     "\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[a-z][a-z0-9-]*$\",\"maxLength\":30},"
     "\"minItems\":1}},\"required\":"
     "[\"title\",\"tags\"]}"},
    {"regex", GRAMMAR_REGEX,
     "(?:[A-Z][a-z]+ ){1,6}[A-Z][a-z]+: [^\\n]{10,120}\\n(?:\\d{4}-\\d{2}-\\d{2}|unknown)"},
    {"choice", GRAMMAR_CHOICE, "[\"positive\",\"negative\",\"neutral\",\"mixed\",\"cannot say\"]"},
    {"gbnf: arithmetic", GRAMMAR_GBNF,
     "root ::= (expr \"=\" ws term \"\\n\")+\nexpr ::= term ([-+*/] ws term)*\nterm ::= ident | "
     "num | \"(\" ws expr \")\" ws\n"
     "ident ::= [a-z] [a-z0-9_]* ws\nnum ::= [0-9]+ ws\nws ::= [ \\t\\n]*\n"},
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* others share the machine */
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t rng_next(uint64_t *x)
{
    *x ^= *x >> 12;
    *x ^= *x << 25;
    *x ^= *x >> 27;
    return (uint32_t)((*x * 2685821657736338717u) >> 32);
}

static void die(const struct err *e)
{
    fprintf(stderr, "grammar_bench: %s\n", e->text);
    exit(1);
}

/* ---- vocabularies ---- */

static struct token_table *big_table(const struct token_table *small)
{
    static uint32_t offsets[BIG_VOCAB + 1];
    struct token_table *t;
    struct err e = ERR_INIT;
    struct buf bytes;
    uint64_t rng = 12345;
    buf_init(&bytes, 64 << 20);
    for (uint32_t id = 0; id < BIG_VOCAB; id++) {
        offsets[id] = (uint32_t)bytes.len;
        size_t n;
        const uint8_t *p;
        for (int part = 0; part < (id < small->n_vocab ? 1 : 2); part++) {
            uint32_t from = id < small->n_vocab ? id : rng_next(&rng) % small->n_vocab;
            p = token_table_get(small, from, &n);
            if (part == 0 || n < 8)
                buf_put(&bytes, p, n);
        }
    }
    offsets[BIG_VOCAB] = (uint32_t)bytes.len;
    if (token_table_from_arrays(&t, BIG_VOCAB, offsets, bytes.data, small->eog_ids, small->n_eog,
                                &e))
        die(&e);
    buf_fini(&bytes);
    return t;
}

/* ---- walks ---- */

struct figures {
    uint64_t *mask_ns, *accept_ns;
    size_t n;
};

static int order(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

static double at_us(uint64_t *ns, size_t n, double q)
{
    size_t i = (size_t)(q * (double)(n - 1));
    return (double)ns[i] / 1e3;
}

/* One that closes things when there is one near the point where the search begins, else any. */
static uint32_t pick(const struct token_table *t, const uint32_t *mask, bool closing, uint64_t *rng)
{
    uint32_t start = rng_next(rng) % t->n_vocab, any = UINT32_MAX;
    for (uint32_t k = 0, tried = 0; k < t->n_vocab; k++) {
        uint32_t id = (start + k) % t->n_vocab;
        if (!mask_has(mask, id))
            continue;
        size_t n;
        const uint8_t *p = token_table_get(t, id, &n);
        any = any == UINT32_MAX ? id : any;
        if (!closing || !n || strchr("\"}]),=\n", p[0]) || ++tried == 3000)
            return !closing || !n || strchr("\"}]),=\n", p[0]) ? id : any;
    }
    return any;
}

static void walk(struct grammar_masks *m, const struct grammar *g, const struct token_table *t,
                 size_t steps, uint64_t seed, struct figures *f)
{
    uint32_t *mask = calloc(t->n_words, sizeof *mask);
    struct grammar_state s;
    struct err e = ERR_INIT;
    size_t length = 0;
    grammar_state_init(&s, g);
    for (f->n = 0; f->n < steps; f->n++) {
        uint64_t t0 = now_ns();
        uint32_t n = grammar_mask(m, &s, mask);
        uint64_t t1 = now_ns();
        if (!n || n == GRAMMAR_MASK_OVER)
            exit(2);
        uint32_t id = pick(t, mask, length > 20 || rng_next(&seed) % 4 == 0, &seed);
        uint64_t t2 = now_ns();
        if (grammar_accept(&s, t, id, &e))
            die(&e);
        f->accept_ns[f->n] = now_ns() - t2;
        f->mask_ns[f->n] = t1 - t0;
        length++;
        if (token_table_is_eog(t, id) || grammar_is_finished(&s) || length > 300) {
            grammar_state_init(&s, g);
            length = 0;
        }
    }
    free(mask);
}

static void print_line(const char *name, const char *what, struct figures *f,
                       const struct grammar_masks *m)
{
    struct grammar_masks_stats st;
    grammar_masks_stats(m, &st);
    double sum = 0;
    for (size_t i = 0; i < f->n; i++)
        sum += (double)f->mask_ns[i];
    qsort(f->mask_ns, f->n, sizeof *f->mask_ns, order);
    qsort(f->accept_ns, f->n, sizeof *f->accept_ns, order);
    printf("%-22s %-5s %8.1f %8.1f %8.1f %8.1f %9.1f   %6.2f %6.2f  %7llu %6.1f\n", name, what,
           sum / (double)f->n / 1e3, at_us(f->mask_ns, f->n, 0.5), at_us(f->mask_ns, f->n, 0.99),
           at_us(f->mask_ns, f->n, 0.999), at_us(f->mask_ns, f->n, 1),
           at_us(f->accept_ns, f->n, 0.5), at_us(f->accept_ns, f->n, 0.99),
           (unsigned long long)st.entry_misses, (double)st.used_bytes / 1048576.0);
}

static void bench(const struct token_table *t, size_t steps)
{
    struct figures f = {calloc(steps, sizeof(uint64_t)), calloc(steps, sizeof(uint64_t)), 0};
    struct err e = ERR_INIT;
    printf("\nvocabulary %u (%.1f MB of tables); mask and accept in us\n", t->n_vocab,
           (double)token_table_bytes(t) / 1048576.0);
    printf("%-22s %-5s %8s %8s %8s %8s %9s   %6s %6s  %7s %6s\n", "grammar", "cache", "mean", "p50",
           "p99", "p99.9", "max", "acc50", "acc99", "entries", "MB");
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct grammar *g;
        struct grammar_masks *m;
        uint64_t t0 = now_ns();
        if (grammar_create(&g, CASES[i].kind, CASES[i].source, strlen(CASES[i].source), NULL, &e))
            die(&e);
        uint64_t t1 = now_ns();
        if (grammar_masks_create(&m, g, t, GRAMMAR_MASKS_BYTES, &e))
            die(&e);
        walk(m, g, t, steps, 1, &f);
        print_line(CASES[i].name, "cold", &f, m);
        walk(m, g, t, steps, 1, &f);
        print_line(CASES[i].name, "warm", &f, m);
        walk(m, g, t, steps, 2, &f);
        print_line(CASES[i].name, "other", &f, m);
        grammar_masks_destroy(m);
        if (grammar_masks_create(&m, g, t, GRAMMAR_MASKS_BYTES, &e))
            die(&e);
        uint64_t t2 = now_ns();
        grammar_masks_warm(m, 10000000);
        printf("%-22s compiled in %.2f ms: %u states, %.1f KB; all sets of its states in %.1f ms\n",
               "", (double)(t1 - t0) / 1e6, grammar_n_states(g), (double)grammar_bytes(g) / 1024.0,
               (double)(now_ns() - t2) / 1e6);
        walk(m, g, t, steps, 1, &f);
        print_line(CASES[i].name, "ahead", &f, m);
        grammar_masks_destroy(m);
        grammar_unref(g);
    }
    free(f.mask_ns);
    free(f.accept_ns);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: grammar_bench MODEL.gguf [STEPS]\n");
        return 2;
    }
    size_t steps = argc > 2 ? strtoul(argv[2], NULL, 10) : DEFAULT_STEPS;
    struct err e = ERR_INIT;
    struct gguf file;
    struct tokenizer *tok;
    struct token_table *small, *big;
    if (gguf_open(&file, argv[1], &e) || tokenizer_create(&tok, &file.meta.tok, &e))
        die(&e);
    uint64_t t0 = now_ns();
    if (token_table_from_tokenizer(&small, tok, &e))
        die(&e);
    uint64_t t1 = now_ns();
    big = big_table(small);
    printf("token tables built in %.0f and %.0f ms\n", (double)(t1 - t0) / 1e6,
           (double)(now_ns() - t1) / 1e6);
    bench(small, steps ? steps : 1);
    bench(big, steps ? steps : 1);
    token_table_destroy(small);
    token_table_destroy(big);
    tokenizer_destroy(tok);
    gguf_close(&file);
    return 0;
}
