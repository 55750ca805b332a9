#!/usr/bin/env bash
# starts.sh [N] - N starts (200) of an 8-rank world on a loaded machine, counted; prints how many failed and the times.
. "$(dirname "$0")/../cluster/lib.sh"
n=${1:-200}
cluster_up 4 2
yaml "$HOME_DIR/serve.yaml" "replicas: fill" $'standbys: false\nrouters: 3\ngrace: 1'
busy=()
for _ in 1 2; do (while :; do :; done) & busy+=($!); done # as many busy processes as cores here
trap 'kill "${busy[@]}" 2>/dev/null; on_end' EXIT
run=$HOME_DIR/starts
job=$(login sbatch --parsable -N 4 --exclusive --no-kill -o "$HOME_DIR/starts.log" "$ROOT/tests/bench/starts.sbatch" "$BIN" \
    "$HOME_DIR/serve.yaml" "$run" "$n")
until is_over "$job"; do
    sleep 5
    printf '\r  %s of %s starts' "$(wc -l <"$run/starts" 2>/dev/null || echo 0)" "$n" >&2
done
echo >&2
n_ok=$(grep -c '^ok' "$run/starts")
ranks=$(awk 'NR == 1 {print $3}' "$run/starts")
at() { sed -n 's/^ok \([0-9]*\) .*/\1/p' "$run/starts" | sort -n | sed -n "$(((n_ok * $1 + 99) / 100))p"; } # percentile
printf 'starts: %d of %d worlds of %d ranks came up on a loaded machine, %d failed; srun to detached: median %s ms, p99 %s ms\n' \
    "$n_ok" "$n" "$ranks" $((n - n_ok)) "$(at 50)" "$(at 99)"
if [ "$n_ok" != "$n" ]; then
    tail -30 "$HOME_DIR/starts.log" "$run"/failed-*.log 2>/dev/null
    exit 1
fi
