#!/usr/bin/env bash
# What is measured and planned, as files: probe and plan.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
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
printf 'devices: [{name: x, backend: ref}, {name: y, threads: 2, memory: 1MiB}]\n' >"$work/mixed.yaml"
"$MOTLEY" probe -c "$work/mixed.yaml" >"$work/out"
check "an interpreter beside a small device" has_all "$work/out" 'name: "x", backend: "ref"' 'memory: 1MiB' 'between: all'

[ "$failures" = 0 ] || { echo "$failures checks failed"; exit 1; }
