/* hf_model.c - see hf_model.h: opening a folder, and making tensors' bytes as hf_plan.h says. */
#include "model/hf_model.h"

#include "base/file.h"
#include "model/blocks.h"
#include "model/hf_plan.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- bytes of a tensor ----------------------------------------------------------------------------- */

static float number_at(const struct st_tensor *t, uint64_t i)
{
    const uint8_t *p = t->data + i * st_dtype_bytes(t->dtype);
    float f;
    switch (t->dtype) {
    case ST_F16:
        return half_float(p);
    case ST_BF16:
        return bfloat_float(p);
    case ST_F8_E4M3:
        return e4m3_float(*p);
    default:
        memcpy(&f, p, 4);
        return f;
    }
}

/* The scale of one weight of row r. */
static float scale_at(const struct hf_target *t, const struct hf_part *part, uint64_t r, uint64_t c)
{
    uint64_t across = t->columns / t->scale_columns + (t->columns % t->scale_columns != 0);
    return number_at(part->scale, r / t->scale_rows * across + c / t->scale_columns);
}

static void row_f32(const struct hf_target *t, const struct hf_part *part, uint64_t r, uint8_t *out)
{
    for (uint64_t c = 0; c < t->columns; c++) {
        float v = number_at(part->weight, r * t->columns + c);
        if (part->scale)
            v = scale_at(t, part, r, c) * v;
        memcpy(out + 4 * c, &v, 4);
    }
}

static void row_f8(const struct hf_target *t, const struct hf_part *part, uint64_t r, uint8_t *out)
{
    const uint8_t *q = part->weight->data + r * t->columns;
    for (uint64_t c = 0; c < t->columns; c += BLOCK_WEIGHTS, out += sizeof(struct block_f8_e4m3)) {
        float scale = scale_at(t, part, r, c);
        memcpy(out, &scale, 4);
        memcpy(out + 4, q + c, BLOCK_WEIGHTS);
    }
}

/* The file's row that becomes row r: pairs (i, i + half) of a head become (2i, 2i + 1). */
static uint64_t source_row(const struct hf_target *t, uint64_t r)
{
    if (!t->head_rows)
        return r;
    uint64_t at = r % t->head_rows;
    return r - at + at % 2 * (t->head_rows / 2) + at / 2;
}

static bool same_format(const struct tensor_info *info, const struct st_tensor *t)
{
    return (info->type == TENSOR_F32 && t->dtype == ST_F32) ||
           (info->type == TENSOR_F16 && t->dtype == ST_F16) ||
           (info->type == TENSOR_BF16 && t->dtype == ST_BF16);
}

static void row_make(const struct hf_plan *plan, uint32_t tensor, uint64_t row, uint8_t *out)
{
    const struct hf_target *t = &plan->targets[tensor];
    const struct tensor_info *info = &plan->infos[tensor];
    const struct hf_part *part = &plan->parts[t->first_part + row / t->rows];
    uint64_t r = source_row(t, row % t->rows);
    if (same_format(info, part->weight)) {
        uint64_t n = t->columns * st_dtype_bytes(part->weight->dtype);
        memcpy(out, part->weight->data + r * n, n);
    } else if (info->type == TENSOR_F8_E4M3) {
        row_f8(t, part, r, out);
    } else {
        row_f32(t, part, r, out);
    }
}

static int plan_read(void *ctx, uint32_t tensor, uint64_t offset, uint32_t n, uint8_t *buf,
                     const uint8_t **bytes, struct err *e)
{
    (void)e;
    const struct hf_model *h = ctx;
    const struct hf_plan *plan = h->plan;
    const struct hf_target *t = &plan->targets[tensor];
    if (t->made) {
        *bytes = (const uint8_t *)t->made + offset;
        return 0;
    }
    uint64_t total = h->index.tensors[tensor].n_bytes, part_bytes = total / t->n_parts;
    uint64_t row_bytes = part_bytes / t->rows;
    const struct hf_part *part = &plan->parts[t->first_part + offset / part_bytes];
    if (!t->head_rows && same_format(&plan->infos[tensor], part->weight) &&
        offset % part_bytes + n <= part_bytes) {
        *bytes = part->weight->data + offset % part_bytes;
        return 0;
    }
    for (uint64_t at = offset; at < offset + n;) {
        uint64_t row = at / row_bytes, skip = at % row_bytes;
        uint64_t take = row_bytes - skip < offset + n - at ? row_bytes - skip : offset + n - at;
        if (take == row_bytes) {
            row_make(plan, tensor, row, buf + (at - offset));
        } else { /* a row that lies across pieces */
            row_make(plan, tensor, row, plan->row);
            memcpy(buf + (at - offset), plan->row + skip, take);
        }
        at += take;
    }
    *bytes = buf;
    return 0;
}

struct tensor_source hf_source(struct hf_model *h)
{
    return (struct tensor_source){plan_read, h};
}

/* --- opening ---------------------------------------------------------------------------------------- */

