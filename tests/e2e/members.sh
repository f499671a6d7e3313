#!/usr/bin/env bash
# Who may join and leave a training, what is refused and why, and that a refusal changes nothing; a folder and files that go away under one.
source "$(dirname "$0")/lib.sh"

write_text "$work/text"
cat >"$work/cluster.yaml" <<'END'
devices:
  - {name: a}
  - {name: b}
END
pid=
trap '[ -z "$pid" ] || kill -9 "$pid"; rm -rf "$work"' EXIT
begin() { # OUT OPTIONS...: a training in the background, some steps on its way: $pid
    local out=$work/$1
    shift
    rm -f "$work/out" # what the one before it said
    "$MOTLEY" train models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch=48 --data "text:$work/text" --steps 1000000 \
        --loss cross_entropy:logits:labels --optimizer adamw:lr=0.003 -c "$work/cluster.yaml" --out "$out" "$@" >"$work/out" 2>&1 &
    pid=$!
    for _ in $(seq 600); do grep -q '^step 3/' "$work/out" && break; sleep 0.1; done
}
end() { # Ctrl-C ends it as always
    kill -INT "$pid"
    code=0; wait "$pid" || code=$?
    pid=
    check "the training ends with 75, not $code" [ "$code" = 75 ]
}
refuse() { # CODE TEXT VERB OPTIONS...
    local want=$1 text=$2 verb=$3 code=0
    shift 3
    "$MOTLEY" "$verb" "$@" >"$work/answer" 2>"$work/err" || code=$?
    check "$verb $*: $want, not $code" [ "$code" = "$want" ]
    check "and it says: $text" grep -qF -- "$text" "$work/err"
}
members() { "$MOTLEY" top "$work/$1" --once | awk '/^ *[0-9]+ / { printf "%s ", $2 }'; }

refuse 2 'no training runs there' leave "$work" a
begin one
refuse 2 '--device DEVICE is needed' join "$work/one"
refuse 2 '"a" is a member already' join "$work/one" --device a
refuse 2 'unknown key "speed"' join "$work/one" --device '{name: c, speed: 3}'
refuse 2 'there is no backend' join "$work/one" --device '{name: c, backend: abacus}'
refuse 2 'describes 2 devices, not one' join "$work/one" --device '{name: c}, {name: d}'
refuse 4 'its memory is' join "$work/one" --device '{name: c, memory: 1MiB}'
refuse 2 'processors of this machine' join "$work/one" --device '{name: c, threads: 1024}'
refuse 2 'name has no value' join "$work/one" --device ''
refuse 2 'has control characters' join "$work/one" --device $'c\td'
refuse 2 'the most is 200' join "$work/one" --device "$(printf '%0300d' 0)"
refuse 4 '"a" has cpu and "c" has ref' join "$work/one" --device '{name: c, backend: ref}'
refuse 2 '"c" is no member' leave "$work/one" c
check "refusals change nothing: $(members one)" [ "$(members one)" = "a b " ]
"$MOTLEY" join "$work/one" --device '{name: c, slow: 2}' --json >"$work/answer"
check "shares follow the speed: $(cat "$work/answer")" grep -q '"devices": \["a", "b", "c"\], "shares": \[2, 2, 1\]' "$work/answer"
check "it is told by its name" grep -q '^join c: from step ' "$work/out"
check "a leaves" "$MOTLEY" leave "$work/one" a >/dev/null
check "and b" "$MOTLEY" leave "$work/one" b >/dev/null
refuse 2 'no device is left' leave "$work/one" c
check "c is left: $(members one)" [ "$(members one)" = "c " ]
refuse 4 'its memory is' join "$work/one" --device '{name: a, memory: 1MiB}'
check "a comes back as it was" "$MOTLEY" join "$work/one" --device a >/dev/null
end
refuse 2 'no training runs there' leave "$work/one" a
check "nothing of the socket is left" [ ! -e "$work/one/control" ]
check "the log has who was there" [ "$(grep -c '"event": "members"' "$work/one/steps.jsonl")" = 4 ]

