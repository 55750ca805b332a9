/* template_input.c - what the caller of a rendering gives, as the template's variables. */
#include "text/template_internal.h"

static int list_from_json(struct eval *ev, const json_t *j, struct value *out)
{
    struct list *l = list_new(ev, LIST_LIST);
    if (!l)
        return eval_nomem(ev);
    size_t i;
    json_t *item;
    json_array_foreach(j, i, item)
    {
        struct value v;
        int rc = value_from_json(ev, item, &v);
        if (rc == 0)
            rc = list_push(ev, l, &v);
        if (rc)
            return rc;
    }
    *out = value_list(l);
    return 0;
}

static int dict_from_json(struct eval *ev, const json_t *j, struct value *out)
{
    struct dict *d = dict_new(ev);
    if (!d)
        return eval_nomem(ev);
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)j, name, item)
    {
        struct value key = value_str((struct str){name, strlen(name)}), v;
        int rc = value_from_json(ev, item, &v);
        if (rc == 0)
            rc = dict_append(ev, d, &key, &v);
        if (rc)
            return rc;
    }
    *out = (struct value){.type = VALUE_DICT, .dict = d};
    return 0;
}

int value_from_json(struct eval *ev, const json_t *j, struct value *out)
{
    switch (json_typeof(j)) {
    case JSON_NULL:
        *out = value_none();
        return 0;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = value_bool(json_is_true(j));
        return 0;
    case JSON_INTEGER:
        *out = value_int(json_integer_value(j));
        return 0;
    case JSON_REAL:
        *out = (struct value){.type = VALUE_FLOAT, .f = json_real_value(j)};
        return 0;
    case JSON_STRING:
        *out = value_str((struct str){json_string_value(j), json_string_length(j)});
        return 0;
    case JSON_ARRAY:
        return list_from_json(ev, j, out);
    case JSON_OBJECT:
        return dict_from_json(ev, j, out);
    }
    return eval_fail(ev, ERR_FORMAT, "not a JSON value");
}

int messages_from_plain(struct eval *ev, const struct chat_message *m, size_t n, struct value *out)
{
    struct list *l = list_new(ev, LIST_LIST);
    if (!l)
        return eval_nomem(ev);
    for (size_t i = 0; i < n; i++) {
        const struct value keys[] = {value_str(STR("role")), value_str(STR("content"))};
        const struct value texts[] = {
            value_str((struct str){m[i].role, strlen(m[i].role)}),
            value_str((struct str){m[i].content, m[i].content_bytes}),
        };
        struct dict *d = dict_new(ev);
        int rc = d ? dict_append(ev, d, &keys[0], &texts[0]) : eval_nomem(ev);
        if (rc == 0)
            rc = dict_append(ev, d, &keys[1], &texts[1]);
        struct value v = {.type = VALUE_DICT, .dict = d};
        if (rc == 0)
            rc = list_push(ev, l, &v);
        if (rc)
            return rc;
    }
    *out = value_list(l);
    return 0;
}

static int define_json(struct eval *ev, struct scope *sc, struct str name, const json_t *j)
{
    struct value v = value_none();
    int rc = j ? value_from_json(ev, j, &v) : 0;
    return rc ? rc : scope_set(ev, sc, name, &v);
}

static int define_text(struct eval *ev, struct scope *sc, struct str name, const char *text)
{
    if (!text)
        return 0;
    struct value v = value_str((struct str){text, strlen(text)});
    return scope_set(ev, sc, name, &v);
}

/* What the request itself says cannot be said again by name. */
static int define_kwargs(struct eval *ev, struct scope *sc, const json_t *kwargs)
{
    static const char *const OWN[] = {"messages", "tools", "documents", "add_generation_prompt"};
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)kwargs, name, item)
    {
        for (size_t i = 0; i < sizeof OWN / sizeof OWN[0]; i++)
            if (strcmp(name, OWN[i]) == 0)
                return err_set(ev->e, ERR_CONFIG, "chat_template_kwargs: \"%s\" is set elsewhere",
                               name);
        int rc = define_json(ev, sc, (struct str){name, strlen(name)}, item);
        if (rc)
            return rc;
    }
    return 0;
}

int inputs_define(struct eval *ev, struct scope *sc, const struct chat_inputs *in,
                  const struct value *messages)
{
    struct value add = value_bool(in->add_generation_prompt);
    int rc = scope_set(ev, sc, STR("messages"), messages);
    if (rc == 0)
        rc = define_json(ev, sc, STR("tools"), in->tools);
    if (rc == 0)
        rc = define_json(ev, sc, STR("documents"), in->documents);
    if (rc == 0)
        rc = scope_set(ev, sc, STR("add_generation_prompt"), &add);
    if (rc == 0)
        rc = define_text(ev, sc, STR("bos_token"), in->bos);
    if (rc == 0)
        rc = define_text(ev, sc, STR("eos_token"), in->eos);
    if (rc == 0)
        rc = define_text(ev, sc, STR("unk_token"), in->unk);
    if (rc == 0)
        rc = define_text(ev, sc, STR("pad_token"), in->pad);
    return rc || !in->kwargs || json_is_null(in->kwargs) ? rc : define_kwargs(ev, sc, in->kwargs);
}
