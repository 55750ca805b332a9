/* template_filter.h - shared by the files of filters. */
#ifndef EXA_TEXT_TEMPLATE_FILTER_H
#define EXA_TEXT_TEMPLATE_FILTER_H

#include "text/template_internal.h"

#define FILTER(name)                                                                               \
    static int name(struct eval *ev, const struct value *v, const struct args *a, struct value *out)

const struct builtin *filter_find_list(struct str name);
const struct builtin *filter_find_more(struct str name);
const struct builtin *filter_find_library(struct str name);

/* str(v), as most filters on texts begin */
int filter_text(struct eval *ev, const struct value *v, struct value *out);
/* "a.b.0" or a number, looked up step by step as Jinja's attribute arguments are; absent (may be NULL)
 * stands for what is undefined on the way. */
int filter_path(struct eval *ev, const struct value *v, const struct value *path,
                const struct value *absent, struct value *out);
/* What an item is ordered by: itself or an attribute; text without its case unless asked. */
int filter_key(struct eval *ev, const struct value *item, const struct value *path,
               const struct value *absent, bool with_case, struct value *key);
/* The items in a stable order of their keys; without `absent` as the sort filter makes them: lists. */
int filter_sorted(struct eval *ev, struct list *items, const struct value *path,
                  const struct value *absent, bool with_case, bool down, struct list **out);

#endif