# What `top` shows between a change of members and the end of their first step, and after it.
mkdir "$work/shown"
echo '{"log": "'"$work/shown/steps.jsonl"'", "steps": 9, "step": 3, "pids": [1, 2, 3], "shares": [4, 2, 1], "devices": ["a", "b", "c"]}' >"$work/shown/job.json"
step() { # NUMBER SHARES...: a line of the log
    local number=$1 ranks=
    shift
    for share in "$@"; do ranks+=", {\"share\": $share, \"busy_ms\": 1, \"comm_ms\": 0, \"wait_ms\": 1}"; done
    echo "{\"step\": $number, \"loss\": 1, \"ms\": 2, \"ranks\": [${ranks:2}]}" >>"$work/shown/steps.jsonl"
}
rows() { "$MOTLEY" top "$work/shown" --once | awk '/^ *[0-9]+ / { printf "%s %s %s, ", $2, $3, $4 }'; }
title() { "$MOTLEY" top "$work/shown" --once | head -1; }
check "before the first step there is no loss: $(title)" [ "$(title)" = "$work/shown: step 0/9 (not running)" ]
step 3 7 9
check "then its loss: $(title)" [ "$(title)" = "$work/shown: step 3/9, loss 1.0000, 2.0 ms (not running)" ]
check "top shows the shares of new devices, and no times before their first step: $(rows)" [ "$(rows)" = "a 4 0%, b 2 0%, c 1 0%, " ]
step 4 4 3 1
check "then those of the step: $(rows)" [ "$(rows)" = "a 4 50%, b 3 50%, c 1 50%, " ]

# What the system refuses at a switch: the third rank that is ever started.
MOTLEY_FAIL=start:3 begin refused --backend ref # compiles nothing: no other threads
refuse 1 "can't start rank 0" join "$work/refused" --device c
check "then it can: the fault is over" "$MOTLEY" join "$work/refused" --device c >/dev/null
refuse 4 'its memory is' join "$work/refused" --device '{name: d, memory: 1MiB}'
check "what was refused is forgotten" "$MOTLEY" join "$work/refused" --device d >/dev/null
end

# With --balance auto the planner is asked for the devices that are there then; one that was refused before is none of them. Four samples are two for one of
# three devices, so that another plan is worth it. The clock is modelled: what is measured does not depend on this machine.
for name in a b c d; do echo "  - {name: $name, gflops: 20, functions: 4G, bandwidth: 400GB, launch: 20ns}"; done |
    sed '1i clock: modelled\nlinks: [{between: all, latency: 1us, bandwidth: 80GB}]\ndevices:' >"$work/modelled.yaml"
auto=(train models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch=4 --data "text:$work/text" --loss cross_entropy:logits:labels
    --optimizer adamw:lr=0.003 -c "$work/modelled.yaml" -q)
