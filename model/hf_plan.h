/* hf_plan.h - which tensors a Hugging Face model of a configuration has, where each lies in its files, and what becomes of
 * it in a pack. Inside the room only: hf_plan.c makes the plan, hf_model.c follows it.
 */
#ifndef EXA_MODEL_HF_PLAN_H
#define EXA_MODEL_HF_PLAN_H

#include "model/hf_config.h"
#include "model/hf_shards.h"
#include "model/index.h"

/* One tensor of the files. */
struct hf_part {
    const struct st_tensor *weight;
    const struct st_tensor *scale; /* of F8, else NULL */
};

/* One tensor of the pack: `rows` rows of each part, one part after the other. */
struct hf_target {
    uint32_t first_part, n_parts;
    uint64_t rows, columns;             /* of a part */
    uint32_t head_rows;                 /* rows that change places among each other; 0: rows stay */
    uint64_t scale_rows, scale_columns; /* weights under one F8 scale */
    const float *made;                  /* no part: these are the bytes */
};

struct hf_plan {
    struct hf_config config;
    struct hf_shards shards;
    uint32_t n_targets;
    struct hf_target *targets; /* owned, as the index's tensors */
    struct tensor_info *infos; /* owned [n_targets] */
    uint32_t n_parts;
    struct hf_part *parts; /* owned */
    uint8_t *row;          /* owned: one row of the pack's longest */
};

/* config and shards are filled. Finds every tensor, checks its shape and type, and refuses what is missing and what is left over.
 * p->tied_embeddings becomes what the files say. */
int hf_plan_make(struct hf_plan *plan, struct model_params *p, const char *folder, struct err *e);
/* Find a tensor of that shape (the file's order) and, of F8, its scales. (hf_part.c) */
int hf_part_take(struct hf_plan *plan, const char *folder, const char *name, const uint64_t *dims,
                 uint32_t n_dims, struct hf_part *part, struct err *e);
/* Where the scales of an F8 part lie: t->scale_rows and scale_columns. */
int hf_part_scales(const struct hf_plan *plan, struct hf_target *t, const struct hf_part *part,
                   struct err *e);
void hf_plan_free(struct hf_plan *plan);

#endif
