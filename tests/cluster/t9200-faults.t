#!/usr/bin/env bash
# What dies takes only its own requests with it: an engine, a worker, a node, rank 0. The service goes on each time.
. "$(dirname "$0")/lib.sh"
plan 22
cluster_up 8 4
job=$(submit "replicas: fill" "heartbeat: {interval_ms: 250, missed: 6}" --nodes 8 --time 20)
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
TOKENS=700 # long enough that a kill meets running streams far from their end
streams 0 16 $TOKENS calm
is "$(count ok calm)" 16 "16 undisturbed streams end well"

mapfile -t workers < <(ranks_with_role "$job" worker)
note "workers: ${workers[*]}"
[ "${#workers[@]}" = 8 ] || bail "expected 8 workers, found ${#workers[@]}"
# A worker that computes streams right now, by what its heartbeats say, on a node where nothing else of the world runs (only) or anywhere (any).
busy_worker() { # only|any → "RANK HOST PID"
    local host w
    for host in $(api "$job" 0 /health/ready | jq -r '.replicas | sort_by(-.load.active)[] | select(.load.active > 0) | .host'); do
        if [ "$1" = any ] || [ "$("$VC" exec "$host" pgrep -c -x exaserved)" = 1 ]; then
            for w in "${workers[@]}"; do
                read -r _ h _ <<<"$w"
                [ "$h" != "$host" ] || { echo "$w"; return; }
            done
        fi
    done
    return 1
}
row_of() { api "$job" 0 /health/ready | jq -c ".replicas[] | select(.host == \"$1\")"; }
frozen_busy() { # freeze an engine that computes streams; certain only when a heartbeat made well after the freeze still counts them
    local row frozen_at=$SECONDS
    busy_worker "$1" >"$HOME_DIR/victim" || return 1
    read -r rank host pid <"$HOME_DIR/victim"
    "$VC" exec "$host" pkill -STOP -x exaserve-engine
    await 20 fresh_row $((frozen_at + 3))
    row=$(row_of "$host")
    note "frozen on $host: $(jq -c '{active: .load.active, heard_s}' <<<"$row")"
    [ "$(jq .load.active <<<"$row")" -gt 0 ] && return
    "$VC" exec "$host" pkill -CONT -x exaserve-engine
    return 1
}
fresh_row() { # at least 3 s after the freeze, and heard within the last second
    [ "$SECONDS" -ge "$1" ] && [ "$(row_of "$host" | jq '.heard_s < 1')" = true ]
}
victim() { # only|any: set rank host pid of a worker with running streams; they cannot end before the kill
    local until=$((SECONDS + 60))
    until frozen_busy "$1"; do [ "$SECONDS" -lt "$until" ] || return 1; done
}
verdict() { # FILE WHAT: some streams were hit, each with a typed error; all others end well with the undisturbed text
    local hit ok_n
    hit=$(count error:replica_lost "$1") ok_n=$(count ok "$1")
    note "$2: $ok_n ended well, $hit with replica_lost"
    [ "$hit" -ge 1 ] && [ "$hit" -le 8 ] && [ $((hit + ok_n)) = 16 ] && same_texts "$1"
    ok $? "$2: only its own streams end, with a typed error; the others' texts are undisturbed"
}

# --- an engine ---
streams 0 16 $TOKENS engine &
victim any
"$VC" exec "$host" pkill -KILL -x exaserve-engine
wait $!
verdict engine "engine on $host killed"
await 60 has_ready "$job" 8
ok $? "the engine is restarted: 8 replicas again"
await_state "$job" READY 30
ok $? "and the service is READY again"

# --- a router that is stopped for longer than its patience with silent workers, and goes on ---
mapfile -t routers < <(ranks_with_role "$job" router)
read -r rank host pid <<<"${routers[1]}"
streams 1 16 $TOKENS paused &
paused=$!
await 60 started paused
"$VC" exec "$host" kill -STOP "$pid"
sleep 8 # 3 x 7 x 250 ms and more: it is the pause that is tested
"$VC" exec "$host" kill -CONT "$pid"
wait $paused
[ "$(count ok paused)" = 16 ] && same_texts paused
ok $? "a router stopped for 8 s finishes its streams"
await 10 has_ready "$job" 8 1
ok $? "and knows all replicas"

# --- a worker process ---
streams 0 16 $TOKENS worker &
victim only
lost=$host
"$VC" exec "$host" kill -KILL "$pid"
wait $!
verdict worker "worker $rank on $host killed"
is "$("$VC" exec "$host" pgrep -c -x exaserve-engine)" 0 "its engine went with it"
await 20 has_ready "$job" 7
ok $? "7 replicas are left"
await_state "$job" DEGRADED 20
like "$(endpoint "$job" .progress)" "on $lost \(lost\)" "DEGRADED names the node"

# --- a whole node ---
streams 0 16 $TOKENS node &
victim only
"$VC" kill "$host"
wait $!
verdict node "node $host killed"
await 30 has_ready "$job" 6
ok $? "6 replicas are left"
is "$(job_state "$job")" RUNNING "the job is still RUNNING"

# --- rank 0 ---
read -r role host pid <<<"$(rank_at "$job" 0)"
streams 1 16 $TOKENS rank0 &
await 60 started rank0
"$VC" exec "$host" kill -KILL "$pid"
wait $!
is "$role $(count ok rank0)" "scheduler 16" "rank 0 killed: no stream notices"
same_texts rank0
ok $? "and every text is the undisturbed one"
is "$(api "$job" 0 /health/ready | jq -r .scheduler)" false "health says that there is no scheduler"
like "$(chat "$job" 0 "Say hello." 4)" '"choices"' "new requests are served"
read -r rank host pid <<<"${workers[0]}"
old=$("$VC" exec "$host" pgrep -x exaserve-engine)
"$VC" exec "$host" kill -KILL "$old"
restarted() { [ -n "$("$VC" exec "$host" pgrep -x exaserve-engine)" ] && [ "$("$VC" exec "$host" pgrep -x exaserve-engine)" != "$old" ] && has_ready "$job" 6; }
await 60 restarted
ok $? "an engine is restarted without a scheduler"
exa stop "$job" >/dev/null 2>&1
await_over "$job" 120
is "$(job_state "$job") $(job_exit "$job")" "COMPLETED 0:0" "stop without a scheduler ends the job with 0"
is "$(leftovers n0 n1 n2 n3 n4 n5 n6 n7)" "" "nothing is left on any node"
