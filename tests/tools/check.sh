#!/usr/bin/env bash
# check.sh BUILD [PATTERN] - run every test (or those whose name matches the extended regular expression) under prove.
#
# Each test becomes one small wrapper in BUILD/check, named after what it runs and in which build, so that one prove runs all and
# its totals are the closing lines. Long ones come first: with two jobs the short ones fill the gaps.
set -euo pipefail
build=${1:?usage: check.sh BUILD [PATTERN]}
pattern=${2:-.}
cd "$(dirname "$0")/../.."
dir=$build/check
rm -rf "$dir"
mkdir -p "$dir"
here=$PWD
limit=900 # seconds for one test: far more than any needs on a slow machine
order=()

wrap() { # NAME MODE COMMAND…
    local name=$1 mode=$2
    shift 2
    [[ $name =~ $pattern ]] || return 0
    {
        echo '#!/bin/bash'
        echo "cd '$here'"
        echo "export EXASERVE_BIN='$here/$build/$mode/bin' EXASERVE_TESTS='$here/$build/$mode/tests' EXASERVE_BUILD_DIR='$here/$build' EXASERVE_OUT='$here/$build/$mode'"
        echo "export EXASERVE_TEST_MODEL='$here/$build/model/SmolLM2-135M-Instruct.Q4_1.gguf' EXASERVE_GOLDEN='$here/tests/golden'"
        echo "export EXASERVE_VENV='$here/$build/venv' CMOCKA_MESSAGE_OUTPUT=TAP"
        # Members of one test talk inside this machine; what a cluster's fabric needs is not for here (docs/cluster.md).
        echo 'export UCX_TLS=tcp,self OMPI_MCA_btl=self,tcp'
        case $mode in
        asan | tsan)
            echo 'export UCX_HANDLE_ERRORS=none UCX_MEM_MMAP_HOOK_MODE=none UCX_MEM_EVENTS=n'
            echo "export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 LSAN_OPTIONS=suppressions='$here/tests/tools/lsan.supp':print_suppressions=0"
            echo "export UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=suppressions='$here/tests/tools/tsan.supp':halt_on_error=1:ignore_noninstrumented_modules=1"
            ;;
        esac
        if [[ $name == unit-* ]]; then # cmocka says "not ok # SKIP" of a skipped test; TAP has "ok # SKIP"
            echo "set -o pipefail"
            echo "timeout -k 10 $limit $* | sed -u 's/^not ok \\([0-9]* # SKIP\\)/ok \\1/'"
        else
            echo "exec timeout -k 10 $limit $*"
        fi
    } >"$dir/$name.t"
    chmod +x "$dir/$name.t"
    order+=("$dir/$name.t")
}

if [ "$(id -u)" = 0 ]; then
    for t in tests/cluster/t*.t; do
        [ -e "$t" ] && wrap "cluster-$(basename "$t" .t)" release "$t"
    done
fi
for mode in release asan tsan; do
    for t in tests/e2e/t*.t; do
        # a first line "# modes: release" keeps a test out of the sanitizer builds, with its reason
        if [ "$mode" = release ] || ! grep -q '^# modes: release' "$t"; then
            wrap "e2e-$mode-$(basename "$t" .t)" $mode "$t"
        fi
    done
    for t in "$build/$mode"/tests/unit/*_test; do
        wrap "unit-$mode-$(basename "$t" _test)" $mode "$t"
    done
done
for t in "$build"/asan/tests/fuzz/*_fuzz; do
    name=$(basename "$t" _fuzz)
    wrap "fuzz-corpus-$name" asan "$t" "tests/fuzz/corpus/$name"
done
[ ${#order[@]} -gt 0 ] || { echo "check.sh: no test matches $pattern" >&2; exit 4; }
exec prove -j "${CHECK_JOBS:-2}" --timer --failures --comments "${order[@]}"
