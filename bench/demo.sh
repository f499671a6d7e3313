#!/usr/bin/env bash
# DeMo on text, four replicas on four devices: loss after the same tokens, bytes, and throughput over a slow link, against AdamW data
# parallel.
#
#   demo.sh MOTLEY MODEL.onnx TEXT [STEPS [LR_ADAMW [LR_DEMO [K [WIRE]]]]]      further options for `train` in $TRAIN, as --dim batch=8
#
# The model's batch is a multiple of 4. Prints the validation losses, the bytes a replica sends, those of data parallelism and of the
# paper's wire format, and tokens/s of both with every link limited to 10 Mbit/s (median of the steps after the first three).
set -euo pipefail
motley=$1 model=$2 text=$3 steps=${4:-1000} lr_adamw=${5:-1e-3} lr_demo=${6:-1e-3} k=${7:-8} wire=${8:-sign}
read -ra more <<<"${TRAIN:-}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/slow.yaml" <<'YAML'
devices:
  - {name: a, backend: cpu, threads: 1}
  - {name: b, backend: cpu, threads: 1}
  - {name: c, backend: cpu, threads: 1}
  - {name: d, backend: cpu, threads: 1}
links:
  - {between: all, latency: 1ms, bandwidth: 10Mbit}
YAML

schedule=schedule=cosine,warmup=$((steps / 20))
adamw=adamw:lr=$lr_adamw,betas=0.9/0.95,wd=0.1,clip=1.0,$schedule
demo=demo:lr=$lr_demo,replicas=4,k=$k,s=64,wire=$wire,clip=1.0,$schedule

train() { # OUT STEPS OPTIMIZER OPTIONS...
    local out=$1 n=$2 optimizer=$3
    shift 3
    "$motley" train "$model" "${more[@]}" --data "text:$text" --loss cross_entropy:logits:labels --optimizer "$optimizer" \
        --steps "$n" --seed 1 --out "$work/$out" "$@" >"$work/$out.txt"
}
val_loss() { sed -n 's/.*"val_loss": \([0-9.]*\).*/\1/p' "$work/$1/steps.jsonl" | tail -1; }
median_ms() {
    sed -n 's/.*"step": \([0-9]*\), "loss".*"ms": \([0-9.]*\).*/\1 \2/p' "$work/$1/steps.jsonl" |
        awk '$1 > 3 { print $2 }' | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# The loss does not depend on the devices: both train on one, AdamW as data parallelism would over four.
train adamw "$steps" "$adamw"
train demo "$steps" "$demo"
train adamw_slow 8 "$adamw" -c "$work/slow.yaml" --fix '*=batch'
train demo_slow 8 "$demo" -c "$work/slow.yaml"

grep '^a replica sends' "$work/demo.txt"
awk -v a="$(val_loss adamw)" -v d="$(val_loss demo)" -v steps="$steps" 'BEGIN {
    printf "validation loss after %d steps: adamw %.4f, demo %.4f (%+.2f %%)\n", steps, a, d, 100 * (d / a - 1) }'
awk -v a="$(median_ms adamw_slow)" -v d="$(median_ms demo_slow)" 'BEGIN {
    printf "step over 10 Mbit/s: data parallel %.1f ms, demo %.1f ms (%.1f times the throughput)\n", a, d, a / d }'
