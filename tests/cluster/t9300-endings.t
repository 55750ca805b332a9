#!/usr/bin/env bash
# Endings: drain with running requests, scancel, the time limit, two jobs of one user on the same nodes.
. "$(dirname "$0")/lib.sh"
plan 17
cluster_up 4 2

# --- stop: what runs is finished, nothing new is taken ---
job=$(submit "replicas: fill" "grace: 20" --nodes 4 --time 20)
await_state "$job" READY 120
ok $? "a job is READY"
base=$(url "$job")
k=$(key "$job")
login curl -sN --max-time 100 "$base/v1/completions" -H "Authorization: Bearer $k" -H 'Content-Type: application/json' \
    -d "{\"model\":\"$MODEL_NAME\",\"prompt\":\"Once\",\"max_tokens\":150,\"ignore_eos\":true,\"stream\":true,\"temperature\":0}" >"$HOME_DIR/running" &
running=$!
await 30 grep -q 'data:' "$HOME_DIR/running"
exa stop "$job" >"$HOME_DIR/stop" 2>&1 &
stopper=$!
refused() { [ "$(login curl -s -o /dev/null -w '%{http_code}' --max-time 5 "$base/v1/completions" -H "Authorization: Bearer $k" \
    -H 'Content-Type: application/json' -d "{\"model\":\"$MODEL_NAME\",\"prompt\":\"x\",\"max_tokens\":1}")" != 200 ]; }
await 20 refused
ok $? "while it drains new requests are refused"
wait $running
is "$(grep -c '^data: \[DONE\]' "$HOME_DIR/running")" 1 "the running stream is finished"
wait $stopper
is $? 0 "stop ends with 0"
await_over "$job" 60
is "$(job_state "$job") $(job_exit "$job")" "COMPLETED 0:0" "the job's exit code is 0"
is "$(endpoint "$job" .state)" STOPPED "endpoint.json says STOPPED"
is "$(leftovers n0 n1 n2 n3)" "" "no process and no shared memory is left"

# --- two jobs at once on the same nodes ---
one=$(submit "replicas: fill" "slurm: {exclusive: false, sbatch_args: [--overcommit, --oversubscribe, --mem=4000, --cpus-per-task=1]}" --nodes 4 --time 20)
two=$(submit "replicas: fill" "slurm: {exclusive: false, sbatch_args: [--overcommit, --oversubscribe, --mem=4000, --cpus-per-task=1]}" --nodes 4 --time 20)
await_state "$one" READY 180 && await_state "$two" READY 180
ok $? "two jobs on the same nodes are READY"
is "$(login squeue -h -o '%N' -t R | sort -u | wc -l)" 1 "they have the same nodes"
a=$(chat "$one" 0 "Say hello." 12 | jq -r '.choices[0].message.content')
b=$(chat "$two" 0 "Say hello." 12 | jq -r '.choices[0].message.content')
[ -n "$a" ] && [ "$a" = "$b" ]
ok $? "both answer, the same"
is "$(login curl -s -o /dev/null -w '%{http_code}' "$(url "$one")/v1/models" -H "Authorization: Bearer $(key "$two")")" 401 \
    "the key of one is none of the other's"

# --- scancel: one goes, the other stays ---
login scancel "$one"
await_over "$one" 60
is "$(job_state "$one")" CANCELLED "scancel ends the one"
like "$(chat "$two" 0 "Say hello." 4)" '"choices"' "the other still answers"
login scancel "$two"
await_over "$two" 60
is "$(leftovers n0 n1 n2 n3)" "" "after scancel of both nothing is left"

# --- the time limit ---
job=$(submit "replicas: fill" "grace: 5" --nodes 2 --time 2)
await_state "$job" READY 90
ok $? "a job with a limit of two minutes is READY"
await_over "$job" 200
is "$(job_state "$job") $(job_exit "$job")" "COMPLETED 0:0" "it ends by itself before the limit, with 0"
is "$(leftovers n0 n1 n2 n3)" "" "and leaves nothing"
