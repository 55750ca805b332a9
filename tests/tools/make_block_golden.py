#!/usr/bin/env python3
"""Makes tests/golden/blocks.json: what the Python package `gguf` reads in random blocks of every format, and how much its own
quantising errs where it has one. Needs `pip install gguf` (0.19.0 was used); run it only when a format is added.

    tests/tools/make_block_golden.py > tests/golden/blocks.json
"""
import json
import sys

import gguf
import numpy as np

FORMATS = "F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K".split()
ROWS, ROW = 16, 512  # of the weights that are quantised


def weights():
    """About a normal distribution with some large ones, the same in model_blocks_test.c: exact in binary32."""
    x, s = np.empty(ROWS * ROW, np.float32), 1
    for i in range(x.size):
        total = 0
        for _ in range(4):
            s = (s * 1664525 + 1013904223) & 0xFFFFFFFF
            total += s >> 16
        total -= 2 * 65535
        x[i] = np.float32(total * 2.0**-20 * (8 if i % 97 == 0 else 1))
    return x.reshape(ROWS, ROW)


def main():
    rng, x, out = np.random.default_rng(4), weights(), []
    for name in FORMATS:
        kind = gguf.GGMLQuantizationType[name]
        elems, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (64 if elems == 1 else 8 if elems == 32 else 3, size), dtype=np.uint8)
        if elems > 1:  # halves of a weight's size in most, any bits in the last ones
            at = {"Q4_1": [0, 2], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}.get(name, [0])
            for a in at:
                blocks[:-1, a + 1] = blocks[:-1, a + 1] & 0x83 | 0x20
        with np.errstate(all="ignore"):
            y = gguf.quants.dequantize(blocks.reshape(-1), kind).astype(np.float32)
        entry = {"type": name, "blocks": blocks.tobytes().hex(), "weights": y.astype("<f4").tobytes().hex()}
        try:
            back = gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind).astype(np.float64)
            entry["squared_error"] = float(np.sum((back - x) ** 2))
        except NotImplementedError:
            pass
        out.append(entry)
    json.dump({"squared_sum": float(np.sum(x.astype(np.float64) ** 2)), "formats": out}, sys.stdout, indent=0)
    print()


main()
