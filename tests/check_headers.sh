#!/usr/bin/env bash
# Every header compiles alone: each is given to the compiler as if it were a source file.
# Usage: check_headers.sh COMPILER [FLAG...]
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0 n=0
while read -r header; do
    n=$((n + 1))
    printf '#include "%s"\n' "$header" | "$@" -fsyntax-only -I. -x c - || {
        echo "$header does not compile alone"
        failed=1
    }
done < <(find support ir frontend passes codegen runtime job api cli include -name '*.h' | LC_ALL=C sort)
echo "$n headers compiled alone"
[ "$n" -gt 0 ] || failed=1
exit "$failed"
