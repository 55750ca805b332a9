/* hf_part.c - one tensor of a Hugging Face folder's files: found, its shape and type checked, with its scales (hf_plan.h). */
#include "model/hf_plan.h"

#include <inttypes.h>
#include <stdio.h>

/* Weights of one scale when config.json does not say: DeepSeek's, and everybody's since. */
enum { F8_SCALE_SIDE = 128 };

/* --- one tensor of the files ------------------------------------------------------------------- */

static void shape_text(const uint64_t *dims, uint32_t n, char out[96])
{
    size_t at = 0;
    out[at++] = '[';
    for (uint32_t i = 0; i < n && at < 72; i++)
        at += (size_t)snprintf(out + at, 96 - at, "%s%" PRIu64, i ? ", " : "", dims[i]);
    snprintf(out + at, 96 - at, "]");
}

static int check_shape(const struct hf_plan *plan, const struct st_tensor *t, const uint64_t *dims,
                       uint32_t n_dims, struct err *e)
{
    bool same = t->n_dims == n_dims;
    for (uint32_t i = 0; i < n_dims && same; i++)
        same = t->dims[i] == dims[i];
    if (same)
        return 0;
    char want[96], found[96];
    shape_text(dims, n_dims, want);
    shape_text(t->dims, t->n_dims, found);
    return err_set(e, ERR_FORMAT, "%s: tensor %s: expected shape %s, found %s",
                   hf_shards_label(&plan->shards, t), t->name, want, found);
}

/* NAME.weight_scale_inv, NAME.weight_scale: both are what q is multiplied by. Scales of activations are not ours. */
static const struct st_tensor *take_scale(struct hf_plan *plan, const char *weight)
{
    static const char *const ENDS[] = {"_scale_inv", "_scale"};
    const struct st_tensor *scale = NULL;
    char name[SAFETENSORS_NAME_BYTES + 16];
    for (size_t i = 0; i < sizeof ENDS / sizeof ENDS[0] && !scale; i++) {
        snprintf(name, sizeof name, "%s%s", weight, ENDS[i]);
        scale = hf_shards_take(&plan->shards, name);
    }
    return scale;
}

int hf_part_take(struct hf_plan *plan, const char *folder, const char *name, const uint64_t *dims,
                 uint32_t n_dims, struct hf_part *part, struct err *e)
{
    struct hf_shards *s = &plan->shards;
    char want[96];
    part->weight = hf_shards_take(s, name);
    if (!part->weight) {
        shape_text(dims, n_dims, want);
        return err_set(e, ERR_FORMAT, "%s: tensor %s of shape %s is missing", folder, name, want);
    }
    int rc = check_shape(plan, part->weight, dims, n_dims, e);
    if (rc)
        return rc;
    enum st_dtype type = part->weight->dtype;
    bool f8 = type == ST_F8_E4M3 && n_dims == 2;
    if (type != ST_F32 && type != ST_F16 && type != ST_BF16 && !f8)
        return err_set(e, ERR_FORMAT, "%s: tensor %s: expected F32, F16, BF16%s, found %s",
                       hf_shards_label(s, part->weight), name,
                       n_dims == 2 ? " or F8_E4M3 with scales" : "", st_dtype_name(type));
    if (!f8)
        return 0;
    part->scale = take_scale(plan, name);
    if (!part->scale)
        return err_set(e, ERR_FORMAT, "%s: tensor %s is F8_E4M3 without a %s_scale",
                       hf_shards_label(s, part->weight), name, name);
    type = part->scale->dtype;
    if (type != ST_F32 && type != ST_F16 && type != ST_BF16)
        return err_set(e, ERR_FORMAT, "%s: tensor %s: expected F32, F16 or BF16, found %s",
                       hf_shards_label(s, part->scale), part->scale->name, st_dtype_name(type));
    return 0;
}

/* --- F8 scales: one a tensor, one a row, or one a block ------------------------------------------ */

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

int hf_part_scales(const struct hf_plan *plan, struct hf_target *t, const struct hf_part *part,
                   struct err *e)
{
    const struct hf_config *c = &plan->config;
    const struct st_tensor *s = part->scale;
    uint64_t rows = c->fp8_rows ? c->fp8_rows : F8_SCALE_SIDE;
    uint64_t columns = c->fp8_columns ? c->fp8_columns : F8_SCALE_SIDE;
    uint64_t down = s->n_dims ? s->dims[0] : 1, across = s->n_dims == 2 ? s->dims[1] : 1;
    if (s->n_weights == 1) {
        rows = t->rows;
        columns = t->columns;
    } else if (s->n_dims <= 2 && down == t->rows && across == 1) {
        rows = 1;
        columns = t->columns;
    } else if (s->n_dims != 2 || down != ceil_div(t->rows, rows) ||
               across != ceil_div(t->columns, columns)) {
        char found[96];
        shape_text(s->dims, s->n_dims, found);
        return err_set(e, ERR_FORMAT,
                       "%s: tensor %s: expected one scale, %" PRIu64 " of rows, or [%" PRIu64
                       ", %" PRIu64 "] of blocks, found shape %s",
                       hf_shards_label(&plan->shards, s), s->name, t->rows, ceil_div(t->rows, rows),
                       ceil_div(t->columns, columns), found);
    }
    if (t->scale_rows && (t->scale_rows != rows || t->scale_columns != columns))
        return err_set(e, ERR_FORMAT,
                       "%s: tensor %s: its scales are laid out unlike its neighbours'",
                       hf_shards_label(&plan->shards, s), s->name);
    t->scale_rows = rows;
    t->scale_columns = columns;
    return 0;
}
