"""sampling_cases.py - the real `openai` client: choices, log-probabilities, echo, constrained output, bias, penalties, ends and
embeddings. Run by t0320-sampling.t in the tests' virtual environment. The judge of JSON schemas is python3-jsonschema, which the
system's Python has."""
import base64
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

import openai

sys.path.insert(0, "tests/e2e")
from router_lib import KEY, Host, Tap

MODEL_FILE = os.environ.get("EXASERVE_TEST_MODEL", "build/model/SmolLM2-135M-Instruct.Q4_1.gguf")
TEXT = "Grüße, 世界! The end."
QUESTION = [{"role": "user", "content": "Tell me about a person: name and age."}]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 12},
        "age": {"type": "integer", "minimum": 1, "maximum": 120},
        "hobby": {"enum": ["chess", "running", "music"]},
    },
    "required": ["name", "age", "hobby"],
    "additionalProperties": False,
}


def client(host):
    return openai.OpenAI(base_url=host.url + "/v1", api_key=KEY, max_retries=0, timeout=180)


def complete(c, prompt=TEXT, **kw):
    return c.completions.create(model="smol", prompt=prompt, **{"temperature": 0, **kw})


def chat(c, **kw):
    return c.chat.completions.create(model="smol", messages=QUESTION, **{"temperature": 0, "max_tokens": 80, **kw})


def refused(fn, param, says=""):
    try:
        fn()
    except openai.BadRequestError as e:
        assert e.param == param, e
        assert says in str(e), e
        return
    raise AssertionError(f"{param} was not refused")


def close(a, b):
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-5)


# --- shapes, with the scripted engine: log-probability -(id % 8) / 4, others -i / 4 for ids i = 0, 1, ... ---

def choices(c):
    r = chat(c, n=3, temperature=1, seed=4)
    assert [x.index for x in r.choices] == [0, 1, 2] and all(x.finish_reason == "stop" for x in r.choices)
    texts, reasons = {}, {}
    for chunk in chat(c, n=3, temperature=1, seed=4, stream=True, stream_options={"include_usage": True}):
        for x in chunk.choices:
            texts[x.index] = texts.get(x.index, "") + (x.delta.content or "")
            reasons[x.index] = x.finish_reason or reasons.get(x.index)
        usage = chunk.usage
    assert texts == {x.index: x.message.content for x in r.choices}
    assert set(reasons.values()) == {"stop"}
    assert usage.completion_tokens == r.usage.completion_tokens and usage.prompt_tokens == r.usage.prompt_tokens
    one = chat(c, temperature=1, seed=4)
    assert one.choices[0].message.content == r.choices[0].message.content, "the first choice is that of n=1"
    assert r.usage.prompt_tokens == one.usage.prompt_tokens, "a prompt counts once"


def logprobs_of_a_chat(c):
    r = chat(c, logprobs=True, top_logprobs=3).choices[0]
    content = r.logprobs.content
    assert b"".join(bytes(t.bytes) for t in content).decode() == r.message.content
    for t in content:
        assert 0 >= t.logprob >= -1.75 and (t.logprob * 4).is_integer()
        assert [x.logprob for x in t.top_logprobs] == [0, -0.25, -0.5]
    assert chat(c, logprobs=True).choices[0].logprobs.content[0].top_logprobs == []
    assert chat(c).choices[0].logprobs is None
    streamed, text = [], ""
    for chunk in chat(c, logprobs=True, top_logprobs=3, stream=True):
        for x in chunk.choices:
            text += x.delta.content or ""
            streamed += x.logprobs.content if x.logprobs else []
    assert text == r.message.content and streamed == content


