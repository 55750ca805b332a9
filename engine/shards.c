/* shards.c - see shards.h. */
#include "engine/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/coll_relay.h"
#include "engine/coll_shm.h"

enum {
    COLUMNS_LOCK_US = 600000000 /* another shard of the node copies the same columns meanwhile */
};

static uint32_t tp_of(const struct shards_config *c)
{
    return c->tp ? c->tp : 1;
}

static int open_relay(struct shards *s, const struct shards_config *c, struct err *e)
{
    struct channel *channel;
    uint32_t tp = tp_of(c), first = c->shard / tp * tp;
    int rc = channel_attach(&channel, CHANNEL_FD_SHARDS, e);
    if (rc)
        return rc;
    rc = coll_relay_create(&s->relay, channel, &c->name, c->shard, c->n_shards, SHARDS_DEADLINE_US,
                           e);
    if (rc) {
        channel_destroy(channel);
        return rc;
    }
    struct coll_wire wire = coll_relay_wire(s->relay);
    rc = coll_p2p_create(&s->all, &wire, 0, c->n_shards, c->shard, e);
    if (!rc && tp > 1)
        rc = coll_p2p_create(&s->tp, &wire, first, tp, c->shard - first, e);
    return rc;
}

int shards_open(struct shards *s, const struct shards_config *c, struct err *e)
{
    uint32_t tp = tp_of(c);
    if (shards_is_one(c))
        return 0;
    if (c->n_shards > COLL_MAX_SHARDS || c->shard >= c->n_shards || c->n_shards % tp)
        return err_set(e, ERR_CONFIG, "shard %u of %u in groups of %u: expected at most %d shards",
                       c->shard, c->n_shards, tp, COLL_MAX_SHARDS);
    if (!c->shared_memory)
        return open_relay(s, c, e);
    return coll_shm_attach(&s->all, &s->tp, CHANNEL_FD_SHARDS, tp, c->n_shards / tp, c->shard,
                           SHARDS_DEADLINE_US, e);
}

static void coll_close(struct coll **c)
{
    if (*c)
        (*c)->ops->destroy(*c);
    *c = NULL;
}

void shards_close(struct shards *s)
{
    coll_close(&s->tp);
    coll_close(&s->all);
    coll_relay_destroy(s->relay);
    image_derived_close(s->columns);
    free(s->parts);
    *s = (struct shards){0};
}

void shards_size(const struct shards *s, const struct shards_config *c, struct graph_size *size)
{
    uint32_t tp = tp_of(c);
    if (shards_is_one(c))
        return;
    size->tp_rank = c->shard % tp;
    size->tp_size = tp;
    size->pp_rank = c->shard / tp;
    size->pp_size = c->n_shards / tp;
    size->all = s->all;
    size->tp = s->tp;
}

/* The tensors of which this shard has scattered pieces, and those of them that lie in one direction: columns. */
static int parts_choose(struct shards *s, const struct shards_config *c, const struct image *img,
                        struct err *e)
{
    uint32_t tp = tp_of(c);
    s->parts = calloc(img->index.n_tensors, sizeof *s->parts);
    if (!s->parts)
        return err_set(e, ERR_NOMEM, "columns of %u tensors: out of memory", img->index.n_tensors);
    for (uint32_t i = 0; i < img->index.n_tensors; i++) {
        const struct tensor_info *t = &img->index.tensors[i];
        struct shard_plan plan;
        int rc = graph_shard_plan(&plan, &img->meta.params, t->name, t->type, c->shard % tp, tp, e);
        if (rc)
            return rc;
        if (!plan.scattered || plan.how != SHARD_COLS)
            continue;
        struct derived_part *p = &s->parts[s->n_parts++];
        snprintf(p->tensor, sizeof p->tensor, "%s", t->name);
        p->first = plan.first;
        p->count = plan.n;
    }
    return 0;
}

int shards_columns(struct shards *s, const struct shards_config *c, struct image *img,
                   const char *path, struct err *e)
{
    uint32_t tp = tp_of(c);
    if (shards_is_one(c) || tp == 1)
        return 0;
    int rc = parts_choose(s, c, img, e);
    if (rc || !s->n_parts)
        return rc;
    rc = image_derived_open(&s->columns, img, path, c->shard % tp, tp, s->parts, s->n_parts,
                            COLUMNS_LOCK_US, e);
    return rc ? rc : image_derived_apply(img, s->columns, s->parts, e);
}

int shards_agree(struct shards *s, uint32_t *n_blocks, struct err *e)
{
    return s->all ? coll_least(s->all, *n_blocks, n_blocks, e) : 0;
}
