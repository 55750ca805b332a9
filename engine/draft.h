/* draft.h - a small model that guesses what the large one will say (arXiv:2211.17192): greedy, verified by the large one's own draws.
 *
 * It keeps its keys and values in blocks of its own with the same numbers as the large model's, so that the batch's block tables, its prefix
 * cache and its copies hold for both. What it computes for a block that was found in the cache may be stale or missing: that makes
 * bad guesses, never another output.
 */
#ifndef EXA_ENGINE_DRAFT_H
#define EXA_ENGINE_DRAFT_H

#include "engine/backend.h"
#include "engine/batch.h"
#include "engine/graph.h"
#include "model/image.h"

struct draft;

/* Opens the image; model: the large one, with which it must share a vocabulary (ERR_FORMAT, named). Takes no memory for it yet. */
int draft_open(struct draft **out, const char *path, const struct model_meta *model, struct err *e);
void draft_close(struct draft *d, const struct backend *backend);
const struct model_params *draft_params(const struct draft *d);
/* size: the large model's; what this one takes with it, and for one KV block. */
int draft_memory(const struct draft *d, const struct ops *ops, const struct graph_size *size,
                 struct graph_memory *need, uint64_t *block_bytes, struct err *e);
int draft_start(struct draft *d, const struct ops *ops, struct exec *x,
                const struct graph_size *size, const struct batch_config *plan, struct err *e);

/* Fill r->drafts for all planned requests with n_drafts, before batch_rows; some may get fewer. */
int draft_propose(struct draft *d, struct batch *b, struct err *e);
/* The step's prompt rows: compute them here too. After batch_rows. */
int draft_follow(struct draft *d, const struct batch *b, struct err *e);
/* n_held of the guesses for r, which are among its known tokens now, were drawn. */
void draft_learn(struct draft *d, const struct batch *b, const struct request *r, uint32_t n_held);
void draft_kv_copy(struct draft *d, uint32_t from, uint32_t to);

#endif
