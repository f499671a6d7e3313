#!/usr/bin/env bash
# `cmake --install`: command, library, header and man page are where others look for them, and a program outside of the tree builds
# with pkg-config alone and runs.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
for tool in cmake pkg-config "${CC:=cc}"; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
grep -q '^MOTLEY_SANITIZE:STRING=.' CMakeCache.txt && { echo "skipped: a sanitized library needs a sanitized program"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install . --prefix "$work" >/dev/null
libdir=$(dirname "$(find "$work" -name libmotley.so)")
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
"$work/bin/motley" --version
[ -s "$work/share/man/man1/motley.1" ]
cp "$root/tests/api/test_api.c" "$work/program.c"
read -ra flags <<<"$(pkg-config --cflags --libs motley)"
(cd "$work" && $CC -std=c17 -D_GNU_SOURCE -Wall -Wextra program.c "${flags[@]}" -lm -o program)
cd "$root"
"$work/program"
# The program of the README, as it stands there.
sed -n '/^```c$/,/^```$/p' README.md | grep -v '^```' >"$work/readme.c"
(cd "$work" && $CC -std=c17 -Wall -Wextra readme.c "${flags[@]}" -o readme)
mkdir -p "$work/build" "$work/models"
ln -s "$root/models/mlp_ts17_raw_static.onnx" "$work/models/"
(cd "$work" && ./readme >losses)
[ "$(wc -l <"$work/losses")" = 20 ] && [ -s "$work/build/trained.onnx" ]
# Nothing but the API is visible.
if nm -D --defined-only "$libdir/libmotley.so" | grep -v ' motley_\| _edata\| _end\| __bss_start'; then
    echo "FAILED: these names are visible"
    exit 1
fi
