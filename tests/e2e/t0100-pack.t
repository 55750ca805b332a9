#!/usr/bin/env bash
# t0100-pack.t - `exaserve pack`: the real model as a pack that h5py and h5dump read, and all that must be refused.
set -u
# shellcheck source=tests/e2e/pack_lib.sh
. "$(dirname "$0")/pack_lib.sh"
pack() { "$bin/exaserve" pack "$@"; }
# CODE WORDS ARGS… - pack ARGS must end with CODE and one line on standard error that holds WORDS
refused() {
    local code=$1 words=$2 rc=0
    shift 2
    pack -q "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    cat "$dir/err"
    [ "$rc" = "$code" ] && [ "$(wc -l <"$dir/err")" = 1 ] && grep -qF -- "$words" "$dir/err" && [ ! -s "$dir/out" ]
}
absent() { [ ! -e "$1" ]; }

# --- the real model ---
ok "the model is packed" sh -c '"$1/exaserve" pack "$2" "$3/m.h5" >"$3/digest" 2>"$3/progress"' - "$bin" "$model" "$dir"
ok "standard output is the digest alone" grep -qxE '[0-9a-f]{64}' "$dir/digest"
ok "progress goes to standard error" grep -q '^packing .*272 tensors' "$dir/progress"
ok "nothing is left beside the pack" absent "$dir/m.h5.tmp"
ok "every hash agrees" pack --verify "$dir/m.h5"
ok "the list is written" sh -c '"$1/exaserve" pack --list "$2/m.h5" >"$2/list"' - "$bin" "$dir"
ok "the list has every tensor" test "$(grep -c ' bytes at ' "$dir/list")" = 272
ok "the list has types, shapes and sizes" grep -qE '^blk\.0\.attn_k\.weight +Q4_1 +\[576, 192\] +69120 bytes' "$dir/list"
ok "the list has the digest" grep -qF "$(cat "$dir/digest")" "$dir/list"
ok "the list has the totals" grep -q '^total *272 tensors, 96576768 bytes, 275 segments' "$dir/list"

# h5py and an independent reader of the GGUF file agree about every byte
cat >"$dir/compare.py" <<'PY'
import hashlib, json, struct, sys
import h5py

gguf, pack, digest = open(sys.argv[1], "rb").read(), h5py.File(sys.argv[2], "r"), sys.argv[3]
at = 8
def take(fmt):
    global at
    v = struct.unpack_from("<" + fmt, gguf, at)
    at += struct.calcsize("<" + fmt)
    return v[0]
def text():
    global at
    n = take("Q")
    at += n
    return gguf[at - n:at]
SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
def value(kind):
    if kind == 8:
        return text()
    if kind == 9:
        item, n = take("I"), take("Q")
        return [value(item) for _ in range(n)]
    return take(SIZES[kind])
n_tensors, n_keys = take("Q"), take("Q")
keys = {}
for _ in range(n_keys):
    name = text().decode()
    keys[name] = value(take("I"))
table = []
for _ in range(n_tensors):
    name = text().decode()
    dims = [take("Q") for _ in range(take("I"))]
    table.append((name, dims, take("I"), take("Q")))
data = at + -at % keys.get("general.alignment", 32)
TYPES = {0: ("F32", 1, 4), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}

assert set(pack["tensors"]) == {t[0] for t in table}, "tensor names"
for name, dims, kind, offset in table:
    label, elems, size = TYPES[kind]
    n = size
    for d in dims:
        n *= d
    n //= elems
    set_ = pack["tensors"][name]
    assert set_.shape == (n,) and set_.dtype == "uint8" and set_.chunks is None, name
    assert set_.id.get_offset() % 4096 == 0, name
    assert set_[()].tobytes() == gguf[data + offset:data + offset + n], name
    assert set_.attrs["type"] in (label, label.encode()), name
    assert list(set_.attrs["shape"]) == dims, name

config = pack["config"].attrs
assert config["n_layers"] == 30 and config["n_embd"] == 576 and config["rope_base"] == 100000.0
tokens = pack["tokenizer/tokens"][()]
assert [bytes(t) for t in tokens] == keys["tokenizer.ggml.tokens"], "tokens"
assert [bytes(t) for t in pack["tokenizer/merges"][()]] == keys["tokenizer.ggml.merges"], "merges"
assert list(pack["tokenizer/types"][()]) == keys["tokenizer.ggml.token_type"], "types"
assert pack["tokenizer"].attrs["eos"] == 2
assert bytes(pack["chat_template"][()]) == keys["tokenizer.chat_template"], "template"
manifest = json.loads(pack.attrs["manifest"])
assert manifest["version"] == 1 and manifest["n_tensors"] == 272 and manifest["data_bytes"] == 96576768
assert manifest["digest"] == digest
assert hashlib.sha256(pack["index"][()].tobytes()).hexdigest() == digest, "digest is SHA-256 of /index"
assert pack["index"][()].tobytes()[-32:] == hashlib.sha256(pack["meta"][()].tobytes()).digest(), "hash of /meta"
PY
ok "h5py reads every tensor's bytes, types, shapes, tokens and the digest" \
    /usr/bin/python3 "$dir/compare.py" "$model" "$dir/m.h5" "$(cat "$dir/digest")"
ok "h5dump reads its structure" sh -c 'h5dump -A "$1/m.h5" | grep -q exaserve-pack' - "$dir"
ok "h5dump reads a tensor" sh -c 'h5dump -d /tensors/output_norm.weight "$1/m.h5" | grep -q "( 2304 ) / ( 2304 )"' - "$dir"

