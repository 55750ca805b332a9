/* walltime.c - see walltime.h. */
#include "config/walltime.h"

#include <stddef.h>
#include <strings.h>

enum { MAX_PARTS = 3, MAX_DIGITS = 6 /* a limit of 999999 minutes is two years */ };

/* Digits only; at least one. Returns the first byte after them, or NULL. */
static const char *number(const char *p, uint64_t *out)
{
    uint64_t v = 0;
    int digits = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (++digits > MAX_DIGITS)
            return NULL;
        v = v * 10 + (uint64_t)(*p - '0');
    }
    *out = v;
    return digits ? p : NULL;
}

bool walltime_parse(const char *text, uint64_t *seconds)
{
    if (strcasecmp(text, "UNLIMITED") == 0 || strcasecmp(text, "INFINITE") == 0) {
        *seconds = 0;
        return true;
    }
    uint64_t days = 0, part[MAX_PARTS] = {0, 0, 0};
    size_t n = 0;
    bool has_days = false;
    const char *p = text;
    for (;;) {
        if (n == MAX_PARTS || !(p = number(p, &part[n])))
            return false;
        n++;
        if (*p == '-' && n == 1 && !has_days) {
            days = part[0];
            has_days = true;
            n = 0;
            part[0] = 0;
            p++;
        } else if (*p == ':') {
            p++;
        } else if (*p == 0) {
            break;
        } else {
            return false;
        }
    }
    /* With days the first part is hours; alone it is minutes, and a pair is minutes:seconds. */
    uint64_t s;
    if (has_days || n == MAX_PARTS)
        s = part[0] * 3600 + part[1] * 60 + part[2];
    else
        s = part[0] * 60 + part[1];
    s += days * 86400;
    if (!s)
        return false;
    *seconds = s;
    return true;
}
