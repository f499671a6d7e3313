#!/usr/bin/env bash
# Training as a user does it: log, checkpoints, resume, resize, Ctrl-C, damaged checkpoints, the model written back.
source "$(dirname "$0")/lib.sh"

write_text "$work/text"

model=models/gpt_erf_sdpa_ts17_opt_dynamic.onnx
dims=(--dim batch=8)
prefix=() # `exec` for jobs in the background, so that $! is the command itself
train() { # OUT STEPS OPTIONS...
    local out=$1 steps=$2
    shift 2
    "${prefix[@]}" "$MOTLEY" train "$model" "${dims[@]}" --data "text:$work/text" --loss cross_entropy:logits:labels \
        --optimizer adamw:lr=0.003,clip=1.0 --steps "$steps" --seed 3 --out "$work/$out" "$@"
}
losses() { sed -n 's/.*"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$work/$1/steps.jsonl"; }
same_losses() { [ "$(losses "$1")" = "$(losses "$2")" ]; }
close_losses() { # the two agree to 1e-4 of the first loss
    paste <(losses "$1") <(losses "$2") | awk 'NR == 1 { first = $2 } { d = $2 - $4; if (d < 0) d = -d; if (d > 1e-4 * first) bad = 1 } END { exit bad || NR == 0 }'
}

train calm 12 --devices 2 --shares 2/1 --save 5 >"$work/out"
check "a line a step" [ "$(grep -c '^step ' "$work/out")" = 12 ]
check "the loss falls" awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(last < first - 0.3) }' <(losses calm)
check "the two newest checkpoints are kept" [ "$(cd "$work/calm" && echo step-*)" = "step-000010 step-000012" ]
check "ckpt verify" "$MOTLEY" ckpt verify "$work/calm"
check "the trained model imports" "$MOTLEY" import "$work/calm/model.onnx" "${dims[@]}" >/dev/null

check "busy, communicating and waiting are no more than the step's time, and resizable is part of busy" awk -F'[ ,:{}]+' '
    /"ranks"/ { for (i = 1; i < NF; i++) { if ($i == "\"ms\"") ms = $(i + 1); if ($i == "\"busy_ms\"") busy = $(i + 1)
        if ($i == "\"resizable_ms\"") resizable = $(i + 1); if ($i == "\"comm_ms\"") comm = $(i + 1)
        if ($i == "\"wait_ms\"") { n++; if (busy + comm + $(i + 1) > 1.01 * ms || resizable > busy + 0.01 || resizable <= 0) bad = 1 } } }
    END { exit bad || n != 24 }' "$work/calm/steps.jsonl"

train again 12 --devices 2 --shares 2/1 >/dev/null
check "two runs of one plan are bit-identical" same_losses calm again

train part 7 --devices 2 --shares 2/1 >/dev/null
train part 12 --devices 2 --shares 2/1 --resume >/dev/null 2>&1
check "resume goes on bit-identically" same_losses calm part

train moved 12 --devices 2 --shares 2/1 --resize 4:1/3 --resize 8:2/1 >/dev/null 2>&1
check "a resize and back leaves the curve" close_losses calm moved
train four 12 --devices 4 --shares 5/3/0/0 >/dev/null
check "shares 5/3/0/0 on four devices give the same curve" close_losses calm four

# One launch for all updates: the same bits as one a parameter, also of uneven and empty parts and after a resize.
same_model() { cmp -s "$work/$1/model.onnx" "$work/$2/model.onnx" && same_losses "$1" "$2"; }
export MOTLEY_SKIP=batch
train calm1 12 --devices 2 --shares 2/1 >/dev/null
train four1 12 --devices 4 --shares 5/3/0/0 >/dev/null
train moved1 12 --devices 2 --shares 2/1 --resize 4:1/3 --resize 8:2/1 >/dev/null 2>&1
unset MOTLEY_SKIP
check "batched updates are bit-identical" same_model calm calm1
check "batched updates of empty parts are bit-identical" same_model four four1
check "batched updates with resizes are bit-identical" same_model moved moved1

# The shares that a run had when it was stopped hold when it goes on: those of a resize, given again or not; --shares gives others.
shares_of() { # OUT STEP: those of all ranks
    grep "\"step\": $2, \"loss\"" "$work/$1/steps.jsonl" | grep -o '"share": [0-9]*' | sed 's/.*: //' | tr '\n' ' '
}
resizes=(--resize 8:3/2/1 --resize 2:2/1/3 --resize 4:5/3/1)
train went 12 --devices 3 --shares 1/1/1 "${resizes[@]}" >/dev/null 2>&1
for how in same none shares; do
    train "$how" 6 --devices 3 --shares 1/1/1 --resize 2:2/1/3 --resize 4:5/3/1 >/dev/null 2>&1
