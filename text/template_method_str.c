/* template_method_str.c - methods of strings, as Python's str has them. */
#include "text/template_internal.h"

#include "text/unicode.h"
#include "text/utf8.h"

static int strip(struct eval *ev, const struct value *self, const struct args *a, bool left,
                 bool right, struct value *out)
{
    struct str chars;
    bool given = a->bound[0] && a->bound[0]->type != VALUE_NONE;
    int rc = given ? builtin_arg_str(ev, a->bound[0], STR(""), &chars) : 0;
    if (rc == 0)
        rc = eval_bytes(ev, self->s.n);
    if (rc == 0 && given)
        rc = eval_bytes(ev, self->s.n * (chars.n / TEMPLATE_BYTES_PER_STEP));
    if (rc == 0)
        *out = value_str(str_strip(self->s, given ? &chars : NULL, left, right));
    return rc;
}

static int m_strip(struct eval *ev, const struct value *self, const struct args *a,
                   struct value *out)
{
    return strip(ev, self, a, true, true, out);
}

static int m_lstrip(struct eval *ev, const struct value *self, const struct args *a,
                    struct value *out)
{
    return strip(ev, self, a, true, false, out);
}

static int m_rstrip(struct eval *ev, const struct value *self, const struct args *a,
                    struct value *out)
{
    return strip(ev, self, a, false, true, out);
}

static int split(struct eval *ev, const struct value *self, const struct args *a, bool from_right,
                 struct value *out)
{
    struct str sep;
    int64_t max;
    struct list *l;
    bool given = a->bound[0] && a->bound[0]->type != VALUE_NONE;
    int rc = given ? builtin_arg_str(ev, a->bound[0], STR(""), &sep) : 0;
    if (rc == 0)
        rc = builtin_arg_int(ev, a->bound[1], -1, &max);
    if (rc == 0)
        rc = str_split(ev, self->s, given ? &sep : NULL, max, from_right, &l);
    if (rc == 0)
        *out = value_list(l);
    return rc;
}

static int m_split(struct eval *ev, const struct value *self, const struct args *a,
                   struct value *out)
{
    return split(ev, self, a, false, out);
}

static int m_rsplit(struct eval *ev, const struct value *self, const struct args *a,
                    struct value *out)
{
    return split(ev, self, a, true, out);
}

static int m_splitlines(struct eval *ev, const struct value *self, const struct args *a,
                        struct value *out)
{
    struct list *l;
    int rc = str_lines(ev, self->s, a->bound[0] && value_truth(a->bound[0]), &l);
    if (rc == 0)
        *out = value_list(l);
    return rc;
}

static bool affix_is(struct str s, struct str part, bool at_end)
{
    return part.n <= s.n && memcmp(at_end ? s.p + s.n - part.n : s.p, part.p, part.n) == 0;
}

/* The part of self that start and end (arguments 1 and 2, in characters) leave. *before: its first
 * character's index; false: it begins behind the end of the text. */
static int window(struct eval *ev, const struct value *self, const struct args *a, struct str *out,
                  int64_t *before, bool *inside)
{
    const struct value *bound[2] = {a->bound[1], a->bound[2]};
    struct value part;
    *out = self->s;
    *before = 0;
    *inside = true;
    int rc = 0;
    for (int i = 0; i < 2; i++)
        if (bound[i] && bound[i]->type != VALUE_NONE && !value_is_integer(bound[i]))
            return eval_fail(ev, ERR_FORMAT, "expected an integer, got %s",
                             value_type_name(bound[i]));
    if (!bound[0] && !bound[1])
        return 0;
    int64_t n = (int64_t)utf8_length(self->s.p, self->s.n);
    if (bound[0] && bound[0]->type != VALUE_NONE) {
        *before = value_as_int(bound[0]);
        *before += *before < 0 ? n : 0;
        *before = *before < 0 ? 0 : *before;
    }
    if (bound[1] && bound[1]->type != VALUE_NONE) {
        int64_t end = value_as_int(bound[1]);
        end += end < 0 ? n : 0;
        n = end < 0 ? 0 : end < n ? end : n;
    }
    *inside = *before <= n;
    rc = eval_slice(ev, self, bound[0], bound[1], NULL, &part);
    *out = part.s;
    return rc;
}

