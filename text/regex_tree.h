/* regex_tree.h - a regular expression as it is written. Inside of text/regex_*.c only. */
#ifndef EXA_TEXT_REGEX_TREE_H
#define EXA_TEXT_REGEX_TREE_H

#include "text/grammar_scan.h"

enum rx_kind { RX_SET, RX_SEQ, RX_ALT, RX_REPEAT, RX_BEGIN, RX_END };
struct rx {
    enum rx_kind kind;
    struct cp_set set;
    struct rx *first, *next; /* kids; the next kid of the parent */
    uint32_t min, max;
};

struct rx *regex_read(struct scan *s); /* NULL: rc of the builder is set */

#endif
