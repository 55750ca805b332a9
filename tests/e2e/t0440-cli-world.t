#!/bin/bash
# `exaserve run` with the real world and the real model: ready, one question, an end by Ctrl-C, and an end by kill -9; bound to one core.
. "$(dirname "$0")/cli_lib.sh"

model=${EXASERVE_TEST_MODEL:-build/model/SmolLM2-135M-Instruct.Q4_1.gguf}
[ -r "$model" ] || { echo "1..0 # SKIP no model: make model"; exit 0; }
[ -x "$BIN/exaserved" ] && [ -x "$BIN/exaserve-engine" ] || { echo "Bail out! no exaserved: run make"; exit 1; }
command -v mpirun >/dev/null || { echo "1..0 # SKIP mpirun is not installed"; exit 0; }

run() { # ARG…: in the background; $pid, $dir
    rm -f "$W/run.out" "$W/run.err"
    touch "$W/run.out" "$W/run.err"
    # shellcheck disable=SC2086
    setsid ${under-} "$EXA" run "$model" "$@" >"$W/run.out" 2>"$W/run.err" </dev/null & pid=$!; started+=($pid)
    dir=$EXASERVE_RUN_DIR/local/run-$pid
}
ready() { until_true 300 grep -q 'Ctrl-C ends it' "$W/run.out"; }
members() { # every process below PID
    local p
    for p in $(pgrep -P "$1"); do echo "$p"; members "$p"; done
}
left() { local p; for p in $all; do tr '\0' ' ' <"/proc/$p/cmdline"; echo; done 2>/dev/null; }
gone() { local p; for p in $all; do [ ! -e "/proc/$p" ] || return 1; done; }

run --context 512 --slots 2
ready; ok $? "the real world gets ready" "$(tail -5 "$W/run.err"; tail -20 "$dir/world.log")"
exa health
is "$code" 0 "health"
answer=$(echo 'What is the capital of France?' | timeout 120 "$EXA" chat --temperature 0 --max-tokens 24)
like "$answer" 'Paris' "the model answers"
all=$(members $pid)
ok "$([ "$(wc -w <<<"$all")" -ge 5 ]; echo $?)" "mpirun, three ranks and an engine run" "$all"
kill -INT $pid
wait $pid
is $? 0 "Ctrl-C: exit code 0"
until_true 30 gone; ok $? "no process is left" "$(left)"
ok "$([ ! -e "$dir" ]; echo $?)" "the run directory is gone"

run --context 512 --slots 2
ready; ok $? "again, from the caches"
all=$(members $pid)
kill -KILL $pid
wait $pid 2>/dev/null
until_true 60 gone; ok $? "killed hard: no process is left" "$(left)"
exa status "run-$pid"
is "$code" 2 "status knows that it is gone"
exa url "run-$pid"
is "$code" 2 "url gives no dead address"
like "$err" 'has ended' "but says that it has ended"

# what keeps one rank from joining is said at once, by its name, and nothing is tried again
mkdir -m 755 "$W/used"; touch "$W/used/file"
code=$(EXASERVE_CACHE=$W/used timeout 60 "$EXA" run "$(ls "$EXASERVE_CACHE"/packs/*)" >"$W/out" 2>"$W/err" </dev/null; echo $?)
is "$code" 4 "a cache folder that others use: 4"
like "$(grep '^exaserve run:' "$W/err")" "worker 2 on .*: $W/used must be private" "in one sentence"
is "$(stat -c %a "$W/used")" 755 "and it is left as it was"

# One core, as a cluster's task plugin would bind it; the virtual cluster has none, so that only this run shows it.
core=$(taskset -cp $$ | sed 's/.*[ :]//; s/[-,].*//')
under="taskset -c $core" run --context 512 --slots 2
ready; ok $? "bound to one core the world gets ready too" "$(tail -5 "$W/run.err"; tail -20 "$dir/world.log")"
all=$(members $pid)
cores() { local p t; for p in $all; do for t in "/proc/$p/task"/*/status; do sed -n 's/^Cpus_allowed_list:\t//p' "$t"; done; done; }
is "$(cores | sort -u)" "$core" "every thread of every process keeps to it"
answer=$(echo 'What is the capital of France?' | timeout 200 "$EXA" chat --temperature 0 --max-tokens 24)
like "$answer" 'Paris' "the model answers"
kill -INT $pid
wait $pid
is $? 0 "Ctrl-C: exit code 0"
until_true 30 gone; ok $? "no process is left" "$(left)"
echo "1..$n"
