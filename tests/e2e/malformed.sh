#!/usr/bin/env bash
# Every row of tests/fixtures/malformed.tsv as a user meets it: `motley import FILE`, its exit code, and the cause on the first line
# of stderr. Files that are not committed (bombs, links, pipes) are made here.
set -euo pipefail
motley=${MOTLEY:?the command to test}
fixtures=$(cd "$(dirname "$0")/../fixtures" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$fixtures/malformed.py" make "$work/files"
cd "$work/files"

says() { # LINE TEXT
    if [ "$2" = - ]; then [ -z "$1" ]; else [[ $1 == *"$2"* ]]; fi
}

n=0 failed=0
while IFS=$'\t' read -r cases name options code text refusal; do
    [[ $cases != '#'* ]] || continue
    n=$((n + 1)) words=()
    [ "$options" = - ] || read -ra words <<<"$options"
    [ "$refusal" = - ] || { code=3 text=$refusal; }
    got=0
    "$motley" import "${name#made }" "${words[@]}" >/dev/null 2>"$work/err" || got=$?
    line=$(head -n 1 "$work/err")
    [ "$got" = "$code" ] && says "$line" "$text" && continue
    echo "FAILED: ${name#made } $options: exit code $got, not $code with '$text': $line"
    failed=$((failed + 1))
done <"$fixtures/malformed.tsv"
echo "$((n - failed)) of $n files end as the table says"
[ "$n" -gt 150 ] && [ "$failed" -eq 0 ]
