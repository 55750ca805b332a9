"""openai_cases.py - the real `openai` client against router_host: what an application sees. Run by t0310-openai.t in the tests' virtual
environment."""
import json
import os
import sys
import tempfile
import threading

import openai

sys.path.insert(0, "tests/e2e")
from router_lib import KEY, Host, Tap, wait_until

MODEL_FILE = os.environ.get("EXASERVE_TEST_MODEL", "build/model/SmolLM2-135M-Instruct.Q4_1.gguf")
GOLDEN = os.environ.get("EXASERVE_GOLDEN", "tests/golden")
TEXT = "Grüße, 世界! 🙂👩‍👩‍👧 The end."
CTX = 512
# What the scripted engine says to one user message: the prompt without its control tokens, as the model's template writes it.
SYSTEM = "system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face\n"


def golden():
    with open(os.path.join(GOLDEN, "greedy.json"), encoding="utf-8") as f:
        return json.load(f)


def client(host, key=KEY, **kw):
    return openai.OpenAI(base_url=host.url + "/v1", api_key=key, max_retries=0, timeout=120, **kw)


def said(*messages):
    return SYSTEM + "".join(f"{role}\n{text}\n" for role, text in messages) + "assistant\n"


def ask(c, content=TEXT, **kw):
    kw = {"temperature": 0, **kw}
    return c.chat.completions.create(model="smol", messages=[{"role": "user", "content": content}], **kw)


def collect(stream):
    """Text, finish reason, usage of a stream."""
    text, reason, usage, first = "", None, None, True
    for chunk in stream:
        assert chunk.object == "chat.completion.chunk" and chunk.id.startswith("chatcmpl-")
        if not chunk.choices:
            assert usage is None and reason, "usage comes last"
            usage = chunk.usage
            continue
        delta = chunk.choices[0].delta
        if first:
            assert delta.role == "assistant"
            first = False
        text += delta.content or ""
        reason = chunk.choices[0].finish_reason or reason
    return text, reason, usage


def refused(kind, fn, code=None, param=None, says=""):
    try:
        fn()
    except kind as e:
        assert code is None or e.code == code, e
        assert param is None or e.param == param, e
        assert says in str(e), e
        return e
    raise AssertionError("was not refused")


def whole(c):
    r = ask(c)
    assert r.object == "chat.completion" and r.model == "smol" and r.id.startswith("chatcmpl-")
    assert r.choices[0].message.role == "assistant" and r.choices[0].finish_reason == "stop"
    assert r.choices[0].message.content == said(("user", TEXT)), r.choices[0].message.content
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens and r.usage.prompt_tokens > 30


def streamed(c):
    r = ask(c)
    text, reason, usage = collect(ask(c, stream=True, stream_options={"include_usage": True}))
    assert text == r.choices[0].message.content and reason == "stop"
    assert usage.prompt_tokens == r.usage.prompt_tokens and usage.completion_tokens == r.usage.completion_tokens
    text, _, usage = collect(ask(c, stream=True))
    assert text == r.choices[0].message.content and usage is None


