#!/usr/bin/env bash
# tokenizer.sh BUILD - MB/s of tokenizing English text on one core, beside the `tokenizers` library in the same run.
set -euo pipefail
build=$(realpath "${1:?usage: tokenizer.sh BUILD}")
python=${EXASERVE_VENV:-$build/venv}/bin/python
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$python" tests/bench/tokenizer_reference.py train "$dir"
for chunk in 65536 4096; do
    for _ in 1 2; do # interleaved: a shared machine changes its speed
        echo "exaserve:   $("$build/release/tests/bench/tokenizer_bench" "$dir" "$dir/text" $chunk | paste -sd' ')"
        echo "tokenizers: $("$python" tests/bench/tokenizer_reference.py time "$dir" $chunk)"
    done
done
