#!/usr/bin/env python3
"""Render chat templates with Jinja2 as transformers sets it up, and print what came out as JSON.

Usage: jinja_judge.py corpus FOLDER       every *.jinja below FOLDER, for plain conversations
       jinja_judge.py published FOLDER N  the same for conversations with tools, parts, flags …, every Nth case
       jinja_judge.py random SEED COUNT   COUNT random templates (jinja_random.py)

Output: {"inputs": [what a rendering is given], "cases": [{file | source, input, kwargs?, text | error}]}; error is the
text of raise_exception, or null for any other failure. The unit test renders the same cases with text/template.h.
"""
import copy
import json
import pathlib
import re
import sys
from datetime import datetime

import jinja2
import jinja2.meta
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

import jinja_data
import jinja_random

NOW = 1750000000  # strftime_now() must not depend on when the test runs
ADDRESS = re.compile(r"(?i)0x[0-9a-f]{8,}|object at")
BUILT_IN = {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "unk_token",
            "pad_token", "raise_exception", "strftime_now", "range", "namespace", "dict", "lipsum", "cycler", "joiner"}


class Raised(jinja2.exceptions.TemplateError):
    pass


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: datetime.fromtimestamp(NOW).strftime(fmt)
    return env


def compiled(env, source):
    try:
        return env.from_string(source)
    except jinja2.TemplateError:
        return None


def rendered(template, given, kwargs):
    """What came out: {text}, {error} or {error: null, why}."""
    variables = {k: given[k] for k in ("tools", "documents", "add_generation_prompt", "bos_token", "eos_token")}
    variables.update(given.get("kwargs") or {})
    variables.update(kwargs or {})
    try:
        text = template.render(messages=given["messages"], **variables)
        text.encode()
        return {"text": text}
    except Raised as e:
        return {"error": str(e)}
    except Exception as e:
        return {"error": None, "why": f"{type(e).__name__}: {e}"}


def flag_sets(env, source):
    """Values for the names that a template asks for and nobody defines: none, true, false, texts."""
    try:
        names = sorted(jinja2.meta.find_undeclared_variables(env.parse(source)) - BUILT_IN)
    except jinja2.TemplateError:
        names = []
    if not names:
        return [None]
    return [None] + [{n: value for n in names} for value in (True, False, "high")]


def judge_files(folder, inputs, with_flags, stride):
    env = environment()
    cases = []
    number = 0
    for path in sorted(pathlib.Path(folder).rglob("*.jinja")):
        source = path.read_bytes().decode()
        template = compiled(env, source)
        for kwargs in flag_sets(env, source) if with_flags else [None]:
            for i, given in enumerate(inputs):
                number += 1
                if number % stride:
                    continue
                case = {"file": str(path), "input": i}
                if kwargs:
                    case["kwargs"] = kwargs
                case.update(rendered(template, given, kwargs) if template else {"error": None})
                if not ADDRESS.search(case.get("text") or ""):
                    cases.append(case)
    return cases


def judge_random(seed, count):
    env = environment()
    cases = []
    for source in jinja_random.templates(seed, count):
        template = compiled(env, source)
        case = {"source": source, "input": 0}
        given = copy.deepcopy(jinja_random.INPUT)  # some of Jinja's filters change what they are given
        case.update(rendered(template, given, None) if template else {"error": None})
        if not ADDRESS.search(case.get("text") or ""):
            cases.append(case)
    return cases


def main():
    mode = sys.argv[1]
    if mode == "corpus":
        inputs = jinja_data.plain()
        cases = judge_files(sys.argv[2], inputs, False, 1)
    elif mode == "published":
        inputs = jinja_data.rich()
        cases = judge_files(sys.argv[2], inputs, True, int(sys.argv[3]))
    else:
        inputs = [jinja_random.INPUT]
        cases = judge_random(int(sys.argv[2]), int(sys.argv[3]))
    json.dump({"now": NOW, "inputs": inputs, "cases": cases}, sys.stdout)


main()
