/* template_filter.h - shared by the two files of filters. */
#ifndef EXA_TEXT_TEMPLATE_FILTER_H
#define EXA_TEXT_TEMPLATE_FILTER_H

#include "text/template_internal.h"

#define FILTER(name)                                                                               \
    static int name(struct eval *ev, const struct value *v, const struct args *a, struct value *out)

const struct builtin *filter_find_list(struct str name);

#endif
