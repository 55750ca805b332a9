/* scan.c - see scan.h. One pass over libyaml's events with a small stack; no recursion. */
#include "config/scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct level { /* an open mapping or sequence */
    size_t entry;
    bool mapping;
    bool has_key; /* a key was read, its value comes next */
    char key[SCAN_MAX_KEY + 1];
    unsigned key_line;
};

struct scanner {
    struct scan *s;
    const char *file;
    struct level stack[SCAN_MAX_DEPTH];
    size_t depth;
    unsigned n_documents;
    struct err *e;
};

static int fault(struct scanner *c, unsigned line, const char *what)
{
    return err_set(c->e, ERR_CONFIG, "%s:%u: %s", c->file, line, what);
}

/* The entry that begins here: path from the open level, line of the key or of the item. */
static int entry_add(struct scanner *c, unsigned line, enum scan_kind kind, size_t *index)
{
    struct scan *s = c->s;
    if (s->n == SCAN_MAX_ENTRIES)
        return err_set(c->e, ERR_CONFIG, "%s:%u: more than %d entries", c->file, line,
                       SCAN_MAX_ENTRIES);
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        struct scan_entry *grown = realloc(s->entries, cap * sizeof *grown);
        if (!grown)
            return err_set(c->e, ERR_NOMEM, "%s: out of memory", c->file);
        s->entries = grown;
        s->cap = cap;
    }
    struct scan_entry *x = &s->entries[s->n];
    memset(x, 0, sizeof *x);
    x->line = line;
    x->kind = kind;
    if (c->depth) {
        struct level *l = &c->stack[c->depth - 1];
        struct scan_entry *up = &s->entries[l->entry];
        int n, m;
        if (l->mapping) {
            const char *dot = up->path[0] ? "." : "";
            n = snprintf(x->path, sizeof x->path, "%s%s%s", up->path, dot, l->key);
            m = snprintf(x->pattern, sizeof x->pattern, "%s%s%s", up->pattern, dot, l->key);
            x->line = l->key_line;
            l->has_key = false;
        } else {
            n = snprintf(x->path, sizeof x->path, "%s[%u]", up->path, up->n_children);
            m = snprintf(x->pattern, sizeof x->pattern, "%s[]", up->pattern);
        }
        if (n >= (int)sizeof x->path || m >= (int)sizeof x->pattern)
            return fault(c, line, "key is nested too deep");
        up->n_children++;
    }
    *index = s->n++;
    return 0;
}

/* A mapping's key: a plain word, not seen before in this mapping. */
static int key_take(struct scanner *c, const yaml_event_t *ev, unsigned line)
{
    struct level *l = &c->stack[c->depth - 1];
    if (ev->type != YAML_SCALAR_EVENT)
        return fault(c, line, "a key must be a word");
    const char *text = (const char *)ev->data.scalar.value;
    size_t n = ev->data.scalar.length;
    if (n == 0 || n > SCAN_MAX_KEY || strlen(text) != n)
        return err_set(c->e, ERR_CONFIG, "%s:%u: a key must have 1 to %d letters", c->file, line,
                       SCAN_MAX_KEY);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] <= ' ' || strchr(".[]\"\x7f", text[i]))
            return fault(c, line, "a key must be a word");
    memcpy(l->key, text, n + 1);
    l->key_line = line;
    l->has_key = true;
    char path[2 * SCAN_PATH_BYTES];
    const char *up = c->s->entries[l->entry].path;
    snprintf(path, sizeof path, "%s%s%s", up, up[0] ? "." : "", l->key);
    const struct scan_entry *twin = scan_find(c->s, path);
    if (twin)
        return err_set(c->e, ERR_CONFIG, "%s:%u: key \"%s\" was given before, on line %u", c->file,
                       line, l->key, twin->line);
    return 0;
}

static int scalar_take(struct scanner *c, const yaml_event_t *ev, unsigned line)
{
    size_t at;
    int rc = entry_add(c, line, SCAN_SCALAR, &at);
    if (rc)
        return rc;
    struct scan_entry *x = &c->s->entries[at];
    const char *text = (const char *)ev->data.scalar.value;
    if (strlen(text) != ev->data.scalar.length)
        return fault(c, line, "a value must not hold a NUL byte");
    x->plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    x->value = strdup(text);
    return x->value ? 0 : err_set(c->e, ERR_NOMEM, "%s: out of memory", c->file);
}

