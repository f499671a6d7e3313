#!/usr/bin/env bash
# DeMo on text, four replicas: loss after the same tokens, bytes, and throughput over slow links, against AdamW data parallel.
#
#   demo.sh MOTLEY MODEL.onnx TEXT [STEPS [ADAMW [DEMO]]]
#
# The model's batch is a multiple of 4. ADAMW and DEMO are options of the optimizers, such as lr=1e-3 and lr=1e-3,k=8,s=16,wire=sign; both are to be
# tuned. STEPS 0 leaves the training out, and the bytes are those of the links. Further options for `train` in $TRAIN, such as --dim batch=8.
#
# Prints the validation losses; what a replica sends, what data parallelism with AdamW and what the paper's code would (12 bytes an entry); and the
# steps of both on four devices with every link limited to 10 Mbit/s, by the clock that is modelled: no other program disturbs it.
set -euo pipefail
motley=$1 model=$2 text=$3 steps=${4:-1000} adamw=${5:-lr=1e-3} demo=${6:-lr=1e-3,k=8,s=16,wire=sign}
read -ra more <<<"${TRAIN:-}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/slow.yaml" <<'YAML'
clock: modelled
devices: [{name: a}, {name: b}, {name: c}, {name: d}]
links: [{between: all, latency: 1ms, bandwidth: 10Mbit}]
YAML

schedule=clip=1.0,schedule=cosine,warmup=$((steps / 20))
adamw=adamw:betas=0.9/0.95,wd=0.1,$schedule,$adamw
demo=demo:replicas=4,$schedule,$demo

train() { # OUT STEPS OPTIMIZER TEXT OPTIONS...
    local out=$1 n=$2 optimizer=$3 data=$4
    shift 4
    "$motley" train "$model" "${more[@]}" --data "text:$data" --loss cross_entropy:logits:labels --optimizer "$optimizer" \
        --steps "$n" --seed 1 --out "$work/$out" "$@" >"$work/$out.txt"
}
val_loss() { sed -n 's/.*"val_loss": \([0-9.]*\).*/\1/p' "$work/$1/steps.jsonl" | tail -1; }
# The third step on the first device's clock.
step_ms() {
    sed -n '3s/.*"ranks": \[{"share": [0-9]*, "busy_ms": \([0-9.]*\), "resizable_ms": [0-9.]*, "comm_ms": \([0-9.]*\), "wait_ms": \([0-9.]*\)}.*/\1 \2 \3/p' \
        "$work/$1/steps.jsonl" | awk '{ print $1 + $2 + $3 }'
}

# The loss does not depend on the devices: both train on one, AdamW as data parallelism would over four.
if [ "$steps" -gt 0 ]; then
    train adamw "$steps" "$adamw" "$text" &
    train demo "$steps" "$demo" "$text"
    wait
    awk -v a="$(val_loss adamw)" -v d="$(val_loss demo)" -v steps="$steps" 'BEGIN {
        printf "validation loss after %d steps: adamw %.4f, demo %.4f (%+.2f %%)\n", steps, a, d, 100 * (d / a - 1) }'
fi
head -c 200000 "$text" >"$work/short" # little to validate
train adamw_slow 3 "$adamw" "$work/short" -c "$work/slow.yaml" --fix '*=batch'
train demo_slow 3 "$demo" "$work/short" -c "$work/slow.yaml" --fix '*=batch'
train late_slow 3 "$demo,delay=1" "$work/short" -c "$work/slow.yaml" --fix '*=batch'
grep '^a replica sends' "$work/demo_slow.txt"
awk -v a="$(step_ms adamw_slow)" -v d="$(step_ms demo_slow)" -v l="$(step_ms late_slow)" 'BEGIN {
    printf "step over 10 Mbit/s: data parallel %.1f ms, demo %.1f ms (%.1f times the throughput), with delay=1 %.1f ms (%.1f times)\n", a, d, a / d, l, a / l }'
