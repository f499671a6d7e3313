#!/usr/bin/env bash
# Answers: with --json one document on standard output and nothing else, with the members that the man page lists; and no byte of a
# file's names reaches the terminal unescaped, in any report.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -n "${MOTLEY:-}" ] || { echo "skipped: \$MOTLEY is not set"; exit 77; }
command -v python3 >/dev/null || { echo "skipped: python3 reads the JSON"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

failures=0
checks=0
answer() { # MEMBERS COMMAND...: the document is an object with these members, those of a list's first object in brackets; or for LIST a list
    local members=$1
    shift
    checks=$((checks + 1))
    if ! "$MOTLEY" "$@" --json >out 2>err || ! python3 - "$members" <<'PYTHON'
import json, re, sys
document = json.load(open("out"))
if sys.argv[1] == "LIST":
    assert isinstance(document, list) and document
else:
    members = re.findall(r"(\w+)(?:\[(.*?)\])?", sys.argv[1])
    assert list(document) == [name for name, _ in members], list(document)
    for name, parts in members:
        if parts:
            assert list(document[name][0]) == parts.split(), (name, list(document[name][0]))
PYTHON
    then
        echo "FAILED: motley $* --json:"
        head -5 err out
        failures=$((failures + 1))
    fi
}

for _ in $(seq 120); do printf 'the quick brown fox jumps over a lazy dog. '; done >text
gpt=$root/models/gpt_erf_sdpa_ts17_opt_dynamic.onnx
fixtures=$root/models/fixtures/gpt_erf
in=(--input "input_ids=$fixtures/input_ids.npy")
loss=(--loss "cross_entropy:logits:$fixtures/labels.npy")
train=(train "$gpt" --dim batch=4 --loss cross_entropy:logits:labels --data text:text --optimizer sgd:lr=0.1 --out run)

answer "model inputs[name dtype shape] outputs[name dtype shape] initializers[name dtype shape trained reason looks_tied transposed] operators forward_flop step_flop" import "$gpt" --dim batch=2
planned=("$gpt" --dim batch=4 --loss cross_entropy:logits:labels --devices 2)
parts="layers[layer split compute_s collectives_s moved_bytes]
    devices[device share busy_s collectives_s memory_bytes memory_cap_bytes received_bytes assumed]"
answer "step_s bound_s $parts" plan "${planned[@]}" -o gpt.plan
answer "step_s bound_s $parts" explain gpt.plan
answer "no_time layers[layer stage split] devices[device stage shares memory_bytes memory_cap_bytes received_bytes]
    traffic[kind stage axis times moved_bytes]" explain "$root/tests/plans/mlp_two_stages.mot"
answer "operators[node operator role stage split operands results]" explain "$root/tests/plans/mlp_two_stages.mot" '/layers.1/*'
answer "operators[node operator followers choices]" explain "${planned[@]}" '/h.0/*'
answer "step steps resumed_at loss val_loss model checkpoints log" "${train[@]}" --steps 2
answer "step steps resumed_at loss val_loss model checkpoints log" "${train[@]}" --steps 3 --resume -q
answer "checkpoint step seed model loss optimizer data tensors[name dtype shape]" ckpt ls run
answer "checkpoints[checkpoint step finished sound error] sound" ckpt verify run
answer "checkpoint step model" ckpt export run -o out.onnx
answer "checkpoint step prompt text tokens" sample run --tokens 3 --prompt "the "
answer "outputs" run "$gpt" "${in[@]}"
answer "loss gradients" grad "$gpt" "${in[@]}" "${loss[@]}" --grads grads
answer "ms min p90 gflop_per_s peak_rss_mb base_rss_mb ranks[share busy_ms resizable_ms comm_ms wait_ms] losses" bench "$gpt" "${in[@]}" "${loss[@]}" --steps 1
answer LIST opt "$gpt" --dim batch=2 --passes=simplify
mkdir -p case/test_data_set_0
cp "$root/models/mlp_mse_dynamo18_raw_static.onnx" case/model.onnx
checks=$((checks + 1))
"$MOTLEY" check case --json >out
grep -q '"result": "failed", "text": "case/test_data_set_0/.*"passed": 0, "failed": 1, "skipped": 0}$' out ||
    { echo "FAILED: check --json of a case without inputs"; cat out; failures=$((failures + 1)); }

# Names with an escape sequence in them: of a device, and of everything in a model.
python3 - "$root/models/mlp_ts17_raw_static.onnx" <<'PYTHON'
import sys
# Equal lengths, so that no length in the file changes.
data = open(sys.argv[1], "rb").read()
for old, new in ((b"logits", b"lo\x1b[5m"), (b"layers.0", b"la\x1b[31m0"), (b"/layers", b"/\x1b[31ms")):
    data = data.replace(old, new)
open("names.onnx", "wb").write(data)
open("operator.onnx", "wb").write(data.replace(b"Gemm", b"G\x1bmm"))
open("names.yaml", "w").write('devices: [{name: a}, {name: b, slow: 2}]\n')
PYTHON
clean() { # COMMAND...: succeeds or fails as it likes, but prints no escape character
    checks=$((checks + 1))
    "$MOTLEY" "$@" >out 2>&1
    if grep -q $'\x1b' out || ! grep -q '\\x1b\|\\u001b' out; then
        echo "FAILED: an escape character, or no escaped name, in the output of motley $*:"
        grep -n $'\x1b' out | head -3 | cat -v
        head -3 out | cat -v
        failures=$((failures + 1))
    fi
}
logits=$'lo\x1b[5m'
npy() { # FILE DESCR SHAPE BYTES
    { printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"; head -c "$4" /dev/zero; } >"$1"
}
npy x.npy '<f4' '16, 20' 1280
npy y.npy '<i8' '16,' 128
npy xs.npy '<f4' '160, 20' 12800
npy ys.npy '<i8' '160,' 1280
hostile=(names.onnx -c names.yaml)
clean import names.onnx
clean import names.onnx --json
clean import operator.onnx
clean plan "${hostile[@]}" --loss "cross_entropy:$logits:labels"
clean plan "${hostile[@]}" --loss "cross_entropy:$logits:labels" -o plan.mot -v
clean explain plan.mot
clean explain plan.mot '*'
clean explain plan.mot --json
clean explain plan.mot '*' --json
clean run names.onnx --input x=x.npy
clean run names.onnx --input x=x.npy --json
clean grad names.onnx --input x=x.npy --loss "cross_entropy:$logits:y.npy" --grads grads --json
clean opt names.onnx
clean opt names.onnx --json
"$MOTLEY" train "${hostile[@]}" --data npy:x=xs.npy,labels=ys.npy --loss "cross_entropy:$logits:labels" --steps 1 --out o2 -q
clean ckpt ls o2
clean ckpt ls o2 --json

# Names hold `=`: of two outputs "y" and "y=z" the longest that fits is meant.
python3 - <<'PYTHON'
def field(number, payload):
    if isinstance(payload, int):
        return bytes([number << 3, payload])
    return bytes([number << 3 | 2, len(payload)]) + payload
def value(name): # a tensor of 4 floats
    shape = field(1, field(1, 4))
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))
def node(op, to):
    return field(1, b"x") + field(2, to) + field(4, op)
graph = field(1, node(b"Relu", b"y")) + field(1, node(b"Neg", b"y=z")) + field(2, b"g") + field(11, value(b"x"))
graph += field(12, value(b"y")) + field(12, value(b"y=z"))
open("equals.onnx", "wb").write(field(1, 8) + field(7, graph) + field(8, field(2, 17)))
import struct
head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }".ljust(117) + b"\n"
open("four.npy", "wb").write(b"\x93NUMPY\x01\x00\x76\x00" + head + struct.pack("<4f", 1, 2, -3, 4))
PYTHON
checks=$((checks + 1))
"$MOTLEY" run equals.onnx --input x=four.npy --output y=z=neg.npy --output y=relu.npy &&
    python3 -c 'import struct
read = lambda f: struct.unpack("<4f", open(f, "rb").read()[-16:])
assert read("neg.npy") == (-1, -2, 3, -4) and read("relu.npy") == (1, 2, 0, 4)' ||
    { echo "FAILED: outputs y and y=z"; failures=$((failures + 1)); }

echo "$checks checks, $failures failed"
[ "$failures" = 0 ]