/* One string or a tuple of them. */
static int has_affix(struct eval *ev, const struct value *self, const struct args *a, bool at_end,
                     struct value *out)
{
    const struct value *parts = a->bound[0];
    size_t n = 1;
    struct str s;
    int64_t before;
    bool inside, found = false;
    if (parts->type == VALUE_LIST && parts->list->kind == LIST_TUPLE) {
        n = parts->list->n;
        parts = parts->list->items;
    }
    int rc = window(ev, self, a, &s, &before, &inside);
    for (size_t i = 0; rc == 0 && i < n && !found; i++) {
        if (parts[i].type != VALUE_STRING)
            return eval_fail(ev, ERR_FORMAT, "expected a string or a tuple of strings");
        found = inside && affix_is(s, parts[i].s, at_end);
        rc = eval_steps(ev, 1 + parts[i].s.n / TEMPLATE_BYTES_PER_STEP);
    }
    *out = value_bool(found);
    return rc;
}

static int m_startswith(struct eval *ev, const struct value *self, const struct args *a,
                        struct value *out)
{
    return has_affix(ev, self, a, false, out);
}

static int m_endswith(struct eval *ev, const struct value *self, const struct args *a,
                      struct value *out)
{
    return has_affix(ev, self, a, true, out);
}

static int without_affix(struct eval *ev, const struct value *self, const struct args *a,
                         bool at_end, struct value *out)
{
    struct str part, s = self->s;
    int rc = builtin_arg_str(ev, a->bound[0], STR(""), &part);
    if (rc == 0)
        rc = eval_bytes(ev, part.n);
    if (rc == 0 && affix_is(s, part, at_end))
        s = (struct str){at_end ? s.p : s.p + part.n, s.n - part.n};
    *out = value_str(s);
    return rc;
}

static int m_removeprefix(struct eval *ev, const struct value *self, const struct args *a,
                          struct value *out)
{
    return without_affix(ev, self, a, false, out);
}

static int m_removesuffix(struct eval *ev, const struct value *self, const struct args *a,
                          struct value *out)
{
    return without_affix(ev, self, a, true, out);
}

static int in_case(struct eval *ev, const struct value *self, enum str_case how, struct value *out)
{
    out->type = VALUE_STRING;
    return str_case(ev, self->s, how, &out->s);
}

static int m_upper(struct eval *ev, const struct value *self, const struct args *a,
                   struct value *out)
{
    return in_case(ev, self, CASE_UPPER, out);
}

static int m_lower(struct eval *ev, const struct value *self, const struct args *a,
                   struct value *out)
{
    return in_case(ev, self, CASE_LOWER, out);
}

static int m_title(struct eval *ev, const struct value *self, const struct args *a,
                   struct value *out)
{
    return in_case(ev, self, CASE_TITLE, out);
}

static int m_capitalize(struct eval *ev, const struct value *self, const struct args *a,
                        struct value *out)
{
    return in_case(ev, self, CASE_CAPITAL, out);
}

static int m_replace(struct eval *ev, const struct value *self, const struct args *a,
                     struct value *out)
{
    struct str from, to;
    int64_t count;
    int rc = builtin_arg_str(ev, a->bound[0], STR(""), &from);
    if (rc == 0)
        rc = builtin_arg_str(ev, a->bound[1], STR(""), &to);
    if (rc == 0)
        rc = builtin_arg_int(ev, a->bound[2], -1, &count);
    out->type = VALUE_STRING;
    return rc ? rc : str_replace(ev, self->s, from, to, count, &out->s);
}

