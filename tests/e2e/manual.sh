#!/usr/bin/env bash
# The manual, docs/motley.1, says what the command says: every verb with its operands, every option of every verb with its
# value, every debugging switch, every exit code, and nothing else. README.md lists the operators of frontend/onnx_ops.def.
# The page renders without a warning, where groff is installed.
set -euo pipefail
motley=${MOTLEY:?the command to test}
root=$(cd "$(dirname "$0")/../.." && pwd)
page=$root/docs/motley.1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

list_verbs() {
    "$motley" help | sed -n '/^  [a-z]/s/^  \([a-z]*\) .*/\1/p'
}

# VERB OPERANDS, then VERB: OPTION VALUE for each of its options.
list_help() {
    local verb
    for verb in $(list_verbs); do
        "$motley" "$verb" --help | sed -n -e '1s/^motley \(.*\) \[options\]$/\1/p' \
            -e "s/^  \(-[^ ]*\( [^ ][^ ]*\)\{0,1\}\)  .*/$verb: \1/p"
    done
    "$motley" help debug | sed -n 's/^  \([A-Z_]*\)=.*/\1/p'
    "$motley" help | sed -n '/^Exit codes:/,$s/^ *\([0-9][0-9]*\)  .*/\1/p'
}

# The same of the page: a verb has the options listed under it and those of the sections that it refers to.
list_page() {
    awk '
        $1 == ".Sh" { part = substr($0, 5); verb = "" }
        $1 == ".Ss" && part == "VERBS" { verb = $2; verbs[++n] = verb; print substr($0, 5) }
        $1 == ".Sx" && $3 == "OPTIONS" && verb { uses[verb] = uses[verb] $2 " " }
        $1 == ".It" && $2 == "Fl" {
            option = "-" $3 ($4 == "Ar" ? " " $5 : "")
            owner = verb ? verb : part
            own[owner, ++count[owner]] = option
        }
        $1 == ".It" && $2 == "Ev" && $3 ~ /^MOTLEY_/ { print $3 }
        $1 == ".It" && part == "EXIT STATUS" { print $2 }
        function show(verb, owner,  i) { for (i = 1; i <= count[owner]; i++) print verb ": " own[owner, i] }
        END {
            for (v = 1; v <= n; v++) {
                show(verbs[v], verbs[v])
                m = split(uses[verbs[v]], names, " ")
                for (i = 1; i <= m; i++) show(verbs[v], names[i] " OPTIONS")
            }
        }' "$page"
}

list_table_operators() {
    sed -n -e 's/^ONNX_OP(\([A-Za-z0-9]*\),.*/\1/p' -e 's/^ONNX_SEQUENCE_OP(\([A-Za-z0-9]*\),.*/\1/p' \
        -e 's/^REDUCE(\([A-Za-z0-9]*\),.*/\1/p' "$root/frontend/onnx_ops.def" | LC_ALL=C sort -u
}

list_readme_operators() {
    sed -n '/^### ONNX operators/,/^### Limits/p' "$root/README.md" | grep '^    ' | grep -owE '[A-Z][A-Za-z0-9]*' |
        LC_ALL=C sort
}

failed=0
compare() { # WHAT EXPECTED FOUND
    if ! [ -s "$2" ]; then
        echo "FAILED: $1: nothing to compare with"
        failed=1
    elif diff "$2" "$3" >"$work/diff"; then
        echo "ok: $1 ($(wc -l <"$2"))"
    else
        echo "FAILED: $1: < is missing in the text, > is there only:"
        grep '^[<>]' "$work/diff"
        failed=1
    fi
}

list_help | LC_ALL=C sort >"$work/help"
list_page | LC_ALL=C sort >"$work/page"
compare "verbs, options, switches and exit codes of the manual" "$work/help" "$work/page"
list_table_operators >"$work/table"
list_readme_operators >"$work/readme"
compare "operators of the README" "$work/table" "$work/readme"

if command -v groff >/dev/null; then
    groff -mandoc -Tutf8 -ww -z "$page" >"$work/warnings" 2>&1 || failed=1
    [ ! -s "$work/warnings" ] || { echo "FAILED: groff warns:"; cat "$work/warnings"; failed=1; }
else
    echo "groff is not installed: whether the page renders is not checked"
fi
[ "$failed" -eq 0 ]
