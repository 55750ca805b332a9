#!/bin/bash
# jobs/serve.sbatch alone, with stubs of Slurm's commands and of the world; `exaserved --prepare` and `--plan` are real.
#
# Each case is a folder: srun's world plays what $CASE/world-N (N: attempt) says, and every call is a line in $CASE/calls.
. "$(dirname "$0")/cli_lib.sh"
[ -x "$BIN/exaserved" ] || { echo "Bail out! no exaserved: run make"; exit 1; }

mkdir "$W/stubs" "$W/bin"
ln -s "$BIN/exaserve" "$BIN/exaserve-engine" "$W/bin/"
cat >"$W/bin/exaserved" <<'STUB'
#!/bin/bash
# the real one, but slow to plan where the case says so: until it is told to go on
[ "$1" != --plan ] || { touch "$CASE/planning"; while [ -e "$CASE/plan-slowly" ]; do sleep 0.05; done; }
exec "$REAL/exaserved" "$@"
STUB
cat >"$W/stubs/srun" <<'STUB'
#!/bin/bash
list='' attempt='' what=''
while [ $# -gt 0 ]; do
    case $1 in
    --nodelist=*) list=${1#*=} ;;
    --probe | --world) what=$1 ;;
    --run-dir) run=$2 ;;
    --attempt) attempt=$2 ;;
    esac
    shift
done
if [ "$what" = --probe ]; then
    echo "probe $list" >>"$CASE/calls"
    for host in ${list//,/ }; do
        [ -e "$CASE/dumb-$host" ] || echo "EXASERVE-NODE $host r0 -"
    done
    exit 0
fi
dir=$run/attempt-$attempt
echo "world $attempt $(sort -u "$dir/hosts" | paste -sd, -)" >>"$CASE/calls"
trap 'echo term >>"$CASE/calls"; exit 143' TERM
trap 'echo usr1 >>"$CASE/calls"; exit 0' USR1
. "$CASE/world-$attempt"
STUB
cat >"$W/stubs/sinfo" <<'STUB'
#!/bin/bash
[ ! -e "$CASE/no-controller" ] || { echo "slurm_load_node: Unable to contact slurm controller" >&2; exit 1; }
cat "$CASE/sinfo"
STUB
cat >"$W/stubs/scontrol" <<'STUB'
#!/bin/bash
[ "$1 $2" = "show hostnames" ] && printf '%s\n' n1 n2 n3
STUB
cat >"$W/stubs/squeue" <<'STUB'
#!/bin/bash
exit 1 # no limit is known
STUB
chmod +x "$W"/stubs/* "$W/bin/exaserved"
export REAL=$BIN PATH=$W/stubs:$PATH
printf 'models:\n  - pack: /none.h5\ngrace: 1\n' >"$W/serve.yaml"

new_case() { # NAME: three healthy nodes, named twice as for two partitions
    CASE=$W/$1
    export CASE
    mkdir "$CASE"
    printf '%s\n' 'n1 allocated' 'n2 mixed' 'n3 allocated' 'n1 allocated' >"$CASE/sinfo"
}
script() { # the job script with its output in $CASE/log
    SLURM_JOB_ID=7 SLURM_CLUSTER_NAME=${CASE##*/} SLURM_JOB_NODELIST='n[1-3]' EXASERVE_BIN=$W/bin \
        exec bash jobs/serve.sbatch "$W/serve.yaml" >"$CASE/log" 2>&1
}
calls() { paste -sd';' "$CASE/calls"; }
world() { cat >"$CASE/world-$1"; } # commands: $dir is the attempt's folder

new_case stops
world 1 <<<'touch "$dir/detached"; while :; do sleep 0.05; done'
start script; pid=$!
until_true 20 test -e "$W/run/stops/7/attempt-1/detached"
kill -TERM $pid
wait $pid
is "$? $(calls)" "0 probe n1,n2,n3;world 1 n1,n2,n3;usr1" "asked to end: the world is told by SIGUSR1, exit code 0"

new_case blames
for i in 1 2; do world $i <<<'printf "n2\nn2\n" >"$dir/blame"; exit 75'; done
world 3 <<<'touch "$dir/detached"; exit 1'
(script)
is "$? $(calls)" "1 probe n1,n2,n3;world 1 n1,n2,n3;probe n1,n2,n3;world 2 n1,n2,n3;probe n1,n3;world 3 n1,n3" \
    "a node that failed its part twice is left out; a world that was up is not started again"

new_case gives-up
for i in 1 2 3 4; do world $i <<<'exit 75'; done
(script)
is "$? $(grep -c '^world' "$CASE/calls")" "1 4" "four starts and no more"

new_case leaves
for i in 1 2 3 4; do world $i <<<'touch "$dir/left"; sleep 1.5; exit 75'; done
(script)
is "$? $(grep -c '^world' "$CASE/calls") $(grep -c 'the others are ended' "$CASE/log")" "1 4 0" "when all leave by themselves nobody is ended"

new_case cut-off
world 1 <<<'touch "$dir/left" "$dir/detached"; sleep 18'
start script; cut_off=$!
new_case hung-end
world 1 <<<'touch "$dir/detached"; sleep 1; touch "$dir/ended"; while :; do sleep 0.05; done'
start script; hung_end=$!
new_case hangs
world 1 <<<'touch "$dir/left"; while :; do sleep 0.05; done'
world 2 <<<'touch "$dir/detached"'
(script)
is "$? $(calls)" "0 probe n1,n2,n3;world 1 n1,n2,n3;term;probe n1,n2,n3;world 2 n1,n2,n3" \
    "a rank that hangs when the others have left is ended, and the world started again"
wait $cut_off
is "$? $(paste -sd';' "$W/cut-off/calls")" "0 probe n1,n2,n3;world 1 n1,n2,n3" "a rank that left when the world came up is no reason to end it"

new_case states
printf '%s\n' 'n1 allocated*' 'n2 down' 'n3 draining' >"$CASE/sinfo"
world 1 <<<'touch "$dir/detached"'
(script)
is "$? $(calls)" "0 probe n3;world 1 n3" "nodes that are down or do not answer are left out, draining ones are not"

new_case away
touch "$CASE/no-controller" "$CASE/dumb-n2"
world 1 <<<'touch "$dir/detached"'
(script)
is "$? $(calls)" "0 probe n1,n2,n3;world 1 n1,n3" "a controller that is away: all nodes are probed, those that answer are taken"

new_case early
touch "$CASE/plan-slowly"
world 1 <<<'while :; do sleep 0.05; done'
start script; pid=$!
until_true 20 test -e "$CASE/planning"
kill -TERM $pid
rm "$CASE/plan-slowly"
wait $pid
is "$? $(calls)" "0 probe n1,n2,n3" "asked to end while it plans: no world is started"

new_case wrong
world 1 <<<'exit 4'
(script)
is "$? $(grep -c '^world' "$CASE/calls")" "4 1" "a wrong configuration is not tried again"

wait $hung_end
is "$? $(paste -sd';' "$W/hung-end/calls")" "1 probe n1,n2,n3;world 1 n1,n2,n3;term" "a rank that hangs when the service has ended is ended, too"

echo "1..$n"