static int m_join(struct eval *ev, const struct value *self, const struct args *a,
                  struct value *out)
{
    struct list *items;
    int rc = value_items(ev, a->bound[0], &items);
    if (rc)
        return rc;
    struct builder b = {.ev = ev};
    for (size_t i = 0; i < items->n; i++) {
        if (items->items[i].type != VALUE_STRING)
            return eval_fail(ev, ERR_FORMAT, "join of a %s, expected strings",
                             value_type_name(&items->items[i]));
        if (i)
            build_put(&b, self->s);
        build_put(&b, items->items[i].s);
    }
    out->type = VALUE_STRING;
    return build_done(&b, &out->s);
}

/* The first or the last place of a part; *at < 0: nowhere. */
static int find_index(struct eval *ev, const struct value *self, const struct args *a,
                      bool from_right, int64_t *index)
{
    struct str part, s;
    size_t at = 0;
    int64_t before;
    bool inside;
    int rc = builtin_arg_str(ev, a->bound[0], STR(""), &part);
    if (rc == 0)
        rc = window(ev, self, a, &s, &before, &inside);
    if (rc == 0)
        rc = eval_bytes(ev, from_right ? s.n * (1 + part.n / TEMPLATE_BYTES_PER_STEP) : s.n);
    if (rc)
        return rc;
    bool found = inside && !from_right && str_find(s, part, 0, &at);
    for (size_t end = s.n; inside && from_right && !found && end >= part.n; end--) {
        found = memcmp(s.p + end - part.n, part.p, part.n) == 0;
        at = end - part.n;
        if (end == 0)
            break;
    }
    *index = found ? before + (int64_t)utf8_length(s.p, at) : -1;
    return 0;
}

static int find(struct eval *ev, const struct value *self, const struct args *a, bool from_right,
                bool must, struct value *out)
{
    int64_t index = -1;
    int rc = find_index(ev, self, a, from_right, &index);
    *out = value_int(index);
    return rc == 0 && must && index < 0 ? eval_fail(ev, ERR_FORMAT, "substring not found") : rc;
}

static int m_find(struct eval *ev, const struct value *self, const struct args *a,
                  struct value *out)
{
    return find(ev, self, a, false, false, out);
}

static int m_rfind(struct eval *ev, const struct value *self, const struct args *a,
                   struct value *out)
{
    return find(ev, self, a, true, false, out);
}

static int m_index(struct eval *ev, const struct value *self, const struct args *a,
                   struct value *out)
{
    return find(ev, self, a, false, true, out);
}

static int m_rindex(struct eval *ev, const struct value *self, const struct args *a,
                    struct value *out)
{
    return find(ev, self, a, true, true, out);
}

static int m_count(struct eval *ev, const struct value *self, const struct args *a,
                   struct value *out)
{
    struct str part, s;
    size_t at = 0, hit;
    int64_t n = 0, before;
    bool inside;
    int rc = builtin_arg_str(ev, a->bound[0], STR(""), &part);
    if (rc == 0)
        rc = window(ev, self, a, &s, &before, &inside);
    if (rc == 0)
        rc = eval_bytes(ev, s.n);
    if (rc == 0 && part.n == 0 && inside)
        n = (int64_t)utf8_length(s.p, s.n) + 1;
    while (rc == 0 && part.n && str_find(s, part, at, &hit)) {
        n++;
        at = hit + part.n;
    }
    *out = value_int(n);
    return rc;
}

/* Every character passes, and there is one. */
static int all_chars(struct eval *ev, struct str s, bool (*passes)(uint32_t cp), struct value *out)
{
    bool all = s.n > 0;
    for (size_t i = 0; i < s.n && all;) {
        uint32_t cp;
        i += utf8_next(s.p + i, &cp);
        all = passes(cp);
    }
    *out = value_bool(all);
    return eval_bytes(ev, s.n);
}

static bool is_letter(uint32_t cp)
{
    return unicode_class(cp) == UNICODE_LETTER;
}

