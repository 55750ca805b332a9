#!/usr/bin/env python3
"""Reference results of tiny models of every family, computed by transformers: tests/golden/families/.

Run by hand when a family is added (not by `make check`), with transformers 4.51.3 on Debian's python3-torch 1.13.1:
    apt-get install python3-torch
    /usr/bin/python3 -m venv --system-site-packages VENV && VENV/bin/pip install transformers==4.51.3
    VENV/bin/python tests/tools/make_families.py tests/golden/families

Weights are not kept: they are made from their names (weights() here, family_weights() in tests/unit/families_support.h), as
integers / 128 times a power of two, so that F32, F16 and BF16 hold the same numbers. Kept are, for each model, its
configuration as Hugging Face has it, its parameters as packs have them, a prompt, and the results (logits at some positions, or the
pooled hidden state before it is scaled to length 1), all in families.json and families.f32. rope.json: rotary frequencies.
"""
import json
import math
import os
import sys
import types

import numpy as np
import torch

# transformers 4.51.3 imports these for tensor parallel and compiled models only, which torch 1.13 does not have
torch.distributed.tensor = types.ModuleType("torch.distributed.tensor")
sys.modules["torch.distributed.tensor"] = torch.distributed.tensor
torch.compiler = types.ModuleType("torch.compiler")
torch.compiler.disable = lambda *a, **k: (lambda f: f)
torch.float8_e4m3fn = torch.float16

from transformers import (  # noqa: E402
    LlamaConfig, LlamaForCausalLM, LlamaModel, MistralConfig, MistralForCausalLM, MixtralConfig,
    MixtralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3Model,
    Qwen3MoeConfig, Qwen3MoeForCausalLM)

VOCAB = 96
MASK = (1 << 64) - 1


def fnv1a(text):
    h = 0xcbf29ce484222325
    for b in text.encode():
        h = (h ^ b) * 0x100000001b3 & MASK
    return h


def weights(name, shape):
    """-127 … 127 by name and place (splitmix64), over 128, times the scale of its kind."""
    n = int(np.prod(shape))
    with np.errstate(over="ignore"):
        x = np.uint64(fnv1a(name)) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(
            0x9e3779b97f4a7c15)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
        x = x ^ x >> np.uint64(31)
    v = ((x >> np.uint64(33)) % np.uint64(255)).astype(np.int64) - 127
    v = v.astype(np.float64) / 128
    if "norm" in name:
        v = 1 + v / 4
    elif name.startswith("token_embd") or "gate_inp" in name:
        pass
    elif name.endswith(".bias"):
        v = v / 2
    else:
        v = v / 4
    return torch.from_numpy(v.reshape(shape))


TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
       "lm_head.weight": "output.weight"}
LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
}
EXPERT = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps",
          "w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps"}


def fill(model, config):
    """Every parameter of the model by its name in packs; experts are slices of one tensor. Returns the shapes."""
    shapes = {}

    def take(name, shape):
        shapes[name] = list(shape)
        return weights(name, shape)

    n_experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", 0)
    for name, p in model.named_parameters():
        full = name if name.startswith(("model.", "lm_head.")) else "model." + name
        if full in TOP:
            p.data = take(TOP[full], p.shape)
            continue
        _, _, layer, rest = full.split(".", 3)
        stem, kind = rest.rsplit(".", 1)
        if ".experts." in rest:
            number, proj = stem.split(".experts.")[1].split(".")
            whole = take(f"blk.{layer}.{EXPERT[proj]}.weight", (n_experts, *p.shape))
            p.data = whole[int(number)].clone()
        else:
            p.data = take(f"blk.{layer}.{LAYER[stem]}.{kind}", p.shape)
    return shapes


def prompt_of(name, n):
    return [(i * 29 + fnv1a(name) % 89 + i * i * 7) % VOCAB for i in range(n)]


def base(cls, **k):
    d = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
             rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, bos_token_id=1,
             eos_token_id=2, attn_implementation="eager")
    d.update(k)
    return cls(**d)