done
train same 12 --devices 3 --shares 1/1/1 "${resizes[@]}" --resume >/dev/null 2>&1
check "resume across resizes goes on bit-identically" same_losses went same
check "with the shares of the last one before it: $(shares_of same 7)" [ "$(shares_of same 7)" = "5 3 1 " ]
train none 12 --devices 3 --resize 8:3/2/1 --resume >/dev/null 2>&1
check "so it does with the shares of the checkpoint alone" same_losses went none
train shares 12 --devices 3 --shares 1/2/3 --resume >/dev/null 2>&1
check "--shares gives others: $(shares_of shares 7)" [ "$(shares_of shares 7)" = "1 2 3 " ]
train shares 14 --devices 2 --resume >/dev/null 2>&1
check "other devices have the shares of the plan: $(shares_of shares 13)" [ "$(shares_of shares 13)" = "1 1 " ]

# Micro-batches: two of half the size make the same step; the position in the data counts them.
halves() { local out=$1 steps=$2; shift 2; (dims=(--dim batch=4); train "$out" "$steps" --accumulate 2 "$@"); }
halves sums 12 --devices 2 --shares 2/1 --resize 4:1/3 --resize 8:2/1 >/dev/null 2>&1
check "two micro-batches of half the size give the same curve" close_losses calm sums
halves summed 7 --devices 2 --shares 2/1 >/dev/null
halves summed 12 --devices 2 --shares 2/1 --resume >/dev/null 2>&1
halves sums2 12 --devices 2 --shares 2/1 >/dev/null
check "resume with micro-batches goes on bit-identically" same_losses sums2 summed

cp -r "$work/part" "$work/spelled"
check "the same optimizer and loss, spelled otherwise, go on" train spelled 13 --devices 2 --resume \
    --optimizer adamw:clip=1,wd=0.01,betas=0.9/0.999,lr=3e-3 --loss cross_entropy:logits:labels,ignore=-100 >"$work/out" 2>&1
code=0; train part 14 --devices 2 --resume --loss cross_entropy:logits:labels,ignore=-1 >"$work/out" 2>&1 || code=$?
check "another loss at resume is refused with 5, not $code" [ "$code" = 5 ]
code=0; train part 14 --devices 2 --resume --optimizer sgd:lr=0.1 >"$work/out" 2>&1 || code=$?
check "another optimizer at resume is refused with 5, not $code" [ "$code" = 5 ]

# A second training into one folder is refused while the first one runs, and not after it was killed.
rm -f "$work/out" # what the one before it said
(prefix=(exec); train held 100000 --save 2 --devices 2 >"$work/out" 2>&1) &
pid=$!
for _ in $(seq 200); do grep -q '^step 5/' "$work/out" && break; sleep 0.1; done
code=0; train held 3 --resume >"$work/err" 2>&1 || code=$?
check "a second training into one folder is refused with 2, not $code" [ "$code" = 2 ]
check "the other process is named" grep -q "held/lock: is held by another process ($pid)" "$work/err"
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
# Steps are in the log that no checkpoint holds, and the last line is cut off.
steps=$(($(sed 's/step-0*//' "$work/held/latest") + 3))
for extra in $(seq "$steps"); do printf '{"step": %d, "loss": 9}\n' "$extra"; done | tail -2 >>"$work/held/steps.jsonl"
printf '{"step": 99' >>"$work/held/steps.jsonl"
train held "$steps" --devices 2 --resume >/dev/null 2>&1
check "a resumed log has every step once" [ "$(losses held | cut -d' ' -f1)" = "$(seq "$steps")" ]
train whole "$steps" --devices 2 >/dev/null
check "and is that of a run in one go" same_losses held whole

# Tied initializers: the checkpoint holds both, so that it can be exported and sampled without --tie.
tied=models/gpt_erf_manual_ts13_opt_static.onnx
"$MOTLEY" train "$tied" --data "text:$work/text" --loss cross_entropy:logits:labels --optimizer sgd:lr=0.1 --steps 2 \
    --tie 'wte.weight=onnx::MatMul_370' --out "$work/tied" -q
