#!/bin/bash
# run: pack in the cache, run directory, mpirun, progress, ready, chat and stop beside it, and nothing left however it ends. A script
# stands in for exaserved (the real world is tested elsewhere).
. "$(dirname "$0")/cli_lib.sh"

command -v mpirun >/dev/null || { echo "1..0 # SKIP mpirun is not installed"; exit 0; }
mkdir -p "$W/inst/bin"
cp "$EXA" "$W/inst/bin/exaserve"
cp tests/e2e/cli_daemon.py "$W/inst/bin/exaserved"
cp tests/e2e/cli_stub.py "$W/inst/bin/"
EXA=$W/inst/bin/exaserve
python3 tests/tools/make_gguf.py "$W/gguf" || { echo "Bail out! cannot make a model"; exit 1; }
model=$W/gguf/tiny.gguf

# run ARG…: in the background; $pid; output in $W/run.out, $W/run.err
run() {
    rm -f "$W/run.out" "$W/run.err" # else `ready` could see the last one's
    touch "$W/run.out" "$W/run.err"
    setsid "$EXA" run "$@" >"$W/run.out" 2>"$W/run.err" </dev/null & pid=$!; started+=($pid)
    dir=$EXASERVE_RUN_DIR/local/run-$pid
}
ready() { until_true 60 grep -q 'Ctrl-C ends it' "$W/run.out"; }
gone() { # every process that this test's services had is gone
    local f
    for f in "$W"/pids/*; do [ ! -e "$f" ] || ! kill -0 "$(cat "$f")" 2>/dev/null || return 1; done
    ! pgrep -f "$W/inst/bin/" >/dev/null && ! pgrep -f "mpirun.*$W" >/dev/null
}

run "$model" --port 0 --replicas 2 --context 16 --name tiny-model
ready; ok $? "it gets ready" "$(cat "$W/run.err")"
like "$(cat "$W/run.err")" 'packing .*tiny.gguf' "a GGUF file is packed"
like "$(cat "$W/run.err")" 'STARTING: loading the model' "progress is shown"
out=$(cat "$W/run.out")
like "$out" '^READY: ' "the state is shown"
like "$out" 'url +http://127.0.0.1:[0-9]+/v1' "the URL"
like "$out" 'key +sk-exa-[0-9a-f]{48}' "the key"
answer=$(eval "$(sed -n '/or   curl/,/-d /p' "$W/run.out" | sed 's/^ *or //') -sS")
like "$answer" '"content": "Hello"' "the example works as it is printed"
is "$(tail -1 "$dir/stub.log" | sed 's/^POST //' | jq -r .model)" "it's \"a\" model" "also with quotes in the model's name"
is "$(stat -c %a "$dir")" 700 "the run directory is private"
like "$(cat "$dir/serve.yaml")" '^  ?-? *replicas: 2|^ *replicas: 2' "serve.yaml holds the options"
like "$(cat "$dir/serve.yaml")" 'name: tiny-model' "and the name"
like "$(cat "$dir/world.log")" 'rank 2 of attempt 1 begins' "the world's own noise is in its log"
is "$(ls "$EXASERVE_CACHE/packs" | wc -l)" 1 "one pack in the cache"
exa status
is "$code" 0 "status finds it without a name"
like "$out" "run-$pid, running on this machine" "and knows it for a local one"
exa url
like "$out" '^http://127.0.0.1' "url finds it"
is "$(echo hi | "$EXA" chat)" "u: you said hi" "chat talks to it"
exa health
is "$code" 0 "health finds it ready"
kill -INT $pid
wait $pid
is $? 0 "Ctrl-C: drained, exit code 0"
like "$(cat "$W/run.err")" 'DRAINING: waiting for 1 request' "the drain is shown"
until_true 20 gone; ok $? "nothing is left running" "$(pgrep -af "$W")"
ok "$([ ! -e "$dir" ]; echo $?)" "the run directory is gone"

run "$model" --keep
ready; ok $? "again"
unlike "$(cat "$W/run.err")" packing "from the cache this time"
"$EXA" stop >"$W/out" 2>"$W/err"
is $? 0 "stop ends it from another terminal"
wait $pid
is $? 0 "run ends well then"
ok "$([ -e "$dir/world.log" ]; echo $?)" "--keep keeps the run directory"
exa stop "run-$pid"
is "$code" 0 "stop of an ended run: 0"
exa status "run-$pid"
is "$code" 2 "status of an ended run: 2"

run "$model"
ready
kill -TERM "$(cat "$dir/pid-1")" # a rank that leaves alone does not end the others
kill -TERM $pid
wait $pid
is $? 0 "SIGTERM: the same as Ctrl-C"
until_true 20 gone; ok $? "nothing is left running"

CLI_DAEMON=stubborn run "$model" --grace 0
ready; ok $? "a service that ignores SIGTERM"
kill -INT $pid
until_true 20 grep -q 'ending:' "$W/run.err"
kill -INT $pid
until_true 60 gone; ok $? "a second Ctrl-C ends it at once" "$(pgrep -af "$W")"
wait $pid
is $? 0 "exit code 0"

run "$model"
ready
cp -r "$dir" "$W/seen"
kill -KILL $pid
mkdir -p "$W/pids"; cp "$W"/seen/pid-* "$W/pids/"
wait $pid 2>/dev/null
until_true 60 gone; ok $? "killed hard: nothing is left running" "$(pgrep -af "$W")"
exa status "run-$pid"
is "$code" 2 "status knows that it is gone"
rm -r "$W/pids"

# run_fault FAULT ARG…
run_fault() {
    local f=$1; shift
    CLI_DAEMON=$f timeout 120 "$EXA" run "$model" "$@" >"$W/run.out" 2>"$W/run.err" </dev/null
    code=$? err=$(cat "$W/run.err")
}
run_fault die
is "$code" 2 "a world that dies at once: 2"
is "$(grep -c 'starting it again' <<<"$err")" 3 "after three more tries"
like "$err" 'before it was ready \(mpirun: exit [0-9]+\)' "it is said"
like "$err" '\| .*cannot start' "with the end of the log"
mkdir "$W/only"
printf '#!/bin/sh\nexec %s "$@"\n' "$(python3 -c 'import sys; print(sys.executable)')" >"$W/only/python3"
chmod +x "$W/only/python3"
code=$(PATH=$W/only CLI_DAEMON='' /usr/bin/timeout 60 "$EXA" run "$model" >/dev/null 2>"$W/err" </dev/null; echo $?)
is "$code" 1 "no mpirun: 1"
like "$(cat "$W/err")" 'cannot run mpirun' "it is said"
run_fault fail
is "$code" 2 "a service that fails: 2"
like "$err" 'the service failed: the model does not fit' "with its reason"
run_fault plan
is "$code" 4 "a plan that does not fit: 4"
like "$err" 'the plan does not fit' "with exaserved's words"
until_true 20 gone; ok $? "nothing is left running"
CLI_DAEMON=again run "$model"
ready; ok $? "a world that died while it started is started again" "$(cat "$W/run.err")"
is "$(grep -c 'starting it again' "$W/run.err")" 2 "twice here"
kill -TERM $pid; wait $pid
is $? 0 "and ends well"

head -c 1000 /dev/urandom >"$W/noise.gguf"
exa run "$W/noise.gguf"
is "$code" 4 "a file that is no model: 4"
like "$err" 'noise.gguf is neither a GGUF file nor a pack' "it is said"
exa run "$model" --listen nowhere
is "$code" 4 "an address that is none: 4"
like "$err" '^exaserve run: --listen must be an IP address' "in the words of the command line"
HOME=$W/noise.gguf EXASERVE_RUN_DIR='' exa run "$model"
is "$code" 1 "no place for the run directory: 1"
unlike "$err" 'kept for you' "no folder is named that is not there"
rm "$W/run.out" "$W/run.err" # the last one's, which was ready
(cd "$W" && EXASERVE_CACHE=here exec "$EXA" run "$model" >run.out 2>run.err </dev/null) & pid=$!; started+=($pid)
ready; ok $? "a relative EXASERVE_CACHE" "$(cat "$W/run.err")"
kill -INT $pid; wait $pid
# a Hugging Face folder is packed once, and again when a file in it has changed
/usr/bin/python3 tests/tools/make_hf.py "$W/hf"
for turn in new same changed; do
    [ $turn != changed ] || echo >>"$W/hf/qwen2/generation_config.json"
    run "$W/hf/qwen2"
    ready; ok $? "a Hugging Face folder, $turn" "$(cat "$W/run.err")"
    is "$(grep -c '^packing ' "$W/run.err")" $([ $turn = same ] && echo 0 || echo 1) "packed when it must be"
    kill -INT $pid; wait $pid
done
rm "$EXASERVE_CACHE"/packs/qwen2-*
# a port that is taken is said before anything starts
start python3 -c 'import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
print(s.getsockname()[1], flush=True); time.sleep(600)' >"$W/taken"
until_true 30 test -s "$W/taken"
exa run "$model" --port "$(cat "$W/taken")"
is "$code/$err" "4/exaserve run: cannot listen on 127.0.0.1 port $(cat "$W/taken"): Address already in use" "a port that is taken: 4, at once"
exa run "$model" --listen 192.0.2.1
is "$code/$err" "4/exaserve run: cannot listen on 192.0.2.1 port 0: Cannot assign requested address" "an address of another machine: 4"

# a damaged pack in the cache is made again
pack=$(ls "$EXASERVE_CACHE"/packs/*)
: >"$pack"
run "$pack.none"; wait $pid
is $? 4 "a missing model: 4"
run "$model"
ready; ok $? "a damaged pack in the cache is replaced"
like "$(cat "$W/run.err")" packing "by packing again"
kill -TERM $pid; wait $pid
run "$pack"
ready; ok $? "a pack itself may be run"
kill -TERM $pid; wait $pid
is $? 0 "and ends well"
echo "1..$n"
