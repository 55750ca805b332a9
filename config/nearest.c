/* nearest.c - see nearest.h. */
#include "config/nearest.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { WORD_BYTES = 64, FAR = 99 };

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;
    return m < c ? m : c;
}

unsigned word_distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    if (na > WORD_BYTES || nb > WORD_BYTES)
        return FAR;
    unsigned rows[3][WORD_BYTES + 1]; /* two before, one before, this one */
    unsigned *before = rows[0], *last = rows[1], *row = rows[2];
    memset(rows, 0, sizeof rows);
    for (size_t j = 0; j <= nb; j++)
        last[j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            int ca = tolower((unsigned char)a[i - 1]), cb = tolower((unsigned char)b[j - 1]);
            row[j] = min3(last[j] + 1, row[j - 1] + 1, last[j - 1] + (ca != cb));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        unsigned *t = before;
        before = last;
        last = row;
        row = t;
    }
    return last[nb];
}

void nearest_try(struct nearest *best, const char *typed, const char *known)
{
    size_t n = strlen(typed);
    if (!n)
        return;
    unsigned d = word_distance(typed, known);
    /* A third of the word may be wrong; a word that only lacks its end is meant as well. */
    unsigned allowed = n < 4 ? 1 : (unsigned)(n + 2) / 3;
    if (n >= 3 && strncasecmp(typed, known, n) == 0)
        d = 1;
    if (d <= allowed && (!best->word || d < best->distance)) {
        best->word = known;
        best->distance = d;
    }
}
