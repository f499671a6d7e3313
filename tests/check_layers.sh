#!/usr/bin/env bash
# Holds the include direction of docs/design.md: who may include whose headers, ours and those of libraries.
# Usage: check_layers.sh [ROOT]; prints each line that breaks a rule.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

# folder | prefixes of our headers, beside its own | prefixes of libraries' headers that only it may include
rules='
support      |                                                            | jansson.h libfyaml.h xxhash.h
ir           | support/                                                   |
frontend     | support/ ir/                                               | protobuf-c/
passes/graph | support/ ir/ passes/pass.h                                 |
passes/plan  | support/ ir/ passes/pass.h                                 | metis.h
passes/lower | support/ ir/ passes/pass.h                                 |
passes       | support/ ir/ passes/                                       |
codegen      | support/ ir/                                               | llvm-c/ nvrtc.h
runtime      | support/ ir/program.h ir/count.h ir/eval.h ir/layout.h ir/balance.h ir/dtype.h ir/graph.h ir/sparse.h | dnnl oneapi/ hwloc
include      |                                                            |
job          | support/ ir/ frontend/ passes/ codegen/ runtime/           |
api          | support/ ir/ frontend/ passes/ codegen/ runtime/ job/ include/ |
cli          | support/ ir/ frontend/ passes/ codegen/ runtime/ job/      |
'

# The includes of one folder (not of the folders in it): FILE:LINE:#include "x/y.h", or <x/y.h>.
list_includes() {
    find "$1" -maxdepth 1 \( -name '*.[ch]' -o -name '*.def' \) -exec grep -HnE '^[[:space:]]*#[[:space:]]*include' {} +
}

starts_with_one_of() { # NAME PREFIX...
    local name=$1 prefix
    shift
    for prefix; do
        [[ $name == "$prefix"* ]] && return 0
    done
    return 1
}

check_folder() { # FOLDER OURS THEIRS
    local folder=$1 file line text ours theirs
    read -ra ours <<<"$2"
    read -ra theirs <<<"$3"
    while IFS=: read -r file line text; do
        if [[ $text =~ \"([^\"]+)\" ]]; then
            starts_with_one_of "${BASH_REMATCH[1]}" "$folder/" "${ours[@]}" && continue
            echo "$file:$line: $folder may not include \"${BASH_REMATCH[1]}\""
        elif [[ $text =~ \<([^>]+)\> ]]; then
            starts_with_one_of "${BASH_REMATCH[1]}" "${libraries[@]}" || continue
            starts_with_one_of "${BASH_REMATCH[1]}" "${theirs[@]}" && continue
            echo "$file:$line: $folder may not include <${BASH_REMATCH[1]}>"
        fi
    done < <(list_includes "$folder")
}

read -ra libraries <<<"$(cut -sd'|' -f3 <<<"$rules" | tr '\n' ' ')"
broken=$(while IFS='|' read -r folder ours theirs; do
    folder=${folder// /}
    [ -z "$folder" ] || [ ! -d "$folder" ] || check_folder "$folder" "$ours" "$theirs"
done <<<"$rules")

[ -z "$broken" ] || { echo "$broken"; exit 1; }
echo "every include goes in the allowed direction"
