/* hostlist.c - see hostlist.h. */
#include "base/hostlist.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_DIGITS = 18 /* fits a uint64_t; longer numbers are no numbers to us */ };

struct expansion {
    struct hostlist *out;
    size_t cap, max_hosts;
    const char *text; /* the whole list, for messages */
    struct err *e;
};

void hostlist_fini(struct hostlist *h)
{
    for (size_t i = 0; i < h->n; i++)
        free(h->names[i]);
    free(h->names);
    *h = (struct hostlist){0};
}

static int malformed(struct expansion *x, const char *what)
{
    return err_set(x->e, ERR_FORMAT, "host list \"%.200s\": %s", x->text, what);
}

static int name_add(struct expansion *x, const char *name, size_t len)
{
    struct hostlist *h = x->out;
    if (h->n >= x->max_hosts)
        return err_set(x->e, ERR_LIMIT, "host list \"%.200s\" names more than %zu hosts", x->text,
                       x->max_hosts);
    if (h->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 16;
        char **names = realloc(h->names, cap * sizeof *names);
        if (!names)
            return err_set(x->e, ERR_NOMEM, "no memory for a host list");
        h->names = names;
        x->cap = cap;
    }
    char *copy = strndup(name, len);
    if (!copy)
        return err_set(x->e, ERR_NOMEM, "no memory for a host list");
    h->names[h->n++] = copy;
    return 0;
}

/* Digits at p, their count in *width; 0 digits or too many: -1. */
static int number_read(const char **p, uint64_t *value, int *width)
{
    *value = 0;
    *width = 0;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        if (++*width > MAX_DIGITS)
            return -1;
        *value = *value * 10 + (uint64_t)(**p - '0');
    }
    return *width ? 0 : -1;
}

/* The rest [p, end) of one name, behind what is in name[0..len). */
static int expand_name(struct expansion *x, char *name, size_t len, const char *p, const char *end);

static int expand_range(struct expansion *x, char *name, size_t len, const char **p,
                        const char *rest, const char *end)
{
    uint64_t low, high;
    int width, high_width;
    if (number_read(p, &low, &width) != 0)
        return malformed(x, "a bracket holds something else than numbers");
    high = low;
    if (**p == '-') {
        (*p)++;
        if (number_read(p, &high, &high_width) != 0)
            return malformed(x, "a range has no end");
    }
    if (high < low)
        return malformed(x, "a range runs backwards");
    if (high - low >= x->max_hosts)
        return err_set(x->e, ERR_LIMIT, "host list \"%.200s\" names more than %zu hosts", x->text,
                       x->max_hosts);
    for (uint64_t v = low; v <= high; v++) {
        char digits[MAX_DIGITS + 2];
        int n = snprintf(digits, sizeof digits, "%0*" PRIu64, width, v);
        if (len + (size_t)n >= HOSTLIST_NAME_BYTES)
            return err_set(x->e, ERR_LIMIT, "host list \"%.200s\": a name is too long", x->text);
        memcpy(name + len, digits, (size_t)n);
        int rc = expand_name(x, name, len + (size_t)n, rest, end);
        if (rc)
            return rc;
    }
    return 0;
}

static int expand_name(struct expansion *x, char *name, size_t len, const char *p, const char *end)
{
    const char *open = memchr(p, '[', (size_t)(end - p));
    size_t plain = (size_t)((open ? open : end) - p);
    if (len + plain >= HOSTLIST_NAME_BYTES)
        return err_set(x->e, ERR_LIMIT, "host list \"%.200s\": a name is too long", x->text);
    memcpy(name + len, p, plain);
    len += plain;
    if (!open)
        return name_add(x, name, len);
    const char *close = memchr(open, ']', (size_t)(end - open));
    p = open + 1;
    for (;;) {
        int rc = expand_range(x, name, len, &p, close + 1, end);
        if (rc)
            return rc;
        if (p == close)
            return 0;
        if (*p != ',')
            return malformed(x, "a bracket holds something else than numbers");
        p++;
    }
}