# --- a pack with a wrong hash, and what is none ---
offset=$(awk '$1 == "token_embd.weight" { print $NF }' "$dir/list")
cp "$dir/m.h5" "$dir/bad.h5"
printf 'X' | dd of="$dir/bad.h5" bs=1 seek=$((offset + 8 * 1024 * 1024 + 4711)) conv=notrunc status=none
ok "a damaged byte is found, tensor and segment named" \
    refused 4 "bad.h5: tensor token_embd.weight, segment 2 of 4: the hash differs" --verify "$dir/bad.h5"
head -c 50000000 "$dir/m.h5" >"$dir/cut.h5"
ok "a cut pack is refused" refused 4 "cut.h5: " --verify "$dir/cut.h5"
ok "a cut pack is not listed" refused 4 "cut.h5: " --list "$dir/cut.h5"
ok "a GGUF file is no pack" refused 4 "not a pack but a GGUF file" --list "$model"
/usr/bin/python3 -c 'import h5py, sys; h5py.File(sys.argv[1], "w")["x"] = [1, 2]' "$dir/other.h5"
ok "a foreign HDF5 file is no pack" refused 4 "not a pack: no manifest" --verify "$dir/other.h5"
cp "$dir/m.h5" "$dir/late.h5"
/usr/bin/python3 -c 'import h5py, sys; del h5py.File(sys.argv[1], "r+").attrs["manifest"]' "$dir/late.h5"
ok "without its manifest a pack does not exist" refused 4 "not a pack: no manifest" --verify "$dir/late.h5"
ok "a pack that is not there" refused 4 "nothing.h5" --verify "$dir/nothing.h5"

# --- GGUF files that must be refused ---
tests/tools/make_gguf.py "$dir/gguf"
for f in "$dir"/gguf/bad-*.gguf; do
    ok "$(basename "$f") is refused in one sentence" refused 4 "$f: " "$f" "$dir/x.h5"
done
ok "the architecture is named" refused 4 '"mamba"' "$dir/gguf/bad-architecture.gguf" "$dir/x.h5"
ok "the tensor type is named" refused 4 'tensor x.weight: unsupported type 20 (IQ4_NL)' "$dir/gguf/bad-type.gguf" "$dir/x.h5"
head -c 50000000 "$model" >"$dir/cut.gguf"
ok "the model cut in its middle is refused" refused 4 "$dir/cut.gguf: tensor " "$dir/cut.gguf" "$dir/x.h5"
ok "no refusal leaves a file" sh -c '! ls "$1"/x.h5* 2>/dev/null' - "$dir"
ok "a GGUF file that is not there" refused 4 "nothing.gguf" "$dir/nothing.gguf" "$dir/x.h5"
ok "a folder that is not there" refused 1 "/nowhere/x.h5" "$dir/gguf/tiny.gguf" "$dir/nowhere/x.h5"
for f in tiny tiny-v2 aligned-256 untied yarn mixture; do
    ok "$f.gguf is packed" pack -q "$dir/gguf/$f.gguf" "$dir/$f.h5"
    ok "$f.h5 is good" pack --verify "$dir/$f.h5"
done
ok "GGUF version and alignment do not change the model" \
    test "$(pack -q "$dir/gguf/tiny.gguf" "$dir/a.h5")" = "$(pack -q "$dir/gguf/aligned-256.gguf" "$dir/b.h5")"

# --- an existing pack is replaced by rename alone ---
before=$(stat -c %i "$dir/m.h5")
ok "a refused input" refused 4 "bad-cut.gguf" "$dir/gguf/bad-cut.gguf" "$dir/m.h5"
ok "leaves the existing pack alone" test "$(stat -c %i "$dir/m.h5")" = "$before"
cp "$dir/gguf/tiny.gguf" "$dir/self.gguf"
ok "a file is not packed onto itself" refused 4 "are the same file" "$dir/self.gguf" "$dir/self.gguf"
ok "and is as it was" cmp "$dir/gguf/tiny.gguf" "$dir/self.gguf"
# killed while writing: no pack, or a good one; the next run is not disturbed
"$bin/exaserve" pack -q "$model" "$dir/killed.h5" >/dev/null &
pid=$!
for _ in $(seq 1000); do
    [ -s "$dir/killed.h5.tmp" ] || [ -e "$dir/killed.h5" ] && break
    sleep 0.01
done
kill -9 $pid
wait $pid 2>/dev/null
ok "a killed run leaves no half pack" sh -c '[ ! -e "$2/killed.h5" ] || "$1/exaserve" pack --verify "$2/killed.h5"' - "$bin" "$dir"
ok "the next run takes over" pack -q "$model" "$dir/killed.h5"
ok "and its pack is good" pack --verify "$dir/killed.h5"
ok "with nothing beside it" absent "$dir/killed.h5.tmp"

# --- the command line ---
ok "--help explains it" sh -c '"$1/exaserve" pack --help | grep -q -- "--verify PACK"' - "$bin"
usage() { # ARGS… - exit code 4 and the usage
    local rc=0
    pack "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    cat "$dir/err"
    [ $rc = 4 ] && grep -q '^usage: exaserve pack' "$dir/err"
}
ok "no arguments" usage
ok "one argument" usage "$model"
ok "an unknown option" usage --verfy "$dir/m.h5"
ok "two actions" usage --verify --list "$dir/m.h5"
ok "too many packs" usage --verify "$dir/m.h5" "$dir/m.h5"

echo "1..$n"
