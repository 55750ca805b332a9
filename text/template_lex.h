/* template_lex.h - shared by the two files of the lexer: template_lex.c (text, comments, raw blocks and
 * tags) and template_token.c (what stands inside tags). */
#ifndef EXA_TEXT_TEMPLATE_LEX_H
#define EXA_TEXT_TEMPLATE_LEX_H

#include "text/template_internal.h"

struct lexer {
    const char *s;
    size_t n, at;
    int line;
    bool line_starting; /* nothing but consumed tags since the last newline */
    struct arena *arena;
    struct tokens *out;
    struct err *e;
};

enum { LEX_MAX_OPEN = 256, LEX_MAX_NAME = 256 };

int lexer_error(struct lexer *lx, const char *what);
int lexer_emit(struct lexer *lx, struct token t);
/* Go on to this byte, counting lines. */
void lexer_advance(struct lexer *lx, size_t to);

/* One token at lx->at, which is no white space and no end of the tag; open: the closing brackets that
 * are awaited. */
int lexer_token(struct lexer *lx, char open[LEX_MAX_OPEN], size_t *n_open);

#endif
