#!/usr/bin/env python3
"""Judges of constrained output: Python's re and jsonschema.

Usage: grammar_judge.py regex SEED COUNT      random expressions, each with texts and whether re.fullmatch takes them
       grammar_judge.py schemas SEED COUNT    the schemas of SCHEMAS, each with valid texts (in declared order) and broken ones
       grammar_judge.py validate FILE         FILE: [{"schema": TEXT, "texts": [TEXT]}]; prints those that are not valid
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



WORDS = ["a", "Berlin", "x y", "grüß", "😀", "quote\"", "back\\slash", "line\nend", "tab\t", "\u0001", "/", "é" * 5, ""]
TREE = {"$defs": {"node": {"type": "object", "properties": {
    "value": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 3}},
    "required": ["value"], "additionalProperties": False}}, "$ref": "#/$defs/node"}
SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}, "c": {"type": "null"}, "d": {"type": "number"}},
     "required": ["c"]},
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"enum": [1, "two", None, [3], {"four": 4.5}]}}},
    {"type": "object", "properties": {"id": {"const": "x\"y\\z\né"}, "v": {"const": {"a": [1, True, None], "b": "c"}}}, "required": ["id"]},
    {"type": "array", "items": {"type": "number", "minimum": -2.5, "exclusiveMaximum": 13.25}, "minItems": 1, "maxItems": 4},
    {"type": "array", "items": {"type": "integer", "exclusiveMinimum": -17, "maximum": 123456}, "maxItems": 3},
    {"type": "integer", "minimum": 0, "multipleOf": 7},
    {"type": "integer", "minimum": 1000, "maximum": 100000},
    {"type": "integer", "maximum": -5},
    {"type": "number", "minimum": 0.001, "maximum": 0.0255},
    {"type": "number", "exclusiveMinimum": 0},
    {"type": "number", "minimum": -1, "maximum": 1},
    {"type": "integer", "multipleOf": 10, "minimum": -100, "maximum": 100},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "pattern": "^[a-z]{2,4}-\\d+$"},
    {"type": "string", "pattern": "a[\"\\\\\\n]b"},
    {"type": "string", "pattern": "^\\w+$", "maxLength": 6, "minLength": 3},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "time"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "format": "ipv6"},
    {"type": "string", "format": "email"},
    {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}, {"type": "null"}]},
    {"oneOf": [{"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer", "minimum": 1, "maximum": 9}},
                "required": ["kind", "lives"], "additionalProperties": False},
               {"type": "object", "properties": {"kind": {"const": "dog"}, "good": {"type": "boolean"}},
                "required": ["kind", "good"], "additionalProperties": False}]},
    {"oneOf": [{"type": "integer", "minimum": 3, "maximum": 7}, {"type": "string", "maxLength": 1}]},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 2}}, "required": ["a"]},
               {"properties": {"a": {"maximum": 9}, "b": {"type": "string", "maxLength": 2}}, "required": ["b"]}]},
    {"type": "object", "properties": {"x": {"type": "integer"}}, "anyOf": [{"required": ["x"]}, {"properties": {"y": {"type": "null"}}, "required": ["y"]}]},
    TREE,
    {"type": "object", "properties": {"value": {"type": "boolean"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
     "required": ["value", "next"], "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9}, "minProperties": 1, "maxProperties": 3},
    {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"], "additionalProperties": {"type": "boolean"}},
    {"type": "object", "patternProperties": {"^n_": {"type": "integer", "maximum": 99, "minimum": 0}, "^s_": {"type": "boolean"}}, "additionalProperties": False},
    {"type": "object", "propertyNames": {"pattern": "^[a-c]{1,2}$"}, "additionalProperties": {"type": "null"}},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string", "maxLength": 2}], "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4},
    {"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": False, "minItems": 2},
    {"type": ["string", "null", "integer"], "maxLength": 2, "minimum": 5},
    {"type": "object", "properties": {"any": {}, "o": {"type": "object"}, "l": {"type": "array"}}, "required": ["any"]},
    {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "object", "properties": {"q": {"type": "array", "items": {
        "type": "object", "properties": {"r": {"enum": ["u", "v"]}}, "required": ["r"]}, "minItems": 1}}, "required": ["q"]}}, "required": ["p"]},
     "maxItems": 2},
    {"type": "string", "maxLength": 700, "minLength": 1},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3000},
]


def resolve(schema, root):
    while isinstance(schema, dict) and "$ref" in schema:
        at = root
        for part in schema["$ref"].split("/")[1:]:
            at = at[part]
        schema = at
    return schema


def number(schema, rng):
    lo, hi = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum", schema.get("exclusiveMaximum"))
    lo = lo if lo is not None else (hi - 1000 if hi is not None else -1000)
    hi = hi if hi is not None else lo + 2000
    if schema.get("type") == "number" and rng.random() < 0.7:
        return rng.choice([lo, hi, round(rng.uniform(lo, hi), rng.randint(1, 4)), round(lo + (hi - lo) / 3, 3)])
    step = schema.get("multipleOf", 1)
    return rng.randint(int(lo // step), int(hi // step)) * step


def instance(schema, root, rng, depth=0):
    """Some value that is probably valid, with its properties in the order in which they are declared."""
    schema = resolve(schema, root)
    if schema is True or schema == {}:
        return rng.choice([1, "x", None, [1, [2.5e-3]], {"k": {"l": []}}, -0.5, True])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            one = dict(schema)
            alternative = resolve(rng.choice(one.pop(key)), root)
            return instance(combine(one, alternative), root, rng, depth)
    if "allOf" in schema:
        one = dict(schema)
        for part in one.pop("allOf"):
            one = combine(one, resolve(part, root))
        return instance(one, root, rng, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        out = {}
        for name, sub in schema.get("properties", {}).items():
            if name in schema.get("required", []) or (rng.random() < 0.5 and depth < 4):
                out[name] = instance(sub, root, rng, depth + 1)
        more = schema.get("additionalProperties", not schema.get("properties"))
        for _ in range(rng.randint(0, 3) if more is not False else 0):
            out[rng.choice(["ab", "c", "grün", "k\"", "a1", "b"])] = instance(more, root, rng, depth + 1)
        for pattern, sub in schema.get("patternProperties", {}).items():
            out[pattern[1:] + rng.choice(["", "q"])] = instance(sub, root, rng, depth + 1)
        return out
    if kind == "array":
        prefix = schema.get("prefixItems", [])
        items = schema.get("items", not prefix)
        count = rng.randint(schema.get("minItems", 0), min(schema.get("maxItems", 5), schema.get("minItems", 0) + 5))
        count = min(count, len(prefix)) if items is False else count
        count = count if depth < 4 else schema.get("minItems", 0)
        return [instance(prefix[i] if i < len(prefix) else items, root, rng, depth + 1) for i in range(count)]
    if kind in ("integer", "number"):
        return number(dict(schema, type=kind), rng)
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "null":
        return None
    special = {"date": "2024-02-29", "date-time": "1999-12-31T23:59:59.123+02:00", "time": "00:00:00Z", "ipv4": "192.168.0.255",
               "uuid": "123e4567-e89b-12d3-a456-426614174000", "ipv6": "2001:db8::1", "email": "a.b@example.org"}
    if "format" in schema:
        return special[schema["format"]]
    samples = {"^[a-z]{2,4}-\\d+$": ["ab-1", "wxyz-007"], "a[\"\\\\\\n]b": ["a\"b", "xxa\\b!", "a\nb"], "^\\w+$": ["a_1", "Q9zzzz"]}
    if "pattern" in schema:
        return rng.choice(samples[schema["pattern"]])
    text = "".join(rng.choice(WORDS) for _ in range(rng.randint(0, 8)))
    if "maxLength" in schema or "minLength" in schema:
        length = rng.randint(schema.get("minLength", 0), schema.get("maxLength", 9))
        text = (text + "abcdefgh" * (length // 8 + 1))[:length]
    return text


def combine(x, y):
    out = dict(x)
    for key, value in y.items():
        if key == "properties":
            mine = dict(out.get(key, {}))
            for name, sub in value.items():
                mine[name] = dict(mine.get(name, {}), **sub)
            out[key] = mine
        elif key == "required":
            out[key] = out.get(key, []) + value
        else:
            out[key] = value
    return out


def is_valid(validator, text):
    def once(pairs):
        if len({k for k, _ in pairs}) != len(pairs):
            raise ValueError("a name comes twice")
        return dict(pairs)

    try:
        return validator.is_valid(json.loads(text, object_pairs_hook=once))
    except ValueError:
        return False


def break_text(text, rng):
    at = rng.randrange(len(text) + 1)
    return rng.choice([text[:at], text[:at] + rng.choice(list("0\"}],{-.ea ")) + text[at:], text[:at] + text[at + 1:], text + ","])


def validator_of(schema):
    """With formats that the library checks by packages that need not be there, or as an old draft had them."""
    import datetime
    import jsonschema

    def parses(parse):
        return (lambda text: not isinstance(text, str) or parse(text) is not None, (ValueError,))

    checker = jsonschema.FormatChecker()
    checker.checkers = dict(checker.checkers)
    checker.checkers["time"] = parses(lambda text: datetime.time.fromisoformat(text) if text[8:] else None)
    checker.checkers["date-time"] = parses(lambda text: datetime.datetime.fromisoformat(text) if "T" in text else None)
    return jsonschema.Draft202012Validator(schema, format_checker=checker)


def schema_cases(seed, count):
    rng, cases = random.Random(seed), []
    for schema in SCHEMAS:
        validator = validator_of(schema)
        valid, invalid = [], []
        for _ in range(count):
            value = instance(schema, schema, rng)
            text = json.dumps(value, ensure_ascii=False, **rng.choice([{}, {"separators": (",", ":")}, {"indent": 2}, {"indent": 4}]))
            if is_valid(validator, text):
                valid.append(text)
            for _ in range(4):
                broken = break_text(text, rng)
                if not is_valid(validator, broken):
                    invalid.append(broken)
        cases.append({"schema": json.dumps(schema), "valid": sorted(set(valid)), "invalid": sorted(set(invalid))})
    return cases


def validate(path):
    bad = []
    for case in json.load(open(path, encoding="utf-8")):
        validator = validator_of(json.loads(case["schema"]))
        for text in case["texts"]:
            try:
                errors = [e.message for e in validator.iter_errors(json.loads(text))]
            except ValueError as e:
                errors = [str(e)]
            if errors:
                bad.append({"schema": case["schema"], "text": text, "error": errors[0]})
    return bad


def main():
    mode = sys.argv[1]
    if mode == "regex":
        result = regex_cases(int(sys.argv[2]), int(sys.argv[3]))
    elif mode == "schemas":
        result = schema_cases(int(sys.argv[2]), int(sys.argv[3]))
    elif mode == "validate":
        result = validate(sys.argv[2])
    else:
        sys.exit("unknown mode " + mode)
    json.dump(result, sys.stdout)


main()