"$MOTLEY" ckpt export "$work/tied" -o "$work/tied.onnx" >/dev/null
check "ckpt export gives the model that train wrote" cmp -s "$work/tied.onnx" "$work/tied/model.onnx"
untied() { "$MOTLEY" train "$tied" --data "text:$work/text" --loss cross_entropy:logits:labels --optimizer sgd:lr=0.1 --out "$work/$1" -q "${@:2}"; }
code=0; untied tied --steps 3 --resume >"$work/out" 2>&1 || code=$?
check "tied training does not go on untied: 5, not $code" [ "$code" = 5 ]
untied apart --steps 2
code=0; untied apart --steps 3 --resume --tie 'wte.weight=onnx::MatMul_370' >"$work/out" 2>&1 || code=$?
check "nor untied tied: 5, not $code" [ "$code" = 5 ]
check "which is said" grep -q 'step-000002: was trained with other ties' "$work/out"
check "nothing of it was trained" [ "$(cat "$work/apart/latest")" = step-000002 ]
check "with the same ties it goes on" untied tied --steps 3 --resume --tie 'wte.weight=onnx::MatMul_370' 2>"$work/err"
check "a checkpoint's own folder can be sampled" "$MOTLEY" sample "$work/tied/step-000002" --tokens 3 >/dev/null

# Ctrl-C: the step is finished, all is saved, exit code 75.
rm -f "$work/out" # what the one before it said
(prefix=(exec); train stopped 100000 --devices 2 >"$work/out" 2>&1) &
pid=$!
for _ in $(seq 200); do grep -q '^step 3/' "$work/out" && break; sleep 0.1; done
kill -INT "$pid"
code=0; wait "$pid" || code=$?
check "Ctrl-C exits with 75, not $code" [ "$code" = 75 ]
check "Ctrl-C saves" "$MOTLEY" ckpt verify "$work/stopped"

# So do a terminal that closes, and a reader of the output that goes away (Ctrl-C ends `tee` first); but not a hangup under nohup.
(prefix=(exec); train hung_up 100000 --devices 2 >"$work/out" 2>&1) &
pid=$!
for _ in $(seq 200); do grep -q '^step 3/' "$work/out" && break; sleep 0.1; done
kill -HUP "$pid"
code=0; wait "$pid" || code=$?
check "SIGHUP saves" "$MOTLEY" ckpt verify "$work/hung_up"
check "and exits with 75, not $code" [ "$code" = 75 ]
code=0; train unread 100000 --devices 2 2>"$work/err" | head -n 3 >/dev/null || code=${PIPESTATUS[0]}
check "without a reader: 75, not $code" [ "$code" = 75 ]
check "and saves" "$MOTLEY" ckpt verify "$work/unread"
(prefix=(exec nohup); train nohup 200 --devices 2 >"$work/out" 2>&1) &
pid=$!
for _ in $(seq 200); do grep -q '^step 3/' "$work/out" && break; sleep 0.1; done
kill -HUP "$pid"
code=0; wait "$pid" || code=$?
check "nohup: 0, not $code" [ "$code" = 0 ]

# A limit on the size of files is a write that fails: what is saved is kept, and said.
code=0; (ulimit -f 40; train limited 3 --devices 2 >"$work/out" 2>&1) || code=$?
check "a file over the limit gives 1, not $code" [ "$code" = 1 ]
check "the file is named" grep -q "limited/step-000003/.*File too large" "$work/out"

# A checkpoint under another step's name is not sound: it would be taken for the newest for good.
mv "$work/part/step-000007" "$work/part/step-000099"
code=0; "$MOTLEY" ckpt verify "$work/part" >"$work/out" 2>&1 || code=$?
check "a renamed checkpoint is refused with 7, not $code" [ "$code" = 7 ]
check "folder and step are named" grep -q 'part/step-000099: was renamed: by its manifest it is step-000007' "$work/out"
train part 14 --devices 2 --shares 2/1 --resume >"$work/out" 2>&1
check "the newest under its own name is used" grep -q 'resumed .*step-000012' "$work/out"
mv "$work/part/step-000099" "$work/part/best"
check "a folder of another name is a checkpoint" "$MOTLEY" ckpt verify "$work/part/best"

# Damaged checkpoints: the newest is refused, the one before it is used; both damaged: exit code 7.
printf 'x' | dd of="$work/calm/step-000012/model.safetensors" bs=1 seek=3000 conv=notrunc status=none
code=0; "$MOTLEY" ckpt verify "$work/calm/step-000012" >/dev/null 2>&1 || code=$?
check "a flipped byte is refused with 7, not $code" [ "$code" = 7 ]
train calm 12 --devices 2 --shares 2/1 --resume >"$work/out" 2>&1
check "the checkpoint before it is used" grep -q 'resumed .*step-000010' "$work/out"
for step in "$work"/calm/step-*; do truncate -s 1000 "$step/optimizer.safetensors"; done
code=0; train calm 12 --devices 2 --resume >/dev/null 2>&1 || code=$?
check "two torn checkpoints give 7, not $code" [ "$code" = 7 ]

finish
