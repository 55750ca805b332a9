/* hf_shards.c - see hf_shards.h. */
#include "model/hf_shards.h"

#include "base/file.h"
#include "model/hf_json.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int add_file(struct hf_shards *s, const char *folder, const char *name, struct err *e)
{
    char path[PATH_MAX];
    int rc = path_join(path, sizeof path, e, "%s/%s", folder, name);
    if (!rc && access(path, F_OK) != 0 && errno == ENOENT)
        rc = err_set(e, ERR_FORMAT, "%s is missing", path);
    if (!rc)
        rc = safetensors_open(&s->files[s->n_files], path, e);
    if (!rc)
        s->n_files++;
    return rc;
}

static int name_order(const void *a, const void *b)
{
    return strcmp(((const struct hf_shard_tensor *)a)->tensor->name,
                  ((const struct hf_shard_tensor *)b)->tensor->name);
}

static int name_find(const void *key, const void *item)
{
    return strcmp(key, ((const struct hf_shard_tensor *)item)->tensor->name);
}

/* All files' tensors in one list. */
static int merge(struct hf_shards *s, const char *folder, struct err *e)
{
    size_t n = 0;
    for (uint32_t f = 0; f < s->n_files; f++)
        n += s->files[f].n_tensors;
    if (n > SAFETENSORS_MAX_TENSORS)
        return err_set(e, ERR_LIMIT, "%s: expected at most %d tensors, found %zu", folder,
                       SAFETENSORS_MAX_TENSORS, n);
    s->tensors = calloc(n + 1, sizeof *s->tensors);
    if (!s->tensors)
        return err_set(e, ERR_NOMEM, "%s: out of memory for %zu tensors", folder, n);
    for (uint32_t f = 0; f < s->n_files; f++)
        for (uint32_t i = 0; i < s->files[f].n_tensors; i++)
            s->tensors[s->n_tensors++] =
                (struct hf_shard_tensor){.tensor = &s->files[f].tensors[i], .shard = f};
    qsort(s->tensors, s->n_tensors, sizeof *s->tensors, name_order);
    for (uint32_t i = 1; i < s->n_tensors; i++)
        if (name_order(&s->tensors[i - 1], &s->tensors[i]) == 0)
            return err_set(e, ERR_FORMAT, "tensor %s is both in %s and in %s",
                           s->tensors[i].tensor->name, s->files[s->tensors[i - 1].shard].label,
                           s->files[s->tensors[i].shard].label);
    return 0;
}

static struct hf_shard_tensor *find(const struct hf_shards *s, const char *name)
{
    if (!s->n_tensors)
        return NULL;
    return bsearch(name, s->tensors, s->n_tensors, sizeof *s->tensors, name_find);
}

/* A shard's file name: nothing that leads out of the folder. */
static int check_file_name(const char *label, const char *name, struct err *e)
{
    size_t n = strlen(name), end = strlen(".safetensors");
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] <= ' ' || name[i] == '/' || name[i] == 0x7f)
            n = 0;
    if (n <= end || n > NAME_MAX || strcmp(name + n - end, ".safetensors") != 0)
        return err_set(e, ERR_FORMAT,
                       "%s: expected names of .safetensors files in the same folder, found another",
                       label);
    return 0;
}

/* Open every file of the list once. */
static int open_listed(struct hf_shards *s, const char *folder, const char *label,
                       const json_t *map, struct err *e)
{
    json_t *seen = json_object(), *file;
    const char *name;
    int rc = seen ? 0 : err_set(e, ERR_NOMEM, "%s: out of memory", label);
    json_object_foreach((json_t *)map, name, file)
    {
        const char *path = json_string_value(file);
        if (!rc && !path)
            rc = err_set(e, ERR_FORMAT, "%s: weight_map: expected file names, found another type",
                         label);
        if (rc || json_object_get(seen, path))
            continue;
        rc = check_file_name(label, path, e);
        if (!rc && s->n_files == HF_MAX_SHARDS)
            rc = err_set(e, ERR_LIMIT, "%s: expected at most %d files", label, HF_MAX_SHARDS);
        if (!rc)
            rc = add_file(s, folder, path, e);
        if (!rc)
            json_object_set_new(seen, path, json_true());
    }
    json_decref(seen);
    return rc;
}

static const char *file_name(const struct hf_shards *s, uint32_t shard)
{
    const char *slash = strrchr(s->files[shard].label, '/');
    return slash ? slash + 1 : s->files[shard].label;
}

