#!/usr/bin/env bash
# t0110-tokenize.t - `exaserve tokenize`: the golden token ids of the real model, from a pack.
set -u
# shellcheck source=tests/e2e/pack_lib.sh
. "$(dirname "$0")/pack_lib.sh"
golden=${EXASERVE_GOLDEN:-tests/golden}
[ -e "$golden/tokens.json" ] || golden=../shared/golden
tokenize() { "$bin/exaserve" tokenize "$@"; }
gives() { # TEXT IDS ARGS…
    local text=$1 ids=$2
    shift 2
    local got
    got=$(printf '%b' "$text" | tokenize "$@" "$dir/m.h5")
    echo "expected $ids, found $got"
    [ "$got" = "$ids" ]
}
refused() { # CODE WORDS ARGS… - standard input is passed on
    local code=$1 words=$2 rc=0
    shift 2
    tokenize "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    cat "$dir/err"
    [ $rc = "$code" ] && grep -qF -- "$words" "$dir/err" && [ ! -s "$dir/out" ]
}

ok "the model is packed" "$bin/exaserve" pack -q "$model" "$dir/m.h5"

# Every golden case: the text byte for byte on standard input, the ids as JSON.
cases=$(jq length "$golden/tokens.json")
ok "there are golden cases" test "$cases" -gt 50
golden_case() { # I
    local special=()
    jq -j ".[$1].text" "$golden/tokens.json" >"$dir/text"
    jq -c ".[$1].ids" "$golden/tokens.json" >"$dir/want"
    [ "$(jq ".[$1].special" "$golden/tokens.json")" = true ] && special=(--special)
    tokenize "${special[@]}" "$dir/m.h5" <"$dir/text" | jq -c . >"$dir/got"
    diff "$dir/want" "$dir/got"
}
for ((i = 0; i < cases; i++)); do
    ok "golden $(jq -r ".[$i].name" "$golden/tokens.json")" golden_case $i
done

ok "control tokens are text" gives '<|im_start|>' '[44, 108, 306, 79, 3738, 108, 46]'
ok "control tokens are recognised on demand" gives '<|im_start|>Hi<|im_end|>' '[1, 26843, 2]' --special
ok "no text, no ids" gives '' '[]'
ok "a large text" sh -c 'yes "The quick brown fox." | head -c 1000000 | "$1/exaserve" tokenize "$2/m.h5" | jq -e "length > 200000"' - "$bin" "$dir"
printf 'abc\377def' >"$dir/text"
ok "invalid UTF-8 is refused with its place" refused 4 "byte 3" "$dir/m.h5" <"$dir/text"
ok "a file that is no pack" refused 4 "not a pack" "$model" </dev/null
ok "a pack that is not there" refused 4 "nothing.h5" "$dir/nothing.h5" </dev/null
ok "no pack named" refused 4 "usage: exaserve tokenize" </dev/null
ok "an unknown option" refused 4 "unknown option --speciel" --speciel "$dir/m.h5" </dev/null
ok "--help explains it" sh -c '"$1/exaserve" tokenize --help | grep -q -- --special' - "$bin"

echo "1..$n"
