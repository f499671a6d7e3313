#!/usr/bin/env bash
# What a user can do wrong: a line a command, its exit code, and what the first line of its message must say.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -n "${MOTLEY:-}" ] || { echo "skipped: \$MOTLEY is not set"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fixtures=$root/models/fixtures/gpt_erf
export MOTLEY GPT=$root/models/gpt_erf_sdpa_ts17_opt_dynamic.onnx
# shellcheck disable=SC2034 # these are read by name below
{
    MLP=$root/models/mlp_ts17_raw_static.onnx GPT_OTHER=$root/models/gpt_tanh_manual_ts13_opt_dynamic.onnx
    IN="--input input_ids=$fixtures/input_ids.npy" LABELS=$fixtures/labels.npy
    TRAIN_MLP="train $MLP --loss cross_entropy:logits:labels --steps 2 --out out -q"
    TRAIN="train $GPT --dim batch=4 --loss cross_entropy:logits:labels --steps 2 --out out -q"
    GRAD="grad $GPT $IN --grads grads --loss cross_entropy:logits"
}

npy() { # FILE DESCR SHAPE: the header of an array; its data follows on standard input
    local head="{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"
    { printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$head"; cat; } >"$1"
}
bytes() { # COUNT BYTE: COUNT times the byte, in octal
    head -c "$1" /dev/zero | tr '\0' "\\$2"
}
for _ in $(seq 120); do printf 'the quick brown fox jumps over a lazy dog. '; done >text
sed 's/brown fox/fox brown/g' text >other
sed 's/fox/FOX/g' text >capitals
{ cat text; echo; } >one_line
printf 'abc\xff\xfe' >not_utf8
printf 'short' >short
: >empty
mkdir hollow
mkfifo pipe
ln -s /dev/full full # a link: what replaces a device by a file must not do so to the machine's
bytes 30000 0 >tokens.bin
bytes 1000 377 >tokens_big.bin
bytes 999 0 >tokens_odd.bin
npy floats.npy '<f4' '8, 16' < <(bytes 512 0)
npy doubles.npy '<f8' '16, 20' < <(bytes 2560 0)
npy flat.npy '<i8' '128,' < <(bytes 1024 0)
npy short.npy '<i8' '8, 16' < <(bytes 512 0)
npy labels_big.npy '|u1' '8, 16' < <(bytes 128 101)
npy labels_negative.npy '|i1' '8, 16' < <(bytes 128 371)
npy labels_u8.npy '|u1' '8, 16' < <(bytes 128 5)
npy no_rows.npy '<i8' '0, 16' </dev/null
npy rows.npy '<i8' '40, 16' < <(bytes 5120 0)
npy rows_negative.npy '|i1' '40, 16' < <(bytes 640 371)
npy wide.npy '<i8' '40, 65' < <(bytes 20800 0)
npy few.npy '<i8' '9, 16' < <(bytes 1152 0)
cp few.npy a,b.npy
cp few.npy own_rows.npy
cp few.npy a,labels=c.npy
cp text a,b.text
cp doubles.npy a,b=x.npy
table() { # ROWS: 20 features and a label
    awk -v n="$1" 'BEGIN { for (i = 0; i < 20; i++) printf "f%d,", i; print "class"
        for (r = 0; r < n; r++) { for (i = 0; i < 20; i++) printf "%g,", (r * 20 + i) % 7 / 7; print r % 10 } }'
}
table 40 >table.csv
table 40 | sed '$s/9$/10/' >table_class.csv
table 40 | sed '5s/,/,x/' >table_cell.csv
table 40 | cut -d, -f2- >table_narrow.csv
table 10 >table_short.csv
{ printf '\0\0\x08\x03\0\0\0\x28\0\0\0\x04\0\0\0\x05'; bytes 800 177; } >images
{ printf '\0\0\x08\x01\0\0\0\x28'; bytes 40 11; } >digits
{ printf '\0\0\x08\x01\0\0\0\x28'; bytes 40 12; } >digits_big
{ printf '\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff'; bytes 10 0; } >images_hostile
sed 's/share=.*]/share=[0, 0]/' "$root/tests/plans/mlp_two_axes.mot" >zero.mot
cp table.csv a,b.csv
cp images a,b
cp digits labels=c
printf 'devices: [{name: a, slow: nan}]\n' >cluster_slow.yaml
printf 'devices: [{name: a, memory: 1MiB}]\n' >cluster_small.yaml
printf 'devices: [{name: a}, {name: r, backend: ref}]\n' >cluster_mixed.yaml
printf 'devices: [{name: a, memory: 2MiB}, {name: b}]\n' >cluster_uneven.yaml