/* Where the name at p ends (a comma outside of brackets, or the end of the text); NULL: brackets do not match. */
static const char *name_end(const char *p)
{
    bool inside = false;
    for (; *p && (*p != ',' || inside); p++) {
        if (*p == '[' ? inside : *p == ']' && !inside)
            return NULL;
        if (*p == '[' || *p == ']')
            inside = *p == '[';
    }
    return inside ? NULL : p;
}

static int expand_all(struct expansion *x)
{
    char name[HOSTLIST_NAME_BYTES];
    for (const char *p = x->text; *p;) {
        const char *end = name_end(p);
        if (!end)
            return malformed(x, "brackets do not match");
        if (end == p || (*end == ',' && !end[1]))
            return malformed(x, "an empty name");
        for (const char *c = p; c < end; c++)
            if ((unsigned char)*c <= ' ')
                return malformed(x, "a blank");
        int rc = expand_name(x, name, 0, p, end);
        if (rc)
            return rc;
        p = *end ? end + 1 : end;
    }
    return 0;
}

int hostlist_expand(struct hostlist *out, const char *text, size_t max_hosts, struct err *e)
{
    *out = (struct hostlist){0};
    struct expansion x = {.out = out, .max_hosts = max_hosts, .text = text, .e = e};
    int rc = expand_all(&x);
    if (rc)
        hostlist_fini(out);
    return rc;
}

/* --- compress ---------------------------------------------------------------------------------------------- */
struct parts {     /* a name as prefix and number at its end */
    size_t prefix; /* bytes; all of it when there is no number */
    int width;     /* 0: no number */
    uint64_t value;
};

static struct parts parts_of(const char *name)
{
    size_t n = strlen(name), at = n;
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9')
        at--;
    struct parts s = {.prefix = n};
    const char *p = name + at;
    if (at < n && n - at <= MAX_DIGITS && number_read(&p, &s.value, &s.width) == 0)
        s.prefix = at;
    return s;
}

/* May b follow a in a range that began with `first`? */
static bool follows(const struct parts *first, const char *first_digits, const struct parts *a,
                    const struct parts *b, const char *b_digits)
{
    if (b->value != a->value + 1)
        return false;
    bool padded = first_digits[0] == '0' && first->width > 1;
    return padded ? b->width == first->width : b_digits[0] != '0';
}

static bool same_prefix(const char *a, const struct parts *pa, const char *b,
                        const struct parts *pb)
{
    return pa->width && pb->width && pa->prefix == pb->prefix && memcmp(a, b, pa->prefix) == 0;
}

/* All names from `from` on that share its prefix; returns where the next group begins. */
static size_t group_put(struct buf *out, const char *const *names, size_t from, size_t n)
{
    struct parts head = parts_of(names[from]);
    size_t end = from + 1;
    while (end < n) {
        struct parts s = parts_of(names[end]);
        if (!same_prefix(names[from], &head, names[end], &s))
            break;
        end++;
    }
    if (end == from + 1) {
        buf_puts(out, names[from]);
        return end;
    }
    buf_put(out, names[from], head.prefix);
    for (size_t i = from; i < end;) {
        struct parts first = parts_of(names[i]), last = first;
        const char *first_digits = names[i] + first.prefix;
        size_t k = i + 1;
        for (; k < end; k++) {
            struct parts s = parts_of(names[k]);
            if (!follows(&first, first_digits, &last, &s, names[k] + s.prefix))
                break;
            last = s;
        }
        buf_puts(out, i == from ? "[" : ",");
        buf_puts(out, first_digits);
        if (k > i + 1) {
            buf_puts(out, "-");
            buf_puts(out, names[k - 1] + last.prefix);
        }
        i = k;
    }
    buf_puts(out, "]");
    return end;
}

int hostlist_compress(struct buf *out, const char *const *names, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (!names[i][0] || strpbrk(names[i], "[], \t\n"))
            return err_set(e, ERR_FORMAT, "\"%.100s\" is no host name", names[i]);
    for (size_t i = 0; i < n;) {
        if (i)
            buf_puts(out, ",");
        i = group_put(out, names, i, n);
    }
    return buf_ok(out) ? 0 : err_set(e, ERR_LIMIT, "no room for a host list of %zu names", n);
}
