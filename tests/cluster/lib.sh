# lib.sh - what the cluster tests share: TAP, one cluster a test, a pack, a service, waiting with deadlines. Source it.
#
#   . "$(dirname "$0")/lib.sh"
#   plan 3
#   cluster_up 8 4
#   job=$(submit 'replicas: fill')      # YAML lines of the model; more top-level lines in $2
#   await_state "$job" READY 120
#   is "$(…)" "expected" "what is shown"
# shellcheck shell=bash disable=SC2034
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
ROOT=$PWD
BIN=${EXASERVE_BIN:-$ROOT/build/release/bin}
BUILD_DIR=${EXASERVE_BUILD_DIR:-$ROOT/build}
GGUF=${EXASERVE_TEST_MODEL:-$ROOT/build/model/SmolLM2-135M-Instruct.Q4_1.gguf}
PYTHON=${EXASERVE_VENV:-$BUILD_DIR/venv}/bin/python
PACK=$BUILD_DIR/model/smollm2.h5
export VCLUSTER_NAME=${VCLUSTER_NAME:-$(basename "$0" .t | tr -cd 'a-z0-9' | head -c 12)$$}
VC=$ROOT/tests/cluster/vcluster
MODEL_NAME=smollm2
SUBMIT_ENV=() # NAME=VALUE for the submitted job, too
SHOWN_MAX=80 # lines that one test says of its services when it fails: a CI machine's output must tell why, and nothing else is kept of it
n_test=0
n_failed=0
n_shown=0
shown=' '

# On standard error: prove shows comments of standard output only of tests that run alone.
diag() { sed 's/^/# /' >&2; }
note() { echo "# $*"; }
plan() { echo "1..$1"; }
bail() { show_service; echo "Bail out! $*"; exit 1; }
skip_all() { echo "1..0 # SKIP $*"; exit 0; }
[ "$(id -u)" = 0 ] || skip_all "a virtual cluster needs root"

ok() { # STATUS NAME
    n_test=$((n_test + 1))
    if [ "$1" = 0 ]; then echo "ok $n_test - $2"; else
        n_failed=$((n_failed + 1))
        echo "not ok $n_test - $2"
        show_service
    fi
    return "$1"
}
is() { # GOT EXPECTED NAME
    if [ "$1" = "$2" ]; then ok 0 "$3"; else
        printf 'got:      %s\nexpected: %s\n' "$1" "$2" | diag
        ok 1 "$3"
    fi
}
like() { # GOT REGEX NAME
    if [[ $1 =~ $2 ]]; then ok 0 "$3"; else
        printf 'got:      %s\nmatching: %s\n' "$1" "$2" | diag
        ok 1 "$3"
    fi
}

on_end() {
    local rc=$?
    trap - EXIT
    [ "$rc" != 143 ] || show_service # check.sh's limit, or somebody's patience
    "$VC" down >/dev/null 2>&1
    [ "$rc" != 0 ] || [ "$n_failed" = 0 ] || rc=1
    exit "$rc"
}
trap on_end EXIT
trap 'exit 143' TERM INT HUP

cluster_up() { # NODES RACK_SIZE [further options of up]
    local nodes=$1 size=$2
    shift 2
    make_pack
    "$VC" up --nodes "$nodes" --rack-size "$size" "$@" >/tmp/"$VCLUSTER_NAME".up 2>&1 || {
        diag </tmp/"$VCLUSTER_NAME".up
        rm -f /tmp/"$VCLUSTER_NAME".up
        bail "the cluster did not come up"
    }
    rm -f /tmp/"$VCLUSTER_NAME".up
    HOME_DIR=$("$VC" login sh -c 'echo $HOME')
    BASE=$HOME_DIR/.exaserve
}
make_pack() { # once, whoever comes first
    mkdir -p "$BUILD_DIR/model"
    (
        flock 9
        # one that an earlier version made is made anew
        "$BIN/exaserve" pack --list "$PACK" >/dev/null 2>&1 || { rm -f "$PACK" && "$BIN/exaserve" pack "$GGUF" "$PACK" >&2; }
    ) 9>"$BUILD_DIR/model/.pack.lock" 2>/dev/null || bail "cannot make the pack"
}
login() { "$VC" login "$@"; }
exa() { "$VC" login "$BIN/exaserve" "$@"; }