static int level_open(struct scanner *c, unsigned line, bool mapping)
{
    if (c->depth == SCAN_MAX_DEPTH)
        return err_set(c->e, ERR_CONFIG, "%s:%u: nested deeper than %d levels", c->file, line,
                       SCAN_MAX_DEPTH);
    size_t at;
    int rc = entry_add(c, line, mapping ? SCAN_MAPPING : SCAN_SEQUENCE, &at);
    if (rc)
        return rc;
    c->stack[c->depth++] = (struct level){.entry = at, .mapping = mapping};
    return 0;
}

static bool marked(const yaml_event_t *ev)
{
    switch (ev->type) {
    case YAML_SCALAR_EVENT:
        return ev->data.scalar.anchor || ev->data.scalar.tag;
    case YAML_SEQUENCE_START_EVENT:
        return ev->data.sequence_start.anchor || ev->data.sequence_start.tag;
    case YAML_MAPPING_START_EVENT:
        return ev->data.mapping_start.anchor || ev->data.mapping_start.tag;
    default:
        return false;
    }
}

static int event_take(struct scanner *c, const yaml_event_t *ev)
{
    unsigned line = (unsigned)ev->start_mark.line + 1;
    if (ev->type == YAML_ALIAS_EVENT || marked(ev))
        return fault(c, line, "anchors (&), aliases (*) and tags (!) are not allowed here");
    if (ev->type == YAML_DOCUMENT_START_EVENT && c->n_documents++)
        return fault(c, line, "a second document (---) is not allowed");
    bool starts = ev->type == YAML_SCALAR_EVENT || ev->type == YAML_SEQUENCE_START_EVENT ||
                  ev->type == YAML_MAPPING_START_EVENT;
    struct level *l = c->depth ? &c->stack[c->depth - 1] : NULL;
    if (starts && l && l->mapping && !l->has_key)
        return key_take(c, ev, line);
    switch (ev->type) {
    case YAML_SCALAR_EVENT:
        return scalar_take(c, ev, line);
    case YAML_SEQUENCE_START_EVENT:
        return level_open(c, line, false);
    case YAML_MAPPING_START_EVENT:
        return level_open(c, line, true);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        c->depth--;
        return 0;
    default:
        return 0;
    }
}

static int parser_fault(struct scanner *c, const yaml_parser_t *p, const char *text, size_t n)
{
    if (p->error == YAML_MEMORY_ERROR)
        return err_set(c->e, ERR_NOMEM, "%s: out of memory", c->file);
    unsigned line = (unsigned)p->problem_mark.line + 1;
    if (p->error == YAML_READER_ERROR) { /* knows an offset only */
        line = 1;
        for (size_t i = 0; i < p->problem_offset && i < n; i++)
            line += text[i] == '\n';
    }
    return err_set(c->e, ERR_CONFIG, "%s:%u: not valid YAML: %s%s%s", c->file, line,
                   p->problem ? p->problem : "cannot be read", p->context ? ", " : "",
                   p->context ? p->context : "");
}

int scan_yaml(struct scan *s, const char *text, size_t n, const char *file, struct err *e)
{
    memset(s, 0, sizeof *s);
    if (n > SCAN_MAX_BYTES)
        return err_set(e, ERR_CONFIG, "%s:1: larger than %d bytes", file, SCAN_MAX_BYTES);
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return err_set(e, ERR_NOMEM, "%s: out of memory", file);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    struct scanner c = {.s = s, .file = file, .e = e};
    int rc = 0;
    for (bool more = true; more && !rc;) {
        yaml_event_t ev;
        if (!yaml_parser_parse(&parser, &ev)) {
            rc = parser_fault(&c, &parser, text, n);
            break;
        }
        more = ev.type != YAML_STREAM_END_EVENT;
        rc = event_take(&c, &ev);
        yaml_event_delete(&ev);
    }
    yaml_parser_delete(&parser);
    if (!rc && (s->n == 0 || s->entries[0].kind != SCAN_MAPPING))
        rc = fault(&c, s->n ? s->entries[0].line : 1,
                   s->n ? "expected `key: value` lines" : "empty: nothing is configured");
    if (rc)
        scan_fini(s);
    return rc;
}

void scan_fini(struct scan *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->entries[i].value);
    free(s->entries);
    memset(s, 0, sizeof *s);
}

const struct scan_entry *scan_find(const struct scan *s, const char *path)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->entries[i].path, path) == 0)
            return &s->entries[i];
    return NULL;
}