cp "$MLP" own.onnx
cp "$root/models/fixtures/mlp/x.npy" own.npy

failures=0
checks=0
expect() { # CODE TEXT COMMAND...: TEXT must stand in the first line of standard error, unless it is empty
    local code=$1 text=$2 got=0 first repeated
    shift 2
    checks=$((checks + 1))
    rm -rf out # what an earlier line trained
    "$@" >stdout 2>stderr || got=$?
    first=$(head -1 stderr)
    repeated=$(sort stderr | uniq -d)
    if [ "$got" != "$code" ] || [[ $first != *"$text"* ]] || [ -n "$repeated" ] || grep -qE 'Sanitizer|runtime error' stderr; then
        echo "FAILED: $*: exit code $got, not $code, or the message is not \"$text\", or says a thing twice:"
        head -5 stderr
        failures=$((failures + 1))
    fi
}

# CODE|first line|arguments, which are split at blanks; $VARIABLES are filled in.
while IFS='|' read -r code text arguments; do
    [ -n "$code" ] || continue
    for name in TRAIN_MLP TRAIN GRAD GPT_OTHER GPT MLP IN LABELS; do arguments=${arguments//\$$name/${!name}}; done
    read -ra words <<<"$arguments"
    expect "$code" "$text" "$MOTLEY" "${words[@]}"
done <<'TABLE'
2|there is no verb "bogus"|bogus
2|there is no option "--bogus"|import --bogus
2|usage: motley import|import
2|"extra" is one operand too many: motley import MODEL|import $MLP extra
2|"extra" is one operand too many: motley probe|probe extra
0||help train
2|there is no help about "bogus"|help bogus
1|No such file|import nofile.onnx
1|is a folder|import /
2|symbolic dim|import $GPT
2|no input has a symbolic dim "foo"|import $GPT --dim foo=3
2|it is --dim NAME=SIZE|import $GPT --dim batch=x
9|exceeds the limit|import $GPT --dim batch=99999999999
0||import $GPT --dim batch=2

2|the model has no such input|run $GPT --input foo=floats.npy
7|is shorter than its shape says|run $GPT --input input_ids=short.npy
7|is not a .npy file|run $GPT --input input_ids=empty
7|floats.npy: is f32[8x16], input "input_ids" takes i64[8x16]|run $GPT --input input_ids=floats.npy
7|flat.npy: is i64[128], input "input_ids" takes i64[batchx16]|run $GPT --input input_ids=flat.npy
7|doubles.npy: is f64[16x20], input "x" takes f32[16x20]|run $MLP --input x=doubles.npy
0||run $MLP --input x=doubles.npy --cast
2|is given twice|run $GPT $IN $IN
0||run $GPT --input input_ids=no_rows.npy --devices 2
2|the model has no such output|run $GPT $IN --output foo=o.npy
1|can't be written|run $GPT $IN --output logits=nofolder/o.npy
1|full: can't be written: No space left|run $GPT $IN --output logits=full
1|hollow: can't be written|run $GPT $IN --output logits=hollow
0||run $GPT $IN --output logits=o.npy

2|--loss is needed|grad $GPT $IN --grads grads
2|unknown form|grad $GPT $IN --grads grads --loss bogus:x
1|No such file|$GRAD:nofile.npy
7|label 65 at index 0 is none of the 65 classes|$GRAD:labels_big.npy
7|label -7 at index 0|$GRAD:labels_negative.npy
0||$GRAD:labels_negative.npy,ignore=-7
0||$GRAD:labels_u8.npy
3|labels must be|$GRAD:floats.npy
2|an integer from 1|$GRAD:$LABELS --devices 0
2|2 shares for 3 devices|$GRAD:$LABELS --devices 3 --shares 1/2
2|are all zero|$GRAD:$LABELS --devices 2 --shares 0/0
2|shares are integers|$GRAD:$LABELS --devices 2 --shares -1/2
0||$GRAD:$LABELS --devices 2 --shares 1000000/1
2|its axes are -3 to 2|$GRAD:$LABELS,axis=7
2|there is no option "foo"|$GRAD:$LABELS,foo=2
2|--freeze leaves nothing to train|$GRAD:$LABELS --freeze *
2|it is GLOB=CHOICE|$GRAD:$LABELS --devices 2 --fix nope
2|no operator that matches|$GRAD:$LABELS --devices 2 --fix *=bogus
2|it is cpu or ref|$GRAD:$LABELS --backend cuda
1|can't be made a directory|$GRAD:$LABELS --grads text

2|--data is needed|$TRAIN
2|names no file|$TRAIN --data text:
1|No such file|$TRAIN --data text:nofile
7|0 training windows of 16 tokens are less than a batch of 4 (the last 10 % are for validation: 0)|$TRAIN --data text:short
7|is not valid UTF-8|$TRAIN --data text:not_utf8
7|bytes need a vocabulary of 256|$TRAIN --data text:text,unit=byte
2|is not unit=char or unit=byte|$TRAIN --data text:text,unit=word
2|takes no option|$TRAIN --data tokens:tokens_big.bin,unit=char
7|token 65535 at index 0|$TRAIN --data tokens:tokens_big.bin
7|odd number of bytes|$TRAIN --data tokens:tokens_odd.bin
2|no file for "labels"|$TRAIN --data npy:input_ids=rows.npy
2|"foo=x.npy" names no input|$TRAIN --data npy:input_ids=rows.npy,labels=rows.npy,foo=x.npy
7|label -7 at index 0|$TRAIN --data npy:input_ids=rows.npy,labels=rows_negative.npy
0|no validation|$TRAIN --data npy:input_ids=a,b.npy,labels=a,labels=c.npy
7|wide.npy: is [40x65]; input "labels" takes batches [4x16]|$TRAIN --data npy:input_ids=rows.npy,labels=wide.npy
0||train $GPT --dim batch=4 --loss cross_entropy:logits:labels,axis=1 --steps 2 --out out -q --data npy:input_ids=rows.npy,labels=wide.npy
7|few.npy: has 9 rows, the array before it has 40|$TRAIN --data npy:input_ids=rows.npy,labels=few.npy
0||$TRAIN --data text:a,b.text,unit=char
0||$TRAIN_MLP --data idx:a,b,labels=c
0||$TRAIN_MLP --data csv:a,b.csv,label=class
0||run $MLP --input x=a,b=x.npy --cast
1|nofile.npy: No such file|$TRAIN --data npy:input_ids=nofile.npy,labels=rows.npy
0|no validation|$TRAIN --data npy:input_ids=few.npy,labels=few.npy
0||$TRAIN_MLP --data csv:table.csv,label=class
7|table_class.csv: line 41, column "class": "10" is none of the 10 classes|$TRAIN_MLP --data csv:table_class.csv,label=class
7|table_cell.csv: line 5, column "f1": "x|$TRAIN_MLP --data csv:table_cell.csv,label=class
7|is [40x19]; input "x" takes batches [16x20]|$TRAIN_MLP --data csv:table_narrow.csv,label=class
7|9 training rows are less than a batch of 16 (the last 10 % are for validation: 1)|$TRAIN_MLP --data csv:table_short.csv,label=class
7|there is no column "klass"|$TRAIN_MLP --data csv:table.csv,label=klass
2|it is csv:FILE,label=COLUMN|$TRAIN_MLP --data csv:table.csv
2|needs a model with one input of floats|$TRAIN --data csv:table.csv,label=class
0||$TRAIN_MLP --data idx:images,digits
7|label 10 at index 0 is none of the 10 classes|$TRAIN_MLP --data idx:images,digits_big
7|images_hostile: holds 10 bytes of elements|$TRAIN_MLP --data idx:images_hostile,digits
7|is not an IDX file|$TRAIN_MLP --data idx:text,digits
2|it is idx:IMAGES,LABELS|$TRAIN_MLP --data idx:images
2|the kinds are text:, tokens:, npy:, idx: and csv:|$TRAIN --data zip:text
2|there is nothing to train on|$TRAIN --data text:text --dim batch=0
2|needs a model with one input of tokens|train $MLP --loss cross_entropy:logits:labels --steps 1 --out out --data tokens:tokens.bin
2|unknown optimizer|$TRAIN --data text:text --optimizer bogus
2|--cut-most is for --balance zero|$TRAIN --data text:text --cut-most 0.5
2|--target is for --balance zero|$TRAIN --data text:text --balance shares --target min
0|warning: nodecay=*.bais matches no initializer that trains|$TRAIN --data text:text --optimizer adamw:nodecay=*.bais,nodecay=*.bias
0||$TRAIN --data text:text --optimizer adamw:nodecay=*.bias,nodecay=ln_f.bias
8|the loss of step 2 is|$TRAIN --data text:text --optimizer sgd:lr=1e38
2|the steps are 0 to 1|$TRAIN --data text:text --resize 2:1
2|the steps are 0 to 1|$TRAIN --data text:text --resize -1:1
1|can't be made a directory|$TRAIN --data text:text --out text
1|can't be made a directory: Not a directory|$TRAIN --data text:text --out text/a/b
0||$TRAIN --data text:text --out deep/er/out/
1|can't be written|$TRAIN --data text:text --log nofolder/log
2|own_rows.npy: is read here|$TRAIN --data npy:input_ids=few.npy,labels=own_rows.npy --log own_rows.npy
2|own.onnx: is read here|train own.onnx --loss cross_entropy:logits:labels --steps 2 --out out -q --data idx:images,digits --log ./own.onnx
2|own.onnx: is read here|plan own.onnx --loss cross_entropy:logits:labels -o own.onnx
2|own.npy: is read here|run $MLP --input x=own.npy --output logits=own.npy
0||run $MLP --input x=own.npy --output logits=logits.npy
1|the log can't be written|$TRAIN --data text:text --log /dev/full
7|holds no sound checkpoint|$TRAIN --data text:text --resume --out nothing

2|slow: "nan"|$TRAIN --data text:text -c cluster_slow.yaml
4|the shares of axis "rows" are all zero|explain zero.mot
4|the model takes|$TRAIN --data text:text --dim batch=25000000
4|devices of one stage have one backend, but "a" has cpu and "r" has ref|$TRAIN_MLP --data idx:images,digits -c cluster_mixed.yaml
4|devices of one stage have one backend|plan $MLP --loss cross_entropy:logits:labels -c cluster_mixed.yaml
0||$TRAIN_MLP --data idx:images,digits -c cluster_mixed.yaml --backend ref
4|no plan fits|$TRAIN --data text:text -c cluster_small.yaml --dim batch=64

0||$TRAIN --data text:text --out kept
2|holds checkpoints of an earlier run|$TRAIN --data text:text --out kept
5|was trained with --seed 0, not 1|$TRAIN --data text:text --out kept --resume --seed 1
5|was trained with --optimizer|$TRAIN --data text:text --out kept --resume --optimizer sgd:lr=0.1
5|was trained with a batch of 4, not 2|$TRAIN --data text:text --out kept --resume --dim batch=2
5|whose operators are not those of|train $GPT_OTHER --dim batch=4 --loss cross_entropy:logits:labels --steps 4 -q --data text:text --out kept --resume
5|holds "wte.weight", which is not trained here|$TRAIN --data text:text --out kept --resume --freeze wte.weight
5|whose characters are not those of|$TRAIN --data text:capitals --out kept --resume
0||$TRAIN --data text:other --out kept --resume --steps 3
0|kept/step-000003 has 3 steps, --steps is 2: nothing is trained|$TRAIN --data text:other --out kept --resume
0||ckpt verify kept
1|can't be read|ckpt verify nofolder
2|it is ls, verify or export|ckpt bogus kept
0||sample kept --dim batch=1 --tokens 2
0||sample kept --tokens 2
2|no input has a symbolic dim "foo"|sample kept --dim foo=1
5|holds "wte.weight", which is not trained here|sample kept --freeze wte.weight
0||$TRAIN --data tokens:tokens.bin --out numbers
2|--prompt: "65": the model was trained on tokens, and takes numbers from 0 to 64|sample numbers --prompt 65
2|--prompt: "-1": the model was trained on tokens|sample numbers --prompt -1
2|--prompt: "x": the model was trained on tokens|sample numbers --prompt x
7|holds no sound checkpoint|sample hollow --dim batch=1
1|can't be read|sample nofolder
2|input "input_ids" is [0x16]: it holds no text|sample kept --dim batch=0
2|does not know the character|sample kept --dim batch=1 --prompt Z
TABLE

expect 0 '' bash -c '[[ $("$MOTLEY" sample numbers --prompt "7 64" --tokens 2) =~ ^7\ 64\ [0-9]+\ [0-9]+$ ]]'

# Shares that a device has no memory for end no run that has begun.
read -ra words <<<"$TRAIN --data text:text -c cluster_uneven.yaml --dim batch=32 --shares 0/1"
rm -rf out
expect 4 'rank 0 (device a) needs' "$MOTLEY" "${words[@]}" --resize 1:1/0
expect 0 '' test "$(tail -1 stderr)" = "  for --resize 1:1/0"
expect 0 '' test ! -e out/steps.jsonl
expect 0 '' "$MOTLEY" "${words[@]}" --resize 1:0/2

# A text of one line ends with a character that nothing is learned of.
read -ra words <<<"$TRAIN --data text:one_line"
expect 7 'character U+000A at 5160 is in the validation part (the last 10 %) only' "$MOTLEY" "${words[@]}"
expect 0 '' test "$(grep -c '^  hint: remove it (it is the end of the last line), or ' stderr)" = 1

expect 7 'wide.npy: is [40x65]' "$MOTLEY" train "$GPT" --dim batch=4 --loss cross_entropy:logits:labels --steps 2 --out out -q --data npy:input_ids=rows.npy,labels=wide.npy
expect 0 '' test "$(grep -c '^  hint: labels have the dims of the logits .* unless the loss has axis=N' stderr)" = 1

expect 3 'text: byte 0' "$MOTLEY" import text
expect 0 '' test "$(tail -1 stderr)" = "  hint: it does not begin as ONNX files do: is it one?"

# What is written to a pipe arrives there, and it stays a pipe.
timeout 20 cat pipe >received &
expect 0 '' "$MOTLEY" run "$GPT" --input "input_ids=$fixtures/input_ids.npy" --output logits=pipe
expect 0 '' wait $!
expect 0 '' cmp received o.npy
expect 0 '' test -p pipe
expect 1 "the standard output can't be written" bash -c '"$MOTLEY" help >/dev/full'
expect 1 "the standard output can't be written" bash -c '"$MOTLEY" import --help >/dev/full'

expect 2 'MOTLEY_STOP="bogus" is not understood' env MOTLEY_STOP=bogus "$MOTLEY" import "$GPT" --dim batch=2
expect 2 'MOTLEY_RANKS="bogus" is not understood' env MOTLEY_RANKS=bogus "$MOTLEY" import "$GPT" --dim batch=2
expect 75 'stopped after pass raise' env MOTLEY_STOP=after:raise "$MOTLEY" import "$GPT" --dim batch=2
expect 2 'pass clip can'"'"'t be left out, pass optimizer needs it' env MOTLEY_SKIP=simplify,clip "$MOTLEY" bench "$GPT" \
    --input "input_ids=$fixtures/input_ids.npy" --loss "cross_entropy:logits:$LABELS" --steps 1
expect 0 'MOTLEY_STOP=after:expand: no such pass was run' env MOTLEY_STOP=after:expand "$MOTLEY" import "$GPT" --dim batch=2
expect 2 'MOTLEY_FAIL="alloc:x"' env MOTLEY_FAIL=alloc:x "$MOTLEY" import "$GPT" --dim batch=2
expect 1 'out of memory while importing the model' env MOTLEY_FAIL=alloc:200 "$MOTLEY" import "$GPT" --dim batch=2
expect 1 'out of memory' env MOTLEY_FAIL=alloc:12 "$MOTLEY" sample kept --dim batch=1
# shellcheck disable=SC2016
expect 1 "the standard output can't be written" bash -c '"$MOTLEY" import "$GPT" --dim batch=2 >/dev/full'

# A model that has moved since: what to give is said, and helps.
cp "$MLP" moved.onnx
read -ra words <<<"--loss cross_entropy:logits:labels -q"
expect 0 '' "$MOTLEY" plan moved.onnx "${words[@]}" -o moved.plan
expect 0 '' "$MOTLEY" train moved.plan --data csv:table.csv,label=class --steps 1 --out moved -q
mv moved.onnx elsewhere.onnx
while IFS='|' read -r hint arguments more; do
    read -ra words <<<"$arguments"
    expect 1 'moved.onnx: No such file' "$MOTLEY" "${words[@]}"
    expect 0 '' test "$(tail -n +2 stderr)" = "  hint: $hint"
    read -ra words <<<"$more"
    expect 0 '' "$MOTLEY" "${words[@]}"
done <<'TABLE'
the plan says so; give both if it is elsewhere: MODEL --plan moved.plan|train moved.plan --data csv:table.csv,label=class --steps 1 --out out -q|train elsewhere.onnx --plan moved.plan --data csv:table.csv,label=class --steps 1 --out out -q
it was there when it was trained; --model FILE.onnx if it is elsewhere|ckpt export moved -o back.onnx|ckpt export moved -o back.onnx --model elsewhere.onnx
TABLE
cp "$GPT" gone.onnx
expect 0 '' "$MOTLEY" train gone.onnx --dim batch=4 --loss cross_entropy:logits:labels --data text:text --steps 1 --out sampled -q
rm gone.onnx
expect 1 'gone.onnx: No such file' "$MOTLEY" sample sampled --tokens 1
expect 0 '' test "$(grep -c -e '--model FILE.onnx if it is elsewhere' stderr)" = 1
expect 0 '' "$MOTLEY" sample sampled --tokens 1 --model "$GPT"

# A checkpoint that can't be written is told, and the training goes on: a file is in the place of its folder.
mkdir blocked
touch blocked/step-000001
read -ra words <<<"$TRAIN --data text:text --save 1 --out blocked"
expect 0 "no checkpoint of step 1: blocked/step-000001: can't be made a directory" "$MOTLEY" "${words[@]}"
expect 0 '' "$MOTLEY" ckpt verify blocked/step-000002
rm -r blocked/*
touch blocked/step-000002
expect 1 "blocked/step-000002: can't be made a directory" "$MOTLEY" "${words[@]}"
expect 0 '' "$MOTLEY" ckpt verify blocked/step-000001

# A manifest edited by hand is refused; tests/unit/test_checkpoint.c tries what can be sealed anew.
newest=$(cat kept/latest)
expect 0 '' "$MOTLEY" ckpt verify kept
sed -i 's/"step": [0-9]*/"step": 5/' "kept/$newest/manifest.json"
expect 7 "kept/$newest/manifest.json: was changed or cut off" "$MOTLEY" ckpt ls "kept/$newest"
expect 0 "kept/$newest/manifest.json: was changed or cut off" "$MOTLEY" ckpt ls kept
expect 7 'kept: 1 of 2 checkpoints is damaged' "$MOTLEY" ckpt verify kept
expect 0 '' test "$(cat stdout stderr)" = "kept/step-000003: damaged
kept/step-000002: sound, step 2
motley: kept: 1 of 2 checkpoints is damaged
  kept/step-000003/manifest.json: was changed or cut off"
rm "kept/$newest/manifest.json" # a save that was cut short
expect 0 '' "$MOTLEY" ckpt verify kept
expect 0 '' test "$(head -1 stdout)" = "kept/$newest: not finished"
rm kept/step-*/manifest.json
expect 7 'kept: holds no sound checkpoint' "$MOTLEY" ckpt verify kept

# A relative $XDG_CACHE_HOME is none.
expect 0 '' env XDG_CACHE_HOME=relative HOME="$work/home" "$MOTLEY" run "$MLP" --input x=own.npy
expect 1 '' test -e relative
expect 0 '' test -d home/.cache/motley

expect 0 '' cmp "$MLP" own.onnx # what is read is as it was
expect 0 '' cmp "$root/models/fixtures/mlp/x.npy" own.npy

echo "$checks checks, $failures failed"
[ "$failures" = 0 ]
