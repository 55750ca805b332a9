#!/usr/bin/env python3
"""tokenizer_reference.py train FOLDER - English text of this machine, and a byte-level BPE of Llama 3's expression trained on it.
tokenizer_reference.py time FOLDER CHUNK - MB/s of the `tokenizers` library on that text, one thread."""
import glob
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
TEXT_BYTES = 8 << 20


def english():
    names = sorted(glob.glob("/usr/share/common-licenses/*") + glob.glob("/usr/share/doc/*/copyright") +
                   glob.glob("/usr/share/perl/*/pod/*.pod") + glob.glob("/usr/lib/python3*/pydoc_data/topics.py"))
    seen, out, size = set(), [], 0
    for name in names:
        text = open(name, encoding="utf-8", errors="ignore").read()
        if text in seen or size > TEXT_BYTES:
            continue
        seen.add(text)
        out.append(text)
        size += len(text)
    return "".join(out)


def train(folder):
    text = english()
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    # Half of the text, so that the other half has words that the vocabulary lacks.
    t.train_from_iterator(text[:len(text) // 2].split("\n"), trainers.BpeTrainer(
        vocab_size=32000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.save(folder + "/tokenizer.json")
    while len(text) < TEXT_BYTES:
        text += text
    open(folder + "/text", "w", encoding="utf-8").write(text[:TEXT_BYTES])


def measure(folder, chunk):
    t = Tokenizer.from_file(folder + "/tokenizer.json")
    text = open(folder + "/text", encoding="utf-8").read()
    chunks = [text[i:i + chunk] for i in range(0, len(text), chunk)]
    times = []
    for _ in range(3):
        start = time.perf_counter()
        tokens = sum(len(t.encode(c, add_special_tokens=False).ids) for c in chunks)
        times.append(time.perf_counter() - start)
    times.sort()
    size = len(text.encode())
    print(f"encode {size / times[1] / 1e6:.1f} MB/s (best {size / times[0] / 1e6:.1f}), {tokens} tokens")


if sys.argv[1] == "train":
    train(sys.argv[2])
else:
    measure(sys.argv[2], int(sys.argv[3]))
