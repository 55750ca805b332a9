/* coll.c - what is made of any group's collectives (coll.h). */
#include "engine/coll.h"

#include <stdlib.h>

enum { EXACT_MAX = 1 << 24 }; /* whole numbers that a float holds */

int coll_least(struct coll *c, uint32_t mine, uint32_t *least, struct err *e)
{
    float one = (float)(mine < EXACT_MAX ? mine : EXACT_MAX);
    float *each = calloc(c->size, sizeof *each);
    if (!each)
        return err_set(e, ERR_NOMEM, "group of %u shards: out of memory", c->size);
    int rc = c->ops->all_gather(c, each, &one, 1, e);
    uint32_t n = EXACT_MAX;
    for (uint32_t i = 0; i < c->size && !rc; i++)
        if (!(each[i] >= 0 && each[i] <= EXACT_MAX))
            rc = err_set(e, ERR_PROTO, "shard %u said a number that is none", i);
        else if ((uint32_t)each[i] < n)
            n = (uint32_t)each[i];
    free(each);
    if (!rc)
        *least = n;
    return rc;
}
