#!/usr/bin/env bash
# What dies takes only its own requests with it: an engine, a worker, a node, rank 0. The service goes on each time.
. "$(dirname "$0")/lib.sh"
plan 20
cluster_up 8 4
job=$(submit "replicas: fill" "heartbeat: {interval_ms: 500, missed: 3}" --nodes 8 --time 20)
await_state "$job" READY 120
ok $? "the service is READY on 8 nodes"

# Long streams on every replica; the answers of an undisturbed run to compare with.
cat >"$HOME_DIR/streams.py" <<'P'
"""streams.py BASE KEY MODEL N TOKENS: N greedy streams at once; prints one line a stream: ok|error:CODE, tokens, sha of text."""
import hashlib, json, sys, threading, urllib.request
base, key, model, n, tokens = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
started = threading.Semaphore(0)
out = [None] * n
def run(i):
    body = {"model": model, "stream": True, "temperature": 0, "max_tokens": tokens, "ignore_eos": True,
            "prompt": f"Write a long story about the number {i}."}
    req = urllib.request.Request(base + "/v1/completions", json.dumps(body).encode(),
                                 {"Authorization": "Bearer " + key, "Content-Type": "application/json"})
    text, state, first, chunks = "", "cut", True, 0
    try:
        with urllib.request.urlopen(req, timeout=180) as r:
            for line in r:
                if not line.startswith(b"data: "):
                    continue
                data = line[6:].strip()
                if first:
                    first = False
                    started.release()
                if data == b"[DONE]":
                    state = "ok"
                    break
                j = json.loads(data)
                if "error" in j:
                    state = "error:" + str(j["error"].get("code"))
                    break
                for c in j["choices"]:
                    text += c.get("text") or ""
                    chunks += 1
    except urllib.error.HTTPError as e:
        state = "error:" + str(json.load(e)["error"].get("code"))
    except Exception as e:
        state = "cut:" + type(e).__name__
    if first:
        started.release()
    out[i] = f"{state} {chunks} {hashlib.sha256(text.encode()).hexdigest()[:12]}"
threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
for t in threads: t.start()
for _ in range(n): started.acquire()
print("STARTED", flush=True)
for t in threads: t.join()
print("\n".join(out), flush=True)
P
streams() { # URL-INDEX N TOKENS FILE
    login "$PYTHON" "$HOME_DIR/streams.py" "$(endpoint "$job" ".urls[$1]")" "$(key "$job")" "$MODEL_NAME" "$2" "$3" >"$HOME_DIR/$4" 2>&1
}
started() { grep -q STARTED "$HOME_DIR/$1"; }
count() { grep -c "^$1" "$HOME_DIR/$2"; }
same_texts() { # FILE: every stream that ended well has the text of the undisturbed run
    paste -d' ' <(grep -v STARTED "$HOME_DIR/calm") <(grep -v STARTED "$HOME_DIR/$1") |
        awk '$4 == "ok" && $3 != $6 {bad = 1} END {exit bad}'
}
is "$(endpoint "$job" '.urls | length')" 2 "two routers"
streams 0 16 96 calm
is "$(count ok calm)" 16 "16 undisturbed streams end well"

mapfile -t workers < <(ranks_with_role "$job" worker)
mapfile -t routers < <(ranks_with_role "$job" router)
note "workers: ${workers[*]}; routers: ${routers[*]}"
[ "${#workers[@]}" = 8 ] || bail "expected 8 workers, found ${#workers[@]}"
busy() { for h in n0 n1 n2 n3 n4 n5 n6 n7; do :; done; }

# --- an engine ---
read -r rank host pid <<<"${workers[7]}"
streams 0 16 96 engine &
await 60 started engine
"$VC" exec "$host" pkill -KILL -x exaserve-engine
killed_at=$SECONDS
wait $!
note "engine on $host: $(sort "$HOME_DIR/engine" | cut -d' ' -f1 | uniq -c | paste -sd' ')"
is "$(count ok engine)" "$((16 - $(count error:replica_lost engine)))" "engine killed: its streams end with a typed error, the others end well"
like "$(count error:replica_lost engine)" '^[1-4]$' "only its own requests are hit"
same_texts engine
ok $? "and the others' texts are those of the undisturbed run"
await 60 has_ready "$job" 8
ok $? "the engine is restarted: 8 replicas again"
await_state "$job" READY 30
ok $? "and the service is READY again"

# --- a worker process ---
read -r rank host pid <<<"${workers[6]}"
streams 0 16 96 worker &
await 60 started worker
"$VC" exec "$host" kill -KILL "$pid"
wait $!
note "worker $rank on $host: $(sort "$HOME_DIR/worker" | cut -d' ' -f1 | uniq -c | paste -sd' ')"
is "$(count ok worker)" "$((16 - $(count error:replica_lost worker)))" "worker killed: typed errors for its streams, the others end well"
same_texts worker
ok $? "with the same texts"
is "$("$VC" exec "$host" pgrep -c -x exaserve-engine)" 0 "its engine went with it"
await 20 has_ready "$job" 7
ok $? "7 replicas are left"
await_state "$job" DEGRADED 20
like "$(endpoint "$job" .progress)" "$host" "DEGRADED names the node"

# --- a whole node, a rack leader's (the lowest worker of a rack without scheduler and routers) ---
for w in "${workers[@]}"; do # a node that has only a worker
    read -r rank host pid <<<"$w"
    [ "$rank" != "$(echo "${workers[6]}" | cut -d' ' -f1)" ] &&
        [ "$("$VC" exec "$host" pgrep -c -x exaserved)" = 1 ] && break
done
streams 0 16 96 node &
await 60 started node
"$VC" kill "$host"
wait $!
note "node $host: $(sort "$HOME_DIR/node" | cut -d' ' -f1 | uniq -c | paste -sd' ')"
is "$(count ok node)" "$((16 - $(count error:replica_lost node)))" "node killed: typed errors for its streams, the others end well"
await 30 has_ready "$job" 6
ok $? "6 replicas are left"
is "$(job_state "$job")" RUNNING "the job is still RUNNING"

# --- rank 0 ---
read -r role host pid <<<"$(rank_at "$job" 0)"
streams 1 12 96 rank0 &
await 60 started rank0
"$VC" exec "$host" kill -KILL "$pid"
wait $!
note "rank 0 on $host: $(sort "$HOME_DIR/rank0" | cut -d' ' -f1 | uniq -c | paste -sd' ')"
is "$(count ok rank0)" 12 "rank 0 killed: no stream notices"
is "$(api "$job" 0 /health/ready | jq -r '.scheduler')" false "health says that there is no scheduler"
# serving goes on, and an engine is restarted without a scheduler
for w in "${workers[@]:0:4}"; do
    read -r rank host pid <<<"$w"
    "$VC" exec "$host" pkill -KILL -x exaserve-engine && break
done
await 60 has_ready "$job" 6
exa stop "$job" >/dev/null 2>&1
await_over "$job" 120
is "$(job_state "$job") $(job_exit "$job")" "COMPLETED 0:0" "stop without a scheduler ends the job with 0"
is "$(leftovers n0 n1 n2 n3 n4 n5 n6 n7)" "" "nothing is left on any node"
