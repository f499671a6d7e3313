#!/usr/bin/env bash
# ZERO-resizing and lending while a training runs: a device that falls to a quarter of its speed leaves products out, or lends them, until it recovers. The clock is
# modelled, so that every run measures and decides the same.
source "$(dirname "$0")/lib.sh"

write_text "$work/text"
for name in a b c d; do echo "  - {name: $name, gflops: 2, functions: 200M, bandwidth: 10GB, launch: 1us}"; done |
    sed '1i clock: modelled\ndevices:' >"$work/calm.yaml"
sed 's/name: b,/name: b, slow: {20: 4, 60: 1},/' "$work/calm.yaml" >"$work/changing.yaml"

train() { # OUT CLUSTER STEPS OPTIONS...
    local out=$1 cluster=$2 steps=$3
    shift 3
    "$MOTLEY" train models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch=32 --data "text:$work/text" --seed 3 \
        --loss cross_entropy:logits:labels --optimizer adamw:lr=0.003,clip=1.0,wd=0.1 --steps "$steps" -c "$work/$cluster.yaml" \
        --out "$work/$out" "$@"
}
losses() { sed -n 's/.*"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$work/$1/steps.jsonl"; }
same_losses() { [ "$(losses "$1")" = "$(losses "$2")" ]; }
events() { # OUT ACTION MEMBER: its values, a line each
    sed -n "s/^{\"event\": \"balance\", .*\"action\": \"$2\".*\"$3\": \([^],}]*\).*/\1/p" "$work/$1/steps.jsonl"
}
same_decisions() { [ "$(grep '"event"' "$work/$1/steps.jsonl")" = "$(grep '"event"' "$work/$2/steps.jsonl")" ]; }
busy() { # OUT FIRST LAST: mean over these steps of the slowest rank's busy time
    awk -F'"busy_ms": ' -v first="$2" -v last="$3" '
        /"ranks"/ { split($0, s, /[:,]/); if (s[2] + 0 < first || s[2] + 0 > last) next
            most = 0; for (i = 2; i <= NF; i++) { split($i, b, ","); if (b[1] > most) most = b[1] }
            sum += most; n++ }
        END { print sum / n }' "$work/$1/steps.jsonl"
}
rounded() { losses "$1" | awk '{ printf "%d %.3f\n", $1, $2 }'; }
refuses() { # WHAT PATTERN OPTIONS...: exit 2
    local what=$1 pattern=$2 code=0
    shift 2
    train refused calm 5 "$@" -q 2>"$work/err" || code=$?
    check "$what is refused with 2, not $code" [ "$code" = 2 ]
    check "and it is said why" grep -q -e "$pattern" "$work/err"
}

train off changing 80 -q
train cut changing 80 --balance zero --allow cuts --accuracy-budget 1 >"$work/out" 2>&1
train again changing 80 --balance zero --allow cuts --accuracy-budget 1 -q
check "a second run decides the same" same_decisions cut again
check "and computes the same" same_losses cut again
check "columns are left out within 10 steps of a change" awk 'NR == 1 { exit !($1 > 21 && $1 <= 31) }' <(events cut cut effective)
check "and no longer within 10 steps of the recovery" awk 'END { exit !($1 > 61 && $1 <= 71) }' <(events cut cut effective)
check "what was predicted is measured" awk '{ exit !($1 > 0) }' <(events cut measured measured_ms)
check "steps are faster than without" awk -v with="$(busy cut 45 60)" -v without="$(busy off 45 60)" 'BEGIN { exit !(with < 0.6 * without) }'
check "as fast as ever after the recovery" awk -v with="$(busy cut 74 80)" -v without="$(busy off 74 80)" 'BEGIN { d = with / without; exit !(d < 1.001 && d > 0.999) }'
check "losses are others while columns are left out" [ "$(losses cut | sed -n 60p)" != "$(losses off | sed -n 60p)" ]
check "and the same before" [ "$(losses cut | head -20)" = "$(losses off | head -20)" ]
check "a line says it" grep -q '^balance after step 2.: b holds all up: 0/[0-9]*/0/0 % of the products are left out from step ' "$work/out"

# Without a straggler nothing differs; validation never does by cuts alone.
train calm calm 30 -q
train ready calm 30 --balance zero --allow cuts -q
check "without stragglers the run is bit-identical to --balance off" same_losses calm ready
check "and nothing is logged" [ "$(grep -c event "$work/ready/steps.jsonl")" = 0 ]

# The budget: 4 % of 40 steps; then 1 % of 60, which are spent already.
train short changing 40 --balance zero --allow cuts --accuracy-budget 0.04 --save 40 -q
spent=$(sed -n 's/.*"cut_spent": \([0-9.]*\).*/\1/p' "$work/short/step-000040/manifest.json")
check "the checkpoint knows what was spent: ${spent:-nothing}" awk -v s="$spent" 'BEGIN { exit !(s > 1.2 && s <= 1.6) }'
train short changing 60 --balance zero --allow cuts --accuracy-budget 0.01 --resume -q
check "what a resumed run has spent is not spent again" [ "$(sed -n '/"step": 41,/,$p' "$work/short/steps.jsonl" | grep -c '"action": "cut"')" = 0 ]

for fill in mean last; do
    train "$fill" changing 40 --balance zero --allow cuts --cut-fill "$fill" --accuracy-budget 1 -q
    check "gradients filled with $fill train to others" [ "$(losses "$fill" | tail -1)" != "$(losses cut | sed -n 40p)" ]
done
for pick in window random; do
    train "$pick" changing 40 --balance zero --allow cuts --cut-pick "$pick" --accuracy-budget 1 -q
    check "columns by $pick train to others" [ "$(losses "$pick" | tail -1)" != "$(losses cut | sed -n 40p)" ]
done

# Lending: the same training, and faster.
train whole changing 50 --fix '*=out' -q
train lent changing 50 --fix '*=out' --balance migrate >"$work/out" 2>&1
check "columns are lent within 10 steps of a change" awk 'NR == 1 { exit !($1 > 21 && $1 <= 31) }' <(events lent lend effective)
check "which is faster" awk -v with="$(busy lent 35 50)" -v without="$(busy whole 35 50)" 'BEGIN { exit !(with < 0.9 * without) }'
check "and no other training" [ "$(rounded whole)" = "$(rounded lent)" ]
check "a line says it" grep -q '0/[0-9]*/0/0 % of the products are computed by others' "$work/out"
# Other shares between a decision and its effect, and between that and its judgement: it is void.
train unshared changing 50 --fix '*=in' -q
for at in 28 33; do
    check "shares change before step $at" train "reshared$at" changing 50 --fix '*=in' --balance migrate --resize "$at:16/1/16/16" -q
    check "the training is the same" [ "$(rounded unshared)" = "$(rounded "reshared$at")" ]
    check "columns were to be lent" grep -q '"action": "lend", .*"effective": 29' "$work/reshared$at/steps.jsonl"
    check "nobody asks what became of that" [ "$(grep -c '"action": "\(measured\|undo\)"' "$work/reshared$at/steps.jsonl")" = 0 ]
done
refuses "lending where no weight is split" 'no layer of this plan can be lent' --fix '*=batch' --balance migrate

check "what to do is said" grep -q "hint: --fix '\*=out' makes a plan that splits weights" "$work/err"
check "and helps" train hinted calm 2 --fix '*=out' --balance migrate -q
refuses "cuts where no weight is split" 'no layer of this plan can be cut' --fix '*=replicate' --balance zero --allow cuts

# Consent: without it there is nothing of cuts, in words or in the program.
refuses "--balance zero without consent" 'consents to that' --balance zero
refuses "another consent" '--allow "speed": it is cuts' --allow speed
refuses "a fill without consent" '--cut-fill is for --allow cuts' --balance migrate --cut-fill mean
refuses "another fill" 'zero, mean or last' --allow cuts --cut-fill nothing
refuses "another target" 'mean, median or min' --balance zero --allow cuts --target best
refuses "a part beyond 1" 'a part, from 0 to 1' --balance zero --allow cuts --accuracy-budget 2
refuses "options of cuts where nothing is cut" 'is for --balance zero' --balance shares --cut-most 0.5
refuses "last gradients of several micro-batches" 'one micro-batch' --balance zero --allow cuts --cut-fill last --accumulate 2
programs() { MOTLEY_DUMP=after:lower train "$@" 2>&1 | grep -c '  cut @cut' || true; }
check "without consent no program has cuts" [ "$(programs plain calm 1)" = 0 ]
check "nor with rebalancing by shares" [ "$(programs shares calm 1 --balance shares)" = 0 ]
check "with consent there are" [ "$(programs allowed calm 1 --allow cuts)" -gt 0 ]

finish
