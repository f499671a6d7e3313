#!/usr/bin/env bash
# What --balance shares makes of a straggler: one of four devices falls to 1/2 or 1/4 of its speed after step 30 and recovers after step 90, at once, in
# ramps, or again and again. Under the planner's mix, a split batch and split columns: shares follow within 10 steps, with at most two moves a
# change; from 20 steps after it on the step is within 92 % of the sum of the speeds. The devices' clock is modelled, so the figures are exact.
source "$(dirname "$0")/lib.sh"

write_text "$work/text"
for name in a b c d; do echo "  - {name: $name, gflops: 20, functions: 4G, bandwidth: 400GB, launch: 20ns}"; done |
    sed '1i clock: modelled\ndevices:' >"$work/cluster.yaml"
echo 'links: [{between: all, latency: 1us, bandwidth: 80GB}]' >>"$work/cluster.yaml"

train() { # OUT BATCH STEPS OPTIONS...
    local out=$1 batch=$2 steps=$3
    shift 3
    "$MOTLEY" train models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch="$batch" --data "text:$work/text" --seed 3 -q \
        --loss cross_entropy:logits:labels --optimizer adamw:lr=0.003 --steps "$steps" -c "$work/cluster.yaml" --out "$work/$out" "$@" 2>/dev/null
}
losses() { sed -n 's/.*"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$work/$1/steps.jsonl"; }
close_losses() { # the two agree to 1e-4 of the first loss
    paste <(losses "$1") <(losses "$2") | awk 'NR == 1 { first = $2 } { d = $2 - $4; if (d < 0) d = -d; if (d > 1e-4 * first) bad = 1 } END { exit bad || NR == 0 }'
}
moves() { # OUT: the steps from which new shares held
    sed -n 's/.*"action": "\(move\|undo\)".*"effective": \([0-9]*\).*/\2/p' "$work/$1/steps.jsonl"
}
step_ms() { # OUT: step and its time by the devices' clock
    sed -n 's/^{"step": \([0-9]*\), "loss".*"ranks": \[{"share": [0-9]*, "busy_ms": \([0-9.]*\), "resizable_ms": [0-9.]*, "comm_ms": \([0-9.]*\), "wait_ms": \([0-9.]*\)}.*/\1 \2 \3 \4/p' \
        "$work/$1/steps.jsonl" | awk '{ print $1, $2 + $3 + $4 }'
}
reaches() { # OUT SLOW FIRST LAST [LEAST]: 92 % (or LEAST) of the sum of the speeds, one of which is 1 / SLOW, in these steps
    step_ms "$1" | awk -v slow="$2" -v first="$3" -v last="$4" -v least="${5:-0.92}" '$1 == 20 { whole = $2 }
        $1 >= first && $1 <= last { n++; if (whole * 4 / (3 + 1 / slow) < least * $2) { if (!bad++) print "step " $1 ": " $2 " ms, " whole " without a straggler" } }
        END { exit bad > 0 || n != last - first + 1 }'
}
follows() { # OUT DOWN UP: one or two moves for each of the changes after these steps, the first within 10 steps
    moves "$1" | awk -v down="$2" -v up="$3" '$1 <= up { if (!a++) first = $1 } $1 > up { if (!b++) second = $1 }
        END { exit !(a >= 1 && a <= 2 && b >= 1 && b <= 2 && first > down && first <= down + 11 && second <= up + 11) }'
}

for slow in 2 4; do
    batch=$((slow == 2 ? 28 : 52)) # whole samples for either speed
    train "calm$slow" "$batch" 130
    for plan in mix batch out; do
        fix=()
        [ "$plan" = mix ] || fix=(--fix "*=$plan")
        train "$plan" "$batch" 130 "${fix[@]}" --balance shares --slow "30:b=$slow" --slow 90:b=1
        check "$plan, 1/$slow: shares follow within 10 steps, in two moves at most" follows "$plan" 30 90
        # Of 40 columns, where 4/13 would be 12.3, a device has 13: of whole columns the best is 95 %.
        least=0.92; [ "$plan$slow" != out4 ] || least=0.9
        check "$plan, 1/$slow: $least of the sum of the speeds within 20 steps" reaches "$plan" "$slow" 51 90 "$least"
        check "$plan, 1/$slow: and again when it recovered" reaches "$plan" 1 111 130
        check "$plan, 1/$slow: losses are those of the undisturbed run" close_losses "calm$slow" "$plan"
        rm -r "${work:?}/$plan"
    done
    # In ten steps down and up again.
    ramp=()
    for i in $(seq 10); do
        k=$(awk -v slow="$slow" -v i="$i" 'BEGIN { print 1 + (slow - 1) * i / 10 }')
        ramp+=(--slow "$((29 + i)):b=$k" --slow "$((100 - i)):b=$k")
    done
    train ramp "$batch" 130 --balance shares "${ramp[@]}" --slow 100:b=1
    check "a ramp to 1/$slow and back: at most two moves each" awk '$1 <= 90 { a++ } $1 > 90 { b++ } END { exit !(a && b && a <= 2 && b <= 2) }' <(moves ramp)
    check "a ramp to 1/$slow: 92 % within 20 steps of its end" reaches ramp "$slow" 60 90
    check "a ramp back: too" reaches ramp 1 121 130
    rm -r "${work:?}/ramp"
done

wave=()
for i in $(seq 30 12 140); do wave+=(--slow "$i:b=4" --slow "$((i + 6)):b=1"); done
train wave 52 150 --balance shares "${wave[@]}"
check "an oscillation of 12 steps is not chased: at most a move in 50 steps" \
    awk 'NR > 1 && $1 - last < 50 { bad = 1 } { last = $1 } END { exit bad }' <(moves wave)
# Four samples on four devices: shares can't follow one of half the speed, another plan can.
train few 4 130
train stuck 4 130 --balance shares --slow 30:b=2 --slow 90:b=1
train auto 4 130 --balance auto --slow 30:b=2 --slow 90:b=1
check "where shares can't follow, that is said" grep -q '"action": "stuck"' "$work/stuck/steps.jsonl"
check "and --balance shares stays where it is" [ -z "$(moves stuck)" ]
check "--balance auto finds another plan within 10 steps" \
    awk '{ exit !($1 > 31 && $1 <= 41) }' <(sed -n 's/.*"step": \([0-9]*\), "action": "replanned".*/\1/p' "$work/auto/steps.jsonl" | head -1)
at() { step_ms "$1" | awk -v step="$2" '$1 == step { print $2 }'; }
check "which saves a quarter of a step at least" awk '{ exit !($1 < 0.75 * $2) }' <(echo "$(at auto 60) $(at stuck 60)")
check "and is no worse when the device recovered" awk '{ exit !($1 < $2 / 0.92) }' <(echo "$(at auto 125) $(at few 125)")
check "what it saves is measured" grep -q '"action": "measured", "before_ms".*"measured_ms": 0.1' "$work/auto/steps.jsonl"
check "losses are those of the undisturbed run" close_losses few auto
finish
