/* ops_bounds.h - how far an operation's results may be from the truth (KERNELS_REF: sums in double), and why.
 *
 * The measure is NMSE: sum of squared differences over sum of squared true values of one call. A wrong scale, lane or order of nibbles
 * gives 1e-2 and more. Operations that are not here are exact: copies, gather, masks, choices, argmax where no two are
 * equal. tests/unit/engine_ops_test.c holds every kernel set to this table.
 */
#ifndef EXA_ENGINE_OPS_BOUNDS_H
#define EXA_ENGINE_OPS_BOUNDS_H

enum ops_bound {
    BOUND_EMBED,
    BOUND_MATMUL_FLOAT,
    BOUND_MATMUL_BLOCKS,
    BOUND_MATMUL_BF16,
    BOUND_NORM,
    BOUND_ROPE,
    BOUND_KV_F16,
    BOUND_KV_Q8,
    BOUND_ATTEND,
    BOUND_SILU_MUL,
    BOUND_ADD,
    BOUND_EXPERTS_SUM,
    BOUND_LOG_SUM_EXP,
    N_OPS_BOUNDS
};

struct ops_bound_info {
    const char *op;
    double nmse;
    const char *reason;
};

static const struct ops_bound_info OPS_BOUNDS[N_OPS_BOUNDS] = {
    [BOUND_EMBED] = {"embed", 0,
                     "one definition of each format (model/blocks.h) unpacks in all sets"},
    [BOUND_MATMUL_FLOAT] = {"matmul, float weights", 1e-12,
                            "each addition rounds by 2^-24 of a sum that grows like the square "
                            "root of its terms: after K/4 of them "
                            "about 2^-24 * sqrt(K/4)/2, 7e-7 for K = 576; squared 5e-13"},
    [BOUND_MATMUL_BLOCKS] = {"matmul, blocks and 15-bit activations", 1e-8,
                             "rounding to steps of max/16256 is an error of variance max^2 / "
                             "(16256^2 * 12) on a mean square of max^2 / 3 "
                             "(uniform) to max^2 / 8 (normal, blocks of 32): 1e-9 to 2.5e-9; more "
                             "for short sums. Weights are exact"},
    [BOUND_MATMUL_BF16] = {"matmul, float weights as bf16 tiles", 1.5e-5,
                           "8 bits of fraction: relative error uniform in 2^-9, variance 2^-18 / 3 "
                           "= 1.3e-6 for each of weight and "
                           "activation; products of both, and short sums"},
    [BOUND_NORM] =
        {"norm", 1e-13,
         "a sum of squares has no cancellation: 36 additions and three products, each 2^-24"},
    [BOUND_ROPE] = {"rope", 1e-13, "three roundings of 2^-24"},
    [BOUND_KV_F16] =
        {"keys and values in F16", 4e-7,
         "11 bits of fraction: relative error uniform in 2^-11, variance 2^-22 / 3 = 8e-8"},
    [BOUND_KV_Q8] = {"keys and values in Q8", 6e-5,
                     "steps of max/127: variance max^2 / (127^2 * 12) on a mean square of max^2 / "
                     "3 to max^2 / 8"},
    [BOUND_ATTEND] = {"attend", 1e-12,
                      "exponentials to 2e-7, scores to 1e-6 of theirs, sums in order; the same "
                      "stored keys and values"},
    [BOUND_SILU_MUL] = {"silu_mul", 1e-12, "the exponential to 2e-7, four more roundings"},
    [BOUND_ADD] = {"add", 0, "one rounding, the same one"},
    [BOUND_EXPERTS_SUM] = {"experts_sum", 1e-13, "one rounding for each expert"},
    [BOUND_LOG_SUM_EXP] =
        {"log_sum_exp", 1e-13,
         "sums of 64 in F32: 1e-6 of the sum, which the logarithm turns into 1e-6 absolute"},
};

#endif
