#!/usr/bin/env bash
# phases.sh - the phases of a cold and a warm start of a service on 8 nodes, from the ranks' own clocks.
. "$(dirname "$0")/../cluster/lib.sh"
cluster_up 8 4
for kind in cold warm; do
    begin=$(date +%s%3N)
    job=$(submit "replicas: fill" "" --nodes 8 --time 20)
    await_state "$job" READY 180 || { show_service; exit 1; }
    total=$(($(date +%s%3N) - begin))
    log=$(job_log "$job")
    printf '%s start: submit to READY %d ms\n' "$kind" "$total"
    echo "$log" | sed -n 's/.*start: every rank is done with \(.*\) ms=\([0-9]*\)$/  \2 ms after rank 0 left MPI_Init: \1/p'
    echo "$log" | sed -n 's/.*mpi_init_ms=\([0-9]*\).*/\1/p' | sort -n | awk '{t[NR] = $1} END {printf "  MPI_Init of a rank: median %d ms, longest %d ms (%d ranks)\n", t[int((NR+1)/2)], t[NR], NR}'
    echo "$log" | sed -n 's/.*weights: round.* ms=\([0-9]*\) .*/\1/p' | sort -n | tail -1 | sed 's/^/  broadcast of the weights, longest node: /; s/$/ ms/'
    echo "$log" | sed -n 's/.*load_ms=\([0-9]*\) warm_ms=\([0-9]*\).*/\1 \2/p' | awk '{l = l < $1 ? $1 : l; w = w < $2 ? $2 : w} END {printf "  engine, longest: load %d ms, warm-up %d ms\n", l, w}'
    exa stop "$job" >/dev/null 2>&1
    await_over "$job" 60
done
