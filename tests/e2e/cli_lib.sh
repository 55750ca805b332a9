# shellcheck shell=bash disable=SC2034
# For tests of the command: source it. A work folder $W of its own with the run directories below it; what was started by `start`
# is ended at exit. Prints TAP.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
BIN=${EXASERVE_BIN:-$PWD/build/release/bin}
EXA=$BIN/exaserve
[ -x "$EXA" ] || { echo "Bail out! no $EXA: run make"; exit 1; }
W=$(mktemp -d /tmp/exa-cli.XXXXXX)
export EXASERVE_RUN_DIR=$W/run EXASERVE_CACHE=$W/cache
unset SLURM_JOB_ID SLURM_CLUSTER_NAME EXASERVE_HOME
n=0 failed=0 started=()
finish() {
    local p
    for p in "${started[@]}"; do kill "$p" 2>/dev/null; done
    for p in "${started[@]}"; do wait "$p" 2>/dev/null; done
    rm -rf "$W"
    exit $failed
}
trap finish EXIT
start() { "$@" & started+=($!); }
ok() { # STATUS DESCRIPTION [DETAIL]
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else
        failed=1; echo "not ok $n - $2"; [ $# -lt 3 ] || sed 's/^/# /' <<<"$3"
    fi
}
is() { if [ "$1" = "$2" ]; then ok 0 "$3"; else ok 1 "$3" "got:      $1
expected: $2"; fi; }
like() { if grep -qE -- "$2" <<<"$1"; then ok 0 "$3"; else ok 1 "$3" "got: $1
expected: /$2/"; fi; }
unlike() { if grep -qE -- "$2" <<<"$1"; then ok 1 "$3" "got: $1
unwanted: /$2/"; else ok 0 "$3"; fi; }
until_true() { # SECONDS COMMAND…
    local end=$((SECONDS + $1)); shift
    until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || return 1; sleep 0.05; done
}
# exa ARG…: runs the command; $code, $out (standard output), $err (standard error)
exa() {
    "$EXA" "$@" >"$W/out" 2>"$W/err" </dev/null
    code=$? out=$(cat "$W/out") err=$(cat "$W/err")
}
# job CLUSTER ID [STATE URL…]: a run directory, with endpoint.json when a state is given
job() {
    local dir=$EXASERVE_RUN_DIR/$1/$2
    (umask 077; mkdir -p "$dir"; printf 'sk-exa-%048d\n' 7 >"$dir/key"; printf '%064d\n' 1 >"$dir/secret")
    # a local one belongs to a process that lives: this one
    [ "$1" != local ] || (umask 077
        echo "$$ $(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20) $(cat /proc/sys/kernel/random/boot_id)" >"$dir/owner")
    [ $# -lt 3 ] || (umask 077; python3 - "$dir" "$@" <<'P'
import json, sys, time
dir, cluster, job, state, *urls = sys.argv[1:]
json.dump({"version": 1, "job": job, "cluster": cluster, "name": "svc", "state": state, "progress": "2 of 2 replicas are ready",
  "key": "sk-exa-%048d" % 7, "model": "stub-model", "urls": urls, "n_ready": 2, "n_wanted": 2, "n_min": 1, "attempt": 1,
  "updated_wall_s": int(time.time()), "end_wall_s": 0}, open(dir + "/endpoint.json", "w"))
P
    )
}
KEY=sk-exa-$(printf %048d 7)
# stub NAME [READY_FILE]: a server; its URL in $url, its log in $W/NAME.log
stub() {
    start python3 tests/e2e/cli_stub.py "$W/$1.port" "$KEY" "$W/$1.log" ${2:+"$2"}
    until_true 30 test -s "$W/$1.port" || { echo "Bail out! the stub did not start"; exit 1; }
    url=http://127.0.0.1:$(cat "$W/$1.port")
}
fake() { # NAME: a command in $W/bin, its text on standard input; its arguments are noted in $W/NAME.args, one a line
    mkdir -p "$W/bin"
    { echo '#!/bin/sh'; echo "for a in \"\$@\"; do echo \"\$a\" >>$W/$1.args; done"; cat; } >"$W/bin/$1.new"
    chmod +x "$W/bin/$1.new"; mv "$W/bin/$1.new" "$W/bin/$1"
}