def logprobs_of_a_completion(c):
    r = complete(c, logprobs=2).choices[0]
    lp = r.logprobs
    assert len(lp.tokens) == len(lp.token_logprobs) == len(lp.top_logprobs) == len(lp.text_offset)
    assert lp.tokens[-1] == "<|im_end|>" and lp.text_offset[-1] == len(r.text)
    for token, offset, nxt in zip(lp.tokens, lp.text_offset, lp.text_offset[1:]):
        if not token.startswith("bytes:"):
            assert r.text[offset:nxt] == token
        else:
            assert re.fullmatch(r"bytes:(\\x[0-9a-f]{2})+", token), token
    for token, value, top in zip(lp.tokens, lp.token_logprobs, lp.top_logprobs):
        assert top[token] == value or token in top
        assert len(top) in (2, 3)
    assert complete(c, logprobs=0).choices[0].logprobs.top_logprobs is None
    parts = [x.choices[0] for x in complete(c, logprobs=2, stream=True)]
    for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
        assert sum((getattr(p.logprobs, name) for p in parts if p.logprobs), []) == getattr(lp, name), name


def echo(c):
    plain = complete(c, echo=True).choices[0]
    assert plain.text == TEXT + TEXT and plain.logprobs is None
    r = complete(c, echo=True, logprobs=1)
    n = r.usage.prompt_tokens
    lp = r.choices[0].logprobs
    assert r.choices[0].text == TEXT + TEXT
    assert lp.token_logprobs[0] is None and lp.top_logprobs[0] is None and None not in lp.token_logprobs[1:]
    assert lp.tokens[:n] == lp.tokens[n:2 * n] and lp.text_offset[n] == len(TEXT)
    assert lp.token_logprobs[1:n] == lp.token_logprobs[n + 1:2 * n]
    parts = [x.choices[0] for x in complete(c, echo=True, logprobs=1, stream=True)]
    assert "".join(p.text for p in parts) == TEXT + TEXT
    assert sum((p.logprobs.token_logprobs for p in parts if p.logprobs), []) == lp.token_logprobs
    only = complete(c, echo=True, logprobs=1, max_tokens=0)
    assert only.choices[0].text == TEXT and only.usage.completion_tokens == 0
    assert only.choices[0].logprobs.token_logprobs == lp.token_logprobs[:n]
    assert only.choices[0].finish_reason == "length"
    refused(lambda: complete(c, max_tokens=0), "max_tokens")


def stop_strings_and_logprobs(c):
    """Neither the stop string nor what is behind it is scored."""
    r = complete(c, logprobs=0, stop="The").choices[0]
    assert r.text == "Grüße, 世界! " and r.logprobs.text_offset[-1] <= len(r.text)
    shown = "".join(t for t in r.logprobs.tokens if not t.startswith("bytes:"))
    assert "The" not in shown.removesuffix(" The"), shown
    parts = [x.choices[0] for x in complete(c, logprobs=0, stop="The", stream=True)]
    assert sum((p.logprobs.tokens for p in parts if p.logprobs), []) == r.logprobs.tokens


def best_of(c):
    r = complete(c, "a b c d e f", temperature=1, seed=1, n=2, best_of=6, logprobs=0)
    mean = [sum(x.logprobs.token_logprobs) / len(x.logprobs.token_logprobs) for x in r.choices]
    assert len(mean) == 2 and mean[0] >= mean[1]
    every = complete(c, "a b c d e f", temperature=1, seed=1, n=6, logprobs=0)
    means = sorted((sum(x.logprobs.token_logprobs) / len(x.logprobs.token_logprobs) for x in every.choices), reverse=True)
    assert close(means[0], mean[0]) and close(means[1], mean[1]), (means, mean)
    assert r.usage.completion_tokens == every.usage.completion_tokens
    refused(lambda: complete(c, n=3, best_of=2), "best_of")


def many_prompts(c):
    prompts = [f"prompt number {i}" for i in range(40)]
    r = complete(c, prompts)
    assert [x.text for x in r.choices] == prompts and [x.index for x in r.choices] == list(range(40))
    r = complete(c, prompts[:3], n=2)
    assert [x.text for x in r.choices] == [p for p in prompts[:3] for _ in range(2)]


