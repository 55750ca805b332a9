"""router_lib.py - start router_host, talk raw HTTP to it, say TAP. Standard library only."""
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback

BIN = os.environ.get("EXASERVE_BIN", "build/release/bin")
KEY = "test-key"
# Deadlines are generous: sanitizer builds on a loaded machine are slow, and nothing here waits longer than it must.
DEADLINE = 60.0


class Tap:
    def __init__(self):
        self.n = 0
        self.failed = 0

    def ok(self, good, name, detail=""):
        self.n += 1
        print(f"{'ok' if good else 'not ok'} {self.n} - {name}", flush=True)
        if not good:
            self.failed += 1
            for line in str(detail)[:2000].splitlines():
                print("#   " + line, flush=True)

    def run(self, name, fn, *args):
        """fn returns nothing, or raises."""
        try:
            fn(*args)
        except Exception as e:  # noqa: BLE001 - each test reports its own failure and the next one runs
            self.ok(False, name, f"{type(e).__name__}: {e}\n" + "".join(traceback.format_tb(e.__traceback__)[-3:]))
        else:
            self.ok(True, name)

    def done(self):
        print(f"1..{self.n}")
        sys.exit(1 if self.failed else 0)


class Host:
    def __init__(self, *args):
        self.process = subprocess.Popen([os.path.join(BIN, "router_host"), "--key", KEY, *args],
                                        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.leaving = False
        line = self.process.stdout.readline()
        assert line.startswith("listening "), f"router_host said {line!r}"
        self.port = int(line.split()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def wait_ready(self):
        wait_until(lambda: get(self, "/health/ready").status == 200 and
                   any(r["state"] == "READY" for r in self.health()["replicas"]), "ready")

    def health(self):
        return get(self, "/health/ready").json()

    def signal(self, number):
        self.leaving |= number == signal.SIGTERM
        self.process.send_signal(number)

    def stop(self):
        """Drain and leave; the exit code (a sanitizer's report makes it differ from 0)."""
        if self.process.poll() is None and not self.leaving:
            self.signal(signal.SIGTERM)
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def wait_until(fn, what):
    end = time.monotonic() + DEADLINE
    while not fn():
        if time.monotonic() > end:
            raise AssertionError(f"not within {DEADLINE} s: {what}")
        time.sleep(0.02)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def error(self):
        return self.json()["error"]


class Wire:
    """One connection, bytes in and out; parses answers strictly."""

    def __init__(self, host, timeout=DEADLINE):
        self.sock = socket.create_connection(("127.0.0.1", host.port), timeout)
        self.buffer = b""

    def send(self, data):
        self.sock.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))

    def fill(self):
        data = self.sock.recv(65536)
        self.buffer += data
        return bool(data)

    def line(self):
        while b"\r\n" not in self.buffer:
            if not self.fill():
                raise EOFError(f"connection ended; left: {self.buffer[:200]!r}")
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line.decode("latin-1")

    def take(self, n):
        while len(self.buffer) < n:
            if not self.fill():
                raise EOFError("connection ended inside a body")
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def head(self):
        status = self.line()
        assert status.startswith("HTTP/1.1 "), status
        headers = {}
        while line := self.line():
            name, _, value = line.partition(":")
            assert name.lower() not in headers, f"header twice: {name}"
            headers[name.lower()] = value.strip()
        return int(status.split()[1]), headers

    def answer(self, no_body=False):
        status, headers = self.head()
        if no_body or status == 100:
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.line(), 16):
                body += self.take(size)
                assert self.line() == ""
            assert self.line() == ""
        elif "content-length" in headers:
            body = self.take(int(headers["content-length"]))
        else:
            while self.fill():
                pass
            body, self.buffer = self.buffer, b""
        return Answer(status, headers, body)

    def at_end(self):
        """The server closes, and sends nothing more."""
        try:
            while self.fill():
                pass
        except ConnectionResetError:
            pass
        return self.buffer == b""

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def request(method, path, body=None, headers=None, key=KEY, version="1.1"):
    lines = [f"{method} {path} HTTP/{version}", "Host: x"]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    if body is not None:
        if not isinstance(body, bytes):
            body = (body if isinstance(body, str) else json.dumps(body)).encode()
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += headers or []
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")


def get(host, path, **kw):
    with Wire(host) as w:
        w.send(request("GET", path, **kw))
        return w.answer()


def post(host, path, body, **kw):
    with Wire(host) as w:
        w.send(request("POST", path, body, **kw))
        return w.answer()


def events(body):
    """The JSON of each event, and whether the end mark came."""
    parts = [p for p in body.decode().split("\n\n") if p]
    assert all(p.startswith("data: ") for p in parts), parts
    data = [p[6:] for p in parts]
    done = bool(data) and data[-1] == "[DONE]"
    return [json.loads(d) for d in (data[:-1] if done else data)], done
