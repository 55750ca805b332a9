#!/usr/bin/env python3
"""Tiny Hugging Face folders of every family with random weights, for tests of `exaserve pack`: make_hf.py FOLDER

Each has config.json, tokenizer.json and safetensors files (written here byte by byte), and expected.json: name, shape and
format of each tensor that the pack must have, with the SHA-256 of its weights as little-endian float32 (of what was written,
in the row order that the engine wants). Needs numpy.
"""
import hashlib
import json
import os
import struct
import sys

import numpy as np

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FF, VOCAB, LAYERS = 256, 8, 4, 32, 512, 320, 2
EXPERTS, FF_EXPERT = 4, 128
rng = np.random.default_rng(20)


def bf16_bits(x):
    bits = x.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


E4M3 = np.array([(-1.0 if q & 128 else 1.0) * ((q & 7) * 2.0**-9 if q & 120 == 0 else (8 + (q & 7)) * 2.0 ** ((q >> 3 & 15) - 10))
                 for q in range(256)])
E4M3[[127, 255]] = np.nan


class Folder:
    def __init__(self, root, name, dtype):
        self.path, self.dtype = os.path.join(root, name), dtype
        self.tensors, self.expected = {}, {}
        os.makedirs(self.path)

    def put(self, name, dtype, shape, data):
        self.tensors[name] = (dtype, list(shape), data)

    def weight(self, name, shape, dtype=None):
        """Write a random tensor; what a reader must see of it."""
        x, dtype = (rng.standard_normal(shape) * 0.05).astype("<f4"), dtype or self.dtype
        if dtype == "F16":
            bits = x.astype("<f2")
            seen = bits.astype("<f4")
        elif dtype == "BF16":
            bits = bf16_bits(x)
            seen = (bits.astype("<u4") << 16).view("<f4")
        else:
            bits = seen = x
        self.put(name, dtype, shape, bits.tobytes())
        return seen

    def f8(self, name, shape, kind):
        q = rng.integers(0, 126, shape, dtype=np.uint8) | rng.integers(0, 2, shape, dtype=np.uint8) << 7
        self.put(name, "F8_E4M3", shape, q.tobytes())
        rows, columns = {"tensor": shape, "channel": (1, shape[1]), "block": (128, 128)}[kind]
        down, across = -(-shape[0] // rows), -(-shape[1] // columns)
        scale = (rng.random((down, across)) * 0.001 + 0.0005).astype("<f4")
        if kind == "tensor":
            self.put(name + "_scale", "F32", [], scale.tobytes())
        elif kind == "channel":
            bits = bf16_bits(scale)
            scale = (bits.astype("<u4") << 16).view("<f4")
            self.put(name + "_scale", "BF16", [shape[0], 1], bits.tobytes())
        else:
            self.put(name + "_scale_inv", "F32", [down, across], scale.tobytes())
        full = np.repeat(np.repeat(scale, rows, 0), columns, 1)[: shape[0], : shape[1]]
        return full * E4M3[q].astype("<f4")

    def expect(self, name, kind, x):
        shape = list(x.shape[::-1])
        self.expected[name] = [kind, shape, hashlib.sha256(np.ascontiguousarray(x, "<f4").tobytes()).hexdigest()]

    def save(self, config, shards=1, files=None):
        names, split = list(self.tensors), {}
        for i in range(shards):
            part = names[i * len(names) // shards : (i + 1) * len(names) // shards]
            file = "model.safetensors" if shards == 1 else f"model-{i + 1:05}-of-{shards:05}.safetensors"
            header, data = {"__metadata__": {"format": "pt"}}, b""
            for n in part:
                dtype, shape, raw = self.tensors[n]
                header[n] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
                data += raw
                split[n] = file
            text = json.dumps(header).encode()
            with open(os.path.join(self.path, file), "wb") as f:
                f.write(struct.pack("<Q", len(text)) + text + data)
        files = dict(files or {})
        if shards > 1:
            files["model.safetensors.index.json"] = {"metadata": {"total_size": 1}, "weight_map": split}
        files["config.json"] = config
        files["tokenizer.json"] = tokenizer()
        files["tokenizer_config.json"] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
        files["generation_config.json"] = {"eos_token_id": [257, 256]}
        files["expected.json"] = self.expected
        for name, content in files.items():
            os.makedirs(os.path.dirname(os.path.join(self.path, name)), exist_ok=True)
            with open(os.path.join(self.path, name), "w", encoding="utf-8") as f:
                json.dump(content, f)


def tokenizer():
    """Byte-level BPE: 256 bytes, two control tokens, some merges."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters, more = {}, 0
    for b in range(256):
        letters[b] = chr(b if b in keep else 256 + more)
        more += b not in keep
    vocab = {letters[b]: b for b in range(256)}
    merges = []
    for i, pair in enumerate(["t h", "th e", "i n", "e r", "a n"]):
        vocab[pair.replace(" ", "")] = 258 + i
        merges.append(pair)
    added = [{"id": 256 + i, "content": c, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, c in enumerate(["<|start|>", "<|end|>"])]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                      "merges": merges}}


def base(name, dtype, **more):
    return {"architectures": [name], "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "intermediate_size": FF,
            "max_position_embeddings": 512, "vocab_size": VOCAB, "rms_norm_eps": 1e-5, "hidden_act": "silu",
            "torch_dtype": dtype, "transformers_version": "4.51.3", "bos_token_id": 256, "eos_token_id": 257,
            "tie_word_embeddings": False, "initializer_range": 0.02, "use_cache": True, **more}


def pairs(x, heads):
    """Rows i and i + half of a head become 2i and 2i + 1."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def model(root, name, dtype, *, permute, bias=False, qk_norm=False, experts="", tied=False, f8="", prefix="model."):
    f = Folder(root, name, dtype)
    f.expect("token_embd.weight", dtype, f.weight(prefix + "embed_tokens.weight", (VOCAB, HIDDEN)))
    f.expect("output_norm.weight", "F32", f.weight(prefix + "norm.weight", (HIDDEN,)))
    if not tied:
        f.expect("output.weight", dtype, f.weight("lm_head.weight", (VOCAB, HIDDEN)))
    kind, q, kv = "F8_E4M3" if f8 else dtype, HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM

    def matrix(hf, shape):
        return f.f8(hf, shape, f8) if f8 else f.weight(hf, shape)

    for i in range(LAYERS):
        hf, out = f"{prefix}layers.{i}.", f"blk.{i}."
        f.expect(out + "attn_norm.weight", "F32", f.weight(hf + "input_layernorm.weight", (HIDDEN,)))
        f.expect(out + "ffn_norm.weight", "F32", f.weight(hf + "post_attention_layernorm.weight", (HIDDEN,)))
        for letter, rows, heads in ("q", q, HEADS), ("k", kv, KV_HEADS), ("v", kv, 0):
            order = (lambda x, h=heads: pairs(x, h)) if permute and heads else (lambda x: x)
            f.expect(f"{out}attn_{letter}.weight", kind, order(matrix(f"{hf}self_attn.{letter}_proj.weight", (rows, HIDDEN))))
            if bias:
                f.expect(f"{out}attn_{letter}.bias", "F32", order(f.weight(f"{hf}self_attn.{letter}_proj.bias", (rows,))))
            if qk_norm and heads:
                f.expect(f"{out}attn_{letter}_norm.weight", "F32", f.weight(f"{hf}self_attn.{letter}_norm.weight", (HEAD_DIM,)))
        f.expect(out + "attn_output.weight", kind, matrix(hf + "self_attn.o_proj.weight", (HIDDEN, q)))
        if not experts:
            for n, shape in ("gate", (FF, HIDDEN)), ("up", (FF, HIDDEN)), ("down", (HIDDEN, FF)):
                f.expect(f"{out}ffn_{n}.weight", kind, matrix(f"{hf}mlp.{n}_proj.weight", shape))
            continue
        block, names, width = {"mixtral": ("block_sparse_moe", ("w1", "w3", "w2"), FF),
                               "qwen": ("mlp", ("gate_proj", "up_proj", "down_proj"), FF_EXPERT)}[experts]
        f.expect(out + "ffn_gate_inp.weight", "F32", f.weight(f"{hf}{block}.gate.weight", (EXPERTS, HIDDEN)))
        for n, theirs in zip(("gate", "up", "down"), names):
            shape = (HIDDEN, width) if n == "down" else (width, HIDDEN)
            all_ = [matrix(f"{hf}{block}.experts.{x}.{theirs}.weight", shape) for x in range(EXPERTS)]
            f.expect(f"{out}ffn_{n}_exps.weight", kind, np.stack(all_))
    return f


def main(root):
    model(root, "llama", "BF16", permute=True).save(base("LlamaForCausalLM", "bfloat16", rope_theta=500000.0), shards=3)
    f = model(root, "llama3", "F16", permute=True)
    freqs = []
    for i in range(HEAD_DIM // 2):
        inv = 500000.0 ** (-2 * i / HEAD_DIM)
        wave = 2 * np.pi / inv
        smooth = min(max((256 / wave - 1) / 3, 0), 1)
        freqs.append(1 / ((1 - smooth) / 8 + smooth))
    f.expect("rope_freqs.weight", "F32", np.array(freqs, "<f4"))
    f.save(base("LlamaForCausalLM", "float16", rope_theta=500000.0,
                rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                              "original_max_position_embeddings": 256}))
    model(root, "mistral", "F16", permute=True).save(base("MistralForCausalLM", "float16", sliding_window=128))
    model(root, "qwen2", "BF16", permute=False, bias=True, tied=True).save(
        base("Qwen2ForCausalLM", "bfloat16", tie_word_embeddings=True, use_sliding_window=False, sliding_window=512,
             max_window_layers=2))
    model(root, "qwen3-embedding", "BF16", permute=False, qk_norm=True, tied=True, prefix="").save(
        base("Qwen3ForCausalLM", "bfloat16", tie_word_embeddings=True),
        files={"modules.json": [{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
                                {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                                {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}],
               "1_Pooling/config.json": {"word_embedding_dimension": HIDDEN, "pooling_mode_lasttoken": True,
                                         "pooling_mode_mean_tokens": False, "include_prompt": True}})
    model(root, "mixtral", "BF16", permute=True, experts="mixtral").save(
        base("MixtralForCausalLM", "bfloat16", num_local_experts=EXPERTS, num_experts_per_tok=2), shards=2)
    model(root, "qwen3moe", "F32", permute=False, qk_norm=True, experts="qwen").save(
        base("Qwen3MoeForCausalLM", "float32", num_experts=EXPERTS, num_experts_per_tok=2,
             moe_intermediate_size=FF_EXPERT, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[]))
    model(root, "smollm3", "BF16", permute=True, tied=True).save(
        base("SmolLM3ForCausalLM", "bfloat16", tie_word_embeddings=True, no_rope_layers=[1, 0], no_rope_layer_interval=2))
    for kind in "tensor", "channel", "block":
        quantization = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
        if kind == "block":
            quantization["weight_block_size"] = [128, 128]
        model(root, "f8-" + kind, "BF16", permute=True, f8=kind).save(
            base("LlamaForCausalLM", "bfloat16", quantization_config=quantization))
    model(root, "f8-experts", "BF16", permute=False, qk_norm=True, experts="qwen", f8="block").save(
        base("Qwen3MoeForCausalLM", "bfloat16", num_experts=EXPERTS, num_experts_per_tok=2,
             moe_intermediate_size=FF_EXPERT, norm_topk_prob=True, quantization_config={"quant_method": "fp8"}))


main(sys.argv[1])
