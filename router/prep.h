/* prep.h - from a body to what engines get: validated request, prompt ids, limits of tokens.
 *
 * Pure; runs on the loop thread for small bodies and on the thread pool for others
 * (PREP_INLINE_BYTES), so the loop never stalls. A constraint is compiled to see whether it can be,
 * which takes up to a second: that second part always runs on the pool.
 */
#ifndef EXA_ROUTER_PREP_H
#define EXA_ROUTER_PREP_H

#include "router/api_request.h"
#include "router/models.h"

enum { PREP_INLINE_BYTES = 16 << 10 };

struct prep_prompt {
    struct token_vec ids;
    uint32_t max_tokens; /* asked for, or what is left of the context; embeddings: 0 */
};

struct prep {
    /* in */
    enum api_kind kind;
    char *body; /* owned */
    size_t body_bytes;
    struct model_set *models; /* held by the loop thread while this runs */
    /* out: error.status is 0 when it is good */
    struct api_error error;
    bool unknown_model;
    struct api_request request; /* without texts when it is done */
    struct model *model;        /* in `models`, no reference of its own */
    struct prep_prompt *prompts;
    size_t n_prompts;
    size_t n_choices;     /* n_prompts * best_of; embeddings: n_prompts */
    struct stops **stops; /* [n_choices] owned, each may be taken */
};

void prep_run(struct prep *p);
/* Behind a good prep_run: is there a second part? It fills error too. */
bool prep_has_constraint(const struct prep *p);
void prep_compile(struct prep *p);
void prep_fini(struct prep *p); /* all but `models` */

#endif
