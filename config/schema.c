/* schema.c - see schema.h. Groups are mappings of the same flat struct: their offset is 0. */
#include "config/schema.h"

#include "config/options.h"

#include <string.h>

static const cyaml_schema_field_t *group_make(struct schema *s, const char *group);

static void words_make(struct schema *s, const struct option *o, cyaml_schema_value_t *v)
{
    v->enumeration.strings = &s->words[s->n_words];
    for (uint32_t i = 0; o->words[i]; i++) {
        CHECK(s->n_words < SCHEMA_WORDS);
        s->words[s->n_words++] = (cyaml_strval_t){o->words[i], i};
        v->enumeration.count = i + 1;
    }
}

static void value_make(struct schema *s, const struct option *o, cyaml_schema_field_t *f)
{
    cyaml_schema_value_t *v = &f->value;
    unsigned flags = o->required ? 0 : CYAML_FLAG_OPTIONAL;
    v->data_size = (uint32_t)o->size;
    switch (o->type) {
    case OPTION_STRING:
        v->type = CYAML_STRING;
        flags |= CYAML_FLAG_POINTER;
        v->data_size = 1;
        v->string.min = 0;
        v->string.max = SCHEMA_MAX_TEXT;
        break;
    case OPTION_UINT:
        v->type = CYAML_UINT;
        break;
    case OPTION_COUNT: /* the word, or any number: libcyaml's enumeration when it is not strict */
        v->type = CYAML_ENUM;
        words_make(s, o, v);
        break;
    case OPTION_BOOL:
        v->type = CYAML_BOOL;
        break;
    case OPTION_CHOICE:
        v->type = CYAML_ENUM;
        flags |= CYAML_FLAG_STRICT;
        words_make(s, o, v);
        break;
    case OPTION_LIST:
    case OPTION_MODELS:
        v->type = CYAML_SEQUENCE;
        flags |= CYAML_FLAG_POINTER;
        v->data_size = o->type == OPTION_LIST ? sizeof(char *) : sizeof(struct config_model);
        v->sequence.entry = o->type == OPTION_LIST ? &s->text : &s->model;
        v->sequence.min = (uint32_t)o->min;
        v->sequence.max = (uint32_t)o->max;
        f->count_offset = (uint32_t)o->count_offset;
        f->count_size = sizeof(unsigned);
        break;
    case OPTION_GROUP:
        v->type = CYAML_MAPPING;
        v->data_size = sizeof(struct config);
        v->mapping.fields = group_make(s, o->path);
        break;
    }
    v->flags = (enum cyaml_flag)flags;
}

static const cyaml_schema_field_t *group_make(struct schema *s, const char *group)
{
    CHECK(s->n_groups < SCHEMA_GROUPS);
    cyaml_schema_field_t *fields = s->fields[s->n_groups++];
    unsigned n = 0;
    for (const struct option *o = option_table(); o->path; o++) {
        if (!option_in_group(o, group))
            continue;
        CHECK(n < SCHEMA_KEYS);
        fields[n].key = option_key(o);
        fields[n].data_offset = (uint32_t)o->offset;
        value_make(s, o, &fields[n]);
        n++;
    }
    return fields; /* the entry after the last is zero: libcyaml's end mark */
}

void schema_make(struct schema *s)
{
    memset(s, 0, sizeof *s);
    s->text.type = CYAML_STRING;
    s->text.flags = CYAML_FLAG_POINTER;
    s->text.data_size = 1;
    s->text.string.max = SCHEMA_MAX_TEXT;
    s->model.type = CYAML_MAPPING;
    s->model.data_size = sizeof(struct config_model);
    s->model.mapping.fields = group_make(s, "models[]");
    s->top.type = CYAML_MAPPING;
    s->top.flags = CYAML_FLAG_POINTER;
    s->top.data_size = sizeof(struct config);
    s->top.mapping.fields = group_make(s, "");
}
