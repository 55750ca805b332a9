# shellcheck shell=bash disable=SC2034
# For tests of packs: source it. $bin, the real $model, a work folder $dir that goes at exit, and `ok`. Prints TAP.
bin=${EXASERVE_BIN:-build/release/bin}
model=${EXASERVE_TEST_MODEL:-build/model/SmolLM2-135M-Instruct.Q4_1.gguf}
dir=$(mktemp -d /tmp/exa-pack-XXXXXX)
trap 'rm -rf "$dir"' EXIT
n=0

ok() { # NAME COMMAND… - the command must succeed
    local name=$1 out
    shift
    n=$((n + 1))
    if out=$("$@" 2>&1); then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        printf '%s\n' "$out" | head -20 | sed 's/^/# /'
    fi
}
