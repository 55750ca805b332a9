/* template_braces.c - Python's "…".format(…): replacement fields in braces.
 *
 * Source: Python library reference, "Format String Syntax". Attributes and subscripts in a field
 * follow the sandbox's rules, as everywhere.
 */
#include "text/template_format.h"

#include "text/utf8.h"

struct braces {
    struct eval *ev;
    const struct args *args;
    int64_t next; /* automatic numbers; -1: fields are numbered by hand */
    bool automatic;
};

enum { BRACES_MAX_DEPTH = 2 }; /* fields in the specification of a field, as Python allows */

static int expand(struct braces *f, struct str format, int depth, struct str *out);

static bool is_number(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return s.n > 0 && s.n < 10;
}

static int64_t as_number(struct str s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n = n * 10 + (s.p[i] - '0');
    return n;
}

/* The argument that a field begins with: a number, a name, or nothing. */
static int first_value(struct braces *f, struct str name, bool alone, struct value *out)
{
    if ((name.n == 0 && alone) || is_number(name)) {
        bool automatic = name.n == 0;
        if (alone && f->next != 0 && automatic != f->automatic)
            return eval_fail(f->ev, ERR_FORMAT, "cannot mix automatic and manual field numbers");
        int64_t at = automatic ? f->next : as_number(name);
        if (alone) { /* Python looks at fields that are nothing but a number */
            f->automatic = automatic;
            f->next = automatic ? f->next + 1 : -1;
        }
        if ((uint64_t)at >= f->args->n_pos)
            return eval_fail(f->ev, ERR_FORMAT, "format has no argument %lld", (long long)at);
        *out = f->args->pos[at];
        return 0;
    }
    for (size_t i = 0; i < f->args->n_kw; i++)
        if (f->args->kw[i].name.n == name.n && memcmp(f->args->kw[i].name.p, name.p, name.n) == 0) {
            *out = f->args->kw[i].value;
            return 0;
        }
    return eval_fail(f->ev, ERR_FORMAT, "format has no argument \"%.*s\"", str_shown(name, 60),
                     name.p);
}

/* "0.name[key]" */
static int field_value(struct braces *f, struct str path, struct value *out)
{
    size_t n = 0;
    while (n < path.n && path.p[n] != '.' && path.p[n] != '[')
        n++;
    int rc = first_value(f, (struct str){path.p, n}, n == path.n, out);
    while (rc == 0 && n < path.n) {
        bool subscript = path.p[n++] == '[';
        size_t from = n;
        while (n < path.n && (subscript ? path.p[n] != ']' : path.p[n] != '.' && path.p[n] != '['))
            n++;
        struct str part = {path.p + from, n - from};
        if (part.n == 0 || (subscript && n == path.n))
            return eval_fail(f->ev, ERR_FORMAT, "a format field has an empty part");
        n += subscript;
        if (subscript && n < path.n && path.p[n] != '.' && path.p[n] != '[')
            return eval_fail(f->ev, ERR_FORMAT, "only . or [ may follow ] in a format field");
        struct value of = *out,
                     key = is_number(part) ? value_int(as_number(part)) : value_str(part);
        rc =
            subscript ? eval_get_item(f->ev, &of, &key, out) : eval_get_attr(f->ev, &of, part, out);
    }
    return rc;
}

static int parse_spec(struct eval *ev, struct str t, struct format_spec *s)
{
    *s = (struct format_spec){.fill = STR(" "), .width = -1, .precision = -1};
    size_t at = 0;
    uint32_t cp;
    size_t first = t.n ? utf8_next(t.p, &cp) : 0;
    if (first && first < t.n && memchr("<>=^", t.p[first], 4)) {
        s->fill = (struct str){t.p, first};
        s->align = t.p[first];
        at = first + 1;
    } else if (t.n && memchr("<>=^", t.p[0], 4)) {
        s->align = t.p[at++];
    }
    if (at < t.n && memchr("+- ", t.p[at], 3))
        s->sign = t.p[at++];
    if (at < t.n && t.p[at] == '#')
        s->alternate = t.p[at++] == '#';
    if (at < t.n && t.p[at] == '0') {
        s->zero = true;
        if (!s->align || first >= at) /* a fill that was named stays */
            s->fill = s->align && first < at && at > 1 ? s->fill : STR("0");
        at++;
    }
    for (int part = 0; part < 2; part++) {
        if (part == 1 && at < t.n && (t.p[at] == ',' || t.p[at] == '_'))
            s->comma = t.p[at++];
        if (part == 1 && (at >= t.n || t.p[at] != '.'))
            break;
        at += part == 1;
        int64_t number = -1;
        for (; at < t.n && t.p[at] >= '0' && t.p[at] <= '9'; at++) {
            number = (number < 0 ? 0 : number) * 10 + (t.p[at] - '0');
            if (number > FORMAT_MAX_WIDTH)
                return eval_fail(ev, ERR_LIMIT, "a width above %d", FORMAT_MAX_WIDTH);
        }
        if (part == 1 && number < 0)
            return eval_fail(ev, ERR_FORMAT, "a format specification lacks its precision");
        *(part ? &s->precision : &s->width) = number;
    }
    if (at < t.n)
        s->type = t.p[at++];
    return at == t.n ? 0 : eval_fail(ev, ERR_FORMAT, "invalid format specification");
}

