#!/bin/bash
# chat and health against a small HTTP server: streaming, history, stopping an answer, dead routers, typed errors.
. "$(dirname "$0")/cli_lib.sh"

touch "$W/ready"
stub a "$W/ready"
job local run-1 READY "$url"
printf '%d 1 x\n' $$ >"$W/owner" # no living owner: the service answers all the same

say() { # chat with standard input: say TEXT ARG…
    local text=$1; shift
    printf '%b' "$text" | timeout 60 "$EXA" chat run-1 "$@" >"$W/out" 2>"$W/err"
    code=$? out=$(cat "$W/out") err=$(cat "$W/err")
}

# --- health
exa health run-1
is "$code" 0 "health of a ready service: 0"
like "$out" "^router +$url: ready \(200\)" "health names the router"
like "$out" '^  1 +n22 +r0 +LOADING +0' "health has a row for each replica"
unlike "$out" $'\e' "text from the service does not steer the terminal"
exa health run-1 --json
is "$(jq -r '[.ready, .routers[0].status, .routers[0].body.replicas[1].state]|join(" ")' <<<"$out")" "true 200 LOADING" "health --json"
rm "$W/ready"
exa health run-1
is "$code" 2 "health of a service that is not ready: 2"
like "$out" 'not ready \(503\)' "it shows the answer"
SLURM_JOB_ID=run-1 exa health
like "$err" 'run-1 is not ready' "inside a job, that job is meant"
touch "$W/ready"
job local run-1 READY http://127.0.0.1:1 "$url"
exa health run-1
is "$code" 0 "one of two routers is enough"
like "$out" '127.0.0.1:1: does not answer' "the dead one is named"
job local run-1 READY http://127.0.0.1:1
exa health run-1
is "$code" 2 "no router answers: 2"

# --- chat from a pipe; the first router is dead all the while
job local run-1 READY http://127.0.0.1:1 "$url"
say 'hello\nagain\n'
is "$code/$err" 0/ "chat ends well with the input"
is "$out" "u: you said hello
uau: you said again" "each line is a turn, and the conversation is kept"
last=$(grep POST "$W/a.log" | tail -1 | sed 's/^POST //')
is "$(jq -r '.messages[1].content' <<<"$last")" "u: you said hello" "the answer is part of it"
is "$(jq -r '[.model, .stream, has("seed"), has("temperature"), has("max_tokens")]|join(" ")' <<<"$last")" "stub-model true false false false" "what is not asked for is not sent"
say 'x\n' --system 'be brief' --max-tokens 7 --temperature 0.5 --seed 42
is "$out" "su: you said x" "--system comes first"
last=$(grep POST "$W/a.log" | tail -1 | sed 's/^POST //')
is "$(jq -r '[.max_tokens, .temperature, .seed]|join(" ")' <<<"$last")" "7 0.5 42" "--max-tokens, --temperature, --seed"
say 'one\n/reset\ntwo' --system S
is "$out" "su: you said one
su: you said two" "/reset forgets, the system message stays; the last line needs no end"
say 'one\n/quit\ntwo\n'
is "$out" "u: you said one" "/quit ends"
say 'cut\n'
is "$(head -c 7 <<<"$out")" "grüße" "events may be cut anywhere"
unlike "$out" $'\e|\xc2\x9b|\x7f' "an answer does not steer the terminal"
say 'one\ntwo\nthree\nlong\nlast\n' --system S
is "$code/$(tail -2 <<<"$out")" "0/suau: you said long
suauau: you said last" "a conversation longer than the context loses its oldest turns"
is "$(grep -c "no longer fit the model's context" "$W/err")" 1 "and says so"
say 'one\ntoo long\n'
is "$code/$err" "4/exaserve chat: the service refused (400): the context is 8" "a question that alone is too long: the reason"
say 'refuse\nnext\n'
is "$code/$out" 4/ "a refused prompt: 4"
is "$err" "exaserve chat: the service refused (400): prompt has 9 tokens, the context 8" "with the service's sentence"
say 'fail\n'
is "$code/$out" 2/begun "an answer that the service breaks off: 2"
like "$err" 'broke the answer off: the node went away' "with its reason"
say 'break\n'
is "$code/$out" 2/half "a connection that breaks: 2"
printf '\xff\xfe\n' | "$EXA" chat run-1 >"$W/out" 2>"$W/err"
is $? 4 "a line that is not UTF-8: 4"

{ yes slow | timeout 30 "$EXA" chat run-1 2>"$W/err"; echo $? >"$W/code"; } | head -c 5 >"$W/out"
is "$(cat "$W/out")/$(cat "$W/code")" tick0/1 "a reader that leaves ends the answer and the program"
is "$(cat "$W/err")" "exaserve: cannot write to standard output" "and it is said once"

a=$url
stub b "$W/never"
job local run-1 READY "$url" "$a"
say 'hello\n'
is "$code/$out" "0/u: you said hello" "a router that drains: the next one answers"
job local run-1 READY "$url"
say 'hello\n'
is "$code/$out" 2/ "none that takes requests: 2"
like "$err" 'refused \(503\): draining' "with its reason"
job local run-1 READY http://127.0.0.1:1 "$a"

# --- Ctrl-C
before=$(grep -c 'left slow' "$W/a.log")
mkfifo "$W/in"
timeout 60 "$EXA" chat run-1 <"$W/in" >"$W/out" 2>"$W/err" & pid=$!; started+=($pid)
exec 9>"$W/in"
echo slow >&9
until_true 30 grep -q tick3 "$W/out"; ok $? "a long answer is shown while it comes"
child=$(pgrep -P $pid) # the command itself, below timeout
kill -INT "$child"
until_true 30 grep -q '(stopped)' "$W/err"; ok $? "Ctrl-C stops the answer"
stopped() { [ "$(grep -c 'left slow' "$W/a.log")" -gt "$before" ]; }
until_true 30 stopped; ok $? "the request is closed"
echo after >&9
until_true 30 grep -q 'uau: you said after' "$W/out"; ok $? "and the program goes on, with what was said"
exec 9>&-
wait $pid
is $? 0 "the end of the input ends it"

# --- in a terminal
if command -v script >/dev/null; then
    printf 'hi\n\004' | timeout 60 script -qec "$EXA chat run-1" /dev/null >"$W/tty" 2>&1
    is $? 0 "Ctrl-D ends it in a terminal"
    like "$(cat "$W/tty")" 'stub-model at' "a terminal sees the model's name"
    like "$(cat "$W/tty")" 'u: you said hi' "and the answer"
fi

# --- wrong key, dead service
sed -i 's/"key": "sk-exa-0/"key": "sk-exa-1/' "$EXASERVE_RUN_DIR/local/run-1/endpoint.json"
say 'x\n'
is "$code/$err" "4/exaserve chat: the service refused (401): wrong key" "a wrong key: 4"
exa health run-1
is "$code" 2 "health with a wrong key: 2"
job local run-1 READY http://127.0.0.1:1
say 'x\n'
is "$code/$out" 2/ "nobody there: 2"
like "$err" '127.0.0.1:1' "the address is named"
job local run-1 STARTING
say 'x\n'
is "$code" 2 "no URL yet: 2"
echo "1..$n"
