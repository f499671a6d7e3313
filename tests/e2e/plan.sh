#!/usr/bin/env bash
# What is measured and planned, as files: probe and plan.
source "$(dirname "$0")/lib.sh"
has_all() { # FILE TEXT...: every text stands in the file
    local file=$1 text
    shift
    for text in "$@"; do grep -qF -- "$text" "$file" || { echo "$file has no $text"; return 1; }; done
}

# ---- probe ----

four=models/clusters/four.yaml
"$MOTLEY" probe -c "$four" -o "$work/four.yaml" --json >"$work/four.json"
check "what the user wrote is kept" has_all "$work/four.yaml" 'name: "d", backend: "cpu", threads: 1, slow: 8, memory: 2GiB' \
    'latency: 10us, bandwidth: 10Gbit'
check "all is measured" has_all "$work/four.yaml" gflops: functions: bandwidth: launch: gflops_beside: functions_beside: \
    bandwidth_beside: launch_beside: measured_latency: measured_bandwidth:
check "JSON has the same devices" has_all "$work/four.json" '"name": "a"' '"slow": 8' '"measured_latency": '
cp "$work/four.yaml" "$work/again.yaml"
"$MOTLEY" probe -c "$work/again.yaml" -o "$work/again.yaml"
plain() { sed -E 's/(gflops|functions|launch|measured_[a-z]*)(_beside)?: [^,}]*//g; s/bandwidth(_beside)?: [^,}]*B//g' "$1"; }
check "a probed file can be probed in place" [ "$(plain "$work/four.yaml")" = "$(plain "$work/again.yaml")" ]
printf 'devices: [{name: x}]\n' >"$work/one.yaml"
(while :; do :; done) & # another program, which gets a core or half of both
other=$!
"$MOTLEY" probe -c "$work/one.yaml" >/dev/null 2>"$work/err"
kill "$other"
check "a machine that others use is told" grep -qE 'other programs kept [0-9.]+ of the [0-9]+ cores busy' "$work/err"
printf 'devices: [{name: x, backend: ref}, {name: y, threads: 2, memory: 1MiB}]\n' >"$work/mixed.yaml"
"$MOTLEY" probe -c "$work/mixed.yaml" >"$work/out"
check "an interpreter beside a small device" has_all "$work/out" 'name: "x", backend: "ref"' 'memory: 1MiB' 'between: all'

# `slow: 4` alone, by the device's clock, which is modelled: four times as long to 1 %, launches included.
busy() { # SLOW: milliseconds of a step
    printf 'clock: modelled\ndevices: [{name: x, slow: %s}]\n' "$1" >"$work/slow.yaml"
    "$MOTLEY" bench models/mlp_ts17_raw_static.onnx -c "$work/slow.yaml" --loss cross_entropy:logits:models/fixtures/mlp/labels.npy \
        --input x=models/fixtures/mlp/x.npy --steps 1 | sed 's/.*"busy_ms": \([0-9.]*\).*/\1/'
}
check "slow: 4 is four times slower" awk -v slow="$(busy 4)" -v fast="$(busy 1)" \
    'BEGIN { exit !(fast > 0 && slow > 3.96 * fast && slow < 4.04 * fast) }'

# ---- Plans as files ----

model=models/gpt_erf_sdpa_ts17_opt_dynamic.onnx
fixtures=models/fixtures/gpt_erf
write_text "$work/text"
spec=(--dim batch=8 --loss cross_entropy:logits:labels --optimizer adamw:lr=0.003,clip=1.0)
data=(--data "text:$work/text" --steps 3 -q)
refused() { # CODE TEXT COMMAND...
    local code=$1 text=$2 got=0
    shift 2
    "$@" >"$work/out" 2>&1 || got=$?
    [ "$got" = "$code" ] && grep -qF -- "$text" "$work/out" || { echo "exit code $got:"; cat "$work/out"; return 1; }
}
losses() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$work/$1/steps.jsonl"; }
train() { # OUT MODEL|PLAN OPTIONS...
    local out=$1
    shift
    "$MOTLEY" train "$@" "${data[@]}" --out "$work/$out"
}

"$MOTLEY" plan "$model" "${spec[@]}" -c "$four" --fix '*/mlp/*=out' -o "$work/gpt.plan" >"$work/report"
"$MOTLEY" explain "$work/gpt.plan" >"$work/explained"
check "a plan's file gives the report that made it" [ "$(grep -v '^search' "$work/report")" = "$(cat "$work/explained")" ]
train a "$model" "${spec[@]}" -c "$four" --fix '*/mlp/*=out' >/dev/null
train b "$work/gpt.plan" >/dev/null
check "a plan trains as the model does under its options" [ "$(losses a)" = "$(losses b)" ]
train c "$work/b/model.onnx" --plan "$work/gpt.plan" --shares d=1/0/2/1 --resize 1:1/1/1/1 --optimizer adamw:lr=0.1,clip=1.0 >/dev/null 2>&1
check "another file of the model takes its choices, with other shares and learning rate" [ "$(losses c | wc -l)" = 3 ]
"$MOTLEY" run "$work/gpt.plan" --input "input_ids=$fixtures/input_ids.npy" --output "logits=$work/split.npy"
"$MOTLEY" run "$model" --input "input_ids=$fixtures/input_ids.npy" --output "logits=$work/whole.npy"
check "run takes the forward part of a plan" [ "$(stat -c %s "$work/split.npy")" = "$(stat -c %s "$work/whole.npy")" ]
loss() { "$MOTLEY" grad "$@" --input "input_ids=$fixtures/input_ids.npy" --loss "cross_entropy:logits:$fixtures/labels.npy" --grads "$work/g" | sed 's/\(.....\).*/\1/'; }
check "so does grad" [ "$(loss "$model")" = "$(loss "$work/gpt.plan")" ]

