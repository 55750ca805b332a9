/* normalize_form.c - Unicode normalisation forms (UAX #15), in the version that the reference has.
 *
 * Mappings and combining classes are libutf8proc's; what is newer than the reference's version is left alone (SET_MARK,
 * SET_NEVER_DECOMPOSED). Marks are ordered by counting, so that a text of marks alone takes linear time.
 */
#include "text/normalize.h"

#include "text/unicode_set.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum {
    MAX_DECOMPOSED = 32, /* U+FDFA becomes 18 */
    SORTED_BY_INSERTION = 16,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11A7,
    HANGUL_S = 0xAC00,
    N_L = 19,
    N_V = 21,
    N_T = 28,
};

struct letters {
    struct buf cps;     /* uint32_t */
    struct buf classes; /* uint8_t, one for each */
};

static uint8_t class_of(uint32_t cp)
{
    if (cp < 0x300 || !unicode_in_set(SET_MARK, cp))
        return 0;
    return (uint8_t)utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
}

static void push(struct letters *l, uint32_t cp)
{
    buf_put(&l->cps, &cp, sizeof cp);
    buf_u8(&l->classes, class_of(cp));
}

static void decompose(struct letters *l, uint32_t cp, bool compatible)
{
    utf8proc_int32_t to[MAX_DECOMPOSED];
    int bound = 0;
    if (cp < 0x80 || unicode_in_set(SET_NEVER_DECOMPOSED, cp)) {
        push(l, cp);
        return;
    }
    utf8proc_option_t how = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)cp, to, MAX_DECOMPOSED, how, &bound);
    if (n <= 0 || n > MAX_DECOMPOSED) {
        push(l, cp);
        return;
    }
    for (utf8proc_ssize_t i = 0; i < n; i++)
        push(l, (uint32_t)to[i]);
}

/* Stable, by class: cps[n] are all marks with classes over 0. */
static void sort_marks(uint32_t *cps, uint8_t *classes, size_t n)
{
    if (n <= SORTED_BY_INSERTION) {
        for (size_t i = 1; i < n; i++)
            for (size_t k = i; k > 0 && classes[k - 1] > classes[k]; k--) {
                uint32_t cp = cps[k];
                uint8_t c = classes[k];
                cps[k] = cps[k - 1];
                classes[k] = classes[k - 1];
                cps[k - 1] = cp;
                classes[k - 1] = c;
            }
        return;
    }
    size_t starts[257] = {0};
    uint32_t *sorted = malloc(n * sizeof *sorted);
    if (!sorted)
        return; /* the order stays as it was */
    for (size_t i = 0; i < n; i++)
        starts[classes[i] + 1]++;
    for (size_t c = 1; c < 257; c++)
        starts[c] += starts[c - 1];
    for (size_t i = 0; i < n; i++)
        sorted[starts[classes[i]]++] = cps[i];
    memcpy(cps, sorted, n * sizeof *cps);
    free(sorted);
    for (size_t i = 0, c = 0; c < 256; c++) /* starts[c] is the end of c by now */
        while (i < starts[c])
            classes[i++] = (uint8_t)c;
}

static void order(uint32_t *cps, uint8_t *classes, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (!classes[i]) {
            i++;
            continue;
        }
        size_t end = i;
        while (end < n && classes[end])
            end++;
        sort_marks(cps + i, classes + i, end - i);
        i = end;
    }
}

/* What the two become together, or 0. */
static uint32_t pair_of(uint32_t a, uint32_t b)
{
    if (a >= HANGUL_L && a < HANGUL_L + N_L && b >= HANGUL_V && b < HANGUL_V + N_V)
        return HANGUL_S + ((a - HANGUL_L) * N_V + (b - HANGUL_V)) * N_T;
    if (a >= HANGUL_S && a < HANGUL_S + N_L * N_V * N_T && (a - HANGUL_S) % N_T == 0 &&
        b > HANGUL_T && b < HANGUL_T + N_T)
        return a + (b - HANGUL_T);
    if (a < 0x3C || b < 0x300)
        return 0;
    utf8proc_int32_t both[2] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b};
    utf8proc_ssize_t n = utf8proc_normalize_utf32(both, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (n != 1 || unicode_in_set(SET_NEVER_DECOMPOSED, (uint32_t)both[0]))
        return 0;
    return (uint32_t)both[0];
}

/* Compose in place; how many are left. */
static size_t compose(uint32_t *cps, const uint8_t *classes, size_t n)
{
    size_t out = 0, starter = SIZE_MAX;
    uint8_t last = 0; /* class of the one before, when it was not composed away */
    for (size_t i = 0; i < n; i++) {
        bool adjacent = starter != SIZE_MAX && out == starter + 1;
        bool blocked = !adjacent && last >= classes[i];
        if (starter != SIZE_MAX && !blocked) {
            uint32_t both = pair_of(cps[starter], cps[i]);
            if (both) {
                cps[starter] = both;
                continue;
            }
        }
        if (!classes[i])
            starter = out;
        last = classes[i];
        cps[out++] = cps[i];
    }
    return out;
}

void normalize_form(const char *text, size_t n, bool compatible, bool composed, struct buf *out)
{
    size_t ascii = 0;
    while (ascii < n && (uint8_t)text[ascii] < 0x80)
        ascii++;
    if (ascii == n) {
        buf_put(out, text, n);
        return;
    }
    struct letters l;
    buf_init(&l.cps, SIZE_MAX / 2);
    buf_init(&l.classes, SIZE_MAX / 2);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        i += utf8_next(text + i, &cp);
        decompose(&l, cp, compatible);
    }
    if (!buf_ok(&l.cps) || !buf_ok(&l.classes)) {
        out->failed = true;
    } else {
        uint32_t *cps = (uint32_t *)(void *)l.cps.data;
        size_t count = l.cps.len / sizeof *cps;
        order(cps, l.classes.data, count);
        if (composed)
            count = compose(cps, l.classes.data, count);
        for (size_t i = 0; i < count; i++) {
            char letter[4];
            buf_put(out, letter, utf8_encode(cps[i], letter));
        }
    }
    buf_fini(&l.cps);
    buf_fini(&l.classes);
}
