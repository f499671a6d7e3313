#!/usr/bin/env bash
# ONNX's node tests, those of the newest operators and those of opset <= 17, on the reference evaluator. The counts are stated:
# a case that passed may not become one that is skipped.
set -euo pipefail
motley=${MOTLEY:?the command to test}
data=${MOTLEY_DATA:?what tests/fetch.sh unpacked}

# version | passed, failed, skipped
expected='
1.22.0 | 956 passed, 0 failed, 809 skipped
1.12.0 | 597 passed, 0 failed, 335 skipped
'

failed=0 absent=0
while IFS='|' read -r version counts; do
    version=${version// /} counts=${counts# }
    [ -n "$version" ] || continue
    cases=("$data/onnx-$version/node"/test_*)
    if [ ! -d "${cases[0]}" ]; then
        echo "onnx-$version: skipped: $data/onnx-$version/node is not there; tests/fetch.sh gets it"
        absent=1
        continue
    fi
    found=$("$motley" check -q "${cases[@]}") || failed=1
    echo "onnx-$version: $(tail -n 1 <<<"$found")"
    [ "$found" = "$counts" ] || {
        echo "onnx-$version: expected: $counts"
        grep FAILED <<<"$found" || true
        failed=1
    }
done <<<"$expected"
[ "$failed" -eq 0 ] || exit 1
[ "$absent" -eq 0 ] || exit 77
