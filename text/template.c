/* template.c - chat_template_create/render; see template.h. */
#include "text/template_internal.h"

#include "text/utf8.h"

#include <stdlib.h>

/* All kinds of newline become one, and a single one at the end goes (Jinja:
 * keep_trailing_newline is off). */
static int normalize(struct arena *arena, const char *source, size_t n, struct str *out)
{
    char *p = arena_alloc(arena, n + 1);
    if (!p)
        return ERR_NOMEM;
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (source[i] == '\r') {
            p[len++] = '\n';
            if (i + 1 < n && source[i + 1] == '\n')
                i++;
        } else {
            p[len++] = source[i];
        }
    }
    if (len && p[len - 1] == '\n')
        len--;
    *out = (struct str){p, len};
    return 0;
}

static int compile(struct chat_template *t, const char *source, size_t n, struct err *e)
{
    struct str text;
    if (normalize(&t->arena, source, n, &text))
        return err_set(e, ERR_NOMEM, "chat template: out of memory");
    struct tokens tokens = {0};
    int rc = template_lex(text, &t->arena, &tokens, e);
    if (rc == 0) {
        struct parser p = {.at = tokens.items, .arena = &t->arena, .e = e};
        t->body = template_parse(&p);
        rc = p.rc;
    }
    free(tokens.items);
    return rc;
}

int chat_template_create(struct chat_template **out, const char *source, size_t n, struct err *e)
{
    if (n > TEMPLATE_MAX_SOURCE)
        return err_set(e, ERR_LIMIT, "chat template of %zu bytes, at most %d", n,
                       TEMPLATE_MAX_SOURCE);
    size_t bad = utf8_check(source, n);
    if (bad != n)
        return err_set(e, ERR_FORMAT, "chat template: not valid UTF-8 at byte %zu", bad);
    struct chat_template *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_NOMEM, "chat template: out of memory");
    arena_init(&t->arena, TEMPLATE_MAX_TREE_BYTES);
    int rc = compile(t, source, n, e);
    if (rc) {
        chat_template_destroy(t);
        return rc;
    }
    *out = t;
    return 0;
}

void chat_template_destroy(struct chat_template *t)
{
    if (!t)
        return;
    arena_fini(&t->arena);
    free(t);
}

/* ---- rendering ---- */

static int set_text(struct eval *ev, struct dict *d, struct str key, const char *p, size_t n)
{
    struct value k = value_str(key), v = value_str((struct str){p ? p : "", n});
    return dict_set(ev, d, &k, &v);
}

static int messages_value(struct eval *ev, const struct chat_message *m, size_t n,
                          struct value *out)
{
    struct list *l = list_new(ev, LIST_LIST);
    if (!l)
        return eval_nomem(ev);
    for (size_t i = 0; i < n; i++) {
        struct dict *d = dict_new(ev);
        int rc = d ? set_text(ev, d, STR("role"), m[i].role, strlen(m[i].role)) : eval_nomem(ev);
        if (rc == 0)
            rc = set_text(ev, d, STR("content"), m[i].content, m[i].content_bytes);
        struct value v = {.type = VALUE_DICT, .dict = d};
        if (rc == 0)
            rc = list_push(ev, l, &v);
        if (rc)
            return rc;
    }
    *out = value_list(l);
    return 0;
}

/* What transformers' apply_chat_template hands to a template when there are neither tools nor
 * documents. */
static int set_globals(struct eval *ev, struct scope *sc, const struct chat_message *messages,
                       size_t n, const char *bos, const char *eos, bool add_generation_prompt)
{
    struct value none = value_none(), add = value_bool(add_generation_prompt), list;
    int rc = messages_value(ev, messages, n, &list);
    if (rc == 0)
        rc = scope_set(ev, sc, STR("messages"), &list);
    if (rc == 0)
        rc = scope_set(ev, sc, STR("tools"), &none);
    if (rc == 0)
        rc = scope_set(ev, sc, STR("documents"), &none);
    if (rc == 0)
        rc = scope_set(ev, sc, STR("add_generation_prompt"), &add);
    if (rc == 0 && bos) {
        struct value v = value_str((struct str){bos, strlen(bos)});
        rc = scope_set(ev, sc, STR("bos_token"), &v);
    }
    if (rc == 0 && eos) {
        struct value v = value_str((struct str){eos, strlen(eos)});
        rc = scope_set(ev, sc, STR("eos_token"), &v);
    }
    return rc;
}

static int check_messages(const struct chat_message *m, size_t n, size_t *total, struct err *e)
{
    *total = 0;
    for (size_t i = 0; i < n; i++) {
        size_t bad = utf8_check(m[i].content, m[i].content_bytes);
        if (bad != m[i].content_bytes)
            return err_set(e, ERR_FORMAT, "message %zu is not valid UTF-8 at byte %zu", i, bad);
        size_t role = strlen(m[i].role);
        if (utf8_check(m[i].role, role) != role)
            return err_set(e, ERR_FORMAT, "message %zu: the role is not valid UTF-8", i);
        *total += m[i].content_bytes + role;
    }
    return 0;
}

static uint64_t step_budget(size_t n_messages, size_t total_bytes)
{
    uint64_t steps = TEMPLATE_STEPS + (uint64_t)n_messages * TEMPLATE_STEPS_PER_MESSAGE;
    return (steps < TEMPLATE_STEPS_MAX ? steps : TEMPLATE_STEPS_MAX) + total_bytes;
}

int chat_template_render(const struct chat_template *t, const struct chat_message *messages,
                         size_t n_messages, const char *bos, const char *eos,
                         bool add_generation_prompt, struct buf *out, struct err *e)
{
    size_t total;
    int rc = check_messages(messages, n_messages, &total, e);
    if (rc)
        return rc;
    if ((bos && utf8_check(bos, strlen(bos)) != strlen(bos)) ||
        (eos && utf8_check(eos, strlen(eos)) != strlen(eos)))
        return err_set(e, ERR_FORMAT, "bos or eos token is not valid UTF-8");
    struct eval ev = {.out = out, .e = e, .steps_left = step_budget(n_messages, total), .line = 1};
    arena_init(&ev.arena, TEMPLATE_MEMORY + total * TEMPLATE_MEMORY_PER_BYTE + n_messages * 4096);
    size_t had = out->len;
    bool had_failed = out->failed;
    struct scope *globals = scope_new(&ev, NULL);
    rc = globals ? set_globals(&ev, globals, messages, n_messages, bos, eos, add_generation_prompt)
                 : eval_nomem(&ev);
    if (rc == 0)
        rc = eval_block(&ev, globals, t->body);
    arena_fini(&ev.arena);
    if (rc) {
        out->len = had;
        out->failed = had_failed;
    }
    return rc;
}