def embeddings():
    with Host("--fake", "--embed", "--name", "smol", "--ctx", "64", "--step-us", "300") as host:
        host.wait_ready()
        c = client(host)
        texts = ["a", "bcd", "ef"]
        r = c.embeddings.create(model="smol", input=texts)  # the client asks for base64
        floats = c.embeddings.create(model="smol", input=texts, encoding_format="float")
        assert [d.index for d in r.data] == [0, 1, 2] and r.usage.prompt_tokens == 6 == r.usage.total_tokens
        for text, a, b in zip(texts, r.data, floats.data):
            assert len(a.embedding) == 32 and all(close(x, y) for x, y in zip(a.embedding, b.embedding))
            assert close(a.embedding[0], 0.6) and close(a.embedding[1 + len(text)], 0.8)
        raw = c.embeddings.with_raw_response.create(model="smol", input="a", encoding_format="base64")
        packed = json.loads(raw.text)["data"][0]["embedding"]
        assert close(struct.unpack("<32f", base64.b64decode(packed))[0], 0.6)
        cut = c.embeddings.create(model="smol", input=[[3, 4]], dimensions=3).data[0].embedding
        assert len(cut) == 3 and close(sum(x * x for x in cut), 1)
        many = c.embeddings.create(model="smol", input=[[3 + i % 200] * (1 + i % 20) for i in range(1500)])
        assert all(close(d.embedding[1 + 1 + d.index % 20], 0.8) for d in many.data) and len(many.data) == 1500
        refused(lambda: c.embeddings.create(model="smol", input="a", dimensions=33), "dimensions", "32")
        refused(lambda: c.embeddings.create(model="smol", input="x" * 65), "input", "64 tokens")
        refused(lambda: c.embeddings.create(model="smol", input=""), "input")
        refused(lambda: complete(c), "model", "/v1/embeddings")
        refused(lambda: chat(c), "model", "/v1/embeddings")
        assert host.stop() == 0


# --- effects, on the real model ---

def seeds(c):
    a = [x.message.content for x in chat(c, n=3, seed=7, temperature=1, max_tokens=20).choices]
    b = [x.message.content for x in chat(c, n=3, seed=7, temperature=1, max_tokens=20).choices]
    assert a == b and len(set(a)) == 3, (a, b)
    assert a != [x.message.content for x in chat(c, n=3, seed=8, temperature=1, max_tokens=20).choices]


def filters_down_to_one(c):
    greedy = chat(c, max_tokens=16).choices[0].message.content
    for kw in ({"top_p": 0}, {"top_p": 1e-6}, {"extra_body": {"top_k": 1}}, {"extra_body": {"min_p": 1.0}}):
        assert chat(c, temperature=1.5, seed=3, max_tokens=16, **kw).choices[0].message.content == greedy, kw
    free = [chat(c, temperature=1.5, seed=s, max_tokens=16).choices[0].message.content for s in range(3)]
    assert len(set(free)) == 3
    chat(c, temperature=1, max_tokens=8, extra_body={"typical_p": 0.5})


def logprobs_agree(c):
    """The score of a greedy token is its own log-probability, in the answer as in an echo of it."""
    first = complete(c, "The capital of France is", max_tokens=6, logprobs=3)
    lp = first.choices[0].logprobs
    for token, value, top in zip(lp.tokens, lp.token_logprobs, lp.top_logprobs):
        assert close(top[token], value) and value == max(top.values())
    again = complete(c, "The capital of France is" + first.choices[0].text, max_tokens=0, logprobs=3, echo=True)
    scored = again.choices[0].logprobs
    assert scored.tokens[-6:] == lp.tokens
    assert all(close(a, b) for a, b in zip(scored.token_logprobs[-6:], lp.token_logprobs)), (scored, lp)
    drawn = complete(c, "The capital of France is", max_tokens=6, logprobs=3, temperature=2, seed=1).choices[0].logprobs
    assert max(drawn.top_logprobs[0].values()) == max(lp.top_logprobs[0].values()), "of the unmodified distribution"


