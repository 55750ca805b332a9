/* fits.c - see fits.h. */
#include "cli/fits.h"

#include "engine/graph.h"
#include "hdf5io/pack.h"

static int context_fits(const struct config_model *m, const struct model_params *p, struct err *e)
{
    if (m->context <= p->n_ctx)
        return 0;
    return err_set(e, ERR_CONFIG, "context: %u tokens, the model was made for at most %u",
                   m->context, p->n_ctx);
}

/* The heads and widths divide, and so do the rows of every tensor into whole blocks. */
static int shards_fit(const struct config_model *m, const struct pack *pack,
                      const struct model_params *p, struct err *e)
{
    struct shard_plan plan;
    int rc = m->pipeline_parallel > p->n_layers
                 ? err_set(e, ERR_CONFIG, "pipeline_parallel: %u stages, the model has %u layers",
                           m->pipeline_parallel, p->n_layers)
                 : 0;
    for (uint32_t i = 0; i < pack->index.n_tensors && m->tensor_parallel > 1 && !rc; i++) {
        const struct tensor_info *t = &pack->index.tensors[i];
        rc = graph_shard_plan(&plan, p, t->name, t->type, 0, m->tensor_parallel, e);
        if (rc)
            err_prefix(e, "tensor_parallel: ");
    }
    return rc;
}

int model_fits(const struct config_model *m, struct err *e)
{
    struct pack pack;
    struct model_meta meta;
    int rc = pack_open(&pack, m->pack, e);
    if (rc)
        return rc == ERR_SYS ? err_set(e, ERR_CONFIG, "%s", e->text) : rc;
    rc = meta_decode(&meta, pack.meta_bytes, pack.meta_n_bytes, e);
    if (!rc) {
        rc = meta_check(&meta, e);
        if (!rc)
            rc = graph_check(&meta.params, e);
        if (!rc)
            rc = context_fits(m, &meta.params, e);
        if (!rc)
            rc = shards_fit(m, &pack, &meta.params, e);
        meta_fini(&meta);
    }
    pack_close(&pack);
    return rc;
}
