#!/bin/bash
# exaserve pack of Hugging Face folders and --quantize: every family's tensors as an independent reader (numpy, h5py) expects
# them, smaller formats with their errors, refusals by name, bounded memory.
# shellcheck source=tests/e2e/pack_lib.sh
. tests/e2e/pack_lib.sh

pack() {
    "$bin/exaserve" pack "$@"
}
refused() { # TEXT ARGS… - exit code 4 and one line on standard error that has TEXT
    local text=$1 rc=0
    shift
    "$bin/exaserve" pack -q "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    cat "$dir/err"
    [ $rc = 4 ] && [ "$(wc -l <"$dir/err")" = 1 ] && grep -qF -- "$text" "$dir/err"
}
python=/usr/bin/python3

# --- every family ---
ok "folders are made" $python tests/tools/make_hf.py "$dir/hf"
cat >"$dir/compare.py" <<'PY'
import hashlib, json, sys
import h5py
import numpy as np

def e4m3(q):
    sign = np.where(q & 128, -1.0, 1.0)
    exp, frac = (q >> 3) & 15, q & 7
    return sign * np.where(exp == 0, frac * 2.0**-9, (8 + frac) * 2.0 ** (exp.astype(int) - 10))

pack = h5py.File(sys.argv[1], "r")
expected = json.load(open(sys.argv[2]))
assert set(pack["tensors"]) == set(expected), set(pack["tensors"]) ^ set(expected)
for name, (kind, shape, digest) in expected.items():
    data = pack["tensors"][name]
    attr = data.attrs["type"]
    attr = attr.decode() if isinstance(attr, bytes) else attr
    assert attr == kind, (name, attr, kind)
    assert list(data.attrs["shape"]) == shape, (name, list(data.attrs["shape"]), shape)
    raw = data[()]
    if kind == "F32":
        x = raw.view("<f4")
    elif kind == "F16":
        x = raw.view("<f2").astype("<f4")
    elif kind == "BF16":
        x = (raw.view("<u2").astype("<u4") << 16).view("<f4")
    else:
        blocks = raw.reshape(-1, 36)
        x = blocks[:, :4].copy().view("<f4") * e4m3(blocks[:, 4:]).astype("<f4")
    if name.startswith("rope_"): # computed: equal to a rounding
        continue
    assert hashlib.sha256(np.ascontiguousarray(x, "<f4").tobytes()).hexdigest() == digest, name
