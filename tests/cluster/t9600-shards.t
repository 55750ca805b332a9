#!/usr/bin/env bash
# Replicas of several engines: 2 and 4 tensor shards on one node and over two, 2 stages of a pipeline, with the text of the whole model; and
# the death of any member ends the gang at once, which then comes again.
. "$(dirname "$0")/lib.sh"
plan 28
cluster_up 4 2 --conf SlurmdTimeout=300

whole=$PACK
shardable=$BUILD_DIR/model/shardable.h5
(
    flock 9
    if ! "$BIN/exaserve" pack --list "$shardable" >/dev/null 2>&1; then
        rm -f "$shardable"
        /usr/bin/python3 tests/tools/make_shardable.py "$GGUF" "$shardable.gguf" &&
            "$BIN/exaserve" pack -q "$shardable.gguf" "$shardable" >&2
        rm -f "$shardable.gguf"
    fi
) 9>"$BUILD_DIR/model/.shardable.lock" 2>/dev/null || bail "cannot make a model that can be shared"

PROMPTS=("A story about the sea." "Once there were two brothers who" "1 2 3 4 5 6 7")
texts() { # JOB TOKENS: what comes for the prompts, one a line
    local p
    for p in "${PROMPTS[@]}"; do
        api "$1" 0 /v1/completions -d "$(jq -cn --arg m "$MODEL_NAME" --arg p "$p" --argjson n "$2" \
            '{model: $m, temperature: 0, max_tokens: $n, ignore_eos: true, prompt: $p}')" | jq -c '.choices[0].text // .'
    done
}
service() { # MODEL-LINES: → job, READY
    job=$(submit "$1" "" --nodes 4 --time 20)
    await_state "$job" READY 120
}
done_with() {
    exa stop "$job" >/dev/null 2>&1
    await_over "$job" 90
    is "$(job_state "$job") $(leftovers n0 n1 n2 n3)" "COMPLETED " "it ends and leaves nothing"
}
engines() { # NODE…: how many engines run there, one number a node
    local n
    for n in "$@"; do
        "$VC" exec "$n" pgrep -x -c exaserve-engine | tr '\n' ' '
    done
}
no_engine() { [ "$(engines n0 n1 n2 n3)" = "0 0 0 0 " ]; }
has_engines() { [ "$(engines n0 n1 n2 n3 | tr ' ' '\n' | sort -rn | tr '\n' ' ' | sed 's/^ *//')" = "$1" ]; }
nodes_with_engines() {
    local n
    for n in n0 n1 n2 n3; do
        "$VC" exec "$n" pgrep -x exaserve-engine >/dev/null && echo "$n"
    done
}

# --- the truth: one engine ---
PACK=$shardable
service "replicas: 1"
ok $? "a replica of one engine is READY"
truth=$(texts "$job" 24)
note "$truth"
is "$(wc -l <<<"$truth") $(grep -c error <<<"$truth")" "3 0" "it answers"
done_with

# --- two and four tensor shards on one node: shared memory ---
for tp in 2 4; do
    service $'replicas: 1\ntensor_parallel: '$tp
    ok $? "a replica of $tp shards on one node is READY"
    await 10 has_engines "$tp 0 0 0 "
    ok $? "of $tp engines on one node"
    is "$(texts "$job" 24)" "$truth" "$tp shards say what one says"
    is "$("$VC" exec "$(nodes_with_engines)" sh -c "ls /var/cache/exaserve/*/tp-*-of-$tp | wc -l")" "$tp" \
        "each shard's columns were made once on the node"
    done_with
done

# --- four shards over two nodes: through the workers ---
service $'replicas: 1\ntensor_parallel: 4\nshards_per_node: 2'
ok $? "a replica of 4 shards over two nodes is READY"
await 10 has_engines "2 2 0 0 "
ok $? "of 2 engines on each"
is "$(texts "$job" 24)" "$truth" "they say what one says"
done_with

# --- a pipeline of two stages over two nodes: the real model ---
PACK=$whole
service "replicas: 1"
truth=$(texts "$job" 24)
exa stop "$job" >/dev/null 2>&1
await_over "$job" 90
service $'replicas: 1\npipeline_parallel: 2\nshards_per_node: 1'
ok $? "a replica of two stages over two nodes is READY"
is "$(texts "$job" 24)" "$truth" "it says what one engine says"

# --- any member dies, with a stream under way ---
stream() { # FILE
    api "$job" 0 /v1/completions -N -d "$(jq -cn --arg m "$MODEL_NAME" \
        '{model: $m, temperature: 0, max_tokens: 900, ignore_eos: true, stream: true, prompt: "A long story."}')" \
        >"$HOME_DIR/$1" 2>&1
}
begun() { [ "$(grep -c '^data: ' "$HOME_DIR/$1")" -ge 3 ]; }
for i in 1 2; do
    mapfile -t hosts < <(nodes_with_engines)
    victim=${hosts[$((i - 1))]}
    stream "death$i" &
    pid=$!
    await 60 begun "death$i"
    begin=$SECONDS
    "$VC" exec "$victim" pkill -KILL -x exaserve-engine
    wait $pid
    note "the stream ended after $((SECONDS - begin)) s"
    like "$(tail -n 4 "$HOME_DIR/death$i")" 'replica_lost' "an engine killed (member $i): its stream ends with a typed error"
    await_state "$job" READY 90
    ok $? "the gang comes again: READY"
    is "$(texts "$job" 24)" "$truth" "and says the same"
done

# --- a member's worker dies: the others' engines end with it ---
mapfile -t hosts < <(nodes_with_engines)
router_host=$(endpoint "$job" '.urls[0]' | sed 's|.*//\([^:]*\):.*|\1|')
[ ${#hosts[@]} = 2 ]
ok $? "two nodes have engines (a router on $router_host)"
while read -r _ host pid <&3; do
    [ "$host" = "${hosts[1]}" ] && "$VC" exec "$host" kill -KILL "$pid"
done 3< <(ranks_with_role "$job" worker)
await 30 no_engine
ok $? "a worker killed: no engine of the gang is left, on no node"
exa stop "$job" >/dev/null 2>&1
await_over "$job" 90
is "$(leftovers n0 n1 n2 n3)" "" "nothing is left in the end"