def bias(c):
    """A bias of 100 forces a token; one of -100 bans it; both ways are exact."""
    def tokens(**kw):
        return complete(c, "Hello", max_tokens=4, logprobs=0, **kw).choices[0].logprobs.tokens

    first, second = tokens(logit_bias={"1000": 100}), tokens(logit_bias={"1001": 100})
    assert len(set(first)) == 1 == len(set(second)) and first != second
    assert tokens(logit_bias={"1000": -100, "1001": 100}, temperature=1, seed=2) == second
    free = tokens()
    assert tokens(logit_bias={"1000": -100}) == free, "banning what is not said changes nothing"


def penalties(c):
    """Something said over and over becomes something else."""
    prompt = "a a a a a a a a a a a a"
    plain = complete(c, prompt, max_tokens=24, logprobs=0).choices[0].logprobs.tokens
    for kw in ({"frequency_penalty": 2}, {"presence_penalty": 2}, {"extra_body": {"repetition_penalty": 1.8}}):
        other = complete(c, prompt, max_tokens=24, logprobs=0, **kw).choices[0].logprobs.tokens
        assert len(set(other)) > len(set(plain)), (kw, plain, other)


def ends(c):
    r = chat(c, max_tokens=60)
    assert r.choices[0].finish_reason in ("stop", "length")
    short = c.chat.completions.create(model="smol", messages=[{"role": "user", "content": "Say only: yes"}],
                                      temperature=0, max_tokens=100)
    assert short.choices[0].finish_reason == "stop"
    n = short.usage.completion_tokens
    longer = c.chat.completions.create(model="smol", messages=[{"role": "user", "content": "Say only: yes"}], temperature=0,
                                       max_tokens=100, extra_body={"min_tokens": n + 10})
    assert longer.usage.completion_tokens >= n + 10, (n, longer.usage)
    assert longer.choices[0].message.content.startswith(short.choices[0].message.content)
    forced = {"logit_bias": {"1000": 100}, "max_tokens": 9}  # so that the id that ends it is known
    r = complete(c, "Hello", extra_body={"stop_token_ids": [5, 1000]}, **forced)
    assert (r.choices[0].text, r.choices[0].finish_reason, r.usage.completion_tokens) == ("", "stop", 1), r
    r = complete(c, "Hello", extra_body={"stop_token_ids": [1000], "min_tokens": 3, "ignore_eos": True}, **forced)
    assert (r.choices[0].finish_reason, r.usage.completion_tokens) == ("stop", 4), r
    r = complete(c, "Hello", extra_body={"stop_token_ids": [1001]}, **forced)
    assert (r.choices[0].finish_reason, r.usage.completion_tokens) == ("length", 9), r
    ignoring = chat(c, max_tokens=70, extra_body={"ignore_eos": True})
    assert ignoring.usage.completion_tokens == 70


def json_object(c):
    for seed in range(3):
        r = chat(c, response_format={"type": "json_object"}, temperature=1, seed=seed, max_tokens=300,
                 extra_body={"top_p": 0.8}).choices[0]
        if r.finish_reason == "stop":
            assert isinstance(json.loads(r.message.content), dict), r.message.content
        else:
            assert r.message.content.lstrip().startswith("{")


def json_schema(c):
    """The judge is another implementation."""
    for kw in ({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "strict": True, "schema": SCHEMA}}},
               {"extra_body": {"guided_json": SCHEMA}}, {"extra_body": {"structured_outputs": {"json": SCHEMA}}}):
        for seed in range(2):
            r = chat(c, temperature=1, seed=seed, max_tokens=300, **kw).choices[0]
            assert r.finish_reason == "stop", r
            judge = subprocess.run(["/usr/bin/python3", "-c", "import json, sys, jsonschema\n"
                                    "jsonschema.validate(json.loads(sys.argv[1]), json.loads(sys.argv[2]))",
                                    r.message.content, json.dumps(SCHEMA)], capture_output=True, text=True, check=False)
            assert judge.returncode == 0, judge.stderr[-800:] + r.message.content


