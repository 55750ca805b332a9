/* hf_layers.c - what differs between the layers of a Hugging Face model: windows, rotation, experts (hf_config.h). */
#include "model/hf_config.h"

#include <inttypes.h>
#include <string.h>

/* --- which layers see how far, and which rotate -------------------------------------------------- */

/* layer_types, when there: full attention first, sliding from some layer on. */
static int read_layer_types(struct model_params *p, struct hf_keys *k, uint32_t window,
                            struct err *e)
{
    json_t *types = hf_take(k, "layer_types");
    if (!types)
        return 0;
    int rc = 0;
    if (json_array_size(types) != p->n_layers)
        rc = err_set(e, ERR_FORMAT, "%s: key layer_types: expected %" PRIu32 " names, found %zu",
                     k->label, p->n_layers, json_array_size(types));
    uint32_t from = p->n_layers; /* the first sliding layer */
    for (uint32_t i = 0; i < p->n_layers && !rc; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool sliding = type && strcmp(type, "sliding_attention") == 0;
        if (!sliding && (!type || strcmp(type, "full_attention") != 0))
            rc = hf_refuse(k, "layer_types", "full_attention and sliding_attention",
                           type ? type : "no text", e);
        else if (!sliding && from < i)
            rc = hf_refuse(k, "layer_types", "full attention before sliding attention",
                           "full attention behind it", e);
        if (sliding && from == p->n_layers)
            from = i;
    }
    json_decref(types);
    if (rc)
        return rc;
    if (from < p->n_layers && window == 0)
        return err_set(e, ERR_FORMAT,
                       "%s: key layer_types: sliding attention without a sliding_window", k->label);
    p->window = from < p->n_layers ? window : 0;
    p->window_from = p->window ? from : 0;
    return 0;
}

static int read_window(const struct hf_config *c, struct model_params *p, struct hf_keys *k,
                       struct err *e)
{
    /* Mistral and Mixtral slide in all layers when a window is given; Qwen and SmolLM3 ask for a switch, and name the first layer. */
    bool all = strncmp(c->family->name, "Mi", 2) == 0, on = all;
    uint32_t window = 0, from = 0;
    int rc = hf_take_u32(k, "sliding_window", false, &window, e);
    if (!rc)
        rc = hf_take_bool(k, "use_sliding_window", &on, e);
    if (!rc)
        rc = hf_take_u32(k, "max_window_layers", false, &from, e);
    if (rc)
        return rc;
    if (strcmp(c->family->name, "Llama") == 0 && window)
        return hf_refuse(k, "sliding_window", "null", "a number", e);
    if (c->family->tied && on && window) /* SmolLM3: the layers that do not rotate would slide */
        return hf_refuse(k, "use_sliding_window", "false", "true", e);
    if (!on)
        window = 0;
    if (window && from < p->n_layers) {
        p->window = window;
        p->window_from = all ? 0 : from;
    }
    return read_layer_types(p, k, window, e);
}

/* SmolLM3: layers with (i + 1) % n == 0 do not rotate. no_rope_layers says 1 for those that do. */
static int read_nope(const struct hf_config *c, struct model_params *p, struct hf_keys *k,
                     struct err *e)
{
    if (strcmp(c->family->name, "SmolLM3") != 0)
        return 0;
    uint32_t every = 4;
    int rc = hf_take_u32(k, "no_rope_layer_interval", false, &every, e);
    json_t *layers = rc ? NULL : hf_take(k, "no_rope_layers");
    if (layers && json_array_size(layers) != p->n_layers) {
        rc = err_set(e, ERR_FORMAT,
                     "%s: key no_rope_layers: expected %" PRIu32 " numbers, found %zu", k->label,
                     p->n_layers, json_array_size(layers));
    } else if (layers) {
        every = 0;
        for (uint32_t i = 0; i < p->n_layers && !every; i++)
            if (json_integer_value(json_array_get(layers, i)) == 0)
                every = i + 1;
        for (uint32_t i = 0; i < p->n_layers && !rc; i++)
            if ((json_integer_value(json_array_get(layers, i)) == 0) !=
                (every && (i + 1) % every == 0))
                rc = hf_refuse(k, "no_rope_layers", "a zero at every n-th layer", "another pattern",
                               e);
    }
    json_decref(layers);
    p->nope_every = every;
    return rc;
}

/* --- experts ------------------------------------------------------------------------------------- */

static int read_experts(const struct hf_config *c, struct model_params *p, struct hf_keys *k,
                        struct err *e)
{
    if (c->family->experts == HF_DENSE)
        return 0;
    bool mixtral = c->family->experts == HF_MIXTRAL;
    uint32_t step = 1;
    int rc = hf_take_u32(k, "num_experts", false, &p->n_experts, e);
    if (!rc) /* the same under another name */
        rc = hf_take_u32(k, "num_local_experts", false, &p->n_experts, e);
    if (!rc && p->n_experts == 0)
        rc = hf_refuse(k, mixtral ? "num_local_experts" : "num_experts", "a positive number",
                       "none", e);
    if (!rc)
        rc = hf_take_u32(k, "num_experts_per_tok", true, &p->n_experts_used, e);
    p->n_ff_expert = p->n_ff;
    p->experts_renorm = mixtral; /* Mixtral's class knows no other way */
    if (rc || mixtral)
        return rc;
    rc = hf_take_u32(k, "moe_intermediate_size", true, &p->n_ff_expert, e);
    if (!rc)
        rc = hf_take_bool(k, "norm_topk_prob", &p->experts_renorm, e);
    if (!rc)
        rc = hf_take_u32(k, "decoder_sparse_step", false, &step, e);
    if (!rc && step != 1)
        rc = hf_refuse(k, "decoder_sparse_step", "1", "another", e);
    json_t *dense = rc ? NULL : hf_take(k, "mlp_only_layers");
    if (json_array_size(dense) || (dense && !json_is_array(dense)))
        rc = hf_refuse(k, "mlp_only_layers", "[]", "layers without experts", e);
    json_decref(dense);
    return rc;
}

int hf_layers_read(const struct hf_config *c, struct model_params *p, struct hf_keys *k,
                   struct err *e)
{
    int rc = read_window(c, p, k, e);
    if (!rc)
        rc = read_nope(c, p, k, e);
    return rc ? rc : read_experts(c, p, k, e);
}
