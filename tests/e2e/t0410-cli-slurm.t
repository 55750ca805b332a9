#!/bin/bash
# submit, status, url, stop against small scripts in place of Slurm's commands: arguments, output and exit codes.
. "$(dirname "$0")/cli_lib.sh"

export PATH=$W/bin:$PATH EXASERVE_HOME=$W/home
mkdir -p "$W/home/jobs"
touch "$W/home/jobs/serve.sbatch"
python3 tests/tools/make_gguf.py "$W/gguf" && "$EXA" pack -q "$W/gguf/tiny.gguf" "$W/tiny.h5" >/dev/null ||
    { echo "Bail out! cannot make a pack"; exit 1; }
cat >"$W/serve.yaml" <<Y
name: svc
models:
  - pack: tiny.h5
slurm: {nodes: 2, time: "0:10:00"}
Y
fake scontrol <<'S'
printf 'x\nClusterName             = vc\nJobState=FAILED ExitCode=7:0 x\n'
S
fake sbatch <<'S'
echo 4711
S
echo "4711|PENDING|Resources|N/A|" >"$W/queue"
fake squeue <<S
cat $W/queue
S
fake sinfo <<'S'
echo 'all*|16'
S
fake scancel <<S
echo "4711|COMPLETED|None|1|n1" >$W/queue
S

# --- submit
exa submit "$W/serve.yaml" --dry-run
is "$code" 0 "--dry-run"
like "$out" "^# sbatch --parsable --job-name=svc --nodes=2 --time=0:10:00 --exclusive --no-kill --signal=B:TERM@120 " "--dry-run prints the command"
like "$out" "^- pack: $W/tiny.h5$|pack: $W/tiny.h5$" "--dry-run prints the configuration, packs with full paths"
like "$out" '^  body_bytes: 8388608$' "--dry-run fills in defaults"
is "$(cat "$W/sbatch.args" 2>/dev/null)" "" "--dry-run submits nothing"
echo "$out" >"$W/again.yaml"
exa submit "$W/again.yaml" --dry-run
is "$code" 0 "what --dry-run prints is a configuration again"

# what no engine could serve is said before anything waits in a queue
for fault in "tensor_parallel: 4|tensor_parallel: heads: expected a multiple of 4 for 4 shards, found 2" \
    "pipeline_parallel: 2|pipeline_parallel: 2 stages, the model has 1 layers" \
    "context: 100|context: 100 tokens, the model was made for at most 16"; do
    sed "s/^  - pack: .*/&\n    ${fault%%|*}/" "$W/serve.yaml" >"$W/cannot.yaml"
    exa submit "$W/cannot.yaml"
    is "$code/$out" "4/" "${fault%%:*} that cannot be is refused"
    like "$err" "cannot.yaml: models\[0\] with pack .*tiny.h5: ${fault#*|}" "and says why"
done
is "$(cat "$W/sbatch.args" 2>/dev/null)" "" "nothing was submitted"

exa submit "$W/serve.yaml" --nodes 8 --time 30
is "$code/$out/$err" "0/4711/" "submit prints the job id alone"
like "$(cat "$W/sbatch.args")" '^--nodes=8$' "--nodes goes to sbatch"
like "$(cat "$W/sbatch.args")" '^--time=30$' "--time goes to sbatch"
is "$(tail -1 "$W/sbatch.args")" "$W/serve.yaml" "the last argument is the file"
is "$(stat -c %a "$EXASERVE_RUN_DIR/vc/4711")" 700 "the run directory is there, private"

exa submit "$W/serve.yaml" --time tomorrow
is "$code" 4 "a bad --time: 4"
printf 'models:\n  - pack: tiny.h5\n    replcas: 2\n' >"$W/bad.yaml"
exa submit "$W/bad.yaml"
is "$code" 4 "a bad file: 4"
is "$err" "exaserve submit: $W/bad.yaml:3: unknown key \"replcas\" in models[0]; did you mean \"replicas\"?" "with file, line and a hint"
printf 'models: [{pack: tiny.h5}]\nrouters: 3\n' >"$W/bad.yaml"
exa submit "$W/bad.yaml" -N 2
is "$code" 4 "more routers than nodes: 4"
like "$err" 'bad.yaml:2: routers must not be more than the nodes \(2\)' "with its line"
exa submit "$W/bad.yaml" -N 3
is "$code" 0 "enough nodes by --nodes"
printf 'models: [{pack: none.h5}]\n' >"$W/bad.yaml"
exa submit "$W/bad.yaml"
is "$code" 4 "a missing pack: 4"
like "$err" "$W/none.h5" "it is named"
echo text >"$W/none.h5"
exa submit "$W/bad.yaml"
is "$code" 4 "a foreign file as pack: 4"
fake sbatch <<'S'
echo 'sbatch: error: Batch job submission failed: Requested node configuration is not available' >&2
exit 1
S
exa submit "$W/serve.yaml" -N 17
is "$code/$out" 4/ "more nodes than the partition has: 4"
like "$err" '17 nodes are more than the default partition has \(16\)' "with both numbers"
exa submit "$W/serve.yaml"
is "$code/$out" 4/ "what sbatch refuses: 4"
like "$err" 'Requested node configuration is not available' "sbatch's own words are passed on"

