/* grammar.c - from a source to a compiled grammar. */
#include "text/grammar.h"

#include "text/grammar_internal.h"
#include "text/grammar_ir.h"
#include "text/utf8.h"

#include <stdlib.h>

const struct grammar_limits GRAMMAR_LIMITS = {
    .max_source_bytes = 1 << 20,
    .max_memory_bytes = 256 << 20,
    .max_nesting = 100,
    .max_rules = 8192,
    .max_states = GRAMMAR_TOP_STATES - 1,
    .max_repeat = 100000,
    .max_work = 30000000,
};

const char *grammar_kind_name(enum grammar_kind kind)
{
    static const char *const NAMES[] = {"json_object", "json_schema", "regex", "choice", "grammar"};
    return (unsigned)kind < sizeof NAMES / sizeof *NAMES ? NAMES[kind] : "unknown";
}

static struct ir *parse(struct ir_builder *b, enum grammar_kind kind, const char *source, size_t n)
{
    switch (kind) {
    case GRAMMAR_JSON_OBJECT:
        if (n)
            return ir_fail(b, ERR_FORMAT, "json_object takes no source");
        return json_object_build(b);
    case GRAMMAR_JSON_SCHEMA:
        return json_schema_parse(b, source, n);
    case GRAMMAR_REGEX:
        return regex_parse(b, source, n);
    case GRAMMAR_CHOICE:
        return choice_parse(b, source, n);
    case GRAMMAR_GBNF:
        return gbnf_parse(b, source, n);
    }
    return ir_fail(b, ERR_CONFIG, "unknown kind of grammar: %d", (int)kind);
}

int grammar_create(struct grammar **out, enum grammar_kind kind, const char *source, size_t n,
                   const struct grammar_limits *limits, struct err *e)
{
    limits = limits ? limits : &GRAMMAR_LIMITS;
    if (n > limits->max_source_bytes)
        return err_set(e, ERR_LIMIT, "%s: %zu bytes, at most %zu", grammar_kind_name(kind), n,
                       limits->max_source_bytes);
    size_t bad = n ? utf8_check(source, n) : 0;
    if (bad < n)
        return err_set(e, ERR_FORMAT, "%s: byte %zu is not UTF-8", grammar_kind_name(kind), bad);
    struct ir_builder b;
    ir_builder_init(&b, limits, e);
    struct ir *root = parse(&b, kind, source, n);
    struct grammar *g = root && !b.rc ? grammar_compile(&b, root) : NULL;
    int rc = b.rc;
    ir_builder_fini(&b);
    if (!g)
        return rc ? rc : err_set(e, ERR_NOMEM, "grammar: no memory");
    *out = g;
    return 0;
}

struct grammar *grammar_ref(struct grammar *g)
{
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return g;
}

void grammar_unref(struct grammar *g)
{
    if (g && atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) == 1)
        free(g);
}

size_t grammar_bytes(const struct grammar *g)
{
    return g->bytes;
}

uint32_t grammar_n_states(const struct grammar *g)
{
    return g->n_states - 1;
}