PY
for folder in "$dir"/hf/*/; do
    family=$(basename "$folder")
    ok "$family is packed" pack -q "$folder" "$dir/$family.h5"
    ok "$family: every tensor is as numpy makes it" $python "$dir/compare.py" "$dir/$family.h5" "$folder/expected.json"
    ok "$family: every hash agrees" pack --verify "$dir/$family.h5"
done
ok "the pack is named after its folder" sh -c '"$1/exaserve" pack --list "$2/llama.h5" | grep -q "^model   llama (llama, 2 layers, width 256, vocabulary 320, context 512)"' - "$bin" "$dir"
cp -r "$dir/hf/llama" "$dir/again"
mkdir "$dir/copy" && mv "$dir/again" "$dir/copy/llama"
ok "packing twice gives the same digest" sh -c '[ "$("$1/exaserve" pack -q "$2/hf/llama" "$2/x.h5")" = "$("$1/exaserve" pack -q "$2/copy/llama/" "$2/y.h5")" ]' - "$bin" "$dir"

# --- smaller formats ---
# The errors printed, in percent, stay under what a format of as many bits can do on normally distributed weights.
quantised() { # FORMAT MOST BITS - of llama's matrices (BF16)
    local format=$1 most=$2
    pack -q --quantize "$format" "$dir/hf/llama" "$dir/q.h5" >"$dir/report" || return 1
    cat "$dir/report"
    pack --verify "$dir/q.h5" || return 1
    pack --list "$dir/q.h5" >"$dir/list"
    [ "$(tail -n 1 "$dir/report")" = "$(awk '$1 == "digest" { print $2 }' "$dir/list")" ] || return 1
    awk -v f="$format" -v most="$most" '
        $2 == f && $1 == "BF16" { found = 1; if (!($7 > 0 && $7 <= most)) exit 1 }
        $1 == "all" { all = 1; if (!($5 < $4)) exit 1 }
        END { exit !(found && all) }' "$dir/report" || return 1
    grep -q "^token_embd.weight *$([ "$format" = F16 ] && echo BF16 || echo Q8_0) " "$dir/list" || return 1
    grep -q "^blk.0.attn_norm.weight *F32 " "$dir/list" && grep -q "^blk.1.ffn_up.weight *$format " "$dir/list"
}
ok "Q8_0" quantised Q8_0 0.9
ok "Q6_K" quantised Q6_K 2.3
ok "Q5_K" quantised Q5_K 3.9
ok "Q5_1" quantised Q5_1 3.9
ok "Q5_0" quantised Q5_0 5.0
ok "Q4_K" quantised Q4_K 7.8
ok "Q4_1" quantised Q4_1 8.0
ok "Q4_0" quantised Q4_0 9.9
ok "F8_E4M3" quantised F8_E4M3 3.0
ok "a format in small letters" pack -q --quantize q4_k "$dir/hf/mixtral" "$dir/q.h5"
ok "experts are quantised, the router is not" sh -c '"$1/exaserve" pack --list "$2/q.h5" >"$2/list" && grep -q "^blk.0.ffn_down_exps.weight *Q4_K  *\[512, 256, 4\]" "$2/list" && grep -q "^blk.0.ffn_gate_inp.weight *F32 " "$2/list"' - "$bin" "$dir"
ok "F32 becomes F16" sh -c '"$1/exaserve" pack -q --quantize F16 "$2/hf/qwen3moe" "$2/q.h5" && "$1/exaserve" pack --list "$2/q.h5" | grep -q "^token_embd.weight *F16 "' - "$bin" "$dir"
pack --quantize Q4_0 "$model" "$dir/q.h5" >"$dir/report" 2>"$dir/notes"
ok "an input that is quantised already is taken, with a note" grep -q "^note: 210 tensors are quantised already (.* is Q4_1)" "$dir/notes"
ok "the worst tensor is named" grep -Eq '^Q4_1 +Q4_0 +210 .* blk\.[0-9]+\.[a-z_]+\.weight \([0-9.]+ %\)$' "$dir/report"
pack --quantize Q4_K "$model" "$dir/q.h5" >/dev/null 2>"$dir/notes"
ok "what its blocks do not fit is said" grep -Eq "^note: rows of [0-9]+ tensors are no whole Q4_K blocks|^note: 30 tensors are quantised already" "$dir/notes"
pack --quantize Q8_0 "$model" "$dir/q.h5" >/dev/null 2>"$dir/notes"
ok "nothing grows" grep -q "^note: no tensor becomes smaller as Q8_0: the model is kept as it is" "$dir/notes"
ok "then the pack is the same" sh -c '[ "$("$1/exaserve" pack -q "$3" "$2/x.h5")" = "$("$1/exaserve" pack -q --quantize Q8_0 "$3" "$2/y.h5" 2>/dev/null | tail -n 1)" ]' - "$bin" "$dir" "$model"
threads() { # one core and all cores make the same pack
    [ "$(taskset -c 0 "$bin/exaserve" pack -q --quantize Q4_0 "$dir/hf/llama3" "$dir/x.h5" | tail -n 1)" = \
        "$(pack -q --quantize Q4_0 "$dir/hf/llama3" "$dir/y.h5" | tail -n 1)" ]
}
ok "the number of threads does not change a byte" threads

# --- memory: a model of 200 MB is packed and quantised within 100 MB of its own (mapped pages are the file's) ---
cat >"$dir/big.py" <<'PY'
import json, os, struct, sys
src, dst, layers = sys.argv[1], sys.argv[2], 120
config = json.load(open(src + "/config.json"))
n = struct.unpack("<Q", open(src + "/model.safetensors", "rb").read(8))[0]
raw = open(src + "/model.safetensors", "rb").read()
header, data = json.loads(raw[8:8 + n]), raw[8 + n:]
os.makedirs(dst)
new, at = {}, 0
with open(dst + "/data", "wb") as f:
    def put(name, old):
        global at
        t = header[old]
        a, b = t["data_offsets"]
        new[name] = {"dtype": t["dtype"], "shape": t["shape"], "data_offsets": [at, at + b - a]}
        at += b - a
        f.write(data[a:b])
    for name in header:
        if ".layers." not in name and name != "__metadata__":
            put(name, name)
    for i in range(layers):
        for name in header:
            if ".layers.0." in name:
                put(name.replace(".layers.0.", f".layers.{i}."), name)
text = json.dumps(new).encode()
with open(dst + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + open(dst + "/data", "rb").read())
os.remove(dst + "/data")
config["num_hidden_layers"] = layers
json.dump(config, open(dst + "/config.json", "w"))
for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
    open(dst + "/" + name, "w").write(open(src + "/" + name).read())
PY
$python "$dir/big.py" "$dir/hf/mistral" "$dir/big"
peak() { # ARGS… - peak of anonymous memory, kB
    $python - "$bin/exaserve" pack -q "$@" <<'PY'
import subprocess, sys, time
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
most = 0
while p.poll() is None:
    try:
        for line in open(f"/proc/{p.pid}/status"):
            if line.startswith("RssAnon:"):
                most = max(most, int(line.split()[1]))
    except OSError:
        pass
    time.sleep(0.003)
print(most)
sys.exit(p.returncode)
PY
}
small() { # KB ARGS… - at most so much
    local most=$1 found
    shift
    found=$(peak "$@") || return 1
    echo "peak $found kB, at most $most"
    [ "$found" -gt 0 ] && [ "$found" -le "$most" ]
}
ok "the large model has its size" test "$(stat -c %s "$dir/big/model.safetensors")" -gt 140000000
most=100000
case ${EXASERVE_OUT:-} in *san) most=700000 ;; esac # their shadow memory is several times what the program takes
ok "packing it takes little memory" small $most "$dir/big" "$dir/big.h5"
ok "so does quantising it" small $most --quantize Q8_0 "$dir/big" "$dir/big.h5"

# --- what is refused ---
ok "an unknown format" refused "--quantize Q3_K: expected one of F16, BF16, Q8_0" --quantize Q3_K "$dir/hf/llama" "$dir/x2.h5"
ok "a folder without a model" refused "$dir/hf/config.json is missing" "$dir/hf" "$dir/x2.h5"
ok "one safetensors file" refused "name its folder" "$dir/hf/llama3/model.safetensors" "$dir/x2.h5"
ok "a pack" refused "is it a pack already?" "$dir/llama.h5" "$dir/x2.h5"
ok "a configuration alone" refused "a JSON file: name its folder" "$dir/hf/llama3/config.json" "$dir/x2.h5"
ok "a folder that is not there" refused "$dir/none" "$dir/none" "$dir/x2.h5"
edited() { # JQ TEXT - llama3 with another config.json
    rm -rf "$dir/edit" && cp -r "$dir/hf/llama3" "$dir/edit" && jq "$1" "$dir/hf/llama3/config.json" >"$dir/edit/config.json" &&
        refused "$2" "$dir/edit" "$dir/x2.h5"
}
ok "an architecture" edited '.architectures = ["Gemma3ForCausalLM"]' "found Gemma3ForCausalLM"
ok "an activation" edited '.hidden_act = "gelu"' "key hidden_act: only silu is supported, found gelu"
ok "a key that is new" edited '.attention_sinks = 4' "key attention_sinks = 4 is not known"
ok "a scaling" edited '.rope_scaling.rope_type = "mrope"' "key rope_scaling.rope_type"
ok "head counts" edited '.num_key_value_heads = 3' "heads: expected a multiple of the 3 KV heads, found 8"
ok "a shape" edited '.intermediate_size = 384' "mlp.gate_proj.weight: expected shape [384, 256], found [512, 256]"
ok "a layer that is missing" edited '.num_hidden_layers = 3' "tensor model.layers.2.input_layernorm.weight of shape [256] is missing"
ok "a layer too many" edited '.num_hidden_layers = 1' "is not known for LlamaForCausalLM"
cp -r "$dir/hf/llama" "$dir/cut"
truncate -s -1 "$dir/cut/model-00002-of-00003.safetensors"
ok "a shard that was cut" refused "model-00002-of-00003.safetensors: tensor " "$dir/cut" "$dir/x2.h5"
rm "$dir/cut/model-00002-of-00003.safetensors"
ok "a shard that is missing" refused "model-00002-of-00003.safetensors is missing" "$dir/cut" "$dir/x2.h5"
ok "no refusal leaves a file" sh -c '! ls "$1"/x2.h5* 2>/dev/null' - "$dir"

echo "1..$n"
