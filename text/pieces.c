/* pieces.c - see pieces.h. */
#include "text/pieces.h"

#include "model/meta.h"
#include "text/tokenizer_internal.h"
#include "text/utf8.h"

#include <stdlib.h>

enum {
    /* A section may grow so much by what replaces it: every letter of a text by the longest of
     * Unicode's. */
    GROWTH = 64,
    GROWTH_FREE = 1 << 16,
};

void pieces_init(struct pieces *p, size_t text_bytes)
{
    *p = (struct pieces){.run.text_bytes = text_bytes};
    size_t max = text_bytes > UINT32_MAX / GROWTH ? UINT32_MAX : text_bytes * GROWTH + GROWTH_FREE;
    p->max_bytes = max > UINT32_MAX ? UINT32_MAX : max;
    for (int i = 0; i < 2; i++) {
        buf_init(&p->text[i], p->max_bytes);
        buf_init(&p->norm[i], p->max_bytes);
    }
}

void pieces_fini(struct pieces *p)
{
    for (int i = 0; i < 2; i++) {
        buf_fini(&p->text[i]);
        buf_fini(&p->norm[i]);
        free(p->spans[i].v);
    }
    free(p->marks.v);
    pattern_run_fini(&p->run);
    *p = (struct pieces){0};
}

static int push(struct span_vec *v, size_t at, size_t n)
{
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 256;
        struct span *more = realloc(v->v, cap * sizeof *more);
        if (!more)
            return ERR_NOMEM;
        v->v = more;
        v->cap = cap;
    }
    v->v[v->n++] = (struct span){(uint32_t)at, (uint32_t)n};
    return 0;
}

/* ---- matches ---- */

/* The next match in text[n] from *at on. Words and sets are found here, patterns elsewhere. */
static int next_match(struct pieces *p, const struct piece_op *op, const char *text, size_t n,
                      struct regex_at *at, size_t *start, size_t *end, struct err *e)
{
    if (op->matcher == MATCH_PATTERN)
        return pattern_next(&op->pattern, &p->run, text, n, at, start, end, e);
    uint32_t cp;
    size_t i = at->from, len = 0;
    for (; i < n; i += len) {
        len = utf8_next(text + i, &cp);
        if (unicode_in_set(op->matcher == MATCH_SET ? op->set : SET_SPACE, cp) ==
            (op->matcher == MATCH_SET))
            break;
    }
    if (i >= n)
        return 0;
    *start = i;
    i += len;
    if (op->matcher == MATCH_WORDS) {
        bool word = unicode_in_set(SET_WORD, cp);
        for (; i < n; i += len) {
            len = utf8_next(text + i, &cp);
            if (unicode_in_set(SET_SPACE, cp) || unicode_in_set(SET_WORD, cp) != word)
                break;
        }
    }
    *end = at->from = i;
    return 1;
}

/* p->marks: gap, match, gap, match …, gap; gaps may be empty, so that a match is where the index is
 * odd. */
static int find_marks(struct pieces *p, const struct piece_op *op, const char *text, size_t n,
                      struct err *e)
{
    struct regex_at at = {0};
    size_t from = 0, start, end;
    p->marks.n = 0;
    int rc;
    while ((rc = next_match(p, op, text, n, &at, &start, &end, e)) == 1) {
        if (push(&p->marks, from, start - from) || push(&p->marks, start, end - start))
            return err_set(e, ERR_NOMEM, "tokenizer: out of memory for pieces");
        from = end;
    }
    if (!rc && push(&p->marks, from, n - from))
        return err_set(e, ERR_NOMEM, "tokenizer: out of memory for pieces");
    return rc;
}

static bool mark_counts(const struct pieces *p, size_t i)
{
    return i % 2 || p->marks.v[i].n;
}

/* MergedWithNext goes from the end to the beginning; what it makes is turned round afterwards. */
static int merge_next(struct pieces *p, bool invert, size_t base, struct span_vec *out)
{
    size_t first = out->n;
    bool before = false;
    for (size_t i = p->marks.n; i-- > 0;) {
        if (!mark_counts(p, i))
            continue;
        struct span m = p->marks.v[i];
        bool match = (i % 2 == 1) != invert;
        if (match && !before && out->n > first) {
            struct span *last = &out->v[out->n - 1];
            last->n += last->at - (uint32_t)(base + m.at);
            last->at = (uint32_t)(base + m.at);
        } else if (push(out, base + m.at, m.n)) {
            return ERR_NOMEM;
        }
        before = match;
    }
    for (size_t a = first, b = out->n; a + 1 < b; a++) {
        struct span swap = out->v[a];
        out->v[a] = out->v[--b];
        out->v[b] = swap;
    }
    return 0;
}

