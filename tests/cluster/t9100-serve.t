#!/usr/bin/env bash
# A job on 8 nodes: submit, READY, real clients, golden answers, each byte of the pack read once, health from inside, stop.
. "$(dirname "$0")/lib.sh"
plan 22
cluster_up 8 4

SUBMIT_ENV=("${COUNT_FILE_READS[@]}")
out=$(submit "replicas: fill" "" --nodes 8 --time 20 --wait 2>"$HOME_DIR/progress")
is "$?" 0 "submit --wait ends with 0 when the service is ready"
like "$out" '^[0-9]+$' "it prints the job id alone"
job=$out
is "$(wc -l <"$HOME_DIR/progress" | awk '{print ($1 > 2)}')" 1 "and shows progress"
is "$(endpoint "$job" .state)" READY "endpoint.json says READY"
is "$(endpoint "$job" '"\(.n_ready) of \(.n_wanted)"')" "8 of 8" "every node has its replica"
is "$(stat -c %a "$(run_dir "$job")" "$(run_dir "$job")"/{endpoint.json,secret,key} | paste -sd' ')" "700 600 600 600" \
    "the run directory and its secrets are private"

pack_read_once 8 13
ok $? "/proc/PID/io: 13 ranks on 8 nodes together read each byte of the pack once"
is "$(for i in 0 1 2 3 4 5 6 7; do "$VC" exec n$i sh -c 'sha256sum /var/cache/exaserve/*/image' | cut -d' ' -f1; done | sort -u | wc -l)" 1 \
    "the images of all nodes are equal"

base=$(url "$job")
like "$(exa url "$job")" "^http://n[0-9]+:[0-9]+/v1\$" "url prints the address"

login "$PYTHON" tests/cluster/openai_client.py "$base" "$(key "$job")" "$MODEL_NAME" 2>&1 | sed 's/^/# /'
ok "${PIPESTATUS[0]}" "the openai client: stream, non-stream, wrong key, too long"
second=$(endpoint "$job" '.urls[1]')
like "$second" '^http://' "there is a second router"
want=$(jq -r '.[] | select(.id == "chat_hello") | .text' tests/golden/greedy.json | sed 's/<|im_end|>.*//' | head -1)
got=$(api "$job" "$second" /v1/chat/completions -d "$(jq -cn --arg m "$MODEL_NAME" --slurpfile g tests/golden/greedy.json \
    '{model: $m, temperature: 0, max_tokens: 48, messages: ($g[0][] | select(.id == "chat_hello") | .messages)}')" |
    jq -r '.choices[0].message.content' | head -1)
is "$got" "$want" "the other router gives the golden answer"

# the same text alone and eight at once, through both routers
text="Tell me about the sea."
chat "$job" 0 "$text" 24 | jq -r '.choices[0].message.content' >"$HOME_DIR/a0"
for i in 1 2 3 4 5 6 7 8; do chat "$job" $((i % 2)) "$text" 24 | jq -r '.choices[0].message.content' >"$HOME_DIR/a$i" & done
wait
[ -s "$HOME_DIR/a0" ] && is "$(for i in 1 2 3 4 5 6 7 8; do cmp "$HOME_DIR/a0" "$HOME_DIR/a$i" 2>&1; done)" "" \
    "eight at once give the same text as one alone"

is "$(api "$job" 0 /v1/models | jq -r '.data[0].id')" "$MODEL_NAME" "/v1/models names the model"
is "$(login curl -s -o /dev/null -w '%{http_code}' "$base/health/live")" 200 "/health/live needs no key"
is "$(login curl -s -o /dev/null -w '%{http_code}' "$base/v1/models")" 401 "/v1 needs one"
exa health "$job" >"$HOME_DIR/health"
is "$?" 0 "exaserve health ends with 0"
is "$(grep -c READY "$HOME_DIR/health" | awk '{print ($1 >= 8)}')" 1 "and lists the replicas"
login srun --overlap --jobid="$job" -N1 -n1 --mpi=none "$BIN/exaserve" health >"$HOME_DIR/health2" 2>"$HOME_DIR/health2.err"
is "$?" 0 "so it does inside the job by srun --overlap"
like "$(exa status --json | jq -r .service.state)" READY "status without JOB means the newest job"

exa stop "$job" >/dev/null 2>&1
is "$?" 0 "stop ends with 0"
await_over "$job" 90
is "$(job_state "$job") $(job_exit "$job")" "COMPLETED 0:0" "the job is COMPLETED with exit code 0"
