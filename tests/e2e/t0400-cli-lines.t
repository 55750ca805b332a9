#!/bin/bash
# Command lines: help, versions, hints for mistyped names, exit codes; nothing is asked of Slurm.
. "$(dirname "$0")/cli_lib.sh"

exa --version
is "$code" 0 "--version"
like "$out" '^exaserve [0-9]+\.[0-9]+\.[0-9]+$' "it says which"
exa --help
is "$code" 0 "--help"
for c in submit status url health chat stop run pack tokenize; do
    like "$out" "^  $c +[a-z]" "--help names $c"
done
for c in submit status url health chat stop run; do
    exa $c --help
    is "$code/$err" 0/ "$c --help"
    like "$out" "^usage: exaserve $c" "$c --help has a usage line"
    like "$out" '^  -h, --help' "$c --help lists its options"
    exa help $c
    like "$out" "^usage: exaserve $c" "help $c is the same"
done
exa
is "$code" 4 "no command: 4"
like "$err" '^usage: exaserve' "no command: usage"
while IFS='|' read -r line want; do
    exa $line
    is "$code/$out" 4/ "exaserve $line: 4"
    like "$err" "$want" "exaserve $line: says why"
    is "$(wc -l <<<"$err")" 1 "exaserve $line: in one line"
done <<'L'
sumbit x.yaml|unknown command sumbit; did you mean submit\?
statsu|did you mean status\?
frobnicate|unknown command frobnicate
--hlep|did you mean --help\?
submit|missing: FILE.yaml
submit a b|one operand too many: b
submit x.yaml --ndoes 3|unknown option --ndoes; did you mean --nodes\?
submit x.yaml --nodes|a value must follow option --nodes
submit x.yaml --nodes 0|--nodes must be a whole number from 1 to 4096, and is "0"
submit x.yaml --nodes=-1|and is "-1"
submit x.yaml --wait=yes|no value belongs to option --wait
submit x.yaml -z|unknown option -z
submit /nonexistent.yaml|/nonexistent.yaml: No such file
status --jsno|did you mean --json\?
status 1 2|one operand too many: 2
status ../x|not a job id: \.\./x
chat --temperature hot|--temperature must be a number from 0 to 2
chat --temperature 3|and is "3"
chat --seed 1.5|--seed must be a whole number
run|missing: MODEL.gguf
run /nonexistent.gguf|/nonexistent.gguf: No such file
run x --port 70000|from 0 to 65535
run x --replicas 0|from 1 to 1024
status|no job of yours under
url|no job of yours
health|no job of yours
chat|no job of yours
stop|no job of yours
L
echo 'not a model' >"$W/x.gguf"
exa run "$W/x.gguf"
is "$code" 4 "run with a foreign file: 4"
printf 'GGUF\3\0\0\0' >"$W/y.gguf"
exa run "$W/y.gguf"
is "$code" 4 "run with a cut GGUF file: 4"
is "$(ls "$EXASERVE_RUN_DIR" 2>/dev/null)" "" "no run directory is left by it"
"$EXA" --help >/dev/full 2>/dev/null
ok $(($? == 0)) "a full disk behind standard output is no success"
echo "1..$n"
