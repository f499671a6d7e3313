#!/usr/bin/env bash
# One of four equal emulated devices falls to 1/2 or 1/4 of its speed and recovers: how soon --balance shares follows, and what the step takes then
# against the sum of the speeds. What balancing costs when nothing happens: balance_cost.py.
#
#   balance.sh MOTLEY MODEL DATA [DROP [RECOVER [STEPS]]]
#
# DATA is that of --data; the loss is cross_entropy:logits:labels.
#
# For the planner's mix, a split batch and split columns, and for each drop: steps until the shares change, moves until the recovery and after it,
# and the best possible step over the measured one, from 20 steps after the drop to the recovery. A step is that of the devices' own clocks; the best
# is the undisturbed step times 4 / (3 + speed left). The devices are slow: 2 by CPU time; with CLUSTER=FILE those of the file, which
# are named a to d and as fast at first (with `clock: modelled` the table is the same every time). DROP, RECOVER and STEPS are 50, 150 and
# 200. Options for the model go into OPTIONS, such as OPTIONS="--dim batch=30".
set -euo pipefail
motley=$1 model=$2 data=$3 drop=${4:-50} recover=${5:-150} steps=${6:-200}
read -ra options <<<"${OPTIONS:-}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in a b c d; do echo "  - {name: $name, slow: 2}"; done | sed '1i devices:' >"$work/calm.yaml"
calm=1
if [ -n "${CLUSTER:-}" ]; then cp "$CLUSTER" "$work/calm.yaml"; else calm=2; fi

train() { # OUT STEPS OPTIONS...
    local out=$1 n=$2
    shift 2
    rm -rf "${work:?}/$out"
    "$motley" train "$model" "${options[@]}" --data "$data" -c "$work/calm.yaml" -q \
        --loss cross_entropy:logits:labels --optimizer adamw:lr=3e-4 --steps "$n" --out "$work/$out" "$@" 2>/dev/null
}
median() { sort -g | awk '{ x[NR] = $1 } END { if (NR) print x[int((NR + 1) / 2)] }'; }
step_ms() { # OUT FIRST LAST: the median over these steps of the first device's busy + comm + wait
    sed -n 's/^{"step": \([0-9]*\), "loss".*"ranks": \[{"share": [0-9]*, "busy_ms": \([0-9.]*\), "resizable_ms": [0-9.]*, "comm_ms": \([0-9.]*\), "wait_ms": \([0-9.]*\)}.*/\1 \2 \3 \4/p' \
        "$work/$1/steps.jsonl" | awk -v first="$2" -v last="$3" '$1 >= first && $1 <= last { print $2 + $3 + $4 }' | median
}
moves() { # OUT FIRST LAST: the steps from which new shares held, decided between these steps
    sed -n 's/.*"step": \([0-9]*\), "action": "\(move\|undo\)".*"effective": \([0-9]*\).*/\1 \3/p' "$work/$1/steps.jsonl" |
        awk -v first="$2" -v last="$3" '$1 >= first && $1 <= last { print $2 }'
}

printf '%-8s %-5s %9s %9s %6s %6s %10s\n' plan speed 'found' 'back' moves back 'of best'
for plan in mix batch columns; do
    fix=()
    [ "$plan" = mix ] || fix=(--fix "*=$([ "$plan" = batch ] && echo batch || echo out)")
    for slow in 2 4; do
        train run "$steps" "${fix[@]}" --balance shares --slow "$drop:b=$((calm * slow))" --slow "$recover:b=$calm"
        mapfile -t down < <(moves run "$drop" "$recover")
        mapfile -t up < <(moves run $((recover + 1)) "$steps")
        before=$(step_ms run 5 "$drop") after=$(step_ms run $((drop + 21)) "$recover")
        printf '%-8s 1/%-3d %9s %9s %6d %6d %10s\n' "$plan" "$slow" "${down[0]:+$((${down[0]:-0} - drop - 1))}" \
            "${up[0]:+$((${up[0]:-0} - recover - 1))}" "${#down[@]}" "${#up[@]}" \
            "$(awk -v before="$before" -v after="$after" -v slow="$slow" 'BEGIN { printf "%.3f", before * 4 / (3 + 1 / slow) / after }')"
    done
done
