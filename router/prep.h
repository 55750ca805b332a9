/* prep.h - from a body to what an engine gets: validated request, prompt ids, limit of tokens.
 *
 * Pure; runs on the loop thread for small bodies and on the thread pool for others
 * (PREP_INLINE_BYTES), so the loop never stalls.
 */
#ifndef EXA_ROUTER_PREP_H
#define EXA_ROUTER_PREP_H

#include "router/api_request.h"
#include "router/models.h"

enum { PREP_INLINE_BYTES = 16 << 10 };

struct prep {
    /* in */
    enum api_kind kind;
    char *body; /* owned */
    size_t body_bytes;
    struct model_set *models; /* held by the loop thread while this runs */
    /* out: error.status is 0 when it is good */
    struct api_error error;
    bool unknown_model;
    struct api_request request; /* numbers and flags; texts are freed when it is done */
    struct stops *stops;        /* owned, may be taken */
    struct model *model;        /* in `models`, no reference of its own */
    struct token_vec prompt;
    uint32_t max_tokens; /* asked for, or what is left of the context */
};

void prep_run(struct prep *p);
void prep_fini(struct prep *p); /* all but `models` */

#endif
