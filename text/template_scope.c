/* template_scope.c - names that a frame hides before it sets them.
 *
 * Jinja compiles names: a frame (the template, a loop's body, a macro …) that sets a name, and has not
 * read it before, has a variable of its own that is undefined until then, even where the data or a
 * global has one of that name. Blocks inside the frame see that, too. Only a name that an enclosing
 * frame knows already begins with that one's value. This pass finds the names that begin undefined; the
 * rest of the rules is what looking names up in nested scopes does by itself.
 */
#include "text/template_internal.h"

enum {
    SCOPE_MAX_WORK = 50000000
}; /* comparisons of names: a hostile source has tens of thousands */

enum ref_kind { REF_OTHER, REF_HIDDEN };

/* The names a frame knows, newest first: an entry hides older ones, so that a branch can be tried and
 * left by going back to the head before it. */
struct ref {
    const struct ref *next;
    struct str name;
    enum ref_kind kind;
};

struct frame {
    const struct frame *parent;
    const struct ref *refs, *stores;
};

struct scoper {
    struct arena *arena; /* the template's: hidden names stay there */
    struct arena work;
    uint64_t compared;
    int rc;
    struct err *e;
};

static void visit_list(struct scoper *s, struct frame *f, const struct node *n);
static void frames_in(struct scoper *s, const struct frame *f, struct node *n);

static const struct ref *ref_find(struct scoper *s, const struct ref *list, struct str name)
{
    while (list && (list->name.n != name.n || memcmp(list->name.p, name.p, name.n) != 0)) {
        list = list->next;
        s->compared++;
    }
    if (s->compared > SCOPE_MAX_WORK && !s->rc)
        s->rc = err_set(s->e, ERR_LIMIT, "chat template: too many names");
    return list;
}

static bool outer_knows(struct scoper *s, const struct frame *f, struct str name)
{
    for (f = f->parent; f && !s->rc; f = f->parent)
        if (ref_find(s, f->refs, name))
            return true;
    return false;
}

static void ref_push(struct scoper *s, const struct ref **list, struct str name, enum ref_kind kind)
{
    struct ref *r = s->rc ? NULL : arena_alloc(&s->work, sizeof *r);
    if (!r) {
        if (!s->rc)
            s->rc = err_set(s->e, s->work.over ? ERR_LIMIT : ERR_NOMEM,
                            "chat template: too much memory");
        return;
    }
    *r = (struct ref){*list, name, kind};
    *list = r;
}

static void name_load(struct scoper *s, struct frame *f, struct str name)
{
    if (!ref_find(s, f->refs, name) && !outer_knows(s, f, name))
        ref_push(s, &f->refs, name, REF_OTHER);
}

static void name_store(struct scoper *s, struct frame *f, struct str name)
{
    if (!ref_find(s, f->stores, name))
        ref_push(s, &f->stores, name, REF_OTHER);
    if (!ref_find(s, f->refs, name))
        ref_push(s, &f->refs, name, outer_knows(s, f, name) ? REF_OTHER : REF_HIDDEN);
}

static void visit_expr(struct scoper *s, struct frame *f, const struct node *n)
{
    for (; n && !s->rc; n = n->next) {
        if (n->kind == NODE_NAME)
            name_load(s, f, n->name);
        const struct node *const parts[] = {n->a, n->b, n->c, n->list, n->kwargs};
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
            visit_expr(s, f, parts[i]);
    }
}

/* param: the name begins with a value. */
static void visit_target(struct scoper *s, struct frame *f, const struct node *n, bool param)
{
    if (n->kind == NODE_ATTR)
        visit_expr(s, f, n->a);
    else if (n->kind == NODE_NAME && param)
        ref_push(s, &f->refs, n->name, REF_OTHER);
    else if (n->kind == NODE_NAME)
        name_store(s, f, n->name);
    for (const struct node *item = n->kind == NODE_TUPLE ? n->list : NULL; item; item = item->next)
        visit_target(s, f, item, param);
}

/* What a branch adds to the frame, and how often a name is set for the first time. */
static void merge_branch(struct scoper *s, struct frame *f, const struct frame *before,
                         const struct frame *branch, const struct ref **set)
{
    for (const struct ref *r = branch->stores; r != before->stores; r = r->next) {
        if (!ref_find(s, f->stores, r->name))
            ref_push(s, &f->stores, r->name, REF_OTHER);
        ref_push(s, set, r->name, REF_OTHER);
    }
    for (const struct ref *r = branch->refs; r != before->refs; r = r->next)
        if (!ref_find(s, f->refs, r->name))
            ref_push(s, &f->refs, r->name, r->kind);
}

static size_t times_set(struct scoper *s, const struct ref *set, struct str name)
{
    size_t n = 0;
    for (; (set = ref_find(s, set, name)) && !s->rc; set = set->next)
        n++;
    return n;
}

/* Jinja counts three branches (if, all elif together, else): a name that not all of them set is
 * looked up at the beginning of the frame. */
