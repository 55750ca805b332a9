/* hf_tokenizer_post.c - tokenizer.json: "post_processor", as far as it says what is put around a text. */
#include "model/hf_tokenizer_internal.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_NESTING = 8 };

struct affixes {
    uint32_t n_prefix, n_suffix;
    uint32_t prefix[TOK_MAX_AFFIX], suffix[TOK_MAX_AFFIX];
};

static int add_id(struct hf_reader *r, const struct hf_at *at, const json_t *id, uint32_t *ids,
                  uint32_t *n)
{
    json_int_t v = json_integer_value(id);
    if (!json_is_integer(id) || v < 0 || v >= (json_int_t)r->t->n_tokens)
        return err_set(r->e, ERR_FORMAT, "%s: expected an id below %" PRIu32, at->where,
                       r->t->n_tokens);
    if (*n == TOK_MAX_AFFIX)
        return err_set(r->e, ERR_LIMIT, "%s: more than %d tokens on one side of a text", at->where,
                       TOK_MAX_AFFIX);
    ids[(*n)++] = (uint32_t)v;
    return 0;
}

/* {"SpecialToken": {"id": "<s>", "type_id": 0}}: the ids of that name. */
static int read_special(struct hf_reader *r, const struct hf_at *template, const struct hf_at *item,
                        uint32_t *ids, uint32_t *n)
{
    struct hf_at special = hf_at_get(item, "SpecialToken");
    const char *name = NULL;
    int rc = hf_at_text(&special, "id", &name, r->e);
    if (rc || !name)
        return rc ? rc : hf_at_expected(item, "a SpecialToken or Sequence", r->e);
    struct hf_at all = hf_at_get(template, "special_tokens"), one = hf_at_get(&all, name);
    struct hf_at list = hf_at_get(&one, "ids");
    if (!json_is_array(list.v))
        return hf_at_expected(&list, "an array of ids", r->e);
    for (size_t i = 0; i < json_array_size(list.v) && !rc; i++)
        rc = add_id(r, &list, json_array_get(list.v, i), ids, n);
    return rc;
}

static int read_template(struct hf_reader *r, const struct hf_at *at, struct affixes *a)
{
    struct hf_at single = hf_at_get(at, "single");
    if (!json_is_array(single.v))
        return hf_at_expected(&single, "an array", r->e);
    bool behind = false;
    int rc = 0;
    for (size_t i = 0; i < json_array_size(single.v) && !rc; i++) {
        struct hf_at item = hf_at_item(&single, i);
        if (hf_at_get(&item, "Sequence").v) {
            if (behind)
                return err_set(r->e, ERR_FORMAT, "%s: the text twice", item.where);
            behind = true;
        } else {
            rc = read_special(r, at, &item, behind ? a->suffix : a->prefix,
                              behind ? &a->n_suffix : &a->n_prefix);
        }
    }
    if (!rc && !behind)
        rc = err_set(r->e, ERR_FORMAT, "%s: without the text", single.where);
    return rc;
}

/* ["[CLS]", 101] */
static int read_pair(struct hf_reader *r, const struct hf_at *at, const char *key, uint32_t *ids,
                     uint32_t *n)
{
    struct hf_at pair = hf_at_get(at, key);
    if (json_array_size(pair.v) != 2)
        return hf_at_expected(&pair, "a token and its id", r->e);
    return add_id(r, &pair, json_array_get(pair.v, 1), ids, n);
}

static int read_processor(struct hf_reader *r, const struct hf_at *at, struct affixes *a, int depth)
{
    const char *type = NULL;
    if (!json_is_object(at->v))
        return hf_at_expected(at, "an object", r->e);
    int rc = hf_at_text(at, "type", &type, r->e);
    if (rc)
        return rc;
    if (!type)
        return err_set(r->e, ERR_FORMAT, "%s: no type", at->where);
    if (strcmp(type, "ByteLevel") == 0) /* offsets only */
        return 0;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(r, at, a);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        rc = read_pair(r, at, "cls", a->prefix, &a->n_prefix);
        return rc ? rc : read_pair(r, at, "sep", a->suffix, &a->n_suffix);
    }
    if (strcmp(type, "Sequence") != 0 || depth == MAX_NESTING)
        return hf_at_refuse(at, "the post-processor", type, r->e);
    struct hf_at list = hf_at_get(at, "processors");
    if (!json_is_array(list.v))
        return hf_at_expected(&list, "an array", r->e);
    for (size_t i = 0; i < json_array_size(list.v) && !rc; i++) {
        struct affixes inner = {0};
        struct hf_at item = hf_at_item(&list, i);
        rc = read_processor(r, &item, &inner, depth + 1);
        if (!rc && (inner.n_prefix || inner.n_suffix) && (a->n_prefix || a->n_suffix))
            rc = err_set(r->e, ERR_FORMAT, "%s: a second one that puts tokens around a text",
                         item.where);
        if (inner.n_prefix || inner.n_suffix)
            *a = inner;
    }
    return rc;
}

int hf_read_post(struct hf_reader *r)
{
    struct hf_at at = hf_at_get(&r->top, "post_processor");
    struct affixes a = {0};
    int rc = at.v ? read_processor(r, &at, &a, 0) : 0;
    if (rc)
        return rc;
    r->t->n_prefix = a.n_prefix;
    r->t->n_suffix = a.n_suffix;
    memcpy(r->t->prefix, a.prefix, sizeof a.prefix);
    memcpy(r->t->suffix, a.suffix, sizeof a.suffix);
    return 0;
}
