# What the scripts beside this one share; they source it. It sets root (the tree, and where they run), work (a folder that goes away) and a
# count of failures that `finish` makes the exit code. Without $MOTLEY, the command to test, the script is skipped.
# shellcheck shell=bash
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ -n "${MOTLEY:-}" ] || { echo "skipped: \$MOTLEY is not set"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"

failures=0
check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; failures=$((failures + 1)); fi
}
finish() {
    [ "$failures" = 0 ] || { echo "$failures checks failed"; exit 1; }
}

write_text() { # FILE: text of 30 different characters with some structure to learn
    awk 'BEGIN { srand(7); s = "the quick brown fox jumps over a lazy dog. "; for (i = 0; i < 400; i++) printf "%s", substr(s, 1 + int(rand() * 40)) }' >"$1"
}
