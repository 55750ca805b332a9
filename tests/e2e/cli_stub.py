#!/usr/bin/env python3
"""A service's HTTP side for tests of the command: cli_stub.py PORT_FILE KEY LOG [READY_FILE].

The last user message picks the behaviour; each request and each client that left is a line in LOG. /health/ready is 200 while
READY_FILE exists (or none is named), and completions are refused with 503 otherwise.
"""
import http.server, json, os, sys, time

PORT_FILE, KEY, LOG = sys.argv[1:4]
READY = sys.argv[4] if len(sys.argv) > 4 else None


def note(text):
    with open(LOG, "a") as f:
        f.write(text + "\n")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def allowed(self):
        if self.headers.get("Authorization") == "Bearer " + KEY:
            return True
        self.answer(401, {"error": {"message": "wrong key", "type": "invalid_request_error"}})
        return False

    def do_GET(self):
        note("GET " + self.path)
        if not self.allowed():
            return
        if self.path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": "stub-model", "object": "model"}]})
        elif self.path == "/health/ready":
            ready = READY is None or os.path.exists(READY)
            self.answer(200 if ready else 503, {
                "state": "READY" if ready else "STARTING", "progress": "1 of 2 replicas\u001b[31m", "scheduler": True,
                "replicas": [{"replica": 0, "node": "n1", "rack": "r0", "state": "READY", "queued": 3},
                             {"replica": 1, "node": "n22", "rack": "r0", "state": "LOADING", "queued": 0}]})
        else:
            self.answer(404, {"error": {"message": "no such path"}})

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def event(self, text=None, finish=None):
        delta = {"content": text} if text is not None else {}
        self.chunk(b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode() + b"\n\n")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            return
        messages = body["messages"]
        last = messages[-1]["content"]
        note("POST " + json.dumps(body, sort_keys=True))
        if READY and not os.path.exists(READY):
            self.answer(503, {"error": {"message": "draining"}})
            return
        if last == "refuse":
            self.answer(400, {"error": {"message": "prompt has 9 tokens,\nthe context 8"}})
            return
        if last == "long" and sum(m["role"] != "system" for m in messages) > 3 or last == "too long":
            self.answer(400, {"error": {"message": "the context is 8", "code": "context_length_exceeded"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self.chunk(b": a comment\n\n")
            if last == "slow":
                for i in range(100000):
                    self.event("tick%d " % i)
                    time.sleep(0.02)
            elif last == "break":
                self.event("half")
                self.close_connection = True
                self.connection.close()
                return
            elif last == "fail":
                self.event("begun")
                self.chunk(b'data: {"error": {"message": "the node went away"}}\n\n')
                return
            elif last == "cut":  # events cut at awkward places
                whole = b'data: {"choices":[{"delta":{"content":"gr\xc3\xbc\xc3\x9fe \\u001b[2J \\u009b2J \\u007f"}}]}\r\n\r\ndata: [DONE]\n\n'
                for i in range(len(whole)):
                    self.chunk(whole[i:i + 1])
                self.chunk(b"")
                return
            else:
                roles = "".join(m["role"][0] for m in messages)
                for word in ["%s: " % roles, "you said ", last]:
                    self.event(word)
            self.event(None, "stop")
            self.chunk(b"data: [DONE]\n\n")
            self.chunk(b"")
        except (BrokenPipeError, ConnectionResetError):
            note("left " + last)
            self.close_connection = True


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
with open(PORT_FILE + ".tmp", "w") as f:
    f.write(str(server.server_address[1]))
os.rename(PORT_FILE + ".tmp", PORT_FILE)
server.serve_forever()