static int merge_marks(struct pieces *p, const struct piece_op *op, size_t base,
                       struct span_vec *out)
{
    if (op->arg == TOK_MERGED_NEXT)
        return merge_next(p, op->invert, base, out);
    size_t first = out->n;
    bool before = false;
    for (size_t i = 0; i < p->marks.n; i++) {
        if (!mark_counts(p, i))
            continue;
        struct span m = p->marks.v[i];
        bool match = (i % 2 == 1) != op->invert;
        bool joins = (op->arg == TOK_CONTIGUOUS && match == before) ||
                     (op->arg == TOK_MERGED_PREVIOUS && match && !before);
        if (joins && out->n > first)
            out->v[out->n - 1].n += m.n;
        else if (!(op->arg == TOK_REMOVED && match) && push(out, base + m.at, m.n))
            return ERR_NOMEM;
        before = match;
    }
    return 0;
}

/* The usual case: a known expression without gaps, all of whose matches stay. */
static int cut_known(const struct piece_op *op, const char *text, struct span s,
                     struct span_vec *out)
{
    const char *p = text + s.at;
    for (size_t i = 0; i < s.n;) {
        size_t len = pretok_next(op->pattern.rules, p + i, s.n - i);
        if (push(out, s.at + i, len))
            return ERR_NOMEM;
        i += len;
    }
    return 0;
}

static int split(struct pieces *p, const struct piece_op *op, const char *text,
                 const struct span_vec *in, struct span_vec *out, struct err *e)
{
    bool known = op->matcher == MATCH_PATTERN && op->pattern.rules &&
                 (op->arg == TOK_ISOLATED || (op->arg == TOK_REMOVED && op->invert));
    for (size_t i = 0; i < in->n; i++) {
        struct span s = in->v[i];
        int rc;
        if (known) {
            rc = cut_known(op, text, s, out);
        } else {
            rc = find_marks(p, op, text + s.at, s.n, e);
            if (rc)
                return rc;
            rc = merge_marks(p, op, s.at, out);
        }
        if (rc)
            return err_set(e, ERR_NOMEM, "tokenizer: out of memory for pieces");
    }
    size_t kept = 0; /* empty pieces go */
    for (size_t i = 0; i < out->n; i++)
        if (out->v[i].n)
            out->v[kept++] = out->v[i];
    out->n = kept;
    return 0;
}

/* ---- operations that change the text ---- */

static void put_metaspace(const struct piece_op *op, const char *p, size_t n, bool first,
                          struct buf *out)
{
    bool begins = *p == ' ' || (n >= op->n_text && memcmp(p, op->text, op->n_text) == 0);
    if (!begins && (op->arg == TOK_PREPEND_ALWAYS || (op->arg == TOK_PREPEND_FIRST && first)))
        buf_put(out, op->text, op->n_text);
    for (size_t i = 0; i < n;) {
        const char *space = memchr(p + i, ' ', n - i);
        size_t end = space ? (size_t)(space - p) : n;
        buf_put(out, p + i, end - i);
        if (space)
            buf_put(out, op->text, op->n_text);
        i = end + (space != NULL);
    }
}

static int change(const struct piece_op *op, const char *text, const struct span_vec *in, bool head,
                  struct buf *to, struct span_vec *out, struct err *e)
{
    for (size_t i = 0; i < in->n; i++) {
        const char *p = text + in->v[i].at;
        size_t n = in->v[i].n, at = to->len;
        if (!n) /* what an operation before left nothing of */
            continue;
        if (op->kind == OP_METASPACE) {
            put_metaspace(op, p, n, head && i == 0 && in->v[i].at == 0, to);
        } else if (op->kind == OP_PREFIX_SPACE) {
            if (*p != ' ')
                buf_u8(to, ' ');
            buf_put(to, p, n);
        } else {
            for (size_t k = 0; k < n; k++) {
                char letter[4];
                buf_put(to, letter, utf8_encode(alphabet_letter((uint8_t)p[k]), letter));
            }
        }
        if (!buf_ok(to))
            return err_set(e, ERR_LIMIT, "tokenizer: the text grows over %zu bytes", to->max);
        if (push(out, at, to->len - at))
            return err_set(e, ERR_NOMEM, "tokenizer: out of memory for pieces");
    }
    return 0;
}

int pieces_cut(struct pieces *p, const struct piece_op *ops, size_t n_ops, const char *text,
               size_t n, bool head, const struct span_vec **out, const char **out_text,
               struct err *e)
{
    int now = 0, buffer = 0;
    p->spans[0].n = 0;
    if (n && push(&p->spans[0], 0, n))
        return err_set(e, ERR_NOMEM, "tokenizer: out of memory for pieces");
    for (size_t i = 0; i < n_ops; i++) {
        const struct span_vec *in = &p->spans[now];
        struct span_vec *to = &p->spans[!now];
        to->n = 0;
        int rc;
        if (ops[i].kind == OP_SPLIT) {
            rc = split(p, &ops[i], text, in, to, e);
            head = head && to->n && to->v[0].at == 0;
        } else {
            buf_reset(&p->text[buffer]);
            rc = change(&ops[i], text, in, head, &p->text[buffer], to, e);
            text = (const char *)p->text[buffer].data;
            buffer = !buffer;
        }
        if (rc)
            return rc;
        now = !now;
    }
    *out = &p->spans[now];
    *out_text = text;
    return 0;
}
