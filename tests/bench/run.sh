#!/usr/bin/env bash
# run.sh BUILD - all figures of `make bench`. Compare the ratios and counts within one run: absolute times of a shared machine lie.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?usage: run.sh BUILD}")
export EXASERVE_BIN=$build/release/bin EXASERVE_BUILD_DIR=$build EXASERVE_TEST_MODEL=$build/model/SmolLM2-135M-Instruct.Q4_1.gguf
title() { printf '\n== %s\n' "$*"; }
echo "machine: $(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1 || true)"
title "engine: one replica beside llama.cpp, interleaved"
tests/bench/llama.sh "$build"
title "constrained output: time of a token mask, vocabulary of 131,072"
"$build/release/tests/bench/grammar_bench" "$EXASERVE_TEST_MODEL"
title "sampling: time of a token"
"$build/release/tests/bench/sampler_bench"
title "tokenizing: MB/s of one core beside the tokenizers library"
tests/bench/tokenizer.sh "$build"
title "broadcast: weights against a bare MPI_Bcast of the same bytes, in one run"
tests/bench/bcast_bench.sh "$build/release/tests/bench/bcast_bench"
if [ "$(id -u)" = 0 ]; then
    title "service: start-up phases of a job on 8 nodes"
    tests/bench/phases.sh
    title "starts: a world of 8 ranks, ${STARTS:-200} times, on a loaded machine"
    tests/bench/starts.sh "${STARTS:-200}"
fi
