#!/usr/bin/env bash
# DeMo as a user trains with it: replicas stay equal over 1000 steps, devices and shares don't matter, state survives checkpoints,
# resizes and another number of replicas, bytes are told, and nothing of it is in a plan that was not asked for it.
source "$(dirname "$0")/lib.sh"

write_text "$work/text"

demo=demo:lr=0.003,k=8,s=16,decay=0.99
train() { # OUT STEPS OPTIMIZER OPTIONS...
    local out=$1 steps=$2 optimizer=$3
    shift 3
    "$MOTLEY" train models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch=8 --data "text:$work/text" \
        --loss cross_entropy:logits:labels --optimizer "$optimizer" --steps "$steps" --seed 3 --out "$work/$out" "$@"
}
losses() { sed -n 's/.*"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$work/$1/steps.jsonl"; }
same_losses() { [ "$(losses "$1")" = "$(losses "$2")" ]; }
close_losses() { # the two agree to 1e-3 of the first loss: signs of sums near 0 may differ
    paste <(losses "$1") <(losses "$2") | awk 'NR == 1 { first = $2 } { d = $2 - $4; if (d < 0) d = -d; if (d > 1e-3 * first) bad = 1 } END { exit bad || NR == 0 }'
}

train four 12 "$demo,replicas=4" --devices 4 --fix '*=batch' --save 6 >"$work/out"
check "the loss falls" awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(last < first - 0.3) }' <(losses four)
check "bytes are told beside data parallelism" grep -q 'a replica sends .*AdamW data parallel: .* times as much' "$work/out"
check "bytes are in the log" grep -q '"sent_bytes": [0-9]*, "data_parallel_bytes": [0-9]*' "$work/four/steps.jsonl"
train one 12 "$demo,replicas=4" --devices 1 >/dev/null
check "one device computes the same" close_losses four one
train uneven 12 "$demo,replicas=4" --devices 3 --shares 2/1/1 --resize 5:1/0/3 >/dev/null 2>&1
check "uneven shares and a resize too" close_losses four uneven

train part 6 "$demo,replicas=4" --devices 4 --fix '*=batch' >/dev/null
train part 12 "$demo,replicas=4" --devices 4 --fix '*=batch' --resume >/dev/null 2>&1
check "resume goes on bit-identically: residuals are in the checkpoint" same_losses four part
train fewer 6 "$demo,replicas=4" --devices 2 >/dev/null
train fewer 12 "$demo,replicas=2" --devices 2 --resume >/dev/null 2>&1
check "a run goes on with fewer replicas" [ "$(losses fewer | wc -l)" = 12 ]
check "and the loss goes on falling" awk 'NR == 6 { middle = $2 } { last = $2 } END { exit !(last < middle) }' <(losses fewer)
refuses() { ! "$@" >/dev/null 2>"$work/err"; }
check "another k is refused" refuses train fewer 14 "${demo/k=8/k=4},replicas=2" --devices 2 --resume

# Two replicas of two devices each: DeMo between nodes, full exchange inside one.
train two 8 "$demo,replicas=2" --devices 1 >/dev/null
nodes=(-c models/clusters/two-nodes.yaml)
plan2() { "$MOTLEY" plan models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch=8 --loss cross_entropy:logits:labels \
    --optimizer "$demo,replicas=2" "$@"; }
