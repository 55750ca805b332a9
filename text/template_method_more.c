/* template_method_more.c - the rest of str's methods: padding, partition, case folding, format. */
#include "text/template_internal.h"

#include "text/unicode.h"
#include "text/utf8.h"

#define METHOD(name)                                                                               \
    static int name(struct eval *ev, const struct value *self, const struct args *a,               \
                    struct value *out)

/* `left` and `right` times fill around s. */
static int padded(struct eval *ev, struct str s, int64_t left, int64_t right, struct str fill,
                  struct value *out)
{
    struct builder b = {.ev = ev};
    for (int64_t i = 0; i < left && !b.rc; i++)
        build_put(&b, fill);
    build_put(&b, s);
    for (int64_t i = 0; i < right && !b.rc; i++)
        build_put(&b, fill);
    out->type = VALUE_STRING;
    int rc = build_done(&b, &out->s);
    return rc ? rc : eval_steps(ev, (uint64_t)(left + right) / 4);
}

/* How many characters are missing to the width (argument 0), and what fills them (argument 1). */
static int pad_args(struct eval *ev, const struct value *self, const struct args *a,
                    int64_t *missing, struct str *fill)
{
    int64_t width;
    int rc = builtin_arg_int(ev, a->bound[0], 0, &width);
    if (rc == 0)
        rc = builtin_arg_str(ev, a->bound[1], STR(" "), fill);
    if (rc)
        return rc;
    if (utf8_length(fill->p, fill->n) != 1)
        return eval_fail(ev, ERR_FORMAT, "the fill must be one character");
    *missing = width - (int64_t)utf8_length(self->s.p, self->s.n);
    if (width < 0 || *missing < 0)
        *missing = 0;
    if ((uint64_t)*missing > ev->arena.max_bytes)
        return eval_fail(ev, ERR_LIMIT, "a text of %lld characters", (long long)width);
    return eval_bytes(ev, self->s.n);
}

METHOD(m_center)
{
    int64_t missing;
    struct str fill;
    int rc = pad_args(ev, self, a, &missing, &fill);
    if (rc)
        return rc;
    int64_t width = missing + (int64_t)utf8_length(self->s.p, self->s.n);
    int64_t left = missing / 2 + (missing & width & 1); /* as CPython */
    return padded(ev, self->s, left, missing - left, fill, out);
}

METHOD(m_ljust)
{
    int64_t missing;
    struct str fill;
    int rc = pad_args(ev, self, a, &missing, &fill);
    return rc ? rc : padded(ev, self->s, 0, missing, fill, out);
}

METHOD(m_rjust)
{
    int64_t missing;
    struct str fill;
    int rc = pad_args(ev, self, a, &missing, &fill);
    return rc ? rc : padded(ev, self->s, missing, 0, fill, out);
}

METHOD(m_zfill)
{
    int64_t missing;
    struct str fill, s = self->s;
    int rc = pad_args(ev, self, a, &missing, &fill);
    if (rc || missing == 0) {
        *out = *self;
        return rc;
    }
    bool sign = s.n && (s.p[0] == '+' || s.p[0] == '-');
    struct builder b = {.ev = ev};
    build_put(&b, (struct str){s.p, sign});
    build_repeat(&b, '0', (size_t)missing);
    build_put(&b, (struct str){s.p + sign, s.n - sign});
    out->type = VALUE_STRING;
    return build_done(&b, &out->s);
}

static int partition(struct eval *ev, const struct value *self, const struct args *a, bool last,
                     struct value *out)
{
    struct str sep, s = self->s;
    int rc = builtin_arg_str(ev, a->bound[0], STR(""), &sep);
    if (rc == 0)
        rc = eval_bytes(ev, s.n * (1 + (last ? sep.n / TEMPLATE_BYTES_PER_STEP : 0)));
    if (rc == 0 && sep.n == 0)
        rc = eval_fail(ev, ERR_FORMAT, "partition by an empty string");
    if (rc)
        return rc;
    size_t at = 0;
    bool found = !last && str_find(s, sep, 0, &at);
    for (size_t end = s.n; last && !found && end >= sep.n; end--) {
        at = end - sep.n;
        found = memcmp(s.p + at, sep.p, sep.n) == 0;
    }
    struct str part[3] = {s, STR(""), STR("")};
    if (found) {
        part[0] = (struct str){s.p, at};
        part[1] = sep;
        part[2] = (struct str){s.p + at + sep.n, s.n - at - sep.n};
    } else if (last) {
        part[0] = STR("");
        part[2] = s;
    }
    struct list *l = list_new(ev, LIST_TUPLE);
    rc = l ? 0 : eval_nomem(ev);
    for (int i = 0; i < 3 && rc == 0; i++) {
        struct value v = value_str(part[i]);
        rc = list_push(ev, l, &v);
    }
    *out = value_list(l);
    return rc;
}

