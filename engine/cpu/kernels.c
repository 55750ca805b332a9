/* kernels.c - picks a kernel set once, at creation of an engine. */
#include "engine/cpu/kernels.h"

#include <stdlib.h>
#include <string.h>

static const struct kernels *const SETS[] = {
/* best first */
#if defined(__x86_64__)
    &KERNELS_AMX,      &KERNELS_AVX512,       &KERNELS_AVXVNNI,           &KERNELS_AVX2,
#endif
    &KERNELS_REF,
#if defined(__x86_64__)
    &KERNELS_AMX_BF16, &KERNELS_AMX_EMULATED, &KERNELS_AMX_BF16_EMULATED, /* by name only */
#endif
};
enum { N_SETS = sizeof SETS / sizeof SETS[0] };

const struct kernels *kernels_nth(uint32_t i)
{
    for (uint32_t k = 0; k < N_SETS; k++)
        if (SETS[k] && i-- == 0) /* a set may be left out of a build */
            return SETS[k];
    return NULL;
}

static int unknown(const char *name, struct err *e)
{
    char names[128] = "";
    const struct kernels *k;
    for (uint32_t i = 0; (k = kernels_nth(i)); i++) {
        strncat(names, i ? ", " : "", sizeof names - strlen(names) - 1);
        strncat(names, k->name, sizeof names - strlen(names) - 1);
    }
    return err_set(e, ERR_CONFIG, "kernels %s: unknown, expected one of %s", name, names);
}

int kernels_find(const struct kernels **out, const char *name, struct err *e)
{
    if (!name)
        name = getenv("EXASERVE_KERNELS");
    bool any = !name || !*name;
    const struct kernels *k;
    for (uint32_t i = 0; (k = kernels_nth(i)); i++) {
        if (!any && strcmp(k->name, name))
            continue;
        if (k->usable()) {
            *out = k;
            return 0;
        }
        if (!any)
            return err_set(e, ERR_CONFIG, "kernels %s: this CPU cannot run them", name);
    }
    return unknown(any ? "" : name, e);
}