def regex_choice_grammar(c):
    pattern = r"(red|green|blue) [0-9]{2,4}(\.[0-9])?"
    for seed in range(4):
        r = chat(c, temperature=1.5, seed=seed, extra_body={"guided_regex": pattern}).choices[0]
        assert r.finish_reason == "stop" and re.fullmatch(pattern, r.message.content), r.message.content
        words = ["yes", "no", "maybe so", "Grüße"]
        r = chat(c, temperature=1.5, seed=seed, extra_body={"guided_choice": words}).choices[0]
        assert r.finish_reason == "stop" and r.message.content in words, r.message.content
        r = chat(c, temperature=1.5, seed=seed, extra_body={"guided_grammar": 'root ::= "<" [a-c]+ ">" | "(" root ")"'}).choices[0]
        assert re.fullmatch(r"\(*<[a-c]*>?\)*", r.message.content), r.message.content
    text = "".join(x.choices[0].delta.content or "" for x in chat(c, stream=True, extra_body={"guided_choice": ["alpha beta"]}))
    assert text == "alpha beta"


def constraints_refused(c):
    for body, param in (({"guided_regex": "(((a"}, "guided_regex"), ({"guided_regex": ".*a.{20}"}, "guided_regex"),
                        ({"guided_grammar": "root ::= nothing"}, "guided_grammar"),
                        ({"guided_grammar": "root ::= root"}, "guided_grammar"),
                        ({"guided_json": {"type": "nothing"}}, "guided_json"),
                        ({"guided_json": {"$ref": "#/nowhere"}}, "guided_json")):
        refused(lambda b=body: chat(c, extra_body=b), param)
    assert chat(c, max_tokens=4).choices[0].finish_reason == "length", "it goes on"


def mixed(c):
    """All at once, twice the same; and each answer keeps its own rules."""
    kw = dict(n=2, seed=5, temperature=1, max_tokens=60, logprobs=True, top_logprobs=2, frequency_penalty=0.5,
              logit_bias={"260": -1}, extra_body={"guided_json": SCHEMA, "top_k": 50, "min_p": 0.01, "repetition_penalty": 1.1,
                                                  "min_tokens": 4})
    a, b = chat(c, **kw), chat(c, **kw)
    assert [x.message.content for x in a.choices] == [x.message.content for x in b.choices]
    assert [x.logprobs for x in a.choices] == [x.logprobs for x in b.choices]


def main():
    tap = Tap()
    with Host("--fake", "--model", MODEL_FILE, "--name", "smol", "--ctx", "512", "--step-us", "300") as host:
        host.wait_ready()
        c = client(host)
        for fn in (choices, logprobs_of_a_chat, logprobs_of_a_completion, echo, stop_strings_and_logprobs, best_of,
                   many_prompts):
            tap.run(fn.__name__, fn, c)
        tap.ok(host.stop() == 0, "leaves with 0 and nothing leaked")
    tap.run("embeddings", embeddings)
    if "/release/" in os.environ.get("EXASERVE_BIN", "build/release/bin") + "/":  # kernels of sanitizer builds are far too slow
        with tempfile.TemporaryDirectory() as cache, \
                Host("--model", MODEL_FILE, "--cache", cache, "--name", "smol", "--threads", "2") as host:
            host.wait_ready()
            c = client(host)
            for fn in (seeds, filters_down_to_one, logprobs_agree, bias, penalties, ends, json_object, json_schema,
                       regex_choice_grammar, constraints_refused, mixed):
                tap.run(fn.__name__, fn, c)
            tap.ok(host.stop() == 0, "the real model's host leaves with 0")
    tap.done()


main()
