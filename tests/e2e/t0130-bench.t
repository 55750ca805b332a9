#!/usr/bin/env bash
# t0130-bench.t - `exaserve bench engine`: its figures as JSON from a pack, and what it refuses. No speed is judged here.
set -u
# shellcheck source=tests/e2e/pack_lib.sh
. "$(dirname "$0")/pack_lib.sh"
export EXASERVE_CACHE=$dir/cache
bench() { "$bin/exaserve" bench "$@"; }
figures() {
    bench engine --model "$dir/m.h5" --threads 2 --prompt 9 --gen 3 --parallel 2 --json >"$dir/out" 2>"$dir/err" ||
        { cat "$dir/err"; return 1; }
    cat "$dir/out"
    jq -e '.engine == "exaserve" and .threads == 2 and .prefill_tokens_s > 0 and .decode_tokens_s > 0
        and .step_p99_us >= .step_p50_us and .outside_kernels >= 0 and .outside_kernels < 1
        and .first_token_s > 0 and .peak_mb > 50 and .cached_prompt > 0' "$dir/out" >/dev/null
}
refused() { # CODE WORDS ARGS…
    local code=$1 words=$2 rc=0
    shift 2
    bench "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    cat "$dir/err"
    [ $rc = "$code" ] && grep -qF -- "$words" "$dir/err" && [ ! -s "$dir/out" ]
}

ok "the model is packed" "$bin/exaserve" pack -q "$model" "$dir/m.h5"
ok "figures come as JSON" figures
ok "the image in the cache serves again" figures
ok "kernels that nobody knows are named" refused 4 "avx9000" engine --model "$dir/m.h5" --kernels avx9000
ok "a pack that is not there is named" refused 4 "$dir/none.h5" engine --model "$dir/none.h5"
ok "a missing --model is said" refused 4 "--model" engine
ok "only engines are measured" refused 4 "router" router --model "$dir/m.h5"
echo "1..$n"
