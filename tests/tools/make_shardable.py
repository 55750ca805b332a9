#!/usr/bin/python3
"""make_shardable.py FROM.gguf TO.gguf - a small model of made-up weights whose heads divide by 2, 4 and 8, with the tokenizer of FROM.

The real test model has 9 heads and 3 kv heads, which 2 or 4 shards cannot share. This one: 4 layers, width 256, 8 heads, 4 kv heads, F16.
"""
import struct
import sys

import numpy

WIDTH, LAYERS, HEADS, KV_HEADS, HEAD, FF, CONTEXT = 256, 4, 8, 4, 32, 512, 2048
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
U32, F32, STRING, ARRAY = 4, 6, 8, 9


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def skip(self, kind):
        if kind == STRING:
            self.take(self.number("Q"))
        elif kind == ARRAY:
            item, count = self.number("I"), self.number("Q")
            if item in SIZES:
                self.take(SIZES[item] * count)
            else:
                for _ in range(count):
                    self.skip(item)
        else:
            self.take(SIZES[kind])


def tokenizer_keys(path):
    """the raw bytes of every tokenizer.* key, and how many tokens there are"""
    with open(path, "rb") as f:
        r = Reader(f.read(16 << 20))
    r.take(8)
    r.number("Q")
    kept, n_tokens = [], 0
    for _ in range(r.number("Q")):
        begin = r.at
        name = r.take(r.number("Q")).decode()
        kind = r.number("I")
        if name == "tokenizer.ggml.tokens":
            n_tokens = struct.unpack_from("<Q", r.data, r.at + 4)[0]
        r.skip(kind)
        if name.startswith("tokenizer."):
            kept.append(r.data[begin : r.at])
    return kept, n_tokens


def main():
    kept, n_tokens = tokenizer_keys(sys.argv[1])
    keys = [
        text("general.architecture") + struct.pack("<I", STRING) + text("llama"),
        text("general.name") + struct.pack("<I", STRING) + text("shardable"),
        text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", F32, 1e-5),
    ]
    for name, value in (
        ("block_count", LAYERS),
        ("context_length", CONTEXT),
        ("embedding_length", WIDTH),
        ("feed_forward_length", FF),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV_HEADS),
        ("vocab_size", n_tokens),
    ):
        keys.append(text("llama." + name) + struct.pack("<II", U32, value))
    keys += kept

    draw = numpy.random.Generator(numpy.random.PCG64(7))
    tensors = []

    def matrix(name, rows, cols, scale):
        values = draw.standard_normal((rows, cols), dtype=numpy.float32) * scale / cols**0.5
        tensors.append((name, (cols, rows), 1, values.astype("<f2").tobytes()))

    def vector(name, n):
        tensors.append((name, (n,), 0, numpy.ones(n, dtype="<f4").tobytes()))

    matrix("token_embd.weight", n_tokens, WIDTH, 16)
    vector("output_norm.weight", WIDTH)
    for i in range(LAYERS):
        b = f"blk.{i}."
        vector(b + "attn_norm.weight", WIDTH)
        matrix(b + "attn_q.weight", HEADS * HEAD, WIDTH, 2)
        matrix(b + "attn_k.weight", KV_HEADS * HEAD, WIDTH, 2)
        matrix(b + "attn_v.weight", KV_HEADS * HEAD, WIDTH, 2)
        matrix(b + "attn_output.weight", WIDTH, HEADS * HEAD, 2)
        vector(b + "ffn_norm.weight", WIDTH)
        matrix(b + "ffn_gate.weight", FF, WIDTH, 2)
        matrix(b + "ffn_up.weight", FF, WIDTH, 2)
        matrix(b + "ffn_down.weight", WIDTH, FF, 2)

    infos, offset = b"", 0
    for name, dims, kind, data in tensors:
        infos += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        infos += struct.pack("<IQ", kind, offset)
        offset += (len(data) + 31) // 32 * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + infos
    with open(sys.argv[2], "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for _, _, _, data in tensors:
            f.write(data + bytes(-len(data) % 32))


main()
