#!/usr/bin/env bash
# llama.sh BUILD - one engine beside llama.cpp: the same cores, the same GGUF, A B A B in one run, as ratios.
#
# llama.cpp is built once (llama_build.sh), with what this CPU has; flash attention is off for decode and batches, on for prefill, which is its
# best. LLAMA_ROUNDS (default 3) rounds of each; medians. THREADS (default: all cores).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?usage: llama.sh BUILD}")
baseline=${LLAMA_BASELINE:-$build/llama-baseline}
threads=${THREADS:-$(nproc)} rounds=${LLAMA_ROUNDS:-3}
model=$build/model/SmolLM2-135M-Instruct.Q4_1.gguf
export EXASERVE_CACHE=$build/bench-cache
[ -x "$baseline/llama_bench" ] || tests/bench/llama_build.sh "$baseline"
pack=$build/bench-run/model.h5
mkdir -p "${pack%/*}"
rm -f "$pack"
"$build/release/bin/exaserve" pack "$model" "$pack" >/dev/null 2>&1
bandwidth=$("$build/release/tests/bench/bandwidth_bench" "$threads")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ours() { # PROMPT GEN PARALLEL
    "$build/release/bin/exaserve" bench engine --model "$pack" --threads "$threads" --prompt "$1" --gen "$2" --parallel "$3" --json 2>>"$work/log" || { cat "$work/log" >&2; return 1; }
}
theirs() { # PROMPT GEN PARALLEL FLASH
    "$baseline/llama_bench" "$model" "$threads" "$@"
}
measure() { # NAME PROMPT GEN PARALLEL FLASH
    for _ in $(seq "$rounds"); do
        ours "$2" "$3" "$4" >>"$work/$1.ours"
        theirs "$2" "$3" "$4" "$5" >>"$work/$1.theirs"
    done
}
measure decode_128 128 64 1 0
measure decode_1024 1024 32 1 0
measure prefill_512 512 4 1 1
measure prefill_1800 1800 4 1 1
measure streams_8 128 32 8 0
measure streams_16 128 32 16 0
echo "threads $threads, load $(cut -d' ' -f1 /proc/loadavg), measured read bandwidth $bandwidth GB/s"
python3 - "$work" "$bandwidth" "$(stat -c %s "$model")" <<'P'
import json, statistics, sys
work, bandwidth, weights = sys.argv[1], float(sys.argv[2]) * 1e9, int(sys.argv[3])
def runs(name, side):
    return [json.loads(l) for l in open(f"{work}/{name}.{side}")]
def line(what, name, key, need, better=max):
    a, b = runs(name, "ours"), runs(name, "theirs")
    x, y = (statistics.median(r[key] for r in s) for s in (a, b))
    pairs = sorted(p[key] / q[key] for p, q in zip(a, b))
    print(f"{what:32} {x:9.1f} {y:9.1f}   ratio {statistics.median(pairs):.2f} ({pairs[0]:.2f} to {pairs[-1]:.2f}), required {need}")
    return x
print(f"{'':32} {'exaserve':>9} {'llama.cpp':>9}")
d = line("decode at 128, tokens/s", "decode_128", "decode_tokens_s", ">= 1.0")
line("decode at 1,024, tokens/s", "decode_1024", "decode_tokens_s", ">= 1.2")
line("prefill of 512, tokens/s", "prefill_512", "prefill_tokens_s", ">= 1.5")
line("prefill of 1,800, tokens/s", "prefill_1800", "prefill_tokens_s", ">= 1.5")
line("8 streams, tokens/s in all", "streams_8", "decode_tokens_s", ">= 1.3")
line("16 streams, tokens/s in all", "streams_16", "decode_tokens_s", ">= 1.3")
line("start to first token, s", "decode_128", "first_token_s", "<= 1")
line("peak memory at 512, MB", "prefill_512", "peak_mb", "< 1")
line("peak memory at 16 streams, MB", "streams_16", "peak_mb", "< 1")
print(f"fraction of the read bandwidth in decode at 128 (weights only): {d * weights / bandwidth:.2f}")
out = statistics.median(r["outside_kernels"] for r in runs("streams_16", "ours"))
print(f"time outside operations in a step of 16 streams: {100 * out:.1f} % (required < 5 %)")
cached = statistics.median(r["cached_prompt"] for r in runs("decode_1024", "ours"))
print(f"first token of a cached prompt of 1,024: {100 * cached:.1f} % of the uncached one's time (required <= 5 %)")
P
