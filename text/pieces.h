/* pieces.h - pre-tokenizers: a section of text becomes pieces, each of which the model takes on its own.
 *
 * What the files name is made of four operations; each turns a list of pieces into another. Linear time but for expressions,
 * which have a budget (text/regex.h).
 */
#ifndef EXA_TEXT_PIECES_H
#define EXA_TEXT_PIECES_H

#include "base/buf.h"
#include "text/pattern.h"
#include "text/unicode_set.h"

enum piece_op_kind {
    OP_PREFIX_SPACE, /* a space before each piece that does not begin with one */
    OP_METASPACE, /* spaces become text; text goes before pieces as arg (enum tok_prepend) says */
    OP_ALPHABET,  /* bytes become letters of the byte-level alphabet */
    OP_SPLIT,
};
enum piece_matcher {
    MATCH_PATTERN,
    MATCH_SET,   /* each character of a set */
    MATCH_WORDS, /* \w+|[^\w\s]+ of Rust */
};
struct piece_op {
    enum piece_op_kind kind;
    uint32_t arg; /* enum tok_prepend or tok_behavior */
    enum piece_matcher matcher;
    bool invert;
    enum unicode_set set;
    struct pattern pattern;
    const char *text; /* not owned */
    size_t n_text;
};

struct span {
    uint32_t at, n; /* bytes of the section */
};
struct span_vec {
    struct span *v; /* owned */
    size_t n, cap;
};
struct pieces {
    struct buf text[2], norm[2]; /* what operations and normalizers write; in turns */
    struct span_vec spans[2];
    struct span_vec marks;  /* matches and gaps of one piece, in turns */
    struct pattern_run run; /* for all expressions */
    size_t max_bytes;       /* a section may not grow over it */
};

void pieces_init(struct pieces *p, size_t text_bytes);
void pieces_fini(struct pieces *p);
/* Cut text[n] by ops. head: text begins where the whole text began. The pieces lie in *out, of **out_text; valid until the next
 * call. */
int pieces_cut(struct pieces *p, const struct piece_op *ops, size_t n_ops, const char *text,
               size_t n, bool head, const struct span_vec **out, const char **out_text,
               struct err *e);

#endif
