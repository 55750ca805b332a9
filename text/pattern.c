/* pattern.c - see pattern.h. */
#include "text/pattern.h"

#include <string.h>

int pattern_init(struct pattern *p, const char *text, size_t n, bool literal, struct err *e)
{
    *p = (struct pattern){.rules = literal ? NULL : pretok_find(text, n)};
    if (p->rules)
        return 0;
    if (!literal)
        return regex_create(&p->regex, text, n, e);
    p->literal = text;
    p->n_literal = n;
    return 0;
}

void pattern_fini(struct pattern *p)
{
    regex_destroy(p->regex);
    *p = (struct pattern){0};
}

void pattern_run_fini(struct pattern_run *run)
{
    regex_run_destroy(run->regex);
    run->regex = NULL;
}

int pattern_next(const struct pattern *p, struct pattern_run *run, const char *text, size_t n,
                 struct regex_at *at, size_t *start, size_t *end, struct err *e)
{
    if (p->regex) {
        int rc = run->regex ? 0 : regex_run_create(&run->regex, run->text_bytes, e);
        return rc ? rc : regex_next(p->regex, run->regex, text, n, at, start, end, e);
    }
    if (at->from >= n)
        return 0;
    if (p->rules) {
        *start = at->from;
        *end = at->from += pretok_next(p->rules, text + at->from, n - at->from);
        return 1;
    }
    const char *found =
        p->n_literal ? memmem(text + at->from, n - at->from, p->literal, p->n_literal) : NULL;
    if (!found)
        return 0;
    *start = (size_t)(found - text);
    *end = at->from = *start + p->n_literal;
    return 1;
}