def unrotate(model, every):
    """SmolLM3 (later than 4.51.3) is Llama with every so many layers' angles zero."""
    for i, layer in enumerate(model.model.layers):
        if (i + 1) % every:
            continue
        inner = layer.self_attn.forward

        def forward(*a, position_embeddings=None, inner=inner, **k):
            cos, sin = position_embeddings
            return inner(*a, position_embeddings=(torch.ones_like(cos), torch.zeros_like(sin)), **k)
        layer.self_attn.forward = forward


def see_all(model, n_layers):
    """Eager attention of 4.51.3 has the window in all layers; the first ones must see all (as its flash attention does)."""
    for layer in model.model.layers[:n_layers]:
        inner = layer.self_attn.forward

        def forward(*a, attention_mask=None, inner=inner, **k):
            n = attention_mask.shape[-2]
            full = torch.full((n, n), -1e30, dtype=attention_mask.dtype).triu(1)
            return inner(*a, attention_mask=full[None, None], **k)
        layer.self_attn.forward = forward


def params_of(arch, c, **more):
    p = dict(arch=arch, n_layers=c.num_hidden_layers, n_embd=c.hidden_size, n_ff=c.intermediate_size,
             n_heads=c.num_attention_heads, n_kv_heads=c.num_key_value_heads,
             head_dim=getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads,
             rope_base=c.rope_theta, norm_eps=c.rms_norm_eps, n_ctx=c.max_position_embeddings,
             n_vocab=c.vocab_size, tied_embeddings=c.tie_word_embeddings)
    p["rope_dim"] = p["head_dim"]
    p.update(more)
    return p


SCALES = {"linear": 1, "yarn": 2, "longrope": 3, "llama3": 4, "dynamic": 5}


def llama3_divisors(c):
    s, dim = c.rope_scaling, c.hidden_size // c.num_attention_heads
    out = []
    for i in range(0, dim, 2):
        wave = 2 * math.pi * c.rope_theta ** (i / dim)
        old = s["original_max_position_embeddings"]
        if wave < old / s["high_freq_factor"]:
            out.append(1.0)
        elif wave > old / s["low_freq_factor"]:
            out.append(s["factor"])
        else:
            mix = (old / wave - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
            out.append(1 / ((1 - mix) / s["factor"] + mix))
    return out


def models():
    """name, class, configuration, parameters, extra tensors, prompt length, context, what else is done to the model"""
    llama = LlamaForCausalLM
    yield "llama2", llama, base(LlamaConfig, num_key_value_heads=4), "llama", {}, {}, 24, None, None
    yield ("llama-bias", llama, base(LlamaConfig, attention_bias=True, mlp_bias=True), "llama", {}, {},
           24, None, None)
    c = base(LlamaConfig, rope_theta=500.0, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32))
    yield ("llama3", llama, c, "llama", dict(rope_scaling=4, rope_factor=8.0, rope_orig_ctx=32,
                                             rope_low_factor=1.0, rope_high_factor=4.0),
           {"rope_freqs.weight": llama3_divisors(c)}, 40, None, None)
    c = base(LlamaConfig, rope_scaling=dict(rope_type="linear", factor=4.0))
    yield ("llama-linear", llama, c, "llama", dict(rope_scaling=1, rope_factor=4.0), {}, 40, None, None)
    c = base(LlamaConfig, max_position_embeddings=64, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=0.5))
    yield ("llama-yarn", llama, c, "llama", dict(rope_scaling=2, rope_factor=4.0, rope_orig_ctx=16,
                                                 yarn_beta_fast=4.0, yarn_beta_slow=0.5),
           {}, 40, None, None)
    short, long = [1 + i / 8 for i in range(8)], [1 + i / 2 for i in range(8)]
    for name, n, n_ctx in (("llama-longrope-short", 24, 32), ("llama-longrope-long", 40, 64)):
        c = base(LlamaConfig, rope_scaling=dict(rope_type="longrope", factor=2.0, short_factor=short,
                                                long_factor=long))
        c.original_max_position_embeddings = 32
        yield (name, llama, c, "llama", dict(rope_scaling=3, rope_factor=2.0, rope_orig_ctx=32),
               {"rope_factors_short.weight": short, "rope_factors_long.weight": long}, n, n_ctx, None)
    c = base(LlamaConfig, rope_scaling=dict(rope_type="dynamic", factor=2.0))
    yield ("llama-dynamic", llama, c, "llama", dict(rope_scaling=5, rope_factor=2.0, rope_orig_ctx=64),
           {}, 40, None, None)
    yield ("mistral", MistralForCausalLM, base(MistralConfig, sliding_window=8), "llama",
           dict(window=8), {}, 40, None, None)
    yield ("qwen2", Qwen2ForCausalLM, base(Qwen2Config, tie_word_embeddings=True), "qwen2", {}, {}, 24,
           None, None)
    c = base(Qwen2Config, num_hidden_layers=3, use_sliding_window=True, sliding_window=8,
             max_window_layers=2)
    yield ("qwen2-window", Qwen2ForCausalLM, c, "qwen2", dict(window=8, window_from=2), {}, 40, None,
           lambda m: see_all(m, 2))
    c = base(Qwen3Config, head_dim=32, rms_norm_eps=1e-6)
    yield "qwen3", Qwen3ForCausalLM, c, "qwen3", {}, {}, 24, None, None
    c = base(MixtralConfig, num_local_experts=4, num_experts_per_tok=2, sliding_window=None)
    yield ("mixtral", MixtralForCausalLM, c, "llama",
           dict(n_experts=4, n_experts_used=2, n_ff_expert=96, experts_renorm=True), {}, 24, None, None)
    c = base(Qwen3MoeConfig, head_dim=16, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
             norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[])
    yield ("qwen3moe", Qwen3MoeForCausalLM, c, "qwen3moe",
           dict(n_experts=8, n_experts_used=3, n_ff_expert=32, experts_renorm=False), {}, 24, None, None)
    c = base(LlamaConfig, hidden_size=96, num_attention_heads=6, tie_word_embeddings=True,
             rope_theta=100000.0)
    yield "smollm2", llama, c, "llama", {}, {}, 24, None, None
    c = base(LlamaConfig, num_hidden_layers=4, tie_word_embeddings=True)
    yield ("smollm3", llama, c, "smollm3", dict(nope_every=2), {}, 24, None, lambda m: unrotate(m, 2))
    c = base(Qwen3Config, head_dim=16, tie_word_embeddings=True)
    yield "embed-last", Qwen3Model, c, "qwen3", dict(pooling=3), {}, 24, None, None
    c = base(LlamaConfig, tie_word_embeddings=True)
    yield "embed-mean", LlamaModel, c, "llama", dict(pooling=1), {}, 24, None, None