/* The list and the files agree in both directions. */
static int check_map(const struct hf_shards *s, const char *label, const json_t *map, struct err *e)
{
    for (uint32_t i = 0; i < s->n_tensors; i++) {
        const char *name = s->tensors[i].tensor->name;
        const char *file = json_string_value(json_object_get(map, name));
        if (!file || strcmp(file, file_name(s, s->tensors[i].shard)) != 0)
            return err_set(e, ERR_FORMAT, "%s: tensor %s is in %s, but the list says %s", label,
                           name, file_name(s, s->tensors[i].shard), file ? file : "nothing of it");
    }
    if (json_object_size(map) != s->n_tensors) {
        const char *name;
        json_t *file;
        char shown[HF_SHOWN_BYTES];
        json_object_foreach((json_t *)map, name, file)
        {
            if (!find(s, name))
                return err_set(e, ERR_FORMAT, "%s: tensor %s is not in %.96s", label,
                               hf_shown(name, shown), json_string_value(file));
        }
    }
    return 0;
}

static int open_sharded(struct hf_shards *s, const char *folder, const char *label, struct err *e)
{
    json_t *list;
    int rc = hf_json_read(label, true, &list, e);
    if (rc)
        return rc;
    const json_t *map = json_object_get(list, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        rc = err_set(e, ERR_FORMAT, "%s: expected a weight_map", label);
    s->files = rc ? NULL : calloc(HF_MAX_SHARDS, sizeof *s->files);
    if (!rc && !s->files)
        rc = err_set(e, ERR_NOMEM, "%s: out of memory", label);
    if (!rc)
        rc = open_listed(s, folder, label, map, e);
    if (!rc)
        rc = merge(s, folder, e);
    if (!rc)
        rc = check_map(s, label, map, e);
    json_decref(list);
    return rc;
}

static int open_single(struct hf_shards *s, const char *folder, struct err *e)
{
    s->files = calloc(1, sizeof *s->files);
    int rc = s->files ? add_file(s, folder, "model.safetensors", e)
                      : err_set(e, ERR_NOMEM, "%s: out of memory", folder);
    return rc ? rc : merge(s, folder, e);
}

int hf_shards_open(struct hf_shards *s, const char *folder, struct err *e)
{
    char single[PATH_MAX], list[PATH_MAX], pickle[PATH_MAX], pickles[PATH_MAX];
    int rc = path_join(single, sizeof single, e, "%s/model.safetensors", folder);
    if (!rc)
        rc = path_join(list, sizeof list, e, "%s/model.safetensors.index.json", folder);
    if (!rc)
        rc = path_join(pickle, sizeof pickle, e, "%s/pytorch_model.bin", folder);
    if (!rc)
        rc = path_join(pickles, sizeof pickles, e, "%s/pytorch_model.bin.index.json", folder);
    if (rc)
        return rc;
    struct hf_shards new = {0};
    if (access(single, F_OK) == 0)
        rc = open_single(&new, folder, e);
    else if (access(list, F_OK) == 0)
        rc = open_sharded(&new, folder, list, e);
    else if (access(pickle, F_OK) == 0 || access(pickles, F_OK) == 0)
        rc = err_set(e, ERR_FORMAT,
                     "%s has its weights in pytorch_model.bin only: expected model.safetensors",
                     folder);
    else
        rc =
            err_set(e, ERR_FORMAT,
                    "%s: expected model.safetensors or model.safetensors.index.json, found neither",
                    folder);
    if (rc)
        hf_shards_close(&new);
    else
        *s = new;
    return rc;
}

void hf_shards_close(struct hf_shards *s)
{
    for (uint32_t f = 0; f < s->n_files; f++)
        safetensors_close(&s->files[f]);
    free(s->files);
    free(s->tensors);
    *s = (struct hf_shards){0};
}

bool hf_shards_has(const struct hf_shards *s, const char *name)
{
    return find(s, name) != NULL;
}

const struct st_tensor *hf_shards_take(struct hf_shards *s, const char *name)
{
    struct hf_shard_tensor *t = find(s, name);
    if (!t)
        return NULL;
    t->used = true;
    return t->tensor;
}

const char *hf_shards_label(const struct hf_shards *s, const struct st_tensor *t)
{
    const struct hf_shard_tensor *found = find(s, t->name);
    return found ? s->files[found->shard].label : "?";
}
