/* template.c - chat_template_create/render and their budgets; see template.h. */
#include "text/template_internal.h"

#include "base/clock.h"
#include "text/utf8.h"

#include <stdio.h>
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
        if (rc == 0)
            rc = template_check(t->body, e);
        if (rc == 0)
            rc = template_scopes(t, e);
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
    template_probe(t);
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

/* What a conversation weighs: what it may cost follows from it. */
struct weight {
    size_t messages, values, bytes;
    uint64_t max_steps; /* 0: what follows from the others */
};

static int weigh_text(const char *what, const char *p, size_t n, struct weight *w, struct err *e)
{
    size_t bad = utf8_check(p, n);
    w->values++;
    w->bytes += n;
    return bad == n ? 0 : err_set(e, ERR_FORMAT, "%s: not valid UTF-8 at byte %zu", what, bad);
}

static int weigh_json(const char *what, const json_t *j, int depth, struct weight *w, struct err *e)
{
    if (depth > TEMPLATE_MAX_VALUE_DEPTH)
        return err_set(e, ERR_LIMIT, "%s: nested deeper than %d", what, TEMPLATE_MAX_VALUE_DEPTH);
    w->values++;
    int rc = 0;
    size_t i;
    const char *key;
    json_t *item;
    if (json_is_string(j))
        return weigh_text(what, json_string_value(j), json_string_length(j), w, e);
    if (json_is_array(j))
        json_array_foreach(j, i, item)
        {
            rc = weigh_json(what, item, depth + 1, w, e);
            if (rc)
                return rc;
        }
    if (json_is_object(j))
        json_object_foreach((json_t *)j, key, item)
        {
            rc = weigh_text(what, key, strlen(key), w, e);
            if (rc == 0)
                rc = weigh_json(what, item, depth + 1, w, e);
            if (rc)
                return rc;
        }
    return 0;
}

static int weigh_inputs(const struct chat_inputs *in, struct weight *w, struct err *e)
{
    const struct {
        const char *name;
        const json_t *json;
        json_type type;
    } parts[] = {
        {"messages", in->messages, JSON_ARRAY},
        {"tools", in->tools, JSON_ARRAY},
        {"documents", in->documents, JSON_ARRAY},
        {"chat_template_kwargs", in->kwargs, JSON_OBJECT},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!parts[i].json || (i > 0 && json_is_null(parts[i].json)))
            continue;
        if (json_typeof(parts[i].json) != parts[i].type)
            return err_set(e, ERR_FORMAT, "%s: expected an %s", parts[i].name,
                           parts[i].type == JSON_ARRAY ? "array" : "object");
        int rc = weigh_json(parts[i].name, parts[i].json, 0, w, e);
        if (rc)
            return rc;
    }
    w->messages = json_array_size(in->messages);
    const char *const tokens[] = {in->bos, in->eos, in->unk, in->pad};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof tokens / sizeof tokens[0]; i++)
        if (tokens[i])
            rc = weigh_text("a special token", tokens[i], strlen(tokens[i]), w, e);
    return rc;
}

static uint64_t step_budget(const struct weight *w)
{
    if (w->max_steps)
        return w->max_steps;
    uint64_t steps = TEMPLATE_STEPS + (uint64_t)w->messages * TEMPLATE_STEPS_PER_MESSAGE;
    return (steps < TEMPLATE_STEPS_MAX ? steps : TEMPLATE_STEPS_MAX) + w->bytes +
           (uint64_t)w->values * TEMPLATE_STEPS_PER_VALUE;
}

/* Globals, then the template's body. The messages are `plain`, or those of `in` when it is NULL. */
static int run(const struct chat_template *t, const struct chat_inputs *in,
               const struct chat_message *plain, size_t n_plain, const struct weight *w,
               struct buf *out, struct err *e)
{
    struct eval ev = {.out = out,
                      .e = e,
                      .steps_left = step_budget(w),
                      .line = 1,
                      .now_s = in->now_s ? in->now_s : (int64_t)(clock_wall_us() / 1000000)};
    arena_init(&ev.arena, TEMPLATE_MEMORY + w->bytes * TEMPLATE_MEMORY_PER_BYTE +
                              w->values * TEMPLATE_MEMORY_PER_VALUE);
    size_t had = out->len;
    bool had_failed = out->failed;
    struct value messages;
    struct scope *globals = scope_new(&ev, NULL);
    int rc = globals ? 0 : eval_nomem(&ev);
    if (rc == 0)
        rc = plain ? messages_from_plain(&ev, plain, n_plain, &messages)
                   : value_from_json(&ev, in->messages, &messages);
    if (rc == 0)
        rc = inputs_define(&ev, globals, in, &messages);
    struct scope *own = rc == 0 ? scope_hiding(&ev, globals, t->hidden) : NULL;
    if (rc == 0)
        rc = own ? eval_block(&ev, own, t->body) : eval_nomem(&ev);
    arena_fini(&ev.arena);
    if (rc) {
        out->len = had;
        out->failed = had_failed;
    }
    return rc < 0 ? rc : 0;
}

int chat_template_render_inputs(const struct chat_template *t, const struct chat_inputs *in,
                                struct buf *out, struct err *e)
{
    struct weight w = {0};
    if (!in->messages)
        return err_set(e, ERR_FORMAT, "messages: expected an array");
    int rc = weigh_inputs(in, &w, e);
    return rc ? rc : run(t, in, NULL, 0, &w, out, e);
}

int template_try(const struct chat_template *t, const struct chat_inputs *in, uint64_t steps,
                 struct buf *out)
{
    struct weight w = {.max_steps = steps};
    int rc = weigh_inputs(in, &w, NULL);
    return rc ? rc : run(t, in, NULL, 0, &w, out, NULL);
}

int chat_template_render(const struct chat_template *t, const struct chat_message *messages,
                         size_t n_messages, const char *bos, const char *eos,
                         bool add_generation_prompt, struct buf *out, struct err *e)
{
    static const struct chat_message NONE[1];
    struct chat_inputs in = {
        .bos = bos, .eos = eos, .add_generation_prompt = add_generation_prompt};
    struct weight w = {0};
    int rc = weigh_inputs(&in, &w, e);
    for (size_t i = 0; rc == 0 && i < n_messages; i++) {
        char what[40];
        snprintf(what, sizeof what, "message %zu", i);
        rc = weigh_text(what, messages[i].role, strlen(messages[i].role), &w, e);
        if (rc == 0)
            rc = weigh_text(what, messages[i].content, messages[i].content_bytes, &w, e);
    }
    w.messages = n_messages;
    return rc ? rc : run(t, &in, n_messages ? messages : NONE, n_messages, &w, out, e);
}
