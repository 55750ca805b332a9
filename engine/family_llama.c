/* family_llama.c - Llama 2 and 3, SmolLM2, Mistral, Mixtral: all "llama" in GGUF files.
 *
 * q and k are stored so that neighbours (2i, 2i + 1) rotate together (readers of other files permute the rows). Mistral is
 * this with a sliding window, Mixtral with experts for the feed-forward. Biases are rare (attention_bias, mlp_bias).
 */
#include "engine/family.h"

const struct family FAMILY_LLAMA = {
    .arch = "llama",
    .rope_style = ROPE_PAIRS,
    .features = FAMILY_WINDOW | FAMILY_EXPERTS,
    .tables = {TENSORS_TOP, TENSORS_ATTENTION, TENSORS_ATTENTION_BIAS, TENSORS_FEED_FORWARD,
               TENSORS_FEED_FORWARD_BIAS, TENSORS_EXPERTS},
};