losses() { sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$work/$1/steps.jsonl" | head -40; }
event() { sed -n "s/^{\"event\": \"[a-z]*\", \"step\": \([0-9]*\), \"action\": \"$1\".*/\1/p" "$work/auto/steps.jsonl"; }
"$MOTLEY" "${auto[@]}" --steps 40 --out "$work/calm"
"$MOTLEY" "${auto[@]}" --steps 1000000 --out "$work/auto" --balance auto >"$work/out" 2>&1 &
pid=$!
for _ in $(seq 600); do grep -q '"step": 3,' "$work/auto/steps.jsonl" 2>/dev/null && break; sleep 0.1; done
refuse 4 '"a" has cpu and "x" has ref' join "$work/auto" --device '{name: x, backend: ref}'
check "b leaves" "$MOTLEY" leave "$work/auto" b >/dev/null
for _ in $(seq 600); do grep -q '"replanned"' "$work/auto/steps.jsonl" && break; sleep 0.1; done
check "another plan comes 11 steps later: $(event leave), $(event replanned)" [ "$(event replanned)" = $(($(event leave) + 11)) ]
check "b comes back to that" "$MOTLEY" join "$work/auto" --device b >/dev/null
for _ in $(seq 600); do grep -q '"step": 40, "loss"' "$work/auto/steps.jsonl" && break; sleep 0.1; done
end
check "losses are those of the undisturbed run" awk 'NR == 1 { first = $2 } { d = $2 - $4; if (d < 0) d = -d; if (d > 1e-3 * first) bad = 1 }
    END { exit bad || NR != 40 }' <(paste <(losses calm) <(losses auto))

# A training of a plan from a file takes new devices as any does.
"$MOTLEY" plan models/gpt_erf_sdpa_ts17_opt_dynamic.onnx --dim batch=48 --loss cross_entropy:logits:labels --optimizer adamw:lr=0.003 \
    -c "$work/cluster.yaml" -o "$work/a_b.plan" >/dev/null
begin planned --plan "$work/a_b.plan" --elastic
check "c joins what a plan began" "$MOTLEY" join "$work/planned" --device '{name: c, slow: 2}' >/dev/null
check "d, too" "$MOTLEY" join "$work/planned" --device d >/dev/null
check "a leaves it" "$MOTLEY" leave "$work/planned" a >/dev/null
check "those are left who should be: $(members planned)" [ "$(members planned)" = "b c d " ]
end

# Nobody is left to go on: what the ranks held is saved. Threads can't be killed.
begin last --elastic
ranks=$(sed -n 's/.*"pids": \[\([0-9]*\), \([0-9]*\)\].*/\1 \2/p' "$work/last/job.json")
if [ "$ranks" = "$pid $pid" ]; then
    end
else
    kill -9 $ranks
    code=0; wait "$pid" || code=$?
    pid=
    check "a training without devices ends with 6, not $code" [ "$code" = 6 ]
    check "it says why" grep -q 'no device is left' "$work/out"
    if grep -q 'steps are saved' "$work/out"; then
        check "what it saved is sound" "$MOTLEY" ckpt verify "$work/last" >/dev/null
    else # both died in the middle of an update
        check "nothing was saved" [ ! -e "$work/last/latest" ]
    fi
fi

# The folder goes away: it comes back with the log, the lock, the socket and in the end a checkpoint.
begin removed
descriptors() { ls "/proc/$pid/fd" | wc -l; }
before=$(descriptors)
until rm -rf "$work/removed" 2>/dev/null; do :; done # it comes back while it is being removed
for _ in $(seq 100); do [ -s "$work/removed/steps.jsonl" ] && break; sleep 0.1; done
check "the log is back" [ -s "$work/removed/steps.jsonl" ]
check "it takes requests" "$MOTLEY" leave "$work/removed" a >/dev/null
for _ in 1 2 3; do
    until rm -rf "$work/removed" 2>/dev/null; do :; done
    for _ in $(seq 100); do [ -s "$work/removed/steps.jsonl" ] && break; sleep 0.1; done
done
check "that costs no descriptors: $(descriptors), not more than $before" [ "$(descriptors)" -le "$before" ]
check "it is locked" [ "$("$MOTLEY" top "$work/removed" --once --json | grep -c '"running": true')" = 1 ]
end
check "it was saved" "$MOTLEY" ckpt verify "$work/removed" >/dev/null
check "and said so" grep -q 'was removed while the training writes into it' "$work/out"

# Files that another program writes into while they are mapped. The training waits at its log, a pipe, until that is done.
mkfifo "$work/pipe"
change() { # COMMAND...: $code and $work/err of a training under which the command ran
    rm -rf "$work/changed"
    cp models/gpt_erf_sdpa_ts17_opt_dynamic.onnx "$work/own.onnx"
    { printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<i8', 'fortran_order': False, 'shape': (40, 16), }"
        head -c 5120 /dev/zero; } >"$work/own.npy"
    "$MOTLEY" train "$work/own.onnx" --dim batch=4 --data "npy:input_ids=$work/own.npy,labels=$work/own.npy" --steps 2 -q \
        --loss cross_entropy:logits:labels --out "$work/changed" --log "$work/pipe" 2>"$work/err" &
    pid=$!
    for _ in $(seq 600); do [ -e "$work/changed/job.json" ] && break; sleep 0.1; done
    "$@"
    cat "$work/pipe" >/dev/null
    code=0; wait "$pid" || code=$?
    pid=
}
change truncate -s 0 "$work/own.npy"
check "data that is shortened ends it with 7, not $code" [ "$code" = 7 ]
check "and is named" grep -q 'own.npy: was shortened while it was in use' "$work/err"
for size in 0 +1; do
    change truncate -s "$size" "$work/own.onnx"
    check "a model of size $size is not exported: 1, not $code" [ "$code" = 1 ]
    check "it says why" grep -q 'own.onnx: was changed since it was read' "$work/err"
    check "nothing is written" [ ! -e "$work/changed/model.onnx" ]
    check "the checkpoint is sound" "$MOTLEY" ckpt verify "$work/changed" >/dev/null
done
change cp -b models/gpt_erf_sdpa_ts17_opt_dynamic.onnx "$work/own.onnx" # a new file; the mapped one got another name
check "a model that is replaced is no matter: 0, not $code" [ "$code" = 0 ]

[ "$failures" = 0 ] || tail -20 "$work/out"
finish
