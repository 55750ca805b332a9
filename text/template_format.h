/* template_format.h - shared by the files that format: template_format.c ("…" % args),
 * template_braces.c ("…".format()) and template_number.c (numbers with width, sign, precision). */
#ifndef EXA_TEXT_TEMPLATE_FORMAT_H
#define EXA_TEXT_TEMPLATE_FORMAT_H

#include "text/template_internal.h"

/* Python's format specification: [[fill]align][sign][#][0][width][,][.precision][type] */
struct format_spec {
    struct str fill; /* one character */
    char align;      /* < > ^ =, or 0 */
    char sign;       /* + - or a space, or 0 */
    char comma;      /* , or _ between thousands, or 0 */
    char type;       /* or 0 */
    bool alternate, zero;
    int64_t width, precision; /* -1: not given */
};

enum {
    FORMAT_MAX_WIDTH = 1 << 24,    /* of a field */
    FORMAT_MAX_FLOAT_DIGITS = 300, /* of a float's precision */
};

/* Python's str(v), or repr(v) for 'r', or ascii(v) for 'a'. */
int format_converted(struct eval *ev, const struct value *v, char how, struct str *out);
int format_number(struct eval *ev, const struct value *v, const struct format_spec *s,
                  struct builder *b);
/* text to the width: s->align, or `align` when there is none. */
int format_padded(struct eval *ev, struct str text, const struct format_spec *s, char align,
                  struct builder *b);

#endif
