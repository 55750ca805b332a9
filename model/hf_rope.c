/* hf_rope.c - rotary scalings of Hugging Face configurations (hf_config.h), as in transformers' modeling_rope_utils. */
#include "model/hf_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const NONE[] = {NULL};

/* Divisor of each frequency: 1 for waves much shorter than the old context, `factor` for much longer ones, in between a mix. */
static int llama3_divisors(struct hf_config *c, const struct model_params *p, struct err *e)
{
    uint32_t n = p->rope_dim / 2;
    c->rope_long = malloc((n + 1) * sizeof *c->rope_long);
    if (!c->rope_long)
        return err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " rope factors", n);
    double low = (double)p->rope_low_factor, high = (double)p->rope_high_factor;
    double factor = (double)p->rope_factor, context = (double)p->rope_orig_ctx;
    for (uint32_t i = 0; i < n; i++) {
        double turn = pow((double)p->rope_base, 2.0 * i / p->rope_dim) * 2 * M_PI; /* wave length */
        double smooth = (context / turn - low) / (high - low);
        double share = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        c->rope_long[i] = (float)(1 / ((1 - share) / factor + share));
    }
    return 0;
}

static int read_llama3(struct hf_config *c, struct model_params *p, struct hf_keys *k,
                       struct err *e)
{
    double factor = 0, low = 0, high = 0;
    int rc = hf_take_f64(k, "factor", true, &factor, e);
    if (!rc)
        rc = hf_take_f64(k, "low_freq_factor", true, &low, e);
    if (!rc)
        rc = hf_take_f64(k, "high_freq_factor", true, &high, e);
    if (!rc)
        rc = hf_take_u32(k, "original_max_position_embeddings", true, &p->rope_orig_ctx, e);
    if (rc)
        return rc;
    if (!(low > 0) || !(high > low) || !(factor >= 1) || p->rope_orig_ctx == 0)
        return err_set(e, ERR_FORMAT,
                       "%s: %sfactor, low_freq_factor, high_freq_factor, "
                       "original_max_position_embeddings: expected at least 1, 0 < low < high, at "
                       "least 1, found %g, %g, %g, %" PRIu32,
                       k->label, k->inside, factor, low, high, p->rope_orig_ctx);
    p->rope_scaling = ROPE_LLAMA3;
    p->rope_factor = (float)factor;
    p->rope_low_factor = (float)low;
    p->rope_high_factor = (float)high;
    return llama3_divisors(c, p, e);
}

/* The method's own rule for how much longer contexts sharpen attention. */
static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static int read_yarn(struct model_params *p, struct hf_keys *k, struct err *e)
{
    double factor = 0, attention = 0, fast = 32, slow = 1, mscale = 0, mscale_all = 0;
    bool truncate = true;
    struct {
        const char *key;
        double *out;
    } const numbers[] = {
        {"attention_factor", &attention},
        {"beta_fast", &fast},
        {"beta_slow", &slow},
        {"mscale", &mscale},
        {"mscale_all_dim", &mscale_all},
    };
    int rc = hf_take_f64(k, "factor", true, &factor, e);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && !rc; i++)
        rc = hf_take_f64(k, numbers[i].key, false, numbers[i].out, e);
    p->rope_orig_ctx = p->n_ctx;
    if (!rc)
        rc = hf_take_u32(k, "original_max_position_embeddings", false, &p->rope_orig_ctx, e);
    if (!rc)
        rc = hf_take_bool(k, "truncate", &truncate, e);
    if (!rc && !truncate)
        rc = hf_refuse(k, "truncate", "true", "false", e);
    if (rc)
        return rc;
    /* The factor is what the file says. (transformers before version 5 put max_position_embeddings over the original one in its
     * place where both are there; well-made files agree.) */
    if (attention == 0 && mscale != 0 && mscale_all != 0)
        attention = yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all);
    p->rope_scaling = ROPE_YARN;
    p->rope_factor = (float)factor;
    p->rope_attn_factor = (float)attention;
    p->yarn_beta_fast = (float)fast;
    p->yarn_beta_slow = (float)slow;
    return 0;
}

static int read_factors(struct hf_keys *k, const char *key, uint32_t n, float **out, struct err *e)
{
    json_t *list = hf_take(k, key);
    int rc = 0;
    if (json_array_size(list) != n) {
        rc = err_set(e, ERR_FORMAT, "%s: key %s%s: expected %" PRIu32 " numbers, found %zu",
                     k->label, k->inside, key, n, json_array_size(list));
        goto out;
    }
    *out = malloc((n + 1) * sizeof **out);
    if (!*out) {
        rc = err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " rope factors", n);
        goto out;
    }
    for (uint32_t i = 0; i < n && !rc; i++) {
        double v = json_number_value(json_array_get(list, i));
        (*out)[i] = (float)v;
        if (!(v > 0 && v < 1e6))
            rc = err_set(e, ERR_FORMAT,
                         "%s: key %s%s: item %" PRIu32 ": expected a number above 0, found %g",
                         k->label, k->inside, key, i, v);
    }