def content_parts(c):
    r = ask(c, [{"type": "text", "text": TEXT[:9]}, {"type": "text", "text": TEXT[9:]}])
    assert r.choices[0].message.content == said(("user", TEXT))
    e = refused(openai.BadRequestError, lambda: ask(c, [{"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "http://x/y.png"}}]), param="messages[0].content[1]")
    assert e.status_code == 400


def conversation(c):
    """What came is sent back, as applications do."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one"}]
    r = c.chat.completions.create(model="smol", messages=messages, temperature=0)
    assert r.choices[0].message.content == "system\nBe brief.\nuser\none\nassistant\n"
    messages += [r.choices[0].message, {"role": "user", "content": "two"}]
    r = c.chat.completions.create(model="smol", messages=messages, temperature=0, max_tokens=6)
    assert r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 6


def max_tokens(c):
    full = ask(c).choices[0].message.content
    for name in ("max_tokens", "max_completion_tokens"):
        r = ask(c, **{name: 5})
        assert r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 5
        assert full.startswith(r.choices[0].message.content)


def stop_strings(c):
    full = ask(c).choices[0].message.content
    for stop in ("世", ["nothing like it", "named Smo", "🙂"], "\n", "The end."):
        first = min(full.find(s) for s in ([stop] if isinstance(stop, str) else stop) if s in full)
        r = ask(c, stop=stop)
        assert r.choices[0].message.content == full[:first], (stop, r.choices[0].message.content)
        assert r.choices[0].finish_reason == "stop"
        text, reason, _ = collect(ask(c, stop=stop, stream=True))
        assert text == full[:first] and reason == "stop"
    text, reason, _ = collect(ask(c, stop=["assistant\n\n"], stream=True))
    assert text == full, "held back for a stop string that never came"


def seeds(c):
    one = [ask(c, seed=7, temperature=1).choices[0].message.content for _ in range(2)]
    other = ask(c, seed=8, temperature=1).choices[0].message.content
    assert one[0] == one[1] != other
    assert len({ask(c, temperature=1).choices[0].message.content for _ in range(6)}) > 1, "a seed is drawn"


def ignore_eos(c):
    r = ask(c, max_tokens=200, extra_body={"ignore_eos": True, "top_k": 5})
    assert r.usage.completion_tokens == 200 and r.choices[0].finish_reason == "length"


def completions(c):
    r = c.completions.create(model="smol", prompt=TEXT, temperature=0)
    assert r.object == "text_completion" and r.choices[0].text == TEXT and r.choices[0].finish_reason == "stop"
    assert c.completions.create(model="smol", prompt=[TEXT], temperature=0).choices[0].text == TEXT
    parts = list(c.completions.create(model="smol", prompt=TEXT, temperature=0, stream=True))
    assert "".join(p.choices[0].text for p in parts) == TEXT and parts[-1].choices[0].finish_reason == "stop"
    ids = golden()[0]["prompt_tokens"]
    r = c.completions.create(model="smol", prompt=ids, temperature=0)
    assert r.usage.prompt_tokens == len(ids)
    r = c.completions.create(model="smol", prompt=["One here", "And two"], temperature=0)
    assert [(x.index, x.text) for x in r.choices] == [(0, "One here"), (1, "And two")], r.choices
    r = c.completions.create(model="smol", prompt=[ids, ids[:5]], temperature=0)
    assert len(r.choices) == 2 and r.usage.prompt_tokens == len(ids) + 5
    refused(openai.BadRequestError, lambda: c.completions.create(model="smol", prompt=[1, 10**6]), param="prompt")


def models(c):
    assert [m.id for m in c.models.list().data] == ["smol"]
    assert c.models.retrieve("smol").object == "model"
    refused(openai.NotFoundError, lambda: c.models.retrieve("none"), code="model_not_found")
    refused(openai.NotFoundError, lambda: c.chat.completions.create(model="none", messages=[
        {"role": "user", "content": "x"}]), code="model_not_found")


def wrong_key(c, host):
    refused(openai.AuthenticationError, lambda: ask(client(host, "wrong")), code="invalid_api_key")
    refused(openai.AuthenticationError, lambda: client(host, "wrong").models.list(), code="invalid_api_key")


def too_long(c):
    refused(openai.BadRequestError, lambda: ask(c, "word " * 600), code="context_length_exceeded", says="512 tokens")
    e = refused(openai.BadRequestError, lambda: ask(c, "word " * 20000), code="context_length_exceeded")
    assert "resulted in 20" in str(e), e  # both numbers, the real count
    refused(openai.BadRequestError, lambda: ask(c, max_tokens=500), code="context_length_exceeded", says="500 in the")


def unsupported(c):
    for kw in ({"n": 129}, {"tools": [{"type": "function", "function": {"name": "f"}}]}, {"top_logprobs": 2},
               {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}},
               {"presence_penalty": 3}, {"logit_bias": {"5": 101}}, {"temperature": 3}, {"extra_body": {"surprise": 1}}):
        name = next(iter(kw.get("extra_body", kw)))
        refused(openai.BadRequestError, lambda kw=kw: ask(c, **kw), param=name)
    assert ask(c, n=1, user="u", presence_penalty=0, logprobs=False, response_format={"type": "text"},
               metadata={"a": "b"}, store=False).choices[0].finish_reason == "stop"


def disconnect(c, host):
    before = host.health()["counters"]["canceled"]
    stream = ask(c, "x " * 100, stream=True, max_tokens=300, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    wait_until(lambda: host.health()["counters"]["canceled"] == before + 1, "the request is cancelled")
    wait_until(lambda: host.health()["replicas"][0]["load"]["active"] == 0, "the engine has stopped")


def in_parallel(c):
    bad = []

    def one(i):
        text = f"message {i} " * 3
        if collect(ask(c, text, stream=True))[0] != said(("user", text)):
            bad.append(i)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(24)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad, bad


def not_ready():
    with Host("--fake", "--state", "STARTING") as host:
        e = refused(openai.InternalServerError, lambda: ask(client(host)), code="not_ready")
        assert e.status_code == 503 and e.response.headers["retry-after"] and e.body["progress"]


def one_step_to_leave():
    """When the client has left, no step but the one under way works on its request."""
    step_us = 400_000
    with Host("--fake", "--model", MODEL_FILE, "--name", "smol", "--ctx", str(CTX), "--step-us", str(step_us)) as host:
        host.wait_ready()
        stream = ask(client(host), "x " * 100, stream=True, max_tokens=300, extra_body={"ignore_eos": True})
        next(iter(stream))

        def load():
            return host.health()["replicas"][0]["load"]

        stream.close()
        wait_until(lambda: host.health()["counters"]["canceled"] == 1, "the router has seen it")
        before = load()["n_tokens"]  # as of the last heartbeat: one step may have ended since
        wait_until(lambda: load()["active"] == 0, "the engine has stopped")
        assert load()["n_tokens"] <= before + 1, (before, load())
        assert host.stop() == 0


def ways_to_ask(c, messages):
    """Greedy and drawn, whole and streamed: [(name, a function that returns the text)]."""
    def whole_text(kw):
        return c.chat.completions.create(model="smol", messages=messages, max_tokens=32, **kw).choices[0].message.content

    def streamed_text(kw):
        return collect(c.chat.completions.create(model="smol", messages=messages, max_tokens=32, stream=True, **kw))[0]

    greedy, drawn = {"temperature": 0}, {"temperature": 0.9, "top_p": 0.95, "seed": 11, "extra_body": {"top_k": 40}}
    return [(name, lambda fn=fn, kw=kw: fn(kw)) for name, kw in (("greedy", greedy), ("drawn", drawn))
            for fn in (whole_text, streamed_text)]


def real_model():
    """The weights themselves. One answer, byte for byte: alone, in a batch of 8, streamed or not, with 1 or 2 threads."""
    case = next(g for g in golden() if g["id"] == "chat_hello")
    texts = {"greedy": set(), "drawn": set()}
    with tempfile.TemporaryDirectory() as cache:
        for n_threads in (1, 2):
            with Host("--model", MODEL_FILE, "--cache", cache, "--name", "smol", "--threads", str(n_threads)) as host:
                host.wait_ready()
                ways = ways_to_ask(client(host), case["messages"])
                for name, fn in ways:  # alone
                    texts[name].add(fn())
                seen, most = [], 0
                threads = [threading.Thread(target=lambda n=name, f=fn: seen.append((n, f()))) for name, fn in 2 * ways]
                for t in threads:
                    t.start()
                while any(t.is_alive() for t in threads):
                    most = max(most, host.health()["replicas"][0]["load"]["active"])
                    threads[0].join(0.02)
                for name, text in seen:
                    texts[name].add(text)
                assert len(seen) == 8 and most == 8, (len(seen), most, "the eight were not one batch")
                assert host.stop() == 0
    assert all(len(t) == 1 for t in texts.values()), texts
    greedy, cut = texts["greedy"].pop(), case["text"].split("<|im_end|>")[0]
    assert greedy != texts["drawn"].pop()
    same = os.path.commonprefix([greedy, cut])
    assert len(same) >= 12, (greedy, cut)  # kernels may part from the F32 run where two tokens are close


def main():
    tap = Tap()
    with Host("--fake", "--model", MODEL_FILE, "--name", "smol", "--ctx", str(CTX), "--step-us", "300") as host:
        host.wait_ready()
        c = client(host)
        for fn in (whole, streamed, content_parts, conversation, max_tokens, stop_strings, seeds, ignore_eos,
                   completions, models, too_long, unsupported, in_parallel):
            tap.run(fn.__name__, fn, c)
        for fn in (wrong_key, disconnect):
            tap.run(fn.__name__, fn, c, host)
        tap.ok(host.stop() == 0, "leaves with 0 and nothing leaked")
    tap.run("not_ready", not_ready)
    tap.run("one_step_to_leave", one_step_to_leave)
    if "/release/" in os.environ.get("EXASERVE_BIN", "build/release/bin") + "/":
        tap.run("real_model", real_model)  # sanitizer builds of the kernels are far too slow
    tap.done()


main()
