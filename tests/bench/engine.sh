#!/usr/bin/env bash
# engine.sh BUILD - tokens/s of one engine on the real model: both kernel sets in one run, and as a ratio to the plain one.
set -euo pipefail
build=$(realpath "${1:?usage: engine.sh BUILD}")
bench=$build/release/tests/bench/engine_bench
export EXASERVE_CACHE=$build/bench-cache EXASERVE_RUN_DIR=$build/bench-run
image() { compgen -G "$EXASERVE_CACHE/*/image" | head -n 1; }
if [ -z "$(image || true)" ]; then # the image that a service makes of the model
    "$build/release/bin/exaserve" run "$build/model/SmolLM2-135M-Instruct.Q4_1.gguf" >/dev/null 2>&1 &
    pid=$!
    for _ in $(seq 600); do
        [ -z "$(image || true)" ] || break
        kill -0 $pid 2>/dev/null || break
        sleep 0.2
    done
    kill -INT $pid 2>/dev/null || true
    wait $pid || true
fi
path=$(image) || { echo "engine.sh: no image was made" >&2; exit 1; }
for threads in 1 2; do
    for kernels in ref avx2; do
        for streams in 1 8; do
            [ "$kernels/$streams" != ref/8 ] || continue
            line=$("$bench" "$path" $threads $kernels $streams | paste -sd' ')
            decode=$(sed 's/.*decode \([0-9.]*\) .*/\1/' <<<"$line")
            [ $kernels != ref ] || plain=$decode
            awk -v line="$line" -v d="$decode" -v p="$plain" 'BEGIN {printf "%s, %.1f times plain\n", line, d / p}'
        done
    done
done