static bool is_letter_or_number(uint32_t cp)
{
    return is_letter(cp) || unicode_class(cp) == UNICODE_NUMBER;
}

static bool is_number(uint32_t cp)
{
    return unicode_class(cp) == UNICODE_NUMBER;
}

static bool is_ascii(uint32_t cp)
{
    return cp < 0x80;
}

#define ALL_CHARS(name, passes)                                                                    \
    static int name(struct eval *ev, const struct value *self, const struct args *a,               \
                    struct value *out)                                                             \
    {                                                                                              \
        return all_chars(ev, self->s, passes, out);                                                \
    }

ALL_CHARS(m_isdigit, char_is_digit)
ALL_CHARS(m_isdecimal, char_is_decimal)
ALL_CHARS(m_isnumeric, is_number)
ALL_CHARS(m_isalpha, is_letter)
ALL_CHARS(m_isalnum, is_letter_or_number)
ALL_CHARS(m_isspace, unicode_is_python_space)

static int m_isascii(struct eval *ev, const struct value *self, const struct args *a,
                     struct value *out)
{
    *out = value_bool(true);
    return self->s.n ? all_chars(ev, self->s, is_ascii, out) : 0;
}

/* At least one cased letter, and none of the other case. */
static int one_case(struct eval *ev, struct str s, bool upper, struct value *out)
{
    bool some = false, other = false;
    for (size_t i = 0; i < s.n && !other;) {
        uint32_t cp;
        i += utf8_next(s.p + i, &cp);
        some = some || (upper ? unicode_is_upper(cp) : unicode_is_lower(cp));
        other = upper ? unicode_is_lower(cp) : unicode_is_upper(cp);
    }
    *out = value_bool(some && !other);
    return eval_bytes(ev, s.n);
}

static int m_isupper(struct eval *ev, const struct value *self, const struct args *a,
                     struct value *out)
{
    return one_case(ev, self->s, true, out);
}

static int m_islower(struct eval *ev, const struct value *self, const struct args *a,
                     struct value *out)
{
    return one_case(ev, self->s, false, out);
}

const struct builtin *method_find_string(struct str name)
{
    static const struct builtin STRING[] = {
        {"strip", m_strip, "/?chars"},
        {"lstrip", m_lstrip, "/?chars"},
        {"rstrip", m_rstrip, "/?chars"},
        {"split", m_split, "?sep,maxsplit"},
        {"rsplit", m_rsplit, "?sep,maxsplit"},
        {"splitlines", m_splitlines, "?keepends"},
        {"startswith", m_startswith, "/prefix,?start,end"},
        {"endswith", m_endswith, "/suffix,?start,end"},
        {"removeprefix", m_removeprefix, "/prefix"},
        {"removesuffix", m_removesuffix, "/suffix"},
        {"upper", m_upper, ""},
        {"lower", m_lower, ""},
        {"title", m_title, ""},
        {"capitalize", m_capitalize, ""},
        {"replace", m_replace, "/old,new,?count"},
        {"join", m_join, "/iterable"},
        {"find", m_find, "/sub,?start,end"},
        {"rfind", m_rfind, "/sub,?start,end"},
        {"index", m_index, "/sub,?start,end"},
        {"rindex", m_rindex, "/sub,?start,end"},
        {"count", m_count, "/sub,?start,end"},
        {"isdigit", m_isdigit, ""},
        {"isdecimal", m_isdecimal, ""},
        {"isnumeric", m_isnumeric, ""},
        {"isalpha", m_isalpha, ""},
        {"isalnum", m_isalnum, ""},
        {"isascii", m_isascii, ""},
        {"isspace", m_isspace, ""},
        {"isupper", m_isupper, ""},
        {"islower", m_islower, ""},
    };
    const struct builtin *b = builtin_find(STRING, BUILTIN_COUNT(STRING), name);
    return b ? b : method_find_string_more(name);
}
