#!/usr/bin/env bash
# demo.sh BUILD - what `make demo` shows: a real model answers, token by token, through a real Slurm allocation of 4 nodes.
#
# Everything happens in namespaces of this machine (tests/cluster/vcluster) and is gone afterwards, also after Ctrl-C.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?usage: demo.sh BUILD}")
bin=$build/release/bin
vc=tests/cluster/vcluster
export VCLUSTER_NAME=demo$$
[ "$(id -u)" = 0 ] || { echo "make demo needs root: it makes network namespaces for a small Slurm cluster" >&2; exit 1; }

step() { printf '\n\033[1m── %s\033[0m\n' "$*"; }
run() { # show a command as a user types it on the login node, then run it there
    printf '\033[32mlogin$\033[0m %s\n' "$*"
    "$vc" login env PATH="$bin:/usr/sbin:/usr/bin:/sbin:/bin" bash -c "cd; $*"
}
trap '"$vc" down >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM

step "a Slurm cluster: 4 nodes in 2 racks, a controller and a login node"
"$vc" up --nodes 4 --rack-size 2
home=$("$vc" login sh -c 'echo $HOME')
ln -sf "$build/model/SmolLM2-135M-Instruct.Q4_1.gguf" "$home/smollm2.gguf"
run "sinfo -N"

step "pack the model, describe the service, submit it"
run "exaserve pack smollm2.gguf smollm2.h5"
cat >"$home/serve.yaml" <<'YAML'
models:
  - name: smollm2
    pack: smollm2.h5
    replicas: fill        # one on every node
slurm:
  nodes: 4
  time: "0:30:00"
YAML
run "cat serve.yaml"
run "exaserve submit serve.yaml --wait"
run "exaserve health"

step "talk to it"
run "echo 'What is the capital of France?' | exaserve chat --temperature 0 --max-tokens 60"
step "any OpenAI client does: here curl, streaming"
run 'eval "$(exaserve url --env)"; curl -sN $OPENAI_BASE_URL/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" -d '"'"'{"model": "smollm2", "stream": true, "temperature": 0, "max_tokens": 8, "messages": [{"role": "user", "content": "Say hello."}]}'"'"

step "end it"
run "exaserve stop"
run "scontrol show job 1 | grep -o -E 'JobState=[A-Z]+|ExitCode=[0-9:]+'"
step "done: now write your own serve.yaml (README.md)"