plan2 "${nodes[@]}" --json -o "$work/nodes.plan" >"$work/json"
check "a replica is a node" grep -q 'stage {devices=\[2, 0, 1, 3\]}' "$work/nodes.plan"
check "the plan has an axis over replicas, and one over devices, the faster first" awk '/ axis {name="replicas", share=\[1, 1\]/ { n++ }
    / axis {name="d"/ { gsub(/[^0-9 ]/, ""); n += $1 > $2 } END { exit n != 2 }' "$work/nodes.plan"
run() { # OUT STEPS OPTIONS...
    local out=$1 steps=$2
    shift 2
    "$MOTLEY" train "$work/$1" "${@:2}" --data "text:$work/text" --steps "$steps" --seed 3 --out "$work/$out"
}
run axes 8 nodes.plan >/dev/null
check "replicas of several devices compute the same" close_losses axes two
predicted=$(sed -n 's/.*"step_s": \([0-9.e-]*\).*/\1/p' "$work/json")
check "in the time that was predicted" awk -v p="$predicted" -v busy="$(sed -n '3s/.*"ranks": \[{[^}]*"busy_ms": \([0-9.]*\).*/\1/p' "$work/axes/steps.jsonl")" \
    -v comm="$(sed -n '3s/.*"ranks": \[{[^}]*"comm_ms": \([0-9.]*\).*/\1/p' "$work/axes/steps.jsonl")" 'BEGIN { ratio = 1e3 * p / (busy + comm); exit !(ratio > 0.92 && ratio < 1.08) }'
plan2 "${nodes[@]}" --fix '*=samples' -o "$work/samples.plan" >"$work/out"
check "a replica's samples may be split" [ "$(grep -c 'batch x samples' "$work/out")" -gt 20 ]
run samples 8 samples.plan --shares d=3/1 --resize 5:d=1/3 >/dev/null 2>&1
check "with uneven shares, which may change" close_losses samples two
run stop 4 samples.plan >/dev/null
run stop 8 samples.plan --resume >/dev/null 2>&1
check "and from a checkpoint" close_losses stop two
run tied 1 samples.plan --resize 0:replicas=1/0 >"$work/out" 2>&1 || code=$?
check "two replicas in one place can't have theirs split" [ "${code:-0}" = 2 ]
check "and are told so" grep -q 'the shares of axis "replicas" give a device 2 replicas' "$work/out"
plan2 "${nodes[@]}" --devices 3 -o "$work/plan" >/dev/null 2>"$work/err"
check "three devices are no two groups, and told why" grep -q '3 devices are no equal groups for 2 replicas' "$work/err"
check "they are on one axis" [ "$(grep -c ' axis {' "$work/plan")" = 1 ]
train members 2 "$demo,replicas=2" "${nodes[@]}" --elastic >"$work/out" 2>&1
check "where members may change there is one axis" grep -qE '"shares": \[\[[0-9]+, [0-9]+, [0-9]+, [0-9]+\]\]' "$work/members/step-000002/manifest.json"
check "and that is told" grep -q 'no replica is split over a group of devices' "$work/out"

# Two micro-batches of half the size.
"$MOTLEY" train models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch=4 --accumulate 2 --data "text:$work/text" \
    --loss cross_entropy:logits:labels --optimizer "$demo,replicas=4,clip=1" --steps 8 --seed 3 --out "$work/sums" --devices 4 >/dev/null
check "micro-batches and a clip" awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(last < first - 0.2) }' <(losses sums)

# A checkpoint compares all copies of every parameter (runtime/checkpoint.c): a thousand steps in which they have to stay equal.
f=models/fixtures/mlp
long() { "$MOTLEY" train models/mlp_ts13_opt_dynamic.onnx --dim batch=8 \
    --data "npy:x=$f/x.npy,labels=$f/labels.npy" --loss cross_entropy:logits:labels --backend cpu --devices 4 --fix '*=batch' \
    --optimizer "demo:lr=1e-4,replicas=4,k=4,s=8,decay=0.99,wire=sign" --steps 1000 --save 100 --out "$work/long" >/dev/null 2>&1; }
check "replicas are bit-identical for 1000 steps" long

plan() { "$MOTLEY" plan models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch=8 --loss cross_entropy:logits:labels --devices 4 -o "$work/plan" "$@" >/dev/null; }
plan --optimizer adamw:lr=1e-3
check "no plan has DeMo that was not asked for it" bash -c "! grep -qE 'top_k|scatter_mean|unpack|demo' '$work/plan'"
plan --optimizer "$demo,replicas=4"
check "one that was has" grep -q 'unpack' "$work/plan"