static int format_text(struct eval *ev, const struct value *v, struct format_spec *s,
                       struct builder *b)
{
    struct str text = v->s;
    if ((s->type && s->type != 's') || s->sign || s->align == '=' || s->comma || s->alternate)
        return eval_fail(ev, ERR_FORMAT, "a format specification does not fit a text");
    for (size_t n = 0; s->precision >= 0; s->precision--) {
        uint32_t cp;
        text = (struct str){v->s.p, n};
        if (n >= v->s.n || s->precision == 0)
            break;
        n += utf8_next(v->s.p + n, &cp);
    }
    return format_padded(ev, text, s, '<', b);
}

static int format_value(struct eval *ev, const struct value *v, struct str spec, struct builder *b)
{
    struct format_spec s;
    if (spec.n == 0) {
        struct str text;
        int rc = value_to_str(ev, v, &text);
        build_put(b, text);
        return rc;
    }
    if (v->type != VALUE_STRING && !value_is_number(v))
        return eval_fail(ev, ERR_FORMAT, "unsupported format specification for %s",
                         value_type_name(v));
    int rc = parse_spec(ev, spec, &s);
    if (rc)
        return rc;
    if (v->type == VALUE_STRING)
        return format_text(ev, v, &s, b);
    bool is_int = v->type != VALUE_FLOAT;
    const char *types = is_int ? "bcdnoxXeEfFgG%" : "neEfFgG%";
    bool whole = is_int && (!s.type || strchr("bcdoxXn", s.type));
    if ((s.type && !strchr(types, s.type)) || (whole && s.precision >= 0) ||
        (s.comma && s.type == 'n') || (s.comma == ',' && s.type && strchr("boxX", s.type)))
        return eval_fail(ev, ERR_FORMAT, "invalid format specification for %s", value_type_name(v));
    if (s.type != 'c')
        return format_number(ev, v, &s, b);
    char text[4];
    int64_t i = value_as_int(v);
    if (s.sign || s.comma || s.alternate || i < 0 || i > 0x10FFFF || (i & ~0x7FFLL) == 0xD800)
        return eval_fail(ev, ERR_FORMAT, "c wants the number of a character");
    return format_padded(ev, (struct str){text, utf8_encode((uint32_t)i, text)}, &s, '<', b);
}

/* The end of the field that begins at `at`: its closing brace; format.n: none. */
static size_t field_end(struct str format, size_t at)
{
    size_t open = 1;
    bool subscript = false;
    for (; at < format.n; at++) {
        char c = format.p[at];
        subscript = c == '[' || (subscript && c != ']');
        if (subscript)
            continue;
        open += (c == '{') - (c == '}');
        if (open == 0)
            break;
    }
    return at;
}

/* "path!r:spec" */
static int put_field(struct braces *f, struct str field, int depth, struct builder *b)
{
    size_t n = 0;
    bool subscript = false;
    for (; n < field.n; n++) {
        subscript = field.p[n] == '[' || (subscript && field.p[n] != ']');
        if (!subscript && (field.p[n] == '!' || field.p[n] == ':'))
            break;
    }
    struct value v;
    struct str spec = STR("");
    char how = 0;
    int rc = field_value(f, (struct str){field.p, n}, &v);
    if (rc == 0 && n < field.n && field.p[n] == '!') {
        how = n + 1 < field.n ? field.p[n + 1] : 0;
        n += 2;
        if ((how != 'r' && how != 's' && how != 'a') || (n < field.n && field.p[n] != ':'))
            return eval_fail(f->ev, ERR_FORMAT, "unknown conversion in a format field");
    }
    if (rc == 0 && n < field.n)
        rc = expand(f, (struct str){field.p + n + 1, field.n - n - 1}, depth + 1, &spec);
    if (rc == 0 && how) {
        rc = format_converted(f->ev, &v, how, &v.s);
        v.type = VALUE_STRING;
    }
    return rc ? rc : format_value(f->ev, &v, spec, b);
}

static int expand(struct braces *f, struct str format, int depth, struct str *out)
{
    struct builder b = {.ev = f->ev};
    int rc = depth > BRACES_MAX_DEPTH - 1 && memchr(format.p, '{', format.n)
                 ? eval_fail(f->ev, ERR_FORMAT, "format fields are nested too deeply")
                 : 0;
    for (size_t i = 0; i < format.n && rc == 0 && !b.rc;) {
        size_t plain = i;
        while (i < format.n && format.p[i] != '{' && format.p[i] != '}')
            i++;
        build_put(&b, (struct str){format.p + plain, i - plain});
        if (i == format.n)
            break;
        if (i + 1 < format.n && format.p[i + 1] == format.p[i]) {
            build_put(&b, (struct str){format.p + i, 1});
            i += 2;
            continue;
        }
        size_t end = field_end(format, i + 1);
        if (format.p[i] == '}' || end == format.n)
            return eval_fail(f->ev, ERR_FORMAT, "a format string has a single brace");
        rc = put_field(f, (struct str){format.p + i + 1, end - i - 1}, depth, &b);
        i = end + 1;
        if (rc == 0)
            rc = eval_steps(f->ev, 1);
    }
    return rc ? rc : build_done(&b, out);
}

int format_braces(struct eval *ev, struct str format, const struct args *a, struct value *out)
{
    struct braces f = {.ev = ev, .args = a};
    out->type = VALUE_STRING;
    return expand(&f, format, 0, &out->s);
}
