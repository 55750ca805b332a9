#!/usr/bin/env python3
"""openai_client.py BASE-URL KEY MODEL - the real openai client against a service; prints what it checked, exits 1 at the first fault."""

import json
import os
import sys

import openai

base, key, model = sys.argv[1:4]
client = openai.OpenAI(base_url=base + "/v1", api_key=key, max_retries=0, timeout=120)
GOLDEN = os.environ.get("EXASERVE_GOLDEN", "tests/golden") + "/greedy.json"
PROMPT = next(len(g["prompt_tokens"]) for g in json.load(open(GOLDEN)) if g["id"] == "chat_hello")
HELLO = [{"role": "user", "content": "Hello! Who are you?"}]


def check(condition, what):
    print(("ok: " if condition else "WRONG: ") + what)
    if not condition:
        sys.exit(1)


whole = client.chat.completions.create(model=model, messages=HELLO, max_tokens=24, temperature=0)
check(whole.object == "chat.completion" and whole.choices[0].message.role == "assistant", "a chat completion")
check(whole.usage.prompt_tokens == PROMPT, f"usage counts the prompt: {whole.usage.prompt_tokens}")
check(whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens, "usage adds up")

text, roles, finish, usage = "", [], None, None
for chunk in client.chat.completions.create(model=model, messages=HELLO, max_tokens=24, temperature=0, stream=True,
                                            stream_options={"include_usage": True}):
    if chunk.usage:
        usage = chunk.usage
    for choice in chunk.choices:
        text += choice.delta.content or ""
        roles += [choice.delta.role] if choice.delta.role else []
        finish = choice.finish_reason or finish
check(text == whole.choices[0].message.content, "the stream's text equals the whole answer")
check(roles == ["assistant"] and finish == whole.choices[0].finish_reason, f"role once, finish_reason {finish}")
check(usage is not None and usage == whole.usage, "usage comes with the last chunk")

parts = client.chat.completions.create(
    model=model, max_tokens=24, temperature=0,
    messages=[{"role": "user", "content": [{"type": "text", "text": "Hello! "}, {"type": "text", "text": "Who are you?"}]}])
check(parts.choices[0].message.content == text, "content as a list of text parts")

one = client.completions.create(model=model, prompt="Once upon a time", max_tokens=12, temperature=0.9, seed=7)
two = client.completions.create(model=model, prompt="Once upon a time", max_tokens=12, temperature=0.9, seed=7)
check(one.choices[0].text == two.choices[0].text, "one seed, one text")

stopped = client.completions.create(model=model, prompt="1, 2, 3, 4,", max_tokens=40, temperature=0, stop=[" 7"])
check(" 7" not in stopped.choices[0].text and stopped.choices[0].finish_reason == "stop", "a stop string ends the text before it")

try:
    openai.OpenAI(base_url=base + "/v1", api_key="sk-wrong", max_retries=0).models.list()
    check(False, "a wrong key is refused")
except openai.AuthenticationError as e:
    check(e.status_code == 401, "a wrong key is a 401")
try:
    client.chat.completions.create(model=model, messages=[{"role": "user", "content": "word " * 9000}], max_tokens=4)
    check(False, "a prompt longer than the context is refused")
except openai.BadRequestError as e:
    check(e.code == "context_length_exceeded" and any(c.isdigit() for c in e.message), f"too long is a 400 with numbers: {e.message[:120]}")
try:
    client.chat.completions.create(model="gpt-4", messages=HELLO)
    check(False, "another model is refused")
except openai.NotFoundError as e:
    check(e.code == "model_not_found", "another model is a 404")
check([m.id for m in client.models.list()] == [model], "models are listed")