# The planner knows what the messages cost: everybody receives those of the three others.
printf 'clock: modelled\ndevices: [{name: a}, {name: b}, {name: c}, {name: d}]\nlinks: [{between: all, latency: 1ms, bandwidth: 10Mbit}]\n' >"$work/slow.yaml"
"$MOTLEY" plan models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch=8 --loss cross_entropy:logits:labels -c "$work/slow.yaml" \
    --optimizer "$demo,replicas=4" --fix '*=batch' --json -o "$work/plan" >"$work/json"
received=$(sed 's/.*"devices"//; s/.*"received_bytes": \([0-9]*\).*/\1/' "$work/json")
sent=$(sed -n '1s/.*"sent_bytes": \([0-9]*\).*/\1/p' "$work/four/steps.jsonl")
check "plan counts the messages' bytes, and little else" awk -v r="$received" -v s="$sent" 'BEGIN { exit !(r > 2.8 * s && r < 3.1 * s) }'
check "and their time" awk -v s="$(sed -n 's/.*"step_s": \([0-9.e-]*\).*/\1/p' "$work/json")" -v bytes="$received" 'BEGIN { exit !(s >= bytes * 8 / 10e6) }'
# With a delay messages travel beside the next step: at least half of its computing hides them.
train at_once 3 "$demo,replicas=4" -c "$work/slow.yaml" --fix '*=batch' >/dev/null
train delayed 3 "$demo,replicas=4,delay=1" -c "$work/slow.yaml" --fix '*=batch' >/dev/null
last_ms() { sed -n "3s/.*\"ranks\": \[[^}]*\"$2\": \([0-9.]*\).*/\1/p" "$work/$1/steps.jsonl" | head -1; }
check "delayed messages travel beside the step" awk -v a="$(last_ms at_once comm_ms)" -v b="$(last_ms delayed comm_ms)" -v busy="$(last_ms delayed busy_ms)" \
    'BEGIN { exit !(a - b > busy / 2) }'
predicted=$("$MOTLEY" plan models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch=8 --loss cross_entropy:logits:labels -c "$work/slow.yaml" \
    --optimizer "$demo,replicas=4,delay=1" --fix '*=batch' --json -o "$work/plan" | sed 's/.*"step_s": \([0-9.e-]*\).*/\1/')
check "and only beside kernels, as the plan predicts" awk -v p="$predicted" -v busy="$(last_ms delayed busy_ms)" -v comm="$(last_ms delayed comm_ms)" \
    'BEGIN { ratio = 1e3 * p / (busy + comm); exit !(ratio > 0.92 && ratio < 1.08) }'
# Each replica's own parameters cost no exchange.
received() {
    "$MOTLEY" plan models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch=8 --loss cross_entropy:logits:labels --devices 4 \
        --optimizer "$demo,replicas=4,$1" --fix '*=batch' --json -o "$work/plan" | sed 's/.*"devices"//; s/.*"received_bytes": \([0-9]*\).*/\1/'
}
train ahead 12 "$demo,replicas=4,delay=1,lookahead=1" --devices 4 --fix '*=batch' >/dev/null
train late 12 "$demo,replicas=4,delay=1" --devices 1 >/dev/null
train ahead1 12 "$demo,replicas=4,delay=1,lookahead=1" --devices 1 >/dev/null
check "looking ahead computes the same on any devices" close_losses ahead ahead1
differ() { [ "$(losses "$1" | wc -l)" = "$(losses "$2" | wc -l)" ] && ! close_losses "$1" "$2"; }
check "and something else than not" differ late ahead1
check "a single replica too" train alone 2 "$demo,replicas=1,delay=1,lookahead=1" --devices 2 -q
check "at no bytes more" awk -v a="$(received delay=1)" -v b="$(received delay=1,lookahead=1)" 'BEGIN { exit !(b < 1.05 * a) }'
check "3 replicas of a batch of 8 are refused" refuses plan --optimizer "$demo,replicas=3"
check "and told why" grep -q "can't be dealt out to 3 replicas" "$work/err"

finish
