#!/usr/bin/env bash
# Golden tests of passes: golden/FOLDER/*.mot is a line `// passes: a,b`, a graph, a line `// expect...`, and the graph that
# these passes make of it. Both are compared as `motley opt` prints them.
set -u
motley=${MOTLEY:?the command to test}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n=0
failed=0

fail() {
    echo "FAIL ${file#"$here"/}: $1"
    failed=$((failed + 1))
}

for file in "$here"/*/*.mot; do
    n=$((n + 1))
    passes=$(sed -n 's|^// passes: *||p' "$file" | head -n 1)
    [ -n "$passes" ] || { fail "no line '// passes:'"; continue; }
    awk -v given="$work/given.mot" -v wanted="$work/wanted.mot" '
        BEGIN { out = given; print "motley graph 1" > given; print "motley graph 1" > wanted }
        /^\/\/ expect/ { out = wanted }
        { print > out }' "$file"
    grep -q '^graph' "$work/wanted.mot" || { fail "nothing expected"; continue; }
    "$motley" opt "$work/wanted.mot" >"$work/wanted.txt" 2>"$work/error" || { fail "$(cat "$work/error")"; continue; }
    "$motley" opt --passes="$passes" "$work/given.mot" >"$work/got.txt" 2>"$work/error" ||
        { fail "$(cat "$work/error")"; continue; }
    diff -u "$work/wanted.txt" "$work/got.txt" >"$work/diff" || { fail "passes $passes"; cat "$work/diff"; }
done
echo "$((n - failed)) of $n golden tests passed"
[ "$n" -gt 0 ] && [ "$failed" -eq 0 ]
