#!/usr/bin/env python3
"""make_gguf.py DIR - write small GGUF files into DIR: good ones, and for each thing that must be refused one that has it.

They are the seeds of tests/fuzz/corpus/model_gguf (written by this program) and the bad input of tests/e2e/t0100-pack.t.
"""
import os
import struct
import sys

U8, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 5, 6, 7, 8, 9, 10
BLOCKS = {0: (1, 4), 1: (1, 2), 3: (32, 20), 8: (32, 34)}


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(s)) + s


def key(name, kind, value):
    packed = {
        U32: lambda: struct.pack("<I", value),
        F32: lambda: struct.pack("<f", value),
        BOOL: lambda: struct.pack("<B", value),
        U64: lambda: struct.pack("<Q", value),
        STRING: lambda: text(value),
        ARRAY: lambda: value,
    }[kind]()
    return text(name) + struct.pack("<I", kind) + packed


def texts(values):
    return struct.pack("<IQ", STRING, len(values)) + b"".join(text(v) for v in values)


def numbers(values):
    return struct.pack("<IQ", I32, len(values)) + b"".join(struct.pack("<i", v) for v in values)


def model():
    """keys (name → packed) and tensors (name, dims, type, offset or None) of the smallest model that is accepted"""
    tokens = ["<eot>", "a", "b", "ab"]
    keys = [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, "tiny"),
        ("llama.block_count", U32, 1),
        ("llama.context_length", U32, 16),
        ("llama.embedding_length", U32, 32),
        ("llama.feed_forward_length", U32, 32),
        ("llama.attention.head_count", U32, 2),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "smollm"),
        ("tokenizer.ggml.tokens", ARRAY, texts(tokens)),
        ("tokenizer.ggml.token_type", ARRAY, numbers([3, 1, 1, 1])),
        ("tokenizer.ggml.merges", ARRAY, texts(["a b"])),
        ("tokenizer.ggml.eos_token_id", U32, 0),
        ("tokenizer.chat_template", STRING, "{{ messages[0]['content'] }}"),
    ]
    tensors = [
        ("token_embd.weight", [32, 4], 8, None),
        ("blk.0.attn_q.weight", [32, 2], 3, None),
        ("output_norm.weight", [32], 0, None),
    ]
    return keys, tensors


def n_bytes(dims, kind):
    elems, size = BLOCKS.get(kind, (1, 4))
    n = 1
    for d in dims:
        n *= d
    return n // elems * size


def build(keys, tensors, version=3, n_keys=None, n_tensors=None, alignment=32):
    table, data = b"", b""
    for i, (name, dims, kind, offset) in enumerate(tensors):
        if offset is None:
            data += b"\0" * (-len(data) % alignment)
            offset = len(data)
            data += bytes((i * 37 + k * 7) % 251 for k in range(n_bytes(dims, kind)))
        table += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        table += struct.pack("<IQ", kind, offset)
    head = b"GGUF" + struct.pack("<I", version)
    head += struct.pack("<QQ", len(tensors) if n_tensors is None else n_tensors, len(keys) if n_keys is None else n_keys)
    head += b"".join(k if isinstance(k, bytes) else key(*k) for k in keys) + table
    return head + b"\0" * (-len(head) % alignment) + data


def variants():
    keys, tensors = model()

    def instead(name, *new):
        return [k for k in keys if k[0] != name] + list(new)

    yield "tiny", build(keys, tensors)
    yield "tiny-v2", build(keys, tensors, version=2)
    yield "aligned-256", build(keys + [("general.alignment", U32, 256)], tensors, alignment=256)
    yield "untied", build(keys, tensors + [("output.weight", [32, 4], 1, None)])
    yield "bad-version", build(keys, tensors, version=1)
    yield "bad-architecture", build(instead("general.architecture", ("general.architecture", STRING, "mamba")), tensors)
    yield "bad-type", build(keys, tensors + [("x.weight", [32], 20, 1 << 20)])
    yield "yarn", build(keys + [("llama.rope.scaling.type", STRING, "yarn"), ("llama.rope.scaling.factor", F32, 4.0),
                                ("llama.attention.sliding_window", U32, 8)], tensors)
    yield "mixture", build(keys + [("llama.expert_count", U32, 4), ("llama.expert_used_count", U32, 2),
                                   ("llama.attention.head_count_kv", ARRAY, numbers([1]))],
                           tensors + [("blk.0.ffn_up_exps.weight", [32, 32, 4], 8, None)])
    yield "bad-rope", build(keys + [("llama.rope.scaling.type", STRING, "mrope")], tensors)
    yield "bad-unknown", build(keys + [("llama.attention.sinks", U32, 1)], tensors)
    yield "bad-layers", build(keys + [("llama.attention.head_count_kv", ARRAY, numbers([1, 2]))], tensors)
    yield "bad-freqs", build(keys, tensors + [("rope_freqs.weight", [3], 0, None)])
    yield "bad-split", build(keys + [("split.count", U32, 3)], tensors)
    yield "bad-alignment", build(keys + [("general.alignment", U32, 24)], tensors)
    yield "bad-twice-key", build(keys + [("general.name", STRING, "again")], tensors)
    yield "bad-twice-tensor", build(keys, tensors + [tensors[2]])
    yield "bad-overlap", build(keys, tensors + [("x.weight", [32], 0, 0)])
    yield "bad-outside", build(keys, tensors + [("x.weight", [32], 0, 1 << 40)])
    yield "bad-overflow", build(keys, tensors + [("x.weight", [1 << 40, 1 << 40], 0, 0)])
    yield "bad-nested", build(keys + [("x.list", ARRAY, struct.pack("<IQ", ARRAY, 1) + numbers([1]))], tensors)
    yield "bad-count", build(keys, tensors, n_keys=1 << 62)
    yield "bad-tensors", build(keys, tensors, n_tensors=1 << 62)
    yield "bad-row", build(keys, tensors + [("x.weight", [33], 8, 0)])
    yield "bad-zero", build(keys, tensors + [("x.weight", [32, 0], 0, 0)])
    yield "bad-missing", build(instead("llama.block_count"), tensors)
    yield "bad-string", build(keys + [text("x.s") + struct.pack("<IQ", STRING, 1 << 63)], tensors)
    yield "bad-foreign", b"\x7fELF" + bytes(60)
    yield "bad-cut", build(keys, tensors)[:-100]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, data in variants():
        with open(os.path.join(sys.argv[1], name + ".gguf"), "wb") as f:
            f.write(data)


main()
