#!/usr/bin/env bash
# Four emulated devices of speeds 8:4:2:1 (one thread each) against the sum of their solo speeds, against equal shares and against the
# planner's bound, in turns.
#
#   unequal.sh MOTLEY MODEL INPUT=FILE.npy LABELS.npy [ROUNDS [STEPS]]
#
# Prints, over the rounds, median and range of: (solo time / 1.875) / step time of the four, equal split / planner's split, and bound /
# step time. The solo speed of a device k times slower is 1/k of the native one, so that the sum over 1, 2, 4, 8 is 1.875 native
# devices. The bound is that of `motley plan` with the rates that `motley probe` measures in each round: the machine is not always as fast. CLUSTER=FILE: other devices than
# models/clusters/four.yaml; the first two ratios then need four of these speeds.
set -euo pipefail
motley=$1 model=$2 input=$3 labels=$4 rounds=${5:-7} steps=${6:-10}
given=${CLUSTER:-$(cd "$(dirname "$0")/.." && pwd)/models/clusters/four.yaml}
cluster=$(mktemp)
trap 'rm -f "$cluster"' EXIT
step_ms() { # OPTIONS...
    "$motley" bench "$model" --input "$input" --loss "cross_entropy:logits:$labels" \
        --optimizer adamw:lr=3e-4 --steps "$steps" --warmup 2 "$@" | sed 's/^{"ms": \([0-9.]*\),.*/\1/'
}

bound_ms() {
    "$motley" plan "$model" -c "$cluster" --loss cross_entropy:logits:labels --optimizer adamw:lr=3e-4 |
        awk '{ for (i = 1; i < NF; i++) if ($i == "bound") { ms["s"] = 1000; ms["ms"] = 1; ms["us"] = 0.001; print $(i + 1) * ms[$(i + 2)] } }'
}

for _ in $(seq "$rounds"); do
    "$motley" probe -c "$given" >"$cluster"
    echo "$(step_ms --devices 1 --threads 1) $(step_ms -c "$cluster") $(step_ms -c "$cluster" --shares 1/1/1/1) $(bound_ms)"
done | awk '
    function report(what, values, n,  i, k, swap) {
        for (i = 2; i <= n; i++) for (k = i; k > 1 && values[k] < values[k - 1]; k--) {
            swap = values[k]; values[k] = values[k - 1]; values[k - 1] = swap
        }
        printf "%-52s %.3f (%.3f-%.3f)\n", what, values[int((n + 1) / 2)], values[1], values[n]
    }
    { part[NR] = $1 / 1.875 / $2; gain[NR] = $3 / $2; near[NR] = $4 / $2; bound[NR] = $4; solo[NR] = $1; four[NR] = $2 }
    END {
        report("part of the sum of the solo throughputs", part, NR)
        report("equal split / planned split (step time)", gain, NR)
        report("planned bound / step time", near, NR)
        report("solo step, ms", solo, NR)
        report("step on four, ms", four, NR)
        report("planned bound, ms", bound, NR)
    }'
