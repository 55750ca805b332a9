"""http_cases.py - hostile and unusual HTTP against a router with a scripted engine: one table, then what needs a clock or several
connections. Standard library only; run by t0300-router-hostile.t."""
import signal
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, "tests/e2e")
from router_lib import KEY, Host, Tap, Wire, events, get, post, request, wait_until

MAX_BODY = 100_000
HEADER_MS = 1500
AUTH = f"Authorization: Bearer {KEY}\r\n"
H = "Host: x\r\n"
CHAT = "/v1/chat/completions"
COMP = "/v1/completions"
BODY = {"model": "bytes", "prompt": "hello", "temperature": 0}


def raw_post(headers, body=b"", path=COMP):
    return (f"POST {path} HTTP/1.1\r\n{H}{AUTH}Content-Type: application/json\r\n{headers}\r\n").encode() + body


def chunked(*parts, end=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + end


GOOD = b'{"model":"bytes","prompt":"hello","temperature":0}'

# name, bytes, status, code in the error body (None: not looked at), does the connection end
CASES = [
    ("live needs no key", request("GET", "/health/live", key=None), 200, None, False),
    ("ready needs no key", request("GET", "/health/ready", key=None), 200, None, False),
    ("models with key", request("GET", "/v1/models"), 200, None, False),
    ("one model", request("GET", "/v1/models/bytes"), 200, None, False),
    ("one model, percent-encoded", request("GET", "/v1/models/by%74es"), 200, None, False),
    ("no such model", request("GET", "/v1/models/other"), 404, "model_not_found", False),
    ("broken percent-encoding", request("GET", "/v1/models/%4"), 404, "model_not_found", False),
    ("query is ignored", request("GET", "/v1/models?limit=1"), 200, None, False),
    ("absolute form", request("GET", "http://x/v1/models"), 200, None, False),
    ("no key", request("GET", "/v1/models", key=None), 401, "invalid_api_key", False),
    ("wrong key", request("GET", "/v1/models", key="test-kez"), 401, "invalid_api_key", False),
    ("key too short", request("GET", "/v1/models", key="t"), 401, "invalid_api_key", False),
    ("key with more behind", request("GET", "/v1/models", key=KEY + "x"), 401, "invalid_api_key", False),
    ("another scheme", request("GET", "/v1/models", key=None, headers=[f"Authorization: Basic {KEY}"]), 401,
     "invalid_api_key", False),
    ("scheme in other case", request("GET", "/v1/models", key=None, headers=[f"Authorization: bearer {KEY}"]), 200,
     None, False),
    ("unknown path under /v1 without key", request("GET", "/v1/nothing", key=None), 401, "invalid_api_key", False),
    ("unknown path under /v1", request("GET", "/v1/nothing"), 404, "unknown_url", False),
    ("unknown path", request("GET", "/", key=None), 404, "unknown_url", False),
    ("path with dots", request("GET", "/v1/../health/live"), 404, "unknown_url", False),
    ("GET where POST is", request("GET", CHAT), 405, "method_not_allowed", False),
    ("POST where GET is", request("POST", "/health/live", b"{}"), 405, "method_not_allowed", False),
    ("OPTIONS", request("OPTIONS", "/v1/models"), 405, "method_not_allowed", False),
    ("CONNECT", b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 404, None, False),
    ("a form, no JSON", request("POST", COMP, b"a=b").replace(b"application/json", b"text/plain"), 415,
     "unsupported_media_type", False),
    ("JSON with charset", request("POST", COMP, BODY).replace(b"application/json", b"application/json; charset=utf-8"),
     200, None, False),
    ("no content type", request("POST", COMP, BODY).replace(b"Content-Type: application/json\r\n", b""), 200, None,
     False),
    ("empty body", request("POST", COMP, b""), 400, "invalid_json", False),
    ("no body at all", raw_post(""), 400, "invalid_json", False),
    ("not JSON", request("POST", COMP, b"hello"), 400, "invalid_json", False),
    ("JSON cut off", request("POST", COMP, GOOD[:-1]), 400, "invalid_json", False),
    ("invalid UTF-8", request("POST", COMP, b'{"model":"\xff"}'), 400, "invalid_utf8", False),
    ("nested 10,000 deep", request("POST", COMP, b"[" * 10000), 400, "invalid_json", False),
    ("unknown field", request("POST", COMP, dict(BODY, foo=1)), 400, "unknown_parameter", False),
    ("unknown model", request("POST", COMP, dict(BODY, model="x")), 404, "model_not_found", False),
    ("too long", request("POST", COMP, dict(BODY, prompt="x" * 5000)), 400, "context_length_exceeded", False),
    ("too much asked", request("POST", COMP, dict(BODY, max_tokens=2044)), 400, "context_length_exceeded", False),
    ("body at the limit", request("POST", COMP, b" " * (MAX_BODY - len(GOOD)) + GOOD), 200, None, False),
    ("body over the limit, announced", raw_post(f"Content-Length: {MAX_BODY + 1}\r\n"), 413, "request_too_large", True),
    ("body over the limit, announced absurdly", raw_post("Content-Length: 9223372036854775807\r\n"), 413,
     "request_too_large", True),
    ("body over the limit, chunked", raw_post("Transfer-Encoding: chunked\r\n", chunked(*[b"x" * 10000] * 11)), 413,
     "request_too_large", True),
    ("chunked body", raw_post("Transfer-Encoding: chunked\r\n", chunked(GOOD[:7], GOOD[7:8], GOOD[8:])), 200, None,
     False),
    ("chunk with extension and trailer", raw_post("Transfer-Encoding: chunked\r\n", b"%x;a=b\r\n%s\r\n0\r\nT: v\r\n\r\n" %
                                                   (len(GOOD), GOOD)), 200, None, False),
    ("junk behind a chunk", raw_post("Transfer-Encoding: chunked\r\n", b"%x\r\n%sXX0\r\n\r\n" % (len(GOOD), GOOD)), 400,
     None, True),
    ("chunk size that is none", raw_post("Transfer-Encoding: chunked\r\n", b"zz\r\n"), 400, None, True),
    ("length and chunked", raw_post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", chunked(b"hello")), 400,
     None, True),
    ("two lengths", raw_post("Content-Length: 5\r\nContent-Length: 5\r\n", b"hello"), 400, None, True),
    ("two different lengths", raw_post("Content-Length: 5\r\nContent-Length: 6\r\n", b"hello!"), 400, None, True),
    ("length with space before colon", raw_post("Content-Length : 5\r\n", b"hello"), 400, None, True),
    ("negative length", raw_post("Content-Length: -5\r\n", b"hello"), 400, None, True),
    ("gzip coding", raw_post("Transfer-Encoding: gzip, chunked\r\n", chunked(b"x")), 501, None, True),
    ("unknown expectation", raw_post("Expect: miracle\r\nContent-Length: 1\r\n", b"x"), 417, None, True),
    ("no Host", b"GET /health/live HTTP/1.1\r\n\r\n", 400, None, True),
    ("no Host in HTTP/1.0", b"GET /health/live HTTP/1.0\r\n\r\n", 200, None, True),
    ("HTTP/1.0 that wants to stay", b"GET /health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, None, False),
    ("Connection: close", request("GET", "/health/live", headers=["Connection: close"]), 200, None, True),
    ("two Hosts", b"GET /health/live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, None, True),
    ("folded header", b"GET /health/live HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400, None, True),
    ("bare line feeds", b"GET /health/live HTTP/1.1\nHost: x\n\n", 400, None, True),
    ("NUL in a header", b"GET /health/live HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n", 400, None, True),
    ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, None, True),
    ("TLS hello", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + b"\r\n\r\n" * 40, 400, None, True),
    ("noise", bytes(range(1, 256)) * 4 + b"\r\n\r\n", 400, None, True),
    ("HTTP/0.9", b"GET /health/live\r\n\r\n", 505, None, True),
    ("long URL", request("GET", "/" + "a" * 5000), 414, None, True),
    ("long header", request("GET", "/health/live", headers=["A: " + "b" * 40000]), 431, None, True),
    ("many headers", request("GET", "/health/live", headers=["A: b"] * 200), 431, None, True),
    ("upgrade offer", request("GET", "/health/live", headers=["Upgrade: h2c", "Connection: Upgrade"]), 200, None,
     False),
]


def run_case(host, data, status, code, ends):
    with Wire(host) as w:
        try:
            w.send(data)
        except OSError:
            pass  # refused before all was sent: the answer is still there
        a = w.answer()
        assert a.status == status, f"status {a.status}, expected {status}: {a.body[:300]!r}"
        if a.status >= 400 and "/health" not in str(code):
            e = a.error()
            assert set(e) >= {"message", "type", "param", "code"} and e["message"], e
            assert code is None or e["code"] == code, e
        if a.status == 405:
            assert a.headers["allow"] in ("POST", "GET, HEAD")
        if a.status == 401:
            assert a.headers["www-authenticate"] == "Bearer"
        if ends:
            assert a.headers["connection"] == "close"
            w.sock.shutdown(socket.SHUT_WR)
            assert w.at_end()
        else:
            assert a.headers["connection"] == "keep-alive"
            w.send(request("GET", "/health/live"))  # the next request is read from the right place
            assert w.answer().status == 200


def byte_by_byte(host):
    with Wire(host) as w:
        for b in request("POST", COMP, BODY):
            w.send(bytes([b]))
        assert w.answer().json()["choices"][0]["text"] == "hello"


def every_cut(host):
    data = request("POST", COMP, BODY)
    with Wire(host) as w:
        w.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(1, len(data), 7):
            w.send(data[:cut])
            time.sleep(0.001)
            w.send(data[cut:])
            assert w.answer().json()["choices"][0]["text"] == "hello"


def pipelined(host):
    data = b""
    for i in range(50):
        data += request("POST", COMP, dict(BODY, prompt=f"number {i}", stream=i % 2 == 1), headers=[f"X-Request-Id: id-{i}"])
        data += request("GET", "/health/live")
    with Wire(host) as w:
        threading.Thread(target=w.send, args=(data,), daemon=True).start()
        for i in range(50):
            a = w.answer()
            assert a.headers["x-request-id"] == f"id-{i}"
            if i % 2:
                got, done = events(a.body)
                text = "".join(e["choices"][0]["text"] for e in got)
                assert done
            else:
                text = a.json()["choices"][0]["text"]
            assert text == f"number {i}", text
            assert w.answer().json()["status"] == "alive"


def pipelined_many(host):
    n = 3000
    with Wire(host) as w:
        threading.Thread(target=w.send, args=(request("GET", "/health/ready") * n,), daemon=True).start()
        time.sleep(0.3)  # let answers pile up unread
        for _ in range(n):
            assert w.answer().status == 200


def expect_continue(host):
    body = GOOD
    with Wire(host) as w:
        w.send(raw_post(f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n"))
        assert w.answer().status == 100
        w.send(body)
        assert w.answer().status == 200
    with Wire(host) as w:  # refused: no 100, and the connection ends
        w.send(raw_post(f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n").replace(KEY.encode(), b"nope"))
        a = w.answer()
        assert a.status == 401 and a.headers["connection"] == "close"


def head_request(host):
    with Wire(host) as w:
        w.send(request("HEAD", "/v1/models"))
        a = w.answer(no_body=True)
        assert a.status == 200 and int(a.headers["content-length"]) > 10
        w.send(request("GET", "/v1/models"))
        assert len(w.answer().body) == int(a.headers["content-length"])


def refused_body_is_swallowed(host):
    with Wire(host) as w:
        w.send(request("POST", COMP, b"x" * 50000, key="wrong"))
        assert w.answer().status == 401
        w.send(request("GET", "/health/live"))
        assert w.answer().status == 200


def refused_big_body(host):
    """An answer that comes before a large body is read must survive the sender's going on."""
    with Wire(host) as w:
        w.send(raw_post(f"Content-Length: {10 * MAX_BODY}\r\n"))
        try:
            for _ in range(100):
                w.send(b"x" * 10000)
        except OSError:
            pass
        assert w.answer().status == 413


def request_ids(host):
    a = get(host, "/v1/models", headers=["X-Request-Id: abc-123"])
    assert a.headers["x-request-id"] == "abc-123"
    for bad in ("", "a b", "x" * 200, "caf\xe9"):
        b = get(host, "/v1/models", headers=[f"X-Request-Id: {bad}"])
        assert b.headers["x-request-id"].startswith("req_")
    assert get(host, "/v1/models").headers["x-request-id"] != get(host, "/v1/models").headers["x-request-id"]


def health_detail(host):
    assert "replicas" not in get(host, "/health/ready", key=None).json()
    r = get(host, "/health/ready").json()
    assert r["state"] == "READY" and r["scheduler"] is True and r["n_wanted"] == 1
    one = r["replicas"][0]
    assert one["host"] == "node007" and one["rack"] == "rack0" and one["epoch"] == 3 and one["load"]["slots"] == 8
    assert 0 <= one["heard_s"] < 60


def slow_head(host):
    with Wire(host) as w:
        start = time.monotonic()
        w.send("GET /health/live HTTP/1.1\r\n")
        a = w.answer()
        assert a.status == 408, a.status
        assert time.monotonic() - start >= HEADER_MS / 1000 - 0.2
        assert a.error()["code"] == "request_timeout"


def dripping_head(host):
    """One byte now and then must not keep a head open."""
    with Wire(host) as w:
        w.sock.settimeout(0.1)
        end = time.monotonic() + 60
        data = iter(b"GET /health/live HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 1000)
        while time.monotonic() < end and not w.buffer:
            try:
                w.send(bytes([next(data)]))
                w.fill()
            except (socket.timeout, OSError):
                pass
        w.sock.settimeout(60)
        assert w.answer().status == 408


def silent_connection(host):
    with Wire(host) as w:
        assert w.at_end()  # closed, without a word


def short_body(host):
    with Wire(host) as w:
        w.send(raw_post("Content-Length: 100\r\n", b"{"))
        assert w.answer().status == 408
    with Wire(host) as w:
        w.send(raw_post("Content-Length: 100\r\n", b"{"))
        w.sock.shutdown(socket.SHUT_WR)
        assert w.answer().status == 400


def dripping_refused_body(host):
    """A refused request's body may not hold the connection for long either."""
    with Wire(host) as w:
        w.sock.settimeout(0.1)
        w.send(request("POST", COMP, key="wrong").replace(b"\r\n\r\n", b"\r\nContent-Length: 60000\r\n\r\n"))
        assert w.answer().status == 401
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                w.send(b"x")
                if not w.fill():
                    return
            except socket.timeout:
                pass
            except OSError:
                return
        raise AssertionError("still open")


def bodies_budget(host):
    """Half-sent bodies of many connections do not fill the memory; those within the budget are not hurt."""
    first, second, third = Wire(host), Wire(host), Wire(host)
    head = raw_post(f"Content-Length: {MAX_BODY}\r\n")
    for w in (first, second):
        w.send(head + b" " * (MAX_BODY - len(GOOD)))
    time.sleep(0.2)
    third.send(head + b" " * (MAX_BODY - len(GOOD)))
    a = third.answer()
    assert a.status == 503 and a.headers["retry-after"] and a.headers["connection"] == "close", a.status
    for w in (first, second):
        w.send(GOOD)
        assert w.answer().status == 200
    for w in (first, second, third):
        w.close()
    for _ in range(8):  # what was held is given back
        assert post(host, COMP, b" " * (MAX_BODY - len(GOOD)) + GOOD).status == 200


def long_body(host):
    """More than announced: the rest is the next request, which is none."""
    with Wire(host) as w:
        w.send(raw_post(f"Content-Length: {len(GOOD)}\r\n", GOOD + b"more than announced\r\n\r\n"))
        assert w.answer().status == 200
        assert w.answer().status == 400


def idle_keep_alive(host):
    with Wire(host) as w:
        w.send(request("GET", "/health/live"))
        assert w.answer().status == 200
        time.sleep(HEADER_MS / 1000 + 0.5)  # longer than a head may take, shorter than idle
        w.send(request("GET", "/health/live"))
        assert w.answer().status == 200
        assert w.at_end()  # and idle ends too


def canceled(host):
    return host.health()["counters"]["canceled"]


def idle(host):
    return all(r["load"]["active"] == 0 for r in host.health()["replicas"])


def leaver(how):
    def test(host):
        before = canceled(host)
        w = Wire(host)
        w.send(request("POST", COMP, dict(BODY, prompt="x" * 1000, ignore_eos=True, stream=True)))
        while b"data: " not in w.buffer:
            w.fill()
        if how == "reset":
            w.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "half":
            w.sock.shutdown(socket.SHUT_WR)
        else:
            w.close()
        wait_until(lambda: canceled(host) == before + 1, "the request is cancelled")
        wait_until(lambda: idle(host), "the engine has stopped")
        w.close()
    return test


def leave_before_answer(host):
    before = canceled(host)
    w = Wire(host)
    w.send(request("POST", COMP, dict(BODY, seed=900002)))  # the engine never answers this one
    wait_until(lambda: host.health()["n_running"] == 1, "it runs")
    w.close()
    wait_until(lambda: canceled(host) == before + 1 and idle(host), "cancelled")


def http10_stream(host):
    with Wire(host) as w:
        w.send(request("POST", COMP, dict(BODY, stream=True), version="1.0"))
        a = w.answer()
        assert "transfer-encoding" not in a.headers and a.headers["connection"] == "close"
        got, done = events(a.body)
        assert done and "".join(e["choices"][0]["text"] for e in got) == "hello"


def engine_error_stream(host):
    with Wire(host) as w:
        w.send(request("POST", COMP, dict(BODY, prompt="abcdef", seed=900001, stream=True)))
        status, headers = w.head()
        assert status == 200
        assert not w.at_end()  # reads to the end: something came
        assert b'data: {"error":{' in w.buffer and b"[DONE]" not in w.buffer and b"\r\n0\r\n\r\n" not in w.buffer
    a = post(host, COMP, dict(BODY, prompt="abcdef", seed=900001))
    assert a.status == 500 and a.error()["code"] == "engine_error", a.body
    a = post(host, COMP, dict(BODY, prompt="abcdef", seed=900003))
    assert a.status == 502 and a.error()["code"] == "engine_error", a.body


def worker_lost(host):
    w = Wire(host)
    w.send(request("POST", COMP, dict(BODY, seed=900002)))
    wait_until(lambda: host.health()["n_running"] == 1, "it runs")
    host.signal(signal.SIGUSR1)
    a = w.answer()
    assert a.status == 502 and a.error()["code"] == "replica_lost" and a.error()["type"] == "server_error"
    w.close()
    wait_until(lambda: len(host.health()["replicas"]) == 1, "the worker is back")
    assert post(host, COMP, BODY).status == 200


def many_at_once(host):
    """More streams than slots: all are served, each with its own text."""
    bad = []

    def one(i):
        text = f"client {i} " * 5
        a = post(host, COMP, dict(BODY, prompt=text, stream=True))
        got, done = events(a.body)
        if not done or "".join(e["choices"][0]["text"] for e in got) != text:
            bad.append((i, a.status, a.body[:200]))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(60)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad, bad[:3]
    wait_until(lambda: idle(host) and host.health()["n_running"] == 0, "all done")


def too_many_connections(host):
    wait_until(lambda: host.health()["counters"]["connections"] == 1, "earlier ones are closed")
    held = [Wire(host) for _ in range(19)]
    for w in held:
        w.send(request("GET", "/health/live"))
        assert w.answer().status == 200
    wait_until(lambda: host.health()["counters"]["connections"] == 20, "nineteen and the one that asks")
    held.append(hold_last(host))
    for w in held:
        w.send(request("GET", "/health/live"))
        assert w.answer().status == 200
    w = Wire(host)
    a = w.answer()
    assert a.status == 503 and a.headers["connection"] == "close"
    w.close()
    for w in held:
        w.close()
    wait_until(lambda: try_get(host), "places are free again")


def hold_last(host):
    """The last place; the connection that asked before may still be on its way out."""
    end = time.monotonic() + 60
    while True:
        w = Wire(host)
        w.send(request("GET", "/health/live"))
        if w.answer().status == 200 or time.monotonic() > end:
            return w
        w.close()


def try_get(host):
    try:
        return get(host, "/health/live").status == 200
    except OSError:
        return False


def drain(host):
    text = "y" * 1000
    w = Wire(host)
    w.send(request("POST", COMP, dict(BODY, prompt=text, stream=True)))
    while b"data: " not in w.buffer:
        w.fill()
    host.signal(signal.SIGTERM)
    wait_until(lambda: host.health()["draining"], "it drains")
    a = post(host, COMP, BODY)
    assert a.status == 503 and a.error()["code"] == "draining" and "retry-after" in a.headers, a.body
    assert get(host, "/health/ready").status == 503
    got, done = events(w.answer().body)
    assert done and "".join(e["choices"][0]["text"] for e in got) == text
    assert host.stop() == 0


def main():
    tap = Tap()
    with Host("--fake", "--body-max", str(MAX_BODY), "--idle-ms", "4000") as host:
        host.wait_ready()
        for name, data, status, code, ends in CASES:
            tap.run(name, run_case, host, data, status, code, ends)
        for fn in (byte_by_byte, every_cut, pipelined, pipelined_many, expect_continue, head_request,
                   refused_body_is_swallowed, refused_big_body, request_ids, health_detail, long_body, http10_stream,
                   engine_error_stream, many_at_once, leave_before_answer, worker_lost):
            tap.run(fn.__name__, fn, host)
        tap.ok(host.stop() == 0, "leaves with 0 and nothing leaked")
    with Host("--fake", "--step-us", "2000") as host:
        host.wait_ready()
        for how in ("close", "reset", "half"):
            tap.run(f"a client leaves by {how}", leaver(how), host)
        tap.run("drain lets streams end", drain, host)
    with Host("--fake", "--header-ms", str(HEADER_MS), "--idle-ms", "6000") as host:
        host.wait_ready()
        for fn in (slow_head, dripping_head, dripping_refused_body, silent_connection, short_body, idle_keep_alive):
            tap.run(fn.__name__, fn, host)
        tap.ok(host.stop() == 0, "leaves with 0 after time-outs")
    with Host("--fake", "--body-max", str(MAX_BODY), "--bodies-max", str(5 * MAX_BODY // 2)) as host:
        host.wait_ready()
        tap.run("bodies_budget", bodies_budget, host)
        tap.ok(host.stop() == 0, "leaves with 0 after bodies in excess")
    with Host("--fake", "--connections", "20") as host:
        wait_until(lambda: try_get(host), "up")
        tap.run("too many connections", too_many_connections, host)
    with Host("--fake", "--state", "STARTING") as host:
        a = post(host, COMP, BODY)
        e = a.error()
        tap.ok(a.status == 503 and "retry-after" in a.headers and e["code"] == "not_ready" and
               e["state"] == "STARTING" and e["progress"], "not ready: 503 with progress", a.body)
        tap.ok(get(host, "/health/live").status == 200, "alive before ready")
        tap.ok(get(host, "/health/ready").status == 503, "not ready says so")
        tap.ok(post(host, COMP, BODY, key="no").status == 401, "the key comes first")
    tap.done()


main()
