#!/usr/bin/env bash
# Starts: a cache hit, a damaged image, a full disk, ranks that die or hang before the detach, more nodes than there are, sbatch alone.
. "$(dirname "$0")/lib.sh"
plan 21
cluster_up 4 2
image() { echo '/var/cache/exaserve/*/image'; }
run_and_stop() { # SECONDS-TO-READY → job id in $job; ready or not in $?
    job=$(submit "replicas: fill" "" --nodes 4 --time 10)
    await_state "$job" READY "$1"
}
finish() { exa stop "$job" >/dev/null 2>&1; await_over "$job" 60; }

SUBMIT_ENV=("${COUNT_FILE_READS[@]}")
run_and_stop 120
ok $? "the first job is READY"
pack_read_once 4 9
ok $? "9 ranks on 4 nodes together read each byte of the pack once, as 13 on 8 do"
SUBMIT_ENV=()
is "$(job_log "$job" | grep -c 'cache: miss')" 4 "its nodes had nothing in their caches"
finish
run_and_stop 120
ok $? "the second job is READY"
is "$(job_log "$job" | grep -c 'cache: hit')" 4 "by cache hits on all nodes"
is "$(job_log "$job" | grep -c 'weights: round')" 0 "nothing was broadcast"
finish

# --- damaged and cut images ---
"$VC" exec n1 sh -c 'printf XXXX | dd of=$(echo /var/cache/exaserve/*/image) bs=1 seek=50000000 conv=notrunc status=none'
"$VC" exec n2 sh -c 'truncate -s 60000000 $(echo /var/cache/exaserve/*/image)'
run_and_stop 120
ok $? "with a damaged and a cut image the job is READY"
is "$(job_log "$job" | grep -c 'cache: hit')" 2 "the two good ones were used"
is "$(for i in 0 1 2 3; do "$VC" exec n$i sh -c 'sha256sum /var/cache/exaserve/*/image' | cut -d' ' -f1; done | sort -u | wc -l)" 1 \
    "the two others were repaired"
read_bytes=$(job_log "$job" | sed -n 's/.*weights: round=[0-9]* .*read_bytes=\([0-9]*\) .*/\1/p' | awk '{s += $1} END {print s}')
[ "$read_bytes" -lt 80000000 ] && [ "$read_bytes" -gt 0 ]
ok $? "only what was missing was read: $read_bytes bytes"
finish

# --- a full disk on one node ---
"$VC" exec n3 sh -c 'rm -rf /var/cache/exaserve/*; mount -t tmpfs -o size=20m,mode=700 none /var/cache/exaserve'
job=$(submit $'replicas: fill\nmin_replicas: 3' "" --nodes 4 --time 10)
await_state "$job" DEGRADED 120
ok $? "a full disk on one node: DEGRADED"
like "$(endpoint "$job" .progress)" 'n3' "it names the node"
like "$(endpoint "$job" .progress)" 'bytes' "and says how much room is missing"
like "$(chat "$job" 0 "Say hello." 4)" '"choices"' "the others serve"
finish
"$VC" exec n3 umount /var/cache/exaserve

# --- a rank that dies, or hangs, before the detach: the world comes up again by itself ---
# Let run for some milliseconds at a time, the ranks of n2 cannot get from MPI_Init through all barriers between two looks at rank 0's address,
# which appears when rank 0 is out of MPI_Init; then they are killed.
job=$(submit "replicas: fill" "" --nodes 4 --time 10)
"$VC" exec n2 timeout 100 sh -c "until pkill -STOP -f '[e]xaserved --world'; do :; done
    until ls $BASE/*/$job/attempt-1/rank0.addr >/dev/null 2>&1; do
        pkill -CONT -f '[e]xaserved --world'; sleep 0.003; pkill -STOP -f '[e]xaserved --world'; sleep 0.03
    done; pkill -KILL -f '[e]xaserved --world'"
is $? 0 "ranks were killed when the world met"
await_state "$job" READY 180
ok $? "ranks died while the world started: it came up again by itself"
is "$(endpoint "$job" '"\(.attempt) \(.n_ready)"')" "2 4" "in the second attempt, with all nodes"
finish
job=$(submit "replicas: fill" "" --nodes 4 --time 10)
"$VC" exec n1 timeout 60 sh -c "until pkill -STOP -f '[e]xaserved --world'; do :; done"
await_state "$job" READY 300
ok $? "ranks hung while the world started: it came up again by itself"
is "$(endpoint "$job" .attempt)" 2 "in the second attempt, too"
finish

# --- faults before anything runs ---
yaml "$HOME_DIR/many.yaml" "replicas: fill"
exa submit "$HOME_DIR/many.yaml" --nodes 99 >"$HOME_DIR/out" 2>"$HOME_DIR/err"
is "$? $(cat "$HOME_DIR/out")" "4 " "more nodes than exist: exit code 4, no job id"
note "$(head -1 "$HOME_DIR/err")"

# --- the job script without the command ---
job=$(login sh -c "cd $HOME_DIR && EXASERVE_HOME=$ROOT EXASERVE_BIN=$BIN sbatch --parsable -N 2 -t 5 $ROOT/jobs/serve.sbatch many.yaml")
await_state "$job" READY 120
ok $? "plain sbatch of jobs/serve.sbatch works too"
