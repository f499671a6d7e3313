#!/usr/bin/env bash
# --balance semi beside its parts: a device that falls to 1/2, 1/4 or 1/8 of its speed, or four of eight that fall to these and 1/6, have others compute
# columns, or leave them out, or both. The clock is modelled, so that every run measures and decides the same, and step times are those of the devices.
source "$(dirname "$0")/lib.sh"

write_text "$work/text"
write_cluster() { # FILE NAMES...
    local file=$1
    shift
    for name in "$@"; do echo "  - {name: $name, gflops: 20, functions: 2G, bandwidth: 100GB, launch: 100ns}"; done |
        sed '1i clock: modelled\ndevices:' >"$file"
    echo 'links: [{between: all, latency: 500ns, bandwidth: 80GB}]' >>"$file"
}
write_cluster "$work/four.yaml" a b c d
write_cluster "$work/eight.yaml" a b c d e f g h

cluster=four
split=(--fix '*c_fc/MatMul=out' --fix '*mlp/c_proj/MatMul=in') # weights by rows and by columns
train() { # OUT STEPS OPTIONS...
    local out=$1 steps=$2
    shift 2
    "$MOTLEY" train models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch=32 --data "text:$work/text" --seed 3 "${split[@]}" \
        --loss cross_entropy:logits:labels --optimizer adamw:lr=0.003,clip=1.0,wd=0.1 --steps "$steps" -c "$work/$cluster.yaml" \
        --out "$work/$out" "$@"
}
losses() { sed -n 's/.*"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$work/$1/steps.jsonl"; }
rounded() { losses "$1" | awk '{ printf "%d %.3f\n", $1, $2 }'; }
same_losses() { [ "$(losses "$1")" = "$(losses "$2")" ]; }
decisions() { grep '"event"' "$work/$1/steps.jsonl" || true; }
same_decisions() { [ "$(decisions "$1")" = "$(decisions "$2")" ]; }
events() { # OUT ACTION MEMBER: its values, a line each
    sed -n "s/^{\"event\": \"balance\", .*\"action\": \"$2\".*\"$3\": \([^],}]*\).*/\1/p" "$work/$1/steps.jsonl"
}
ends_at() { # OUT: the last step's milliseconds by the devices' clock
    sed -n 's/^{"step": .*"ranks": \[{"share": [0-9]*, "busy_ms": \([0-9.]*\), "resizable_ms": [0-9.]*, "comm_ms": \([0-9.]*\), "wait_ms": \([0-9.]*\)}.*/\1 \2 \3/p' \
        "$work/$1/steps.jsonl" | awk '{ ms = $1 + $2 + $3 } END { print ms }'
}
is_within() { awk -v a="$1" -v b="$2" -v most="$3" 'BEGIN { exit !(a > 0 && b > 0 && a <= most * b) }'; } # A B FACTOR: A <= FACTOR * B
refuses() { # WHAT PATTERN OPTIONS...: exit 2
    local what=$1 pattern=$2 code=0
    shift 2
    train refused 5 "$@" -q 2>"$work/err" || code=$?
    check "$what is refused with 2, not $code" [ "$code" = 2 ]
    check "and it is said why" grep -q -e "$pattern" "$work/err"
}
cuts=(--allow cuts --accuracy-budget 1)

compare() { # NAME OPTIONS...: of --slow
    local name=$1 off zero migrate semi
    shift
    train "off$name" 30 "$@" -q
    train "zero$name" 30 "$@" --balance zero "${cuts[@]}" -q
    train "migrate$name" 30 "$@" --balance migrate -q
    train "semi$name" 30 "$@" --balance semi "${cuts[@]}" >"$work/said$name" 2>&1
    off=$(ends_at "off$name") zero=$(ends_at "zero$name") migrate=$(ends_at "migrate$name") semi=$(ends_at "semi$name")
    echo "$name: $off ms a step; zero $zero, migrate $migrate, semi $semi"
    check "$name: semi is faster than nothing" is_within "$semi" "$off" 0.95
    check "$name: and no slower than cuts alone" is_within "$semi" "$zero" 1.001
    check "$name: nor than lending alone" is_within "$semi" "$migrate" 1.001
    check "$name: lending is no slower than nothing" is_within "$migrate" "$off" 1.001
}
foresees() { # NAME: what was predicted
    local run predicted measured
    for run in zero migrate semi; do
        predicted=$(events "$run$1" measured predicted_ms) measured=$(events "$run$1" measured measured_ms)
        check "1/$1: what $run saves, $measured ms, is within 20 % of the prediction, $predicted" \
            awk -v p="$predicted" -v m="$measured" 'BEGIN { exit !(m > 0 && p > 0.8 * m && p < 1.2 * m) }'
    done
}
for slow in 2 4 8; do
    compare "$slow" --slow "5:b=$slow"
    foresees "$slow"
done
compare 4-of-two --slow 5:b=4 --accumulate 2
foresees 4-of-two
check "in steps of two micro-batches lending is no other training" [ "$(rounded off4-of-two)" = "$(rounded migrate4-of-two)" ]
cluster=eight
compare mixed --slow 5:a=2 --slow 5:b=4 --slow 5:c=6 --slow 5:d=8
cluster=four
check "both are done where both pay" [ -n "$(events semi8 split lent)" ]
check "a line says it" grep -q ' 0/[0-9]*/0/0 % of the products are computed by others and 0/[0-9]*/0/0 % left out from step ' "$work/said8"
check "the log has what is lent, and what was spent" [ -n "$(events semi8 measured spent | awk '$1 > 0')" ]
train again 30 --slow 5:b=8 --balance semi "${cuts[@]}" -q
check "a second run decides the same" same_decisions semi8 again
check "and computes the same" same_losses semi8 again

# Without a budget it is lending; with a small one it lasts to the end. Without stragglers there is nothing.
train lossless 30 --slow 5:b=8 --balance semi --allow cuts --accuracy-budget 0 -q
check "without a budget the decisions are those of lending" same_decisions migrate8 lossless
train little 40 --slow 5:b=8 --balance semi --allow cuts --accuracy-budget 0.02 --save 40 -q
spent=$(sed -n 's/.*"cut_spent": \([0-9.]*\).*/\1/p' "$work/little/step-000040/manifest.json")
check "a small budget is kept to, and used to the end: ${spent:-nothing} of 0.8" awk -v s="$spent" 'BEGIN { exit !(s > 0.4 && s <= 0.8) }'
train calm 20 -q
train ready 20 --balance semi "${cuts[@]}" -q
check "without stragglers the run is bit-identical to --balance off" same_losses calm ready
check "and nothing is logged" [ -z "$(decisions ready)" ]

refuses "semi without consent" 'consents to that' --balance semi
split=(--fix '*=batch')
refuses "semi where no weight is split" 'no layer of this plan can be lent' --balance semi --allow cuts

finish
