#!/usr/bin/env bash
# What a service survives, and how it ends when it cannot: rank 0 killed before READY, all routers killed, a stop before the service is up,
# an engine that stands still, cables cut and healed, images removed and damaged, all workers killed.
. "$(dirname "$0")/lib.sh"
plan 34
cluster_up 4 2 --conf SlurmdTimeout=300 # Slurm is to leave the cut node alone

ended_with() { # STATE-AND-CODE NAME: the job is over, and no node has anything left of it
    await_over "$job" 120
    is "$(job_state "$job") $(job_exit "$job")" "$1" "$2"
    is "$(leftovers n0 n1 n2 n3)" "" "and leaves nothing"
}
image() { "$VC" exec "$1" sh -c 'echo /var/cache/exaserve/*/image'; } # NODE
# The node's cache is locked, as by another job that fills it: its replica cannot come until the lock goes.
hold() { # NODE
    local lock
    lock=$(dirname "$(image "$1")")/lock
    "$VC" exec "$1" flock -x "$lock" sleep 600 &
    holder=$!
    await 30 is_held "$1" "$lock"
}
is_held() { ! "$VC" exec "$1" flock -n "$2" true; }
release() { # NODE
    "$VC" exec "$1" pkill -f 'sleep 600'
    wait "$holder" 2>/dev/null
}
n_ready_is() { [ "$(endpoint "$job" .n_ready)" = "$1" ]; }
is_attempt() { [ "$(endpoint "$job" .attempt)" = "$1" ]; }
progress_has() { [[ $(endpoint "$job" .progress) =~ $1 ]]; }
engine_of() { "$VC" exec "$1" pgrep -x exaserve-engine; }
kill_all() { # ROLE
    local host pid
    while read -r _ host pid <&3; do
        "$VC" exec "$host" kill -KILL "$pid"
    done 3< <(ranks_with_role "$job" "$1")
}
complete() { # URL-INDEX NUMBER TOKENS FILE [curl options…]
    api "$job" "$1" /v1/completions "${@:5}" -d "$(jq -cn --arg m "$MODEL_NAME" --argjson i "$2" --argjson n "$3" \
        '{model: $m, temperature: 0, max_tokens: $n, ignore_eos: true, stream: true, prompt: "A story about the number \($i)."}')" \
        >"$HOME_DIR/$4" 2>&1
}
many() { # URL-INDEX TOKENS FILE: 8 streams at once
    local i pids=()
    rm -f "$HOME_DIR/$3".*
    for i in 1 2 3 4 5 6 7 8; do
        complete "$1" "$i" "$2" "$3.$i" -N &
        pids+=($!)
    done
    wait "${pids[@]}"
}
count() { cat "$HOME_DIR/$2".* | grep -c "$1"; } # REGEX FILE
all_begun() { [ "$(grep -l '^data: ' "$HOME_DIR/$1".* | wc -l)" = 8 ]; }

# --- stop while the world starts ---
job=$(submit "replicas: fill" "" --nodes 4 --time 20)
await 60 "$VC" exec n1 pgrep -f '[e]xaserved --world'
ok $? "a world starts"
exa stop "$job" >/dev/null 2>&1
ended_with "COMPLETED 0:0" "stopped meanwhile it ends with 0"

# --- no router is left ---
job=$(submit "replicas: fill" "" --nodes 4 --time 20)
await_state "$job" READY 120
ok $? "a service is READY"
kill_all router
await_state "$job" FAILED 90
ok $? "all routers killed: FAILED"
like "$(endpoint "$job" .progress)" "every router is lost" "it says why"
ended_with "FAILED 1:0" "the job ends with 1"

# --- stop before READY, with a mover that waits for a lock ---
hold n1
job=$(submit "replicas: fill" "" --nodes 4 --time 20)
await 120 n_ready_is 3
is "$? $(endpoint "$job" .state)" "0 STARTING" "a service waits for its last replica"
exa stop "$job" >/dev/null 2>&1
ended_with "COMPLETED 0:0" "stopped meanwhile it ends with 0"
release n1

# --- rank 0 dies before READY ---
hold n1
job=$(submit $'replicas: fill\nstep_timeout: 15' "" --nodes 4 --time 20)
await 120 n_ready_is 3
read -r role host pid <<<"$(rank_at "$job" 0)"
is "$role $(endpoint "$job" .state)" "scheduler STARTING" "another waits for its last replica"
"$VC" exec "$host" kill -KILL "$pid"
release n1
await 120 is_attempt 2
ok $? "rank 0 killed: the world is started again"
await_state "$job" READY 120
ok $? "and is READY"
like "$(chat "$job" 0 "Say hello." 4)" '"choices"' "it answers"

