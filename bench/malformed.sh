#!/usr/bin/env bash
# CPU time and peak memory of `motley import` on every row of tests/fixtures/malformed.tsv. Fails above 1 s or 256 MiB.
#
#   bench/malformed.sh [MOTLEY]     default: build/release/motley
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
motley=$(realpath "${1:-$root/build/release/motley}")
fixtures=$root/tests/fixtures
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$fixtures/malformed.py" make "$work/files"
cd "$work/files"

# Prints the seconds and KiB of a command, whatever its exit code.
measure() { # COMMAND...
    python3 - "$@" <<'PYTHON'
import os, sys

quiet = os.open(os.devnull, os.O_WRONLY)
actions = [(os.POSIX_SPAWN_DUP2, quiet, 1), (os.POSIX_SPAWN_DUP2, quiet, 2)]
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=actions)
use = os.wait4(pid, 0)[2]
print("%.3f %d" % (use.ru_utime + use.ru_stime, use.ru_maxrss))
PYTHON
}

while IFS=$'\t' read -r cases name options _; do
    [[ $cases != '#'* ]] || continue
    words=()
    [ "$options" = - ] || read -ra words <<<"$options"
    echo "$(measure "$motley" import "${name#made }" "${words[@]}") ${name#made }"
done <"$fixtures/malformed.tsv" >"$work/rows"

awk '
    $1 >= seconds { seconds = $1; slowest = $3 }
    $2 >= kib { kib = $2; largest = $3 }
    END {
        printf "%d files: at most %.2f s of CPU time (%s), %d MiB at the peak (%s)\n", NR, seconds, slowest, kib / 1024, largest
        exit !NR || seconds > 1 || kib > 256 * 1024
    }' "$work/rows"
