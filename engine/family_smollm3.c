/* family_smollm3.c - SmolLM3: Llama with every nope_every-th layer left unrotated (arXiv:2501.18795). */
#include "engine/family.h"

static int smollm3_check(const struct model_params *p, struct err *e)
{
    if (p->nope_every == 1)
        return err_set(
            e, ERR_FORMAT,
            "smollm3: unrotated layers: expected every second or rarer, found every one");
    return 0;
}

const struct family FAMILY_SMOLLM3 = {
    .arch = "smollm3",
    .rope_style = ROPE_PAIRS,
    .features = FAMILY_WINDOW | FAMILY_NOPE,
    .tables = {TENSORS_TOP, TENSORS_ATTENTION, TENSORS_ATTENTION_BIAS, TENSORS_FEED_FORWARD,
               TENSORS_FEED_FORWARD_BIAS},
    .check = smollm3_check,
};
