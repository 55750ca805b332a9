#!/bin/sh
# lint.sh - all that `make lint` holds; arguments: the make command that builds every room with warnings as errors.
#
# Every check runs, each prints what it found, and the last line counts.
cd "$(dirname "$0")/../.." || exit 1
passed=0
failed=0

check() { # NAME COMMAND...
    name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        echo "lint: $name: see above" >&2
        failed=$((failed + 1))
    fi
}

format() {
    git ls-files '*.c' '*.h' | while read -r f; do [ ! -f "$f" ] || echo "$f"; done |
        xargs clang-format --dry-run -Werror
}

warnings() { # COMMAND...: its output matters only when it fails
    log=$(mktemp) || return 1
    "$@" >"$log" 2>&1
    rc=$?
    [ "$rc" -eq 0 ] || grep -v '^  cc ' "$log"
    rm -f "$log"
    return "$rc"
}

scripts() {
    git ls-files '*.sh' '*.sbatch' '.ci/run' | while read -r f; do [ ! -f "$f" ] || echo "$f"; done |
        xargs -r shellcheck --severity=warning || return 1
    # Tests in shell: what they source sets their variables (2154, 2034), and pids and flags are meant to be split (2206, 2046).
    git ls-files '*.t' | while read -r f; do [ ! -f "$f" ] || head -n 1 "$f" | grep -q 'sh$' && echo "$f"; done |
        xargs -r shellcheck --severity=warning --exclude=SC2154,SC2034,SC2206,SC2046
}

python_syntax() { # parsed only: nothing is written beside the sources
    git ls-files '*.py' tests/cluster/vcluster | while read -r f; do [ ! -f "$f" ] || echo "$f"; done |
        xargs -r python3 -c 'import ast, sys
for f in sys.argv[1:]:
    ast.parse(open(f, encoding="utf-8").read(), f)'
}

check "format (clang-format -i FILE mends it)" format
check "layers and lengths" python3 tests/tools/lint_layers.py
check "warnings as errors" warnings "$@"
check "scripts" scripts
check "python" python_syntax

echo "lint: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
