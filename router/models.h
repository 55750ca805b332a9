/* models.h - the models a router speaks for: name, tokenizer, chat template, context.
 *
 * A model is immutable once built; a set is an immutable list of models. Counts of references are
 * touched on the loop thread only; a job on the thread pool uses a set that the loop thread holds
 * for it.
 */
#ifndef EXA_ROUTER_MODELS_H
#define EXA_ROUTER_MODELS_H

#include "text/template.h"
#include "text/tokenizer.h"
#include "wire/msg.h"

enum { MODELS_MAX = 64, MODEL_FINGERPRINT_BYTES = 16 };

struct model {
    uint32_t refs;
    uint32_t deployment, version;
    char name[MSG_MODEL_NAME_BYTES];
    char fingerprint[MODEL_FINGERPRINT_BYTES]; /* "fp_" and the start of the pack's digest */
    uint8_t digest[SHA256_BYTES];
    uint32_t n_ctx;     /* tokens a request may use, prompt and answer */
    uint32_t n_embd;    /* numbers of an embedding; 0: it computes none */
    bool add_eos;       /* embeddings: behind each text */
    uint64_t created_s; /* wall clock, as /v1/models shows it */
    struct tokenizer *tokenizer;
    struct chat_template *chat; /* NULL: the model has none */
    bool chat_has_tools;        /* it shows tools to the model */
    uint32_t n_eog;
    uint32_t eog[MSG_MAX_STOP_IDS];
};

/* May take long (hundreds of milliseconds for a large vocabulary): not on the loop thread while it
 * serves. One reference. */
int model_build(struct model **out, const struct msg_model *m, uint64_t created_s, struct err *e);
struct model *model_ref(struct model *m);
void model_unref(struct model *m);

struct model_set {
    uint32_t refs;
    uint32_t n;
    struct model *models[MODELS_MAX]; /* a reference each */
};

struct model_set *model_set_create(void); /* empty; NULL: out of memory */
struct model_set *model_set_ref(struct model_set *s);
void model_set_unref(struct model_set *s);
/* A new set with m added, or in the place of the model of the same deployment. Takes no reference
 * from the caller. NULL: full or no memory. */
struct model_set *model_set_with(const struct model_set *s, struct model *m);
struct model *model_set_find(const struct model_set *s, const char *name, size_t n);

#endif