def hf_config(name, cls, c):
    d = c.to_diff_dict()
    full = c.to_dict()
    for k in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "rms_norm_eps",
              "num_attention_heads", "num_key_value_heads", "max_position_embeddings", "rope_theta",
              "tie_word_embeddings", "hidden_act", "head_dim", "original_max_position_embeddings",
              "attention_bias", "mlp_bias", "bos_token_id", "eos_token_id"):
        if full.get(k) is not None:
            d[k] = full[k]
    d.pop("transformers_version", None)
    d["architectures"] = [cls.__name__]
    if name == "smollm3":
        d.update(architectures=["SmolLM3ForCausalLM"], model_type="smollm3", no_rope_layer_interval=2,
                 no_rope_layers=[1, 0, 1, 0])
    return d


def rope_records():
    """Frequencies and attention factor as transformers computes them (in F32), for engine_rope_test.c."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    cases = {
        "plain": (dict(), 4096, {}),
        "linear": (dict(rope_type="linear", factor=4.0), 4096, {}),
        "yarn": (dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8192), 32768, {}),
        "yarn-betas": (dict(rope_type="yarn", factor=16.0, beta_fast=24.0, beta_slow=2.0,
                            original_max_position_embeddings=1024), 16384, {}),
        "yarn-no-ramp": (dict(rope_type="yarn", factor=2.0, beta_fast=1000.0, beta_slow=999.0,
                              original_max_position_embeddings=32), 64, {}),
        "yarn-attention": (dict(rope_type="yarn", factor=4.0, attention_factor=1.25,
                                original_max_position_embeddings=2048), 8192, {}),
        "llama3": (dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                        original_max_position_embeddings=8192), 131072, {}),
        "longrope-short": (dict(rope_type="longrope", short_factor=[1 + i / 7 for i in range(32)],
                                long_factor=[1 + i for i in range(32)]), 131072, dict(orig=4096, n_ctx=4096)),
        "longrope-long": (dict(rope_type="longrope", short_factor=[1 + i / 7 for i in range(32)],
                               long_factor=[1 + i for i in range(32)]), 131072, dict(orig=4096, n_ctx=4097)),
        "longrope-attention": (dict(rope_type="longrope", attention_factor=1.5, factor=32.0,
                                    short_factor=[1.0] * 32, long_factor=[2.0] * 32), 131072,
                               dict(orig=4096, n_ctx=8192)),
        "dynamic": (dict(rope_type="dynamic", factor=2.0), 2048, {}),
    }
    for name, (scaling, n_ctx, more) in cases.items():
        c = LlamaConfig(hidden_size=256, num_attention_heads=4, rope_theta=500000.0,
                        max_position_embeddings=n_ctx, rope_scaling=scaling or None)
        if "orig" in more:
            c.original_max_position_embeddings = more["orig"]
        kind = scaling.get("rope_type", "default")
        turns, factor = ROPE_INIT_FUNCTIONS[kind](c, "cpu", seq_len=more.get("n_ctx", n_ctx))
        orig = more.get("orig") or scaling.get("original_max_position_embeddings") or n_ctx
        p = dict(rope_dim=64, rope_base=500000.0, n_ctx=n_ctx, rope_scaling=SCALES.get(kind, 0),
                 rope_factor=scaling.get("factor", n_ctx / orig if kind == "longrope" else 0.0),
                 rope_orig_ctx=orig if kind in ("yarn", "longrope", "llama3", "dynamic") else 0,
                 rope_attn_factor=scaling.get("attention_factor", 0.0),
                 yarn_beta_fast=scaling.get("beta_fast", 0.0), yarn_beta_slow=scaling.get("beta_slow", 0.0))
        divisors = None
        if kind == "llama3":
            divisors = llama3_divisors(c)
        if kind == "longrope":
            divisors = scaling["long_factor" if more["n_ctx"] > orig else "short_factor"]
        yield dict(name=name, params=p, n_ctx=more.get("n_ctx", n_ctx), divisors=divisors,
                   turns=[float(x) for x in turns], attention_factor=float(factor))


def write_json(folder, name, records):
    with open(os.path.join(folder, name), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, sort_keys=True) for r in records) + "\n]\n")


def main(folder):
    records, blob = [], b""
    for name, cls, c, arch, more, extra, n, n_ctx, change in models():
        torch.manual_seed(0)
        model = cls(c).eval()
        shapes = fill(model, c)
        model = model.double()
        if change:
            change(model)
        prompt = prompt_of(name, n)
        with torch.no_grad():
            out = model(torch.tensor([prompt]), use_cache=False)
        p = params_of(arch, c, **more)
        r = dict(name=name, config=hf_config(name, cls, c), params=p, prompt=prompt, shapes=shapes,
                 n_ctx=n_ctx or c.max_position_embeddings,
                 tensors={k: [float(np.float32(x)) for x in v] for k, v in extra.items()})
        if p.get("pooling"):
            hidden = out.last_hidden_state[0]
            results = hidden[-1:] if p["pooling"] == 3 else hidden.mean(0, keepdim=True)
            r["positions"] = [n - 1]
        else:
            r["positions"] = sorted({0, 1, n // 3, n // 2, n - 2, n - 1})
            results = out.logits[0][r["positions"]]
        r["first_float"] = len(blob) // 4
        r["width"] = results.shape[-1]
        blob += results.numpy().astype("<f4").tobytes()
        records.append(r)
        print(f"{name}: rms {results.pow(2).mean().sqrt():.3f}", file=sys.stderr)
    write_json(folder, "families.json", records)
    write_json(folder, "rope.json", list(rope_records()))
    with open(os.path.join(folder, "families.f32"), "wb") as f:
        f.write(blob)


if __name__ == "__main__":
    main(sys.argv[1])
