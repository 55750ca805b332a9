#!/usr/bin/env python3
"""Judges of constrained output: Python's re and jsonschema.

Usage: grammar_judge.py regex SEED COUNT      random expressions, each with texts and whether re.fullmatch takes them
       grammar_judge.py schemas               the schemas of SCHEMAS, each with instances that are valid and in declared order
       grammar_judge.py validate < FILE       FILE: {"cases": [{"schema": TEXT, "text": TEXT}]}; prints those that are not valid
Output is JSON. The unit tests text_regex_test and text_schema_test compare.
"""
import json
import random
import re
import sys

LETTERS = ["a", "b", "c", "-", "]", "0", "7", "_", " ", "\n", "ä", "€", "😀", "\"", "\\", "{", ".", "^", "$"]
SPECIAL = set("\\^$.|?*+()[]{}-\"")


def quote(c, rng):
    if c == "\n":
        return rng.choice(["\\n", "\\x0a", "\n"])
    if c in SPECIAL:
        return "\\" + c
    if ord(c) > 0x7F and ord(c) < 0x10000 and rng.random() < 0.3:
        return "\\u%04x" % ord(c)
    return c


class Expr:
    """One random expression: .text, and .sample() gives a text that it should match (mostly)."""

    def __init__(self, rng, depth):
        self.rng = rng
        kinds = ["char", "char", "class", "dot", "escape", "not"]
        if depth > 0:
            kinds += ["seq", "seq", "alt", "repeat", "repeat", "group"]
        getattr(self, "make_" + rng.choice(kinds))(depth)

    def make_char(self, _):
        c = self.rng.choice(LETTERS)
        self.text, self.sample = quote(c, self.rng), lambda: c

    def make_class(self, _):
        chars = self.rng.sample(LETTERS, self.rng.randint(1, 4))
        self.text = "[" + "".join(quote(c, self.rng) for c in chars) + self.rng.choice(["", "a-c", "\\d", "€-😀"]) + "]"
        self.sample = lambda: self.rng.choice(chars)

    def make_not(self, _):
        chars = self.rng.sample(LETTERS, self.rng.randint(1, 4))
        self.text = "[^" + "".join(quote(c, self.rng) for c in chars) + self.rng.choice(["", "\\s", "x-z"]) + "]"
        self.sample = lambda: self.rng.choice(LETTERS + ["q", "é"])

    def make_dot(self, _):
        self.text, self.sample = ".", lambda: self.rng.choice(LETTERS)

    def make_escape(self, _):
        self.text = self.rng.choice(["\\d", "\\w", "\\s", "\\D", "\\W", "\\S"])
        self.sample = lambda: self.rng.choice(LETTERS)

    def make_seq(self, depth):
        kids = [Expr(self.rng, depth - 1) for _ in range(self.rng.randint(0, 4))]
        self.text = "".join(k.text if not k.loose else "(?:" + k.text + ")" for k in kids)
        self.sample = lambda: "".join(k.sample() for k in kids)

    def make_alt(self, depth):
        kids = [Expr(self.rng, depth - 1) for _ in range(self.rng.randint(2, 3))]
        self.text = "|".join(k.text for k in kids)
        self.loose = True
        self.sample = lambda: self.rng.choice(kids).sample()

    def make_group(self, depth):
        kid = Expr(self.rng, depth - 1)
        self.text = self.rng.choice(["(", "(?:", "(?P<n%d>" % self.rng.getrandbits(40)]) + kid.text + ")"
        self.sample = kid.sample

    def make_repeat(self, depth):
        kid = Expr(self.rng, depth - 1)
        lo, more = self.rng.randint(0, 3), self.rng.randint(0, 3)
        form, lo, hi = self.rng.choice([("*", 0, 4), ("+", 1, 4), ("?", 0, 1), ("{%d}" % lo, lo, lo), ("{%d,}" % lo, lo, lo + 3),
                                        ("{%d,%d}" % (lo, lo + more), lo, lo + more), ("{,%d}" % lo, 0, lo)])
        self.text = "(?:" + kid.text + ")" + form + self.rng.choice(["", "", "?"])
        self.sample = lambda: "".join(kid.sample() for _ in range(self.rng.randint(lo, hi)))

    loose = False


def mutate(text, rng):
    chars = list(text)
    for _ in range(rng.randint(1, 2)):
        at = rng.randint(0, len(chars))
        chars[at:at + rng.randint(0, 1)] = rng.choice([[], [rng.choice(LETTERS)]])
    return "".join(chars)


def regex_cases(seed, count):
    rng, cases = random.Random(seed), []
    while len(cases) < count:
        x = Expr(rng, rng.randint(1, 4))
        text = rng.choice(["", "", "^"]) + ("(?:" + x.text + ")" if x.loose else x.text) + rng.choice(["", "", "$"])
        try:
            compiled = re.compile(text, re.ASCII)
        except re.error:
            continue
        texts = {""}
        for _ in range(12):
            sample = x.sample()
            texts |= {sample, mutate(sample, rng)}
        texts = sorted(t for t in texts if len(t) < 200)
        cases.append({"regex": text, "texts": [[t, compiled.fullmatch(t) is not None] for t in texts]})
    return cases


def main():
    mode = sys.argv[1]
    if mode == "regex":
        result = regex_cases(int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit("unknown mode " + mode)
    json.dump(result, sys.stdout)


main()
