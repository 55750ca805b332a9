/* template_check.c - filters and tests that nothing knows. Jinja refuses them when it compiles a
 * template, except directly in the branches of an if or of an inline if, where they fail only when they
 * are reached. */
#include "text/template_internal.h"

static int check_list(const struct node *n, bool soft, struct err *e);

static int check_node(const struct node *n, bool soft, struct err *e)
{
    if ((n->kind == NODE_FILTER || n->kind == NODE_TEST) && !n->builtin && !soft)
        return err_set(e, ERR_FORMAT, "chat template line %d: no %s named \"%.*s\" here", n->line,
                       n->kind == NODE_FILTER ? "filter" : "test", str_shown(n->name, 60),
                       n->name.p);
    bool opens = n->kind == NODE_IF || n->kind == NODE_COND;
    bool closes = n->kind == NODE_FOR || n->kind == NODE_MACRO || n->kind == NODE_CALL_BLOCK ||
                  n->kind == NODE_SET_BLOCK || n->kind == NODE_FILTER_BLOCK || n->kind == NODE_WITH;
    soft = opens || (soft && !closes);
    const struct node *const parts[] = {n->a, n->b, n->c, n->list, n->kwargs, n->other};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof parts / sizeof parts[0]; i++)
        rc = check_list(parts[i], soft, e);
    return rc;
}

/* The tree is at most TEMPLATE_MAX_NESTING deep: the parser saw to it. */
static int check_list(const struct node *n, bool soft, struct err *e)
{
    int rc = 0;
    for (; n && rc == 0; n = n->next)
        rc = check_node(n, soft, e);
    return rc;
}

int template_check(const struct node *body, struct err *e)
{
    return check_list(body, false, e);
}