yaml() { # FILE [MODEL-LINES] [TOP-LINES]
    {
        echo "models:"
        echo "  - name: $MODEL_NAME"
        echo "    pack: $PACK"
        printf '%s\n' "${2:-}" | sed '/^$/d; s/^/    /'
        printf '%s\n' "${3:-}"
    } >"$1"
}
submit() { # [MODEL-LINES] [TOP-LINES] [options of submit…] → job id
    local file
    file=$(mktemp "$HOME_DIR/serve-XXXXXX.yaml")
    # short contexts: eight replicas share the memory of one machine here
    yaml "$file" "${1:-replicas: fill}"$'\ncontext: 1024\nslots: 8' "${2:-}"
    "$VC" login env "${SUBMIT_ENV[@]}" "$BIN/exaserve" submit "$file" "${@:3}"
}
# pml ucx receives by recv(2), which /proc/PID/io does not count: what rchar shows then is file reads alone.
COUNT_FILE_READS=(OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any OMPI_MCA_btl=)
pack_read_once() { # NODES RANKS: by /proc/PID/io of all ranks, each byte of the pack was read once; submitted with COUNT_FILE_READS
    local data rchars i r idle n sum=0
    data=$("$BIN/exaserve" pack --list "$PACK" | sed -n 's/^total .* \([0-9]*\) bytes,.*/\1/p')
    mapfile -t rchars < <(for ((i = 0; i < $1; i++)); do
        "$VC" exec "n$i" sh -c 'for p in $(pgrep -x exaserved); do sed -n "s/^rchar: //p" /proc/$p/io; done'
    done | sort -n)
    # What every rank reads at its start (shared libraries, /proc and /sys for hwloc and UCX, configuration) is what the one with the least has
    # read: a standby, which has nothing to do with weights. It must be small itself.
    idle=${rchars[0]} n=${#rchars[@]}
    for r in "${rchars[@]}"; do sum=$((sum + r - idle)); done
    note "rchar of $n ranks above the idle one's $idle: $sum; tensor bytes of the pack: $data"
    [ "$n" = "$2" ] && [ "$idle" -lt 30000000 ] && [ "$sum" -ge "$data" ] && [ "$sum" -lt $((data + n * 1000000)) ]
}
run_dir() { # JOB
    echo "$BASE"/*/"$1"
}
endpoint() { # JOB JQ-FILTER
    jq -r "$2" "$(run_dir "$1")/endpoint.json" 2>/dev/null
}
await() { # SECONDS COMMAND… : until it succeeds
    local until=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$until" ] || return 1
        sleep 0.2
    done
}
is_state() { [ "$(endpoint "$1" .state)" = "$2" ]; }
await_state() { # JOB STATE SECONDS
    await "$3" is_state "$1" "$2"
}
job_state() { login scontrol show job "$1" 2>/dev/null | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'; }
job_exit() { login scontrol show job "$1" 2>/dev/null | sed -n 's/.*ExitCode=\([0-9:]*\).*/\1/p'; }
is_over() { case $(job_state "$1") in RUNNING | PENDING | COMPLETING | CONFIGURING) return 1 ;; esac }
await_over() { await "$2" is_over "$1"; }
job_log() { cat "$BASE"/*/"$1".log "$(run_dir "$1")"/*.log "$HOME_DIR"/slurm-"$1".out 2>/dev/null; }

url() { endpoint "$1" '.urls[0]'; }
key() { endpoint "$1" .key; }
# JOB URL-INDEX-OR-URL PATH [curl options…]
api() {
    local job=$1 base=$2 path=$3
    shift 3
    case $base in http*) ;; *) base=$(endpoint "$job" ".urls[$base]") ;; esac
    login curl -sS --max-time 120 -H "Authorization: Bearer $(key "$job")" -H 'Content-Type: application/json' \
        "$@" "$base$path"
}
# A greedy chat answer: JOB URL-INDEX TEXT MAX-TOKENS
chat() {
    api "$1" "$2" /v1/chat/completions -d "$(jq -cn --arg m "$MODEL_NAME" --arg t "$3" --argjson n "$4" \
        '{model: $m, temperature: 0, max_tokens: $n, messages: [{role: "user", content: $t}]}')"
}
# pids (on this machine) of exaserved ranks or engines of a job: JOB ROLE-OR-engine [HOST]
ranks_of() { # JOB HOST ROLE : "start:" lines of the log name host and pid inside its namespace; ask the node
    "$VC" exec "$2" pgrep -f "$3"
}
# What is known of the newest job, once a job: its state, Slurm's view, the end of its log.
show_service() {
    local id text
    id=$(ls -d "${BASE:-/nonexistent}"/*/[0-9]* 2>/dev/null | sed 's|.*/\([0-9]*\).*|\1|' | sort -n | tail -1)
    case $shown in *" $id "*) return 0 ;; esac
    [ -n "$id" ] && [ "$n_shown" -lt "$SHOWN_MAX" ] || return 0
    shown="$shown$id "
    text=$(
        echo "--- job $id"
        jq -c 'del(.key)' "$(run_dir "$id")/endpoint.json"
        timeout 20 "$VC" login squeue -o '%i %T %M of %l, %D nodes %R' 2>&1
        timeout 20 "$VC" login scontrol show job "$id" 2>&1 | sed -n 's/^ *//; /\(JobState\|ExitCode\|RunTime\|StartTime\|NodeList\|NumNodes\)=/p'
        timeout 20 "$VC" login sinfo -h -o '%T %N' 2>&1
        echo "--- the end of its log"
        job_log "$id" | tail -n 40
    ) 2>/dev/null
    text=$(cut -c1-300 <<<"$text" | head -n $((SHOWN_MAX - n_shown)))
    n_shown=$((n_shown + $(wc -l <<<"$text")))
    diag <<<"$text"
}
# "ROLE HOST PID" of a rank of a job (the pid inside its node), from its own log line: JOB RANK
rank_at() {
    job_log "$1" | sed -n "s|.* \([a-z]*\)/$2 start: on \([^ ]*\) pid=\([0-9]*\) .*|\1 \2 \3|p" | tail -1
}
# ranks of a role in the last attempt, one "RANK HOST PID" a line: JOB ROLE
ranks_with_role() {
    job_log "$1" | sed -n "s|.* $2/\([0-9]*\) start: on \([^ ]*\) pid=\([0-9]*\) .*|\1 \2 \3|p" | awk '{last[$1] = $0} END {for (r in last) print last[r]}' | sort -n
}
ready_count() { # JOB [URL-INDEX]: replicas that this router may use now
    api "$1" "${2:-0}" /health/ready | jq -r .n_ready
}
has_ready() { [ "$(ready_count "$1" "${3:-0}")" = "$2" ]; } # JOB N [URL-INDEX]
leftovers() { # NODE…: processes of the service and names in /dev/shm that are still there
    local node
    for node in "$@"; do
        "$VC" exec "$node" sh -c 'pgrep -x -l "exaserved|exaserve-engin.*"; ls /dev/shm' 2>/dev/null | sed "s/^/$node /"
    done
}
