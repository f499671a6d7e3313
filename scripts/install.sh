# For sourcing by bash scripts that run in the repository's root.
#
# install_packages GROUP...: installs with apt-get the packages of these groups of scripts/packages.txt that are missing,
# and says which. Touches neither network nor root when nothing is missing.
# shellcheck shell=bash

list_missing() { # GROUP...
    local group name installed
    installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' | sed -n 's/ installed$//p')
    for group; do
        while read -r name; do
            grep -qxF -- "$name" <<<"$installed" || echo "$name"
        done < <(awk -v group="$group" '$1 == group { print $2 }' scripts/packages.txt)
    done
}

install_packages() { # GROUP...
    local missing
    command -v dpkg-query apt-get >/dev/null || {
        echo "this is not Debian: install what the groups '$*' of scripts/packages.txt name" >&2
        return 1
    }
    mapfile -t missing < <(list_missing "$@")
    [ "${#missing[@]}" -gt 0 ] || return 0
    echo "installing with apt-get: ${missing[*]}"
    local as_root=(env DEBIAN_FRONTEND=noninteractive)
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || {
            echo "neither root nor sudo: have these packages installed, then come back" >&2
            return 1
        }
        as_root=(sudo "${as_root[@]}")
    fi
    "${as_root[@]}" apt-get update -qq &&
        "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
