/* settings.c - see settings.h. */
#include "engine/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/batch.h"
#include "engine/ops.h"

enum { MAX_BUDGET = 4096 };

struct word {
    const char *name;
    int value;
};
static const struct word KV_TYPES[] = {{"f32", KV_F32}, {"f16", KV_F16}, {"q8", KV_Q8}, {NULL, 0}};
static const struct word SWITCH[] = {{"on", false}, {"off", true}, {NULL, 0}}; /* no_… */
static const struct word SPECULATIONS[] = {
    {"off", SPECULATE_OFF}, {"lookup", SPECULATE_LOOK_UP}, {"draft", SPECULATE_DRAFT}, {NULL, 0}};

static int word_read(int *out, const char *key, const char *value, const struct word *words,
                     struct err *e)
{
    char list[64] = "";
    for (const struct word *w = words; w->name; w++) {
        if (!strcmp(w->name, value)) {
            *out = w->value;
            return 0;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", w->name);
    }
    return err_set(e, ERR_CONFIG, "%s: \"%s\", expected one of %s", key, value, list);
}

static int number_read(uint64_t *out, const char *key, const char *value, uint64_t least,
                       uint64_t most, struct err *e)
{
    char *end = NULL;
    errno = 0;
    *out = *value >= '0' && *value <= '9' ? strtoull(value, &end, 10) : 0;
    if (!end || *end || errno || *out < least || *out > most)
        return err_set(e, ERR_CONFIG, "%s: \"%s\", expected a number from %" PRIu64 " to %" PRIu64,
                       key, value, least, most);
    return 0;
}

static int u32_read(uint32_t *out, const char *key, const char *value, uint64_t least,
                    uint64_t most, struct err *e)
{
    uint64_t v;
    int rc = number_read(&v, key, value, least, most, e);
    if (!rc)
        *out = (uint32_t)v;
    return rc;
}

static int fraction_read(uint32_t *permille, const char *key, const char *value, struct err *e)
{
    char *end = NULL;
    double v = *value >= '0' && *value <= '9' ? strtod(value, &end) : 0;
    if (!end || *end || !(v >= 0.01 && v <= 1))
        return err_set(e, ERR_CONFIG, "%s: \"%s\", expected a number from 0.01 to 1", key, value);
    *permille = (uint32_t)lrint(v * 1000);
    return 0;
}

static int one_read(struct engine_config *c, const char *key, const char *value, struct err *e)
{
    int word = 0, rc;
    if (!strcmp(key, "kv_type")) {
        rc = word_read(&c->kv_type, key, value, KV_TYPES, e);
    } else if (!strcmp(key, "memory_fraction")) {
        rc = fraction_read(&c->memory_permille, key, value, e);
    } else if (!strcmp(key, "kv_bytes")) {
        rc = number_read(&c->kv_bytes, key, value, 1, INT64_MAX, e);
    } else if (!strcmp(key, "token_budget")) {
        rc = u32_read(&c->chunk, key, value, 1, MAX_BUDGET, e);
    } else if (!strcmp(key, "queue")) {
        rc = u32_read(&c->n_queue, key, value, 0, BATCH_MAX_QUEUE, e);
    } else if (!strcmp(key, "max_drafts")) {
        rc = u32_read(&c->max_drafts, key, value, 1, SPEC_MAX, e);
    } else if (!strcmp(key, "prefix_cache")) {
        rc = word_read(&word, key, value, SWITCH, e);
        c->no_prefix_cache = word;
    } else if (!strcmp(key, "speculation")) {
        rc = word_read(&word, key, value, SPECULATIONS, e);
        c->speculation = (uint8_t)word;
    } else if (!strcmp(key, "draft")) {
        c->draft_path = value;
        rc = *value ? 0 : err_set(e, ERR_CONFIG, "draft: expected the path of an image");
    } else {
        rc = err_set(e, ERR_CONFIG, "%s: unknown engine setting", key);
    }
    return rc;
}

int settings_read(struct engine_config *c, char *store, const char *text, struct err *e)
{
    int n = snprintf(store, MSG_SETTINGS_BYTES, "%s", text);
    if (n >= MSG_SETTINGS_BYTES)
        return err_set(e, ERR_CONFIG, "engine settings of %d bytes, at most %d", n,
                       MSG_SETTINGS_BYTES - 1);
    for (char *key = store; *key;) {
        char *value = strchr(key, '=');
        if (!value)
            return err_set(e, ERR_CONFIG, "engine setting \"%s\": expected key=value", key);
        *value++ = 0;
        char *next = value + strlen(value);
        if (strcmp(key, "draft")) { /* a path is the rest of the line */
            next = value + strcspn(value, " ");
            if (*next)
                *next++ = 0;
        }
        int rc = one_read(c, key, value, e);
        if (rc)
            return rc;
        key = next;
    }
    return 0;
}