METHOD(m_partition)
{
    return partition(ev, self, a, false, out);
}

METHOD(m_rpartition)
{
    return partition(ev, self, a, true, out);
}

METHOD(m_swapcase)
{
    struct builder b = {.ev = ev};
    struct str s = self->s;
    for (size_t i = 0; i < s.n && !b.rc;) {
        uint32_t cp, to[UNICODE_CASE_MAX] = {0};
        i += utf8_next(s.p + i, &cp);
        to[0] = cp;
        size_t n = unicode_is_upper(cp)   ? unicode_lower(cp, to)
                   : unicode_is_lower(cp) ? unicode_upper(cp, to)
                                          : 1;
        for (size_t k = 0; k < n; k++) {
            char text[4];
            build_put(&b, (struct str){text, utf8_encode(to[k], text)});
        }
    }
    out->type = VALUE_STRING;
    return build_done(&b, &out->s);
}

/* Each word begins with a capital, and all its other letters are small. */
METHOD(m_istitle)
{
    bool in_word = false, some = false, fits = true;
    struct str s = self->s;
    for (size_t i = 0; i < s.n && fits;) {
        uint32_t cp;
        i += utf8_next(s.p + i, &cp);
        bool upper = unicode_is_upper(cp), lower = unicode_is_lower(cp);
        fits = !(upper && in_word) && !(lower && !in_word);
        in_word = upper || lower;
        some = some || in_word;
    }
    *out = value_bool(some && fits);
    return eval_bytes(ev, s.n);
}

METHOD(m_isidentifier)
{
    struct str s = self->s;
    bool all = s.n > 0;
    for (size_t i = 0; i < s.n && all;) {
        uint32_t cp;
        bool first = i == 0;
        i += utf8_next(s.p + i, &cp);
        all = cp == '_' || unicode_class(cp) == UNICODE_LETTER || (!first && char_is_decimal(cp));
    }
    *out = value_bool(all);
    return eval_bytes(ev, s.n);
}

METHOD(m_expandtabs)
{
    int64_t size, column = 0;
    struct str s = self->s;
    int rc = builtin_arg_int(ev, a->bound[0], 8, &size);
    if (rc)
        return rc;
    struct builder b = {.ev = ev};
    for (size_t i = 0; i < s.n && !b.rc;) {
        uint32_t cp;
        size_t len = utf8_next(s.p + i, &cp);
        if (cp == '\t') {
            int64_t fill = size > 0 ? size - column % size : 0;
            build_repeat(&b, ' ', (size_t)fill);
            column += fill;
        } else {
            build_put(&b, (struct str){s.p + i, len});
            column = cp == '\n' || cp == '\r' ? 0 : column + 1;
        }
        i += len;
    }
    out->type = VALUE_STRING;
    return build_done(&b, &out->s);
}

METHOD(m_format)
{
    return format_braces(ev, self->s, a, out);
}

METHOD(m_casefold)
{
    struct builder b = {.ev = ev};
    int rc = str_case(ev, self->s, CASE_LOWER, &out->s);
    for (size_t i = 0; rc == 0 && i < out->s.n && !b.rc;) {
        uint32_t cp;
        size_t len = utf8_next(out->s.p + i, &cp);
        /* the two small letters whose folding is not their small form */
        build_put(&b, cp == 0xDF    ? STR("ss")
                      : cp == 0x3C2 ? STR("\xCF\x83")
                                    : (struct str){out->s.p + i, len});
        i += len;
    }
    out->type = VALUE_STRING;
    return rc ? rc : build_done(&b, &out->s);
}

const struct builtin *method_find_string_more(struct str name)
{
    static const struct builtin TABLE[] = {
        {"casefold", m_casefold, ""},
        {"center", m_center, "/width,?fillchar"},
        {"expandtabs", m_expandtabs, "?tabsize"},
        {"format", m_format, "*"},
        {"isidentifier", m_isidentifier, ""},
        {"istitle", m_istitle, ""},
        {"ljust", m_ljust, "/width,?fillchar"},
        {"partition", m_partition, "/sep"},
        {"rjust", m_rjust, "/width,?fillchar"},
        {"rpartition", m_rpartition, "/sep"},
        {"swapcase", m_swapcase, ""},
        {"zfill", m_zfill, "/width"},
    };
    return builtin_find(TABLE, BUILTIN_COUNT(TABLE), name);
}
