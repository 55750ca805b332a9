/* hf_shards.h - the tensors of a Hugging Face folder: model.safetensors, or the shards that model.safetensors.index.json
 * names, as one list by name. Inside the room only.
 */
#ifndef EXA_MODEL_HF_SHARDS_H
#define EXA_MODEL_HF_SHARDS_H

#include "model/safetensors.h"

enum { HF_MAX_SHARDS = 4096 };

struct hf_shard_tensor {
    const struct st_tensor *tensor;
    uint32_t shard;
    bool used; /* asked for by hf_shards_take */
};

struct hf_shards {
    uint32_t n_files;
    struct safetensors *files; /* owned */
    uint32_t n_tensors;
    struct hf_shard_tensor *tensors; /* owned, by name */
};

/* Opens all files. A tensor that two shards have, that the list names in another file, or that it does not name is an error;
 * so is a folder with weights in another format only. */
int hf_shards_open(struct hf_shards *s, const char *folder, struct err *e);
void hf_shards_close(struct hf_shards *s);

bool hf_shards_has(const struct hf_shards *s, const char *name);
/* The tensor, marked as used; NULL: there is none. */
const struct st_tensor *hf_shards_take(struct hf_shards *s, const char *name);
/* The file that has it, for errors. */
const char *hf_shards_label(const struct hf_shards *s, const struct st_tensor *t);

#endif