/* The folder's own name. */
static void name_of(const char *folder, char *name, size_t cap)
{
    char full[PATH_MAX];
    const char *slash = realpath(folder, full) ? strrchr(full, '/') : NULL;
    snprintf(name, cap, "%s", slash && slash[1] ? slash + 1 : "model");
    if (meta_text_check(name, strlen(name), cap, "folder's name", NULL))
        snprintf(name, cap, "model"); /* cut inside a character, or no UTF-8 */
}

/* Embeddings often have more rows than there are tokens, for round sizes: tokens that nothing produces fill up. */
static int fill_tokens(struct model_meta *m, const char *folder, struct err *e)
{
    struct tokenizer_data *t = &m->tok;
    uint32_t n = m->params.n_vocab;
    if (n > META_MAX_VOCAB)
        return err_set(e, ERR_LIMIT,
                       "%s: config.json: vocab_size: expected at most %d, found %" PRIu32, folder,
                       META_MAX_VOCAB, n);
    if (t->n_tokens > n)
        return err_set(e, ERR_FORMAT,
                       "%s: the tokenizer has %" PRIu32 " tokens, but vocab_size is %" PRIu32,
                       folder, t->n_tokens, n);
    char **tokens = realloc(t->tokens, ((size_t)n + 1) * sizeof *tokens);
    if (tokens)
        t->tokens = tokens;
    uint8_t *types = tokens ? realloc(t->types, (size_t)n + 1) : NULL;
    if (types)
        t->types = types;
    double *scores =
        types && t->scores ? realloc(t->scores, ((size_t)n + 1) * sizeof *scores) : NULL;
    if (scores)
        t->scores = scores;
    if (!tokens || !types || (t->scores && !scores))
        return err_set(e, ERR_NOMEM, "%s: out of memory for %" PRIu32 " tokens", folder, n);
    while (t->n_tokens < n) {
        char name[24];
        snprintf(name, sizeof name, "[PAD%" PRIu32 "]", t->n_tokens);
        t->tokens[t->n_tokens] = strdup(name);
        if (!t->tokens[t->n_tokens])
            return err_set(e, ERR_NOMEM, "%s: out of memory for tokens", folder);
        t->types[t->n_tokens] = TOKEN_UNUSED;
        if (scores)
            scores[t->n_tokens] = 0;
        t->n_tokens++;
    }
    return 0;
}

static int read_meta(struct hf_model *h, const char *folder, hf_tokenizer_fn tokenizer,
                     struct err *e)
{
    char path[PATH_MAX];
    json_t *config = NULL;
    struct model_params *p = &h->meta.params;
    int rc = path_join(path, sizeof path, e, "%s/config.json", folder);
    if (!rc)
        rc = hf_json_read(path, true, &config, e);
    if (!rc)
        rc = hf_config_read(&h->plan->config, p, config, path, e);
    json_decref(config);
    if (!rc)
        rc = hf_pooling_read(folder, p, e);
    if (!rc && !h->plan->config.lm_head && p->pooling == POOLING_NONE)
        rc = err_set(
            e, ERR_FORMAT,
            "%s: %sModel has no head for tokens, and modules.json of sentence-transformers, "
            "which says how it makes embeddings, is missing",
            folder, h->plan->config.family->name);
    if (!rc)
        rc = tokenizer(folder, &h->meta, e);
    if (!rc)
        rc = fill_tokens(&h->meta, folder, e);
    if (rc)
        return rc;
    name_of(folder, h->meta.name, sizeof h->meta.name);
    rc = meta_check(&h->meta, e);
    return rc && e ? err_prefix(e, "%s: ", folder) : rc;
}

/* Room for a row that lies across two pieces. */
static int make_room(struct hf_model *h, const char *folder, struct err *e)
{
    uint64_t longest = 1;
    for (uint32_t i = 0; i < h->index.n_tensors; i++) {
        const struct hf_target *t = &h->plan->targets[i];
        uint64_t n = t->made ? 0 : h->index.tensors[i].n_bytes / t->n_parts / t->rows;
        longest = n > longest ? n : longest;
    }
    h->plan->row = malloc(longest);
    return h->plan->row ? 0
                        : err_set(e, ERR_NOMEM, "%s: out of memory for rows of %" PRIu64 " bytes",
                                  folder, longest);
}

int hf_open(struct hf_model *h, const char *folder, hf_tokenizer_fn tokenizer, struct err *e)
{
    struct hf_model new = {.plan = calloc(1, sizeof *new.plan)};
    meta_init(&new.meta);
    int rc = new.plan ? read_meta(&new, folder, tokenizer, e)
                      : err_set(e, ERR_NOMEM, "%s: out of memory", folder);
    if (!rc)
        rc = hf_shards_open(&new.plan->shards, folder, e);
    if (!rc)
        rc = hf_plan_make(new.plan, &new.meta.params, folder, e);
    if (!rc) {
        rc = index_build(&new.index, new.plan->infos, new.plan->n_targets, e);
        if (rc && e)
            err_prefix(e, "%s: ", folder);
    }
    if (!rc)
        rc = make_room(&new, folder, e);
    if (rc)
        hf_close(&new);
    else
        *h = new;
    return rc;
}

void hf_close(struct hf_model *h)
{
    meta_fini(&h->meta);
    index_fini(&h->index);
    hf_plan_free(h->plan);
    h->plan = NULL;
}
