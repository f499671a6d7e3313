#!/usr/bin/env bash
# What ZERO-resizing gains and what it costs: one straggler of four devices that is 2, 4 and 8 times slower, and four of eight that are 2, 4, 6 and 8
# times slower, throughout. Devices' clocks are modelled, so that the times are the same on every machine.
#
#   zero.sh MOTLEY MODEL DATA [LOSS [STEPS [SEEDS]]]
#
# DATA is that of --data, LOSS that of --loss (default cross_entropy:logits:labels). A row for each of: nothing done, columns by priority, at random (as
# many, since the decisions are the same), and shares: the step of the devices' clock over its second half, how much of it nobody slower would
# leave (the step of equal devices), the part of all products that was left out, and the mean and range over SEEDS (default 3) of the validation loss
# after STEPS (default 300). Options for the model go into OPTIONS, such as OPTIONS="--dim batch=48"; the optimizer into OPTIMIZER.
set -euo pipefail
motley=$1 model=$2 data=$3 loss=${4:-cross_entropy:logits:labels} steps=${5:-300} seeds=${6:-3}
read -ra options <<<"${OPTIONS:-}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cluster() { # FACTORS...: a device each
    echo "clock: modelled"
    echo "devices:"
    local i=0
    for slow; do
        echo "  - {name: d$i, gflops: 2, functions: 200M, bandwidth: 10GB, launch: 1us, slow: {0: 1, 1: $slow}}"
        i=$((i + 1))
    done
}
train() { # OUT SEED OPTIONS...
    local out=$1 seed=$2
    shift 2
    rm -rf "${work:?}/$out"
    "$motley" train "$model" "${options[@]}" --data "$data" -c "$work/cluster.yaml" -q --loss "$loss" --seed "$seed" \
        --optimizer "${OPTIMIZER:-adamw:lr=3e-3,wd=0.1}" --steps "$steps" --out "$work/$out" "$@" 2>/dev/null
}
step_ms() { # OUT: mean of the first device's step in the second half
    awk -F'[ ,:{}"]+' -v first=$((steps / 2)) '/"ranks"/ {
        if ($3 <= first) next
        for (i = 1; i < NF; i++) if ($i == "busy_ms" || $i == "comm_ms" || $i == "wait_ms") { sum += $(i + 1); if ($i == "wait_ms") { n++; break } } }
        END { printf "%.3f", sum / n }' "$work/$1/steps.jsonl"
}
val_loss() { sed -n 's/.*"val_loss": \([0-9.e+-]*\)}/\1/p' "$work/$1/steps.jsonl" | tail -1; }
spent() { sed -n 's/.*"cut_spent": \([0-9.e+-]*\),.*/\1/p' "$work/$1"/step-*/manifest.json | tail -1; }

zero=(--balance zero --allow cuts --accuracy-budget 1 --cut-most 0.9)
printf '%-10s %-9s %9s %9s %9s  %s\n' stragglers done step/ms of-calm left-out "validation loss: mean (range)"
for slow in "1 1 1 2" "1 1 1 4" "1 1 1 8" "1 1 1 1 2 4 6 8"; do
    read -ra factors <<<"$slow"
    cluster "${factors[@]/*/1}" >"$work/cluster.yaml"
    train calm 0
    calm=$(step_ms calm)
    cluster "${factors[@]}" >"$work/cluster.yaml"
    for mode in off priority random shares; do
        case $mode in
        off) args=(--balance off) ;;
        shares) args=(--balance shares) ;;
        *) args=("${zero[@]}" --cut-pick "$mode") ;;
        esac
        losses=()
        for seed in $(seq "$seeds"); do
            train run "$seed" "${args[@]}"
            losses+=("$(val_loss run)")
        done
        part=$(spent run)
        printf '%-10s %-9s %9s %9s %9s  %s\n' "$(echo "$slow" | tr -d '1 ' | sed 's/./&\//g; s/\/$//')x" "$mode" "$(step_ms run)" \
            "$(awk -v a="$calm" -v b="$(step_ms run)" 'BEGIN { printf "%.2f", a / b }')" \
            "$(awk -v s="${part:-0}" -v n="$steps" 'BEGIN { printf "%.1f %%", 100 * s / n }')" \
            "$(printf '%s\n' "${losses[@]}" | sort -g | awk '{ x[NR] = $1; s += $1 } END { printf "%.4f (%.4f to %.4f)", s / NR, x[1], x[NR] }')"
    done
done
