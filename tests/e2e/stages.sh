#!/usr/bin/env bash
# A plan of two stages as a user runs it: the curve of one device, bit-identical twice, resized by its axis, resumed; a rank that dies or
# hangs is named with its stage and what it was at.
source "$(dirname "$0")/lib.sh"

plan=tests/plans/mlp_two_stages.mot
prefix=() # `exec` for jobs in the background, so that $! is the command itself
train() { # OUT STEPS OPTIONS...
    local out=$1 steps=$2
    shift 2
    "${prefix[@]}" "$MOTLEY" train models/mlp_ts13_opt_dynamic.onnx --dim batch=4 --accumulate 4 --steps "$steps" \
        --data npy:x=models/fixtures/mlp/x.npy,labels=models/fixtures/mlp/labels.npy \
        --loss cross_entropy:logits:labels --optimizer sgd:lr=0.01,clip=1.0 --backend cpu --out "$work/$out" "$@"
}
losses() { sed -n 's/.*"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$work/$1/steps.jsonl"; }
same_losses() { [ "$(losses "$1")" = "$(losses "$2")" ]; }
close_losses() { # the two agree to 1e-4 of the first loss
    paste <(losses "$1") <(losses "$2") | awk 'NR == 1 { first = $2 } { d = $2 - $4; if (d < 0) d = -d; if (d > 1e-4 * first) bad = 1 } END { exit bad || NR == 0 }'
}

train one 8 >/dev/null 2>&1
train two 8 --plan $plan >/dev/null 2>&1
check "two stages give the curve of one device" close_losses one two
code=0; train refused 8 --plan $plan --balance shares >"$work/err" 2>&1 || code=$?
check "--balance shares is refused with 2, not $code" [ "$code" = 2 ]
check "with the number of stages" grep -q 'this one has 2 stages' "$work/err"
train again 8 --plan $plan >/dev/null 2>&1
"$MOTLEY" train $plan --data npy:x=models/fixtures/mlp/x.npy,labels=models/fixtures/mlp/labels.npy --steps 8 --backend cpu --out "$work/itself" >/dev/null
check "the plan says of which model it is, and how to train it" same_losses two itself
check "two runs are bit-identical" same_losses two again
train moved 8 --plan $plan --resize 2:rows=0/1 --resize 5:rows=3/1 >/dev/null 2>&1
check "a resize of a stage's axis and back leaves the curve" close_losses one moved
train part 5 --plan $plan >/dev/null 2>&1
train part 8 --plan $plan --resume >/dev/null 2>&1
check "resume goes on bit-identically" same_losses two part
train onward 5 --plan $plan >/dev/null 2>&1
train onward 8 --resume >/dev/null 2>&1
check "a checkpoint of two stages goes on with one device" close_losses one onward

begin() { # a training in the background, some steps on its way: $pid, and its ranks
    local out=$1
    shift
    rm -f "$work/out" # what the one before it said
    (prefix=(exec); train "$out" 1000000 --plan $plan --hang-timeout 3 "$@" >"$work/out" 2>&1) &
    pid=$!
    for _ in $(seq 200); do grep -q '^step 20/' "$work/out" && break; sleep 0.1; done
    mapfile -t ranks < <(pgrep -P "$pid")
}

begin killed
if [ "${#ranks[@]}" = 0 ]; then # they are threads, which can't be killed
    kill -INT "$pid"
    wait "$pid" || true
    finish
    exit
fi
kill -9 "${ranks[2]}"
code=0; wait "$pid" || code=$?
check "a killed rank gives exit code 6, not $code" [ "$code" = 6 ]
check "its stage is named" grep -q 'rank 2 (stage 1, device c) was killed by signal 9' "$work/out"

begin hung
kill -STOP "${ranks[0]}"
code=0; wait "$pid" || code=$?
check "a hung rank gives exit code 6, not $code" [ "$code" = 6 ]
check "its stage is named" grep -q 'rank 0 (stage 0, device a) hangs' "$work/out"

# A stage goes on without a device while the other one stays as it was, and gets it back; an ordinary end.
begin elastic --elastic
kill -9 "${ranks[1]}"
for _ in $(seq 200); do grep -q '^death' "$work/out" && break; sleep 0.1; done
mapfile -t ranks < <(pgrep -P "$pid")
check "a stage goes on with one device less" grep -q '^death b: from step [0-9]* on with shares a 3, c 1 ' "$work/out"
"$MOTLEY" join "$work/elastic" --device b >"$work/joined"
check "it joins again" grep -q '^from step [0-9]* on with shares .*b [1-9]' "$work/joined"
check "a leave is answered" "$MOTLEY" leave "$work/elastic" b >/dev/null
code=0; "$MOTLEY" leave "$work/elastic" z >/dev/null 2>"$work/err" || code=$?
check "who is no member can't leave: 2, not $code" [ "$code" = 2 ]
kill -INT "$pid"
code=0; wait "$pid" || code=$?
check "it can be stopped: 75, not $code" [ "$code" = 75 ]

[ "$failures" = 0 ] || cat "$work/out"
finish