# --- a job that waits
exa status
is "$code" 2 "status of a waiting job: 2"
like "$out" '4711 on vc: PENDING \(Resources\)' "status shows Slurm's state and reason"
like "$out" 'not started yet' "status says that it has not started"
exa url 4711
is "$code/$out" 2/ "url of a waiting job: 2"
like "$err" 'no URL yet' "url says why"
echo "99|PENDING|Priority|N/A|" >>"$W/queue"
exa status 99
is "$code" 2 "status of a job that only Slurm knows"
like "$out" '99 on vc: PENDING' "it is shown"
exa status 98
is "$code" 4 "status of a job that nobody knows: 4"

# --- a job that runs
job vc 4711 READY http://n1:81 http://n2:82
echo "4711|RUNNING|None|$(($(date +%s) + 4000))|n[1-2]" >"$W/queue"
exa status 4711
is "$code" 0 "status of a ready job: 0"
like "$out" '^service +READY: 2 of 2' "status shows the service"
like "$out" '^time left 1 h' "status shows the time left"
like "$out" '^url +http://n1:81/v1' "status shows the URL"
unlike "$out" "$KEY" "status does not show the key"
exa status --json
is "$(jq -r '[.job,.slurm.state,.slurm.nodes,.service.state,.service.replicas.ready,.service.urls[1]]|join(" ")' <<<"$out")" \
   "4711 RUNNING n[1-2] READY 2 http://n2:82" "status --json"
unlike "$out" "$KEY" "status --json does not show the key"
exa url
is "$code/$out" 0/http://n1:81/v1 "url prints the URL alone"
exa url --all
is "$out" "http://n1:81/v1
http://n2:82/v1" "url --all"
exa url --key
is "$out" "$KEY" "url --key"
exa url --env
is "$(eval "$out"; echo "$OPENAI_BASE_URL $OPENAI_API_KEY")" "http://n1:81/v1 $KEY" "url --env feeds a shell"
job vc 4711 DEGRADED http://n1:81
exa status 4711
is "$code" 0 "DEGRADED serves: 0"
job vc 4711 STARTING
exa status 4711
is "$code" 2 "STARTING: 2"
chmod 644 "$EXASERVE_RUN_DIR/vc/4711/endpoint.json"
exa url 4711
is "$code" 4 "an endpoint file that others can read is refused"
like "$err" '0600' "and it is said why"

# --- submit --wait
fake sbatch <<'S'
echo 4712
S
job vc 4711 STOPPED
echo "4712|PENDING|Resources|N/A|" >"$W/queue"
"$EXA" submit "$W/serve.yaml" --wait >"$W/out" 2>"$W/err" & pid=$!; started+=($pid)
until_true 30 grep -q 'PENDING (Resources)' "$W/err"; ok $? "--wait shows that the job waits"
is "$(cat "$W/out")" 4712 "--wait prints the job id at once"
job vc 4712 STARTING
until_true 30 grep -q 'STARTING: 2 of 2' "$W/err"; ok $? "--wait shows progress"
job vc 4712 READY http://n1:81
wait $pid
is $? 0 "--wait: 0 when ready"
like "$(cat "$W/err")" 'http://n1:81/v1' "--wait shows the URL"
rm -r "$EXASERVE_RUN_DIR/vc/4712"
exa submit "$W/serve.yaml" --wait --timeout 1
is "$code" 3 "--wait: 3 at the timeout"
like "$err" 'not ready after 1 s' "it says so"
echo "4712|FAILED|NonZeroExitCode|1|n1" >"$W/queue"
seq 100 | sed 's/^/log line /' >"$EXASERVE_RUN_DIR/vc/4712.log"
exa submit "$W/serve.yaml" --wait
is "$code" 2 "--wait: 2 when the job ended"
like "$err" 'ended before it was ready: FAILED, exit code 7' "with its state and exit code"
like "$err" '\| log line 100' "with the end of its log"
unlike "$err" 'log line 80$' "with the end only"

# --- stop
job vc 4711 READY http://n1:81
echo "4711|RUNNING|None|N/A|n1" >"$W/queue"
: >"$W/scancel.args"
exa stop 4711
is "$code" 0 "stop: 0 when gone"
is "$(tr '\n' ' ' <"$W/scancel.args")" "--batch --signal=TERM 4711 " "stop asks the job script by SIGTERM"
exa stop 4711
is "$code" 0 "stop of an ended job: 0"
like "$err" 'had ended already' "it says so"
echo "4711|RUNNING|None|N/A|n1" >"$W/queue"
fake scancel </dev/null
exa stop 4711 --timeout 1
is "$code" 3 "stop: 3 when it stays"
exa stop 4711 --no-wait
is "$code" 0 "stop --no-wait does not wait"
echo "1..$n"
