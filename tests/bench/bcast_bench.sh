#!/bin/bash
# bcast_bench.sh BCAST_BENCH - the broadcast's rate on 6 ranks, and the start of worlds of 6 and 28 ranks.
set -eu
bench=$1
[ "$(id -u)" = 0 ] && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d "${TMPDIR:-/tmp}/exa-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
for n in 6 28; do
    segments=$([ "$n" = 6 ] && echo 24 || echo 0)
    timeout 300 mpirun --oversubscribe --enable-recovery --bind-to none -n "$n" \
        "$bench" "$work" "$segments" 5 | grep -v '^segments'
done