check "another batch is refused" refused 5 'no input "input_ids" : i64[4x16]' train d "$work/gpt.plan" --dim batch=4
check "the cause is named" has_all "$work/out" 'made with "--dim=batch=8"'
check "another optimizer is refused" refused 5 'no adam' train d "$work/gpt.plan" --optimizer adamw:lr=0.003,wd=0.5,clip=1.0
check "what sets the update apart is told" has_all "$work/out" 'in the plan it has other attributes'
check "no clipping is another graph" refused 5 'in the plan it gets other operands' train d "$work/gpt.plan" --optimizer adamw:lr=0.003
check "another model is refused" refused 5 'another graph' train d models/gpt_tanh_manual_ts13_opt_dynamic.onnx --plan "$work/gpt.plan"
check "its content is named" has_all "$work/out" 'whose content was another'
check "a model without the plan's dims says where they come from" refused 2 'options of the plan' \
    train d models/gpt_tanh_sdpa_ts17_opt_static.onnx --plan "$work/gpt.plan"
check "other devices are refused" refused 5 'for 4 devices, not 2' train d "$work/gpt.plan" --devices 2
check "other links are refused" refused 5 'another link' train d "$work/gpt.plan" -c models/clusters/four-slow-links.yaml
check "other threads are refused" refused 5 'for 1 threads of device "a", not 2' train d "$work/gpt.plan" --threads 2
check "other micro-batches are refused" refused 5 'plan' train d "$work/gpt.plan" --accumulate 2
check "a plan is shown as it is" refused 2 '--fix=*=batch: ' "$MOTLEY" explain "$work/gpt.plan" --fix '*=batch'
check "--fix is refused" refused 2 'the choices stand in the plan' train d "$work/gpt.plan" --fix '*=batch'
check "an axis that is not there is refused" refused 2 'stage 0 has the axis "d" over 4 devices' train d "$work/gpt.plan" --shares x=1/1/1/1
check "too few shares are refused" refused 2 '2 shares for the 4 devices of axis "d"' train d "$work/gpt.plan" --resize 1:1/2
check "two plans are refused" refused 2 'is a plan already' train d "$work/gpt.plan" --plan "$work/gpt.plan"
check "a plan is not planned" refused 2 'made already' "$MOTLEY" plan "$work/gpt.plan"
check "the verb that shows it is named" has_all "$work/out" 'motley explain'
# A plan consents to nothing and runs nothing for the user: it states what its graph was made from, as command lines do.
for option in --allow=cuts --balance=zero --accuracy-budget=1 --cut-fill=mean --resume --elastic --data=text:x --shares=1/1/1/1 --foo=1 --json \
    --dim --strict=1 '' garbage; do
    sed "s|options=\[|options=[\"$option\", |" "$work/gpt.plan" >"$work/stated.plan"
    check "no plan states '$option'" refused 3 "can't state the option \"$option\"" train stated "$work/stated.plan"
done
check "nor is such a plan shown" refused 3 'stated.plan: a plan can' "$MOTLEY" explain "$work/stated.plan"
check "nor given by --plan" refused 3 'stated.plan: a plan can' train stated "$model" "${spec[@]}" --plan "$work/stated.plan"
# Its devices and links stand the checks of a cluster file.
while IFS='|' read -r edit text; do
    sed -E "$edit" "$work/gpt.plan" >"$work/stated.plan"
    check "$text" refused 3 "$text" train stated "$work/stated.plan"