out:
    json_decref(list);
    return rc;
}

static int read_longrope(struct hf_config *c, struct model_params *p, struct hf_keys *k,
                         struct err *e)
{
    double factor = 0, attention = 0;
    int rc = hf_take_f64(k, "factor", false, &factor, e);
    if (!rc)
        rc = hf_take_f64(k, "attention_factor", false, &attention, e);
    if (!rc) /* may be outside (Phi): then hf_config.c has set it */
        rc = hf_take_u32(k, "original_max_position_embeddings", false, &p->rope_orig_ctx, e);
    if (!rc)
        rc = read_factors(k, "short_factor", p->rope_dim / 2, &c->rope_short, e);
    if (!rc)
        rc = read_factors(k, "long_factor", p->rope_dim / 2, &c->rope_long, e);
    if (!rc && p->rope_orig_ctx < 2)
        rc = err_set(
            e, ERR_FORMAT,
            "%s: key %soriginal_max_position_embeddings: expected the context before it was "
            "extended, found none",
            k->label, k->inside);
    if (rc)
        return rc;
    if (factor == 0)
        factor = (double)p->n_ctx / p->rope_orig_ctx;
    if (attention == 0)
        attention = factor <= 1 ? 1 : sqrt(1 + log(factor) / log((double)p->rope_orig_ctx));
    p->rope_scaling = ROPE_LONGROPE;
    p->rope_factor = (float)factor;
    p->rope_attn_factor = (float)attention;
    return 0;
}

static int read_factor_only(struct model_params *p, struct hf_keys *k, enum rope_scaling how,
                            struct err *e)
{
    double factor = 0;
    uint32_t original = p->n_ctx;
    int rc = hf_take_f64(k, "factor", true, &factor, e);
    if (!rc)
        rc = hf_take_u32(k, "original_max_position_embeddings", false, &original, e);
    if (rc)
        return rc;
    p->rope_scaling = (uint8_t)how;
    p->rope_factor = (float)factor;
    p->rope_orig_ctx = how == ROPE_DYNAMIC ? original : 0;
    return 0;
}

/* One object, whose method is in `type` or, since 2024, in `rope_type`. */
static int read_method(struct hf_config *c, struct model_params *p, struct hf_keys *k,
                       struct err *e)
{
    char type[32] = "", newer[32] = "";
    double theta = (double)p->rope_base, partial = 1;
    int rc = hf_take_text(k, "type", type, sizeof type, e);
    if (!rc)
        rc = hf_take_text(k, "rope_type", newer, sizeof newer, e);
    if (!rc)
        rc = hf_take_f64(k, "rope_theta", false, &theta, e);
    if (!rc)
        rc = hf_take_f64(k, "partial_rotary_factor", false, &partial, e);
    if (!rc && partial != 1)
        rc = hf_refuse(k, "partial_rotary_factor", "1", "another", e);
    if (rc)
        return rc;
    p->rope_base = (float)theta;
    const char *how = newer[0] ? newer : type;
    if (!how[0] || strcmp(how, "default") == 0)
        rc = 0;
    else if (strcmp(how, "linear") == 0)
        rc = read_factor_only(p, k, ROPE_LINEAR, e);
    else if (strcmp(how, "dynamic") == 0)
        rc = read_factor_only(p, k, ROPE_DYNAMIC, e);
    else if (strcmp(how, "yarn") == 0)
        rc = read_yarn(p, k, e);
    else if (strcmp(how, "llama3") == 0)
        rc = read_llama3(c, p, k, e);
    else if (strcmp(how, "longrope") == 0 || strcmp(how, "su") == 0)
        rc = read_longrope(c, p, k, e);
    else
        rc =
            hf_refuse(k, "rope_type", "default, linear, dynamic, yarn, llama3 or longrope", how, e);
    return rc ? rc : hf_keys_end(k, NONE, e);
}

int hf_rope_read(struct hf_config *c, struct model_params *p, struct hf_keys *k, struct err *e)
{
    static const char *const KEYS[] = {"rope_parameters", "rope_scaling"};
    bool found = false;
    int rc = 0;
    for (size_t i = 0; i < 2 && !rc; i++) {
        json_t *object = hf_take(k, KEYS[i]);
        char inside[32];
        snprintf(inside, sizeof inside, "%s.", KEYS[i]);
        struct hf_keys nested = {k->label, inside, object};
        if (object && !json_is_object(object))
            rc = hf_refuse(k, KEYS[i], "an object", "something else", e);
        else if (object &&
                 found) /* a writer for old and new readers: both say the same, the newer counts */
            rc = 0;
        else if (object)
            rc = read_method(c, p, &nested, e);
        found = found || object;
        json_decref(object);
    }
    return rc;
}