static void visit_if(struct scoper *s, struct frame *f, const struct node *n)
{
    const struct frame before = *f;
    const struct node *branch = n->list;
    const struct ref *set = NULL;
    visit_expr(s, f, branch->a);
    struct frame start = *f, body = *f, elifs = *f, others = *f;
    visit_list(s, &body, branch->list);
    /* an elif is an if of its own inside the others */
    for (branch = branch->next; branch && branch->a && !s->rc; branch = branch->next) {
        struct node alone = *branch, inner = {.kind = NODE_IF, .list = &alone};
        alone.next = NULL;
        visit_if(s, &elifs, &inner);
    }
    if (branch)
        visit_list(s, &others, branch->list);
    merge_branch(s, f, &start, &body, &set);
    merge_branch(s, f, &start, &elifs, &set);
    merge_branch(s, f, &start, &others, &set);
    for (const struct ref *r = set; r && !s->rc; r = r->next)
        if (times_set(s, set, r->name) < 3 && !ref_find(s, before.stores, r->name) &&
            ref_find(s, f->refs, r->name)->kind == REF_HIDDEN)
            ref_push(s, &f->refs, r->name, REF_OTHER);
}

static void visit_one(struct scoper *s, struct frame *f, const struct node *n)
{
    switch (n->kind) {
    case NODE_OUTPUT:
        visit_expr(s, f, n->a);
        break;
    case NODE_PRINT:
        visit_list(s, f, n->list);
        break;
    case NODE_IF:
        visit_if(s, f, n);
        break;
    case NODE_FOR:
    case NODE_FILTER_BLOCK:
    case NODE_CALL_BLOCK:
        visit_expr(s, f, n->b);
        break;
    case NODE_SET:
        visit_expr(s, f, n->b);
        visit_target(s, f, n->a, false);
        break;
    case NODE_SET_BLOCK:
        visit_target(s, f, n->a, false);
        break;
    case NODE_WITH:
        for (const struct node *set = n->kwargs; set; set = set->next)
            visit_expr(s, f, set->b);
        break;
    case NODE_MACRO:
        name_store(s, f, n->name);
        break;
    default:
        break;
    }
}

static void visit_list(struct scoper *s, struct frame *f, const struct node *n)
{
    for (; n && !s->rc; n = n->next)
        visit_one(s, f, n);
}

/* What begins undefined in the frame, oldest first or not: the order does not matter. */
static const struct hidden *hidden_names(struct scoper *s, const struct frame *f)
{
    struct hidden *list = NULL;
    for (const struct ref *r = f->refs; r && !s->rc; r = r->next) {
        if (r->kind != REF_HIDDEN || ref_find(s, f->refs, r->name) != r)
            continue;
        struct hidden *h = arena_alloc(s->arena, sizeof *h);
        if (!h) {
            s->rc = err_set(s->e, ERR_LIMIT, "chat template: too much memory");
            break;
        }
        *h = (struct hidden){list, r->name};
        list = h;
    }
    return list;
}

/* One frame: its own names, then the frames inside. */
static const struct hidden *frame_done(struct scoper *s, struct frame *f, struct node *body)
{
    visit_list(s, f, body);
    const struct hidden *hidden = hidden_names(s, f);
    frames_in(s, f, body);
    return hidden;
}

static void frame_of(struct scoper *s, const struct frame *outer, struct node *n)
{
    struct frame f = {.parent = outer};
    switch (n->kind) {
    case NODE_FOR:
        visit_target(s, &f, n->a, true);
        ref_push(s, &f.refs, STR("loop"), REF_OTHER);
        n->hidden = frame_done(s, &f, n->list);
        f = (struct frame){.parent = outer};
        n->hidden_else = frame_done(s, &f, n->other);
        break;
    case NODE_WITH:
        for (const struct node *set = n->kwargs; set; set = set->next)
            visit_target(s, &f, set->a, true);
        n->hidden = frame_done(s, &f, n->list);
        break;
    case NODE_MACRO:
    case NODE_CALL_BLOCK:
        for (const struct node *p = n->kwargs; p; p = p->next)
            ref_push(s, &f.refs, p->name, REF_OTHER);
        for (const struct node *p = n->kwargs; p; p = p->next)
            visit_expr(s, &f, p->a);
        n->hidden = frame_done(s, &f, n->list);
        break;
    case NODE_SET_BLOCK:
    case NODE_FILTER_BLOCK:
        n->hidden = frame_done(s, &f, n->list);
        break;
    default:
        break;
    }
}

static void frames_in(struct scoper *s, const struct frame *f, struct node *n)
{
    for (; n && !s->rc; n = n->next) {
        for (struct node *branch = n->kind == NODE_IF ? n->list : NULL; branch;
             branch = branch->next)
            frames_in(s, f, branch->list);
        frame_of(s, f, n);
    }
}

int template_scopes(struct chat_template *t, struct err *e)
{
    struct scoper s = {.arena = &t->arena, .e = e};
    struct frame root = {0};
    arena_init(&s.work, TEMPLATE_MAX_TREE_BYTES);
    t->hidden = frame_done(&s, &root, t->body);
    arena_fini(&s.work);
    return s.rc;
}
