#!/usr/bin/env bash
# Rebalancing while a training runs: one of four emulated devices falls to half its speed and recovers. Their clock is modelled, so that every
# run measures and decides the same, however crowded the machine is.
source "$(dirname "$0")/lib.sh"

write_text "$work/text"
for name in a b c d; do echo "  - {name: $name, gflops: 20, functions: 200M, bandwidth: 10GB, launch: 1us}"; done |
    sed '1i clock: modelled\ndevices:' >"$work/calm.yaml"
sed 's/name: b,/name: b, slow: {40: 2, 90: 1},/' "$work/calm.yaml" >"$work/changing.yaml"

prefix=() # `exec` for a job in the background, so that $! is the command itself
train() { # OUT CLUSTER STEPS OPTIONS...
    local out=$1 cluster=$2 steps=$3
    shift 3
    rm -rf "${work:?}/$out"
    "${prefix[@]}" "$MOTLEY" train models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch=32 --data "text:$work/text" --seed 3 \
        --loss cross_entropy:logits:labels --optimizer adamw:lr=0.003,clip=1.0 --steps "$steps" -c "$work/$cluster.yaml" \
        --out "$work/$out" "$@"
}
losses() { sed -n 's/.*"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$work/$1/steps.jsonl"; }
same_losses() { [ "$(losses "$1")" = "$(losses "$2")" ]; }
close_losses() { # the two agree to 1e-4 of the first loss
    paste <(losses "$1") <(losses "$2") | awk 'NR == 1 { first = $2 } { d = $2 - $4; if (d < 0) d = -d; if (d > 1e-4 * first) bad = 1 } END { exit bad || NR == 0 }'
}
same_decisions() { [ "$(grep '"event"' "$work/$1/steps.jsonl")" = "$(grep '"event"' "$work/$2/steps.jsonl")" ]; }
same_times() { cmp -s <(sed 's/"ms": [0-9.]*, "ranks"/"ranks"/' "$work/$1/steps.jsonl") <(sed 's/"ms": [0-9.]*, "ranks"/"ranks"/' "$work/$2/steps.jsonl"); }
events() { # OUT ACTION MEMBER: its values, a line each
    sed -n "s/^{\"event\": \"balance\", .*\"action\": \"$2\".*\"$3\": \([^],}]*\).*/\1/p" "$work/$1/steps.jsonl"
}
follows() { # OUT: the first two changes of shares come within 10 steps of the two changes of speed
    events "$1" move effective | awk 'NR == 1 { first = $1 } $1 > 90 && !second { second = $1 } END { exit !(first > 41 && first <= 51 && second <= 101 && second) }'
}
shares_of() { # OUT STEP: the shares of rank 0 and rank 1
    sed -n "s/.*\"step\": $2, \"loss\".*\"ranks\": \[{\"share\": \([0-9]*\),[^{]*{\"share\": \([0-9]*\),.*/\1 \2/p" "$work/$1/steps.jsonl"
}

train calm calm 130 -q
train moved changing 130 --balance shares >"$work/out" 2>&1
check "shares follow within 10 steps of a change" follows moved
train again changing 130 --balance shares -q 2>/dev/null
check "a second run decides the same" same_decisions moved again
check "its ranks take the same times, and all is as it was" same_times moved again
check "busy, communicating and waiting are all of a step: for each rank the same" awk -F'[ ,:{}]+' '
    /"ranks"/ { least = 1e9; most = 0
        for (i = 1; i < NF; i++) { if ($i == "\"busy_ms\"") busy = $(i + 1); if ($i == "\"comm_ms\"") comm = $(i + 1)
            if ($i == "\"wait_ms\"") { sum = busy + comm + $(i + 1); if (sum < least) least = sum; if (sum > most) most = sum } }
        steps++; if (least < 0.99 * most) bad = 1 }
    END { exit bad || steps != 130 }' "$work/moved/steps.jsonl"
check "losses are those of the undisturbed run" close_losses calm moved
check "the slow device has about half of the others' share" \
    awk '{ exit !($2 > 0.3 * $1 && $2 < 0.7 * $1) }' <(shares_of moved 80)
check "and all of it when it recovered" awk '{ exit !($2 > 0.75 * $1 && $2 < 1.35 * $1) }' <(shares_of moved 130)
check "what was predicted is logged" [ "$(events moved move predicted_ms | wc -l)" -ge 2 ]
check "and what was measured" [ "$(cat <(events moved measured measured_ms) <(events moved undo measured_ms) | wc -l)" -ge 2 ]
check "a line says it" grep -q '^balance after step 4.: b holds all up: shares ' "$work/out"
check "the log says what was moved" [ "$(events moved resized bytes | head -1)" -gt 0 ]

# --slow is the same change from the command line.
train slowed calm 50 --slow 40:b=2 --slow 45:b=1 -q
check "--slow slows down the device from that step on" awk -F'"busy_ms": ' '
    /"step": 4[0-6], "loss"/ { split($0, s, /[:,]/); split($2, a, ","); split($3, b, ","); ratio[s[2] + 0] = b[1] / a[1] }
    END { exit !(ratio[40] < 1.1 && ratio[41] > 1.9 && ratio[45] > 1.9 && ratio[46] < 1.1) }' "$work/slowed/steps.jsonl"
code=0; train refused calm 50 --slow 40:e=4 -q 2>"$work/err" || code=$?
check "--slow for an unknown device is refused with 2, not $code" [ "$code" = 2 ]

# Without a straggler nothing differs.
train off calm 60 -q
train on calm 60 --balance shares -q
check "without stragglers the run is bit-identical to --balance off" same_losses off on
check "and nothing is logged" [ "$(grep -c event "$work/on/steps.jsonl")" = 0 ]

# What `top` says of a training that ended, of one that runs, and of one that was killed.
check "top shows the shares and that it ended" \
    grep -q "^   1  b  *$(shares_of moved 130 | cut -d' ' -f2)  .*gone$" <("$MOTLEY" top "$work/moved")
check "top shows the decisions" grep -q '^step [0-9]*: measured, .* ms predicted' <("$MOTLEY" top "$work/moved")
(prefix=(exec); train held calm 100000 -q 2>/dev/null) &
pid=$!
for _ in $(seq 600); do grep -q '"step": 3,' "$work/held/steps.jsonl" 2>/dev/null && break; sleep 0.1; done
check "top finds a training by its process" grep -q '"running": true' <("$MOTLEY" top --json --once "$pid")
check "and its ranks" [ "$("$MOTLEY" top --once "$work/held" | grep -c ' MiB  \(running\|waiting\)$')" = 4 ]
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
check "top ends when the training was killed" grep -q '(not running)$' <("$MOTLEY" top "$work/held")
code=0; "$MOTLEY" top --once "$work" 2>/dev/null || code=$?
check "a folder without a training is refused with 2, not $code" [ "$code" = 2 ]

code=0; train refused calm 5 --balance more -q 2>"$work/err" || code=$?
check "another mode is refused with 2, not $code" [ "$code" = 2 ]
check "with those that there are" grep -q 'it is off, shares, migrate, zero, semi or auto' "$work/err"

finish
