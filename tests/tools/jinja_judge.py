#!/usr/bin/env python3
"""Render chat templates with Jinja2 as transformers sets it up, and print what came out as JSON.

Usage: jinja_judge.py FOLDER    every *.jinja below FOLDER, for several conversations

Output: {"cases": [{file, messages, bos, eos, add, text | error}]}; error is the text of raise_exception, or null
for any other failure. The unit test renders the same cases with text/template.h and compares.
"""
import json
import pathlib
import sys
from datetime import datetime

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


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
    env.globals["strftime_now"] = lambda fmt: datetime.now().strftime(fmt)
    return env


def msg(role, content):
    return {"role": role, "content": content}


CONVERSATIONS = [
    [msg("user", "Hello! Who are you?")],
    [msg("system", "You are a pirate."), msg("user", "How do I boil an egg?")],
    [msg("user", "Name a colour."), msg("assistant", "Blue."), msg("user", "Another one, and say why.")],
    [msg("system", ""), msg("user", ""), msg("assistant", ""), msg("user", "x")],
    [msg("user", "  Où est la \"bibliothèque\" ?\n 😀 <|im_end|> {{ 7 * 7 }} {% if %}\t\n\n"),
     msg("assistant", "\n<think>\nWell,\n</think>\n\nThere.\n"), msg("user", "'a' & <b>\r\n\u00a0")],
    [msg("user", "a"), msg("user", "b")],
    [msg("system", "s"), msg("user", "u"), msg("assistant", "<think>hm</think>ok"), msg("tool", "42"),
     msg("tool", "{\"x\": 1}"), msg("assistant", "done")],
    [msg("assistant", "I speak first.")],
    [],
]


def main():
    env = environment()
    cases = []
    for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.jinja")):
        source = path.read_bytes().decode()
        try:
            template = env.from_string(source)
        except jinja2.TemplateError:
            template = None
        for messages in CONVERSATIONS:
            for add in (True, False):
                case = {"file": str(path), "messages": messages, "bos": "<s>", "eos": "</s>", "add": add}
                try:
                    case["text"] = template.render(
                        messages=messages, tools=None, documents=None, add_generation_prompt=add,
                        bos_token="<s>", eos_token="</s>")
                except Raised as e:
                    case["error"] = str(e)
                except Exception as e:
                    case["error"] = None
                    case["why"] = str(e)
                cases.append(case)
    json.dump({"cases": cases}, sys.stdout)


main()