# --- an engine stands still while nothing is asked of it ---
old=$(engine_of n1)
"$VC" exec n1 kill -STOP "$old"
many 0 4 frozen
hit=$(count '"code":"replica_lost"' frozen) done=$(count '^data: \[DONE\]' frozen)
note "an engine stopped: $done ended well, $hit with replica_lost"
[ "$hit" -ge 1 ] && [ $((hit + done)) = 8 ]
ok $? "an engine stopped: its requests end with a typed error, the others well"
await 60 has_ready "$job" 4 && await_state "$job" READY 60
ok $? "it is replaced: READY"
[ "$(engine_of n1)" != "$old" ]
ok $? "by another process"

# --- a cable is cut for a moment, and for long ---
url=$(endpoint "$job" '.urls | map(contains("//n2:")) | index(false)')
old=$("$VC" exec n2 pgrep -x exaserved)
busy() { # by a heartbeat that is not older than MAX-AGE seconds
    [ "$(api "$job" "$url" /health/ready | jq --argjson s "$1" '.replicas[] | select(.host == "n2") | .load.active > 0 and .heard_s < $s')" = true ]
}
frozen_busy() { # n2's engine stopped while it computes: certain only by a heartbeat that was made after it
    await 60 busy 9 || return 1
    "$VC" exec n2 pkill -STOP -x exaserve-engine
    sleep 2.5
    await 3 busy 1.2 && return
    "$VC" exec n2 pkill -CONT -x exaserve-engine
    return 1
}
many "$url" 400 short &
streams=$!
await 60 all_begun short && await 60 busy 9
"$VC" cut n2 2>/dev/null
sleep 4 # longer than a suspicion, shorter than three: it is the cut that is tested
"$VC" heal n2 2>/dev/null
wait $streams
is "$(count '^data: \[DONE\]' short)" 8 "n2 cut off for 4 s: every stream ends well"
await 60 has_ready "$job" 4 "$url" && await_state "$job" READY 60
ok $? "and the service is READY"
many "$url" 500 long &
streams=$!
until frozen_busy || [ "$(count '^data: \[DONE\]' long)" = 8 ]; do :; done
"$VC" cut n2 2>/dev/null
"$VC" exec n2 pkill -CONT -x exaserve-engine
wait $streams
hit=$(count '"code":"replica_lost"' long) done=$(count '^data: \[DONE\]' long)
note "n2 cut off: $done ended well, $hit with replica_lost"
[ "$hit" -ge 1 ] && [ $((hit + done)) = 8 ]
ok $? "n2 cut off for long: its streams end with a typed error, the others well"
await 60 progress_has '3 of 4 replicas answer; missing: [0-9] on n2 \(lost\)'
is "$? $(endpoint "$job" .state)" "0 DEGRADED" "DEGRADED names it"
like "$(chat "$job" "$url" "Say hello." 4)" '"choices"' "the others serve"
"$VC" heal n2 2>/dev/null
await 120 has_ready "$job" 4 0 && await 60 has_ready "$job" 4 1 && await_state "$job" READY 60
ok $? "healed: READY, and every router knows all replicas"
is "$("$VC" exec n2 pgrep -x exaserved) $(endpoint "$job" .attempt)" "$old 2" "by the same processes as before"

# --- an image is removed, one is cut, and one cannot be fetched again ---
mended() { [ "$(job_log "$job" | grep -c 'store: the image is fetched again')" = "$1" ] && has_ready "$job" "$2"; }
"$VC" exec n1 sh -c 'rm -rf /var/cache/exaserve/*; pkill -KILL -x exaserve-engine'
await 60 mended 1 4
ok $? "the image of n1 removed, its engine killed: fetched again, 4 replicas answer"
"$VC" exec n2 sh -c 'pkill -STOP -x exaserve-engine; truncate -s 60000000 /var/cache/exaserve/*/image; pkill -KILL -x exaserve-engine'
await 60 mended 2 4
ok $? "the image of n2 cut: the same"
is "$(for n in n0 n1 n2 n3; do "$VC" exec $n sh -c 'sha256sum /var/cache/exaserve/*/image' | cut -d' ' -f1; done | sort | uniq -c | awk '{print $1}')" 4 \
    "all images are the same"
"$VC" exec n3 sh -c 'mount -t tmpfs -o size=20m,mode=700 none /var/cache/exaserve; pkill -KILL -x exaserve-engine'
await 60 progress_has 'on n3 \(disk full: .* needs [0-9]* bytes more'
ok $? "the image of n3 lost, and no room for another: the progress says so"
"$VC" exec n3 umount /var/cache/exaserve
await 60 has_ready "$job" 3
is "$? $(endpoint "$job" .state)" "0 DEGRADED" "the others serve"

# --- no worker is left ---
kill_all worker
await 60 n_ready_is 0
ok $? "all workers killed: no replica is ready"
complete 0 1 4 nobody -i
like "$(cat "$HOME_DIR/nobody")" '503 .*[Rr]etry-[Aa]fter: [0-9].*"code":"no_replica"' "a request gets 503 with a reason and Retry-After"
exa stop "$job" >/dev/null 2>&1
ended_with "COMPLETED 0:0" "stop still ends it with 0"
