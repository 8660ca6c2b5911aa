# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Debian packages: install what is missing, and nothing when nothing is. Sourced after say.sh.
#
#   need_packages NAME...   installs those that are not installed yet
#   build_packages yes|no   prints what a build needs, with LibTorch or without

JIGSAW_LIBTORCH_PACKAGES=(libtorch-dev libopenblas0-pthread)
# What a build with every part needs.
# shellcheck disable=SC2034 # used by the scripts that source this file
JIGSAW_BUILD_PACKAGES=(
    build-essential autoconf automake libtool pkgconf python3
    libhwloc-dev libyaml-dev check libgloo-dev "${JIGSAW_LIBTORCH_PACKAGES[@]}"
    libslurm-dev slurmctld slurmd slurm-client munge
    dpkg-dev ca-certificates
)
# What the tests need beside that.
# shellcheck disable=SC2034
JIGSAW_CHECK_PACKAGES=(spin shellcheck binutils procps slurmdbd mariadb-server libopenmpi-dev openmpi-bin)
# Where LibTorch is wanted, for the tests of the Python package: 175 MiB more, 30 MB to fetch.
# shellcheck disable=SC2034
JIGSAW_PYTHON_CHECK_PACKAGES=(python3-torch python3-pip python3-setuptools python3-wheel)

build_packages()
{
    local name
    for name in "${JIGSAW_BUILD_PACKAGES[@]}"; do
        case " ${JIGSAW_LIBTORCH_PACKAGES[*]} " in *" $name "*) [ "$1" = yes ] || continue ;; esac
        echo "$name"
    done
}

package_installed()
{
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# apt-get with a wait for the lock of another apt, and three tries at a network that stutters.
apt_patiently()
{
    local try
    for try in 1 2 3; do
        if DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 \
            -o Acquire::http::Timeout=60 "$@"; then
            return 0
        fi
        echo "apt-get $* failed (try $try of 3)"
        sleep $((try * 5))
    done
    return 1
}

# Installing munge, slurmctld and slurmd would start them as services; the private cluster starts its own. So a
# policy-rc.d forbids it while we install, unless the machine has a policy already.
install_quietly()
{
    local policy=/usr/sbin/policy-rc.d status=0
    if [ -e "$policy" ]; then
        apt_patiently install --no-install-recommends "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    apt_patiently install --no-install-recommends "$@" || status=$?
    rm -f "$policy"
    return "$status"
}

need_packages()
{
    local name missing=() log="${JIGSAW_LOG_DIR:-/tmp}/packages.log"
    command -v dpkg-query >/dev/null ||
        die "no dpkg here: this script installs Debian packages; install these by hand and use --no-packages: $*"
    for name in "$@"; do
        package_installed "$name" || missing+=("$name")
    done
    if [ "${#missing[@]}" -eq 0 ]; then
        say "packages: all $# are installed"
        return 0
    fi
    [ "$(id -u)" -eq 0 ] || die "these packages are missing and only root can install them: ${missing[*]}"
    say "packages: installing ${missing[*]}"
    run_logged "$log" apt_patiently update || die "apt-get update failed; is a Debian mirror reachable? Log: $log"
    run_logged "$log" install_quietly "${missing[@]}" ||
        die "apt-get install failed for ${missing[*]}; its log: $log"
}