done <<'TABLE'
s/(device \{name=)"b"/\1"a"/|two devices are named "a"
s/(device \{name=)"b"/\1""/|a device has no name
s/(device .*backend=)"cpu"/\1"cuda"/|there is no backend "cuda"
s/(device .*threads=)1/\1100000/|threads: 100000 is out of range
s/(device .*threads=)1/\10/|a device needs name, backend, threads
s/(device .*slow=)8.0/\11e7/|slow: 1e+07 is out of range
s/(device .*slow=8.0)/\1, slowdowns=[[5, 1e7]]/|slow: 1e+07 is out of range
s/(device .*memory=)[^,}]*/\14096.0/|memory: 4096 is out of range
s/(link .*[{ ]latency=)[^,}]*/\1-1.0/|this is no value for latency
s/(link .*[{ ]latency=)[^,}]*/\1100.0/|latency: 100 is out of range
s/(link .*[{ ]bandwidth=)[^,}]*/\11.0/|bandwidth: 1 is out of range
s/^  (link .*)/&\n\1/|two links join the same devices
TABLE
check "nothing was trained" [ ! -e "$work/stated" ]
sed 's/^  source .*//' "$work/gpt.plan" >"$work/nameless.plan"
check "a plan without a source needs the model" refused 2 'does not say of which model' train d "$work/nameless.plan"
train e "$model" "${spec[@]}" --plan "$work/nameless.plan" >/dev/null
check "and goes with it" [ "$(losses a)" = "$(losses e)" ]

# Two axes, and shares that differ along both. Of 16 x 24 floats over 3:1 rows each device of two has partial sums: half of them come, and
# half of the sums, to both, 2 * (12 + 4) * 24 * 4 bytes; and the 24 sums over the rows of the bias' gradient to all four, 4 * 24 * 4.
axes=tests/plans/mlp_two_axes.mot
"$MOTLEY" explain $axes >"$work/out"
check "what both axes split is shown" has_all "$work/out" '/layers.1/Gemm                           batch x in' 'b                 3 x 2'
check "and a plan that states no time gets one" bash -c "sed -n 's/^step \([0-9.]*\) us, bound \([0-9.]*\) us.*/\1 \2/p' '$work/out' | awk '{ exit !(\$2 > 0 && \$1 > \$2) }'"
"$MOTLEY" explain $axes --json >"$work/json"
check "collectives have their bytes" has_all "$work/json" '"layer": "/layers.1/Gemm", "split": "batch x in"' '"moved_bytes": 3456' '"shares": [3, 2]'
"$MOTLEY" explain $axes '/layers.1/Gemm' >"$work/out"
check "a node has the choices of the last axis" has_all "$work/out" '  * in ' '    out '
check "a node that is not there is refused" refused 2 'no operator with a choice matches "nothing"' "$MOTLEY" explain $axes nothing
# Plans that have no predicted time are shown without.
"$MOTLEY" explain tests/plans/mlp_two_stages.mot >"$work/out"
check "stages have theirs" has_all "$work/out" 'message               1' 'no predicted time: plans of 2 stages'

# Two axes, written by hand: the planner's choices on the first, every device of the second does the same.
sed 's|axis {name="d", share=\[[0-9, ]*\]}|axis {name="d", share=[2, 1]}\n    axis {name="e", share=[1, 1]}|' \
    "$work/gpt.plan" >"$work/axes.plan"
check "the text has two axes" [ "$(grep -c 'axis {' "$work/axes.plan")" = 2 ]
train f "$work/axes.plan" --shares e=3/1 --shares d=1/1 --resize 1:d=1/2 --resize 2:e=0/1 >/dev/null 2>&1
close() { paste <(losses "$1") <(losses "$2") | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 5e-4) bad = 1 } END { exit bad || NR != 3 }'; }
check "a plan of two axes trains alike, and is resized by axis" close a f
(data=(--data "text:$work/text" --steps 2 -q); train g "$work/axes.plan" --shares e=3/1 --shares d=1/1 --resize 1:d=1/2) >/dev/null 2>&1
train g "$work/axes.plan" --resize 2:e=0/1 --resume >/dev/null 2>&1
check "resumed, each axis has the shares that it had" [ "$(losses f)" = "$(losses g)" ]
check "shares that could be any axis's are refused" refused 2 'stage 0 has the axis "e" over 2 devices' train d "$work/axes.plan" --shares 1/1
# Resizes of two axes that fit one by one, and not together, in whichever order they are given.
awk 'BEGIN { while (c++ < 20) printf "f%d,", c; print "class"; while (r++ < 9500) { for (c = 0; c < 20; c++) printf "%d,", r * c % 7; print r % 10 } }' >"$work/rows.csv"
sed 's/slow=1.0}/slow=1.0, memory=3800000.0}/; s/\[16x/[8192x/g; s/\[16\]/[8192]/g; s/batch=16/batch=8192/; s/"ref"/"cpu"/; s/share=\[[^]]*\]/share=[1, 1]/' \
    $axes >"$work/tight.plan"
tight=(train "$work/tight.plan" --data "csv:$work/rows.csv,label=class" --steps 3 -q --out "$work/tight")
check "what does not fit is refused: features" refused 4 'for --resize 2:features=1/0' "$MOTLEY" "${tight[@]}" --resize 2:features=1/0 --resize 1:rows=1/0
check "rows" refused 4 'for --resize 2:rows=1/0' "$MOTLEY" "${tight[@]}" --resize 2:rows=1/0 --resize 1:features=1/0
check "one after the other fits" refused 0 '' "$MOTLEY" "${tight[@]}" --resize 2:rows=1/1 --resize 2:features=1/0 --resize 1:rows=1/0
check "so are such resizes" refused 2 'has several axes' train d "$work/axes.plan" --resize 1:1/2

finish
