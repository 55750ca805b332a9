/* kernels.c - picks a kernel set once, at creation of an engine. */
#include "engine/cpu/kernels.h"

#include <stdlib.h>
#include <string.h>

static const struct kernels *known_set(size_t i)
{
    switch (i) { /* best first */
#if defined(__x86_64__)
    case 0:
        return &KERNELS_AVX2;
#endif
    case 1:
        return &KERNELS_REF;
    default:
        return NULL;
    }
}

int kernels_find(const struct kernels **out, const char *name, struct err *e)
{
    if (!name || !*name)
        name = getenv("EXASERVE_KERNELS");
    bool any = !name || !*name;
    for (size_t i = 0; i < 2; i++) {
        const struct kernels *k = known_set(i);
        if (!k || (!any && strcmp(k->name, name)))
            continue;
        if (k->usable()) {
            *out = k;
            return 0;
        }
        if (!any)
            return err_set(e, ERR_CONFIG, "kernels %s: this CPU cannot run them", name);
    }
    return err_set(e, ERR_CONFIG, "kernels %s: unknown, expected ref or avx2", any ? "" : name);
}
