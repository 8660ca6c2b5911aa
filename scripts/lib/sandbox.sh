# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Commands in a chroot, in namespaces of their own. Sourced after say.sh; needs root.
#
#   in_sandbox online|offline ROOT COMMAND...
#
# Mounts, processes and the host's name live in namespaces that the kernel removes with their first process, so nothing
# is left to unmount or to stop: not after Ctrl-C, not after kill -9 (unshare's child dies with it). Offline there is
# nothing but a loopback of its own, so no port can be taken already and no service is seen from outside.

sandbox_pid=

# sandbox_end: at exit and on signals. Killing unshare ends everything in it.
sandbox_end()
{
    [ -z "$sandbox_pid" ] || kill -KILL "$sandbox_pid" 2>/dev/null || true
    sandbox_pid=
}

# The first process in there. /dev/shm is not the host's: Slurm and LibTorch leave files in it. The second address is for
# Slurm since 24.11, which asks getaddrinfo() for addresses of the kinds that the host has: 127.0.0.1 alone counts as none.
# shellcheck disable=SC2016 # expanded by the inner shell
sandbox_first='
set -e
root=$1
shift
hostname jigsaw-release
if [ "$JIGSAW_NETWORK" = offline ]; then
    ip link set lo up
    ip address add 127.0.0.2/8 dev lo
fi
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    JIGSAW_STARTED="$JIGSAW_STARTED" ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@"'

in_sandbox()
{
    local network=$1 root=$2 status=0 options=(--mount --pid --fork --kill-child --uts --ipc)
    shift 2
    [ "$network" = online ] || options+=(--net)
    if [ "$network" = offline ] && ! command -v ip >/dev/null; then
        die "ip is missing, which brings up the loopback of the sandbox: apt-get install iproute2"
    fi
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    echo '127.0.0.1 localhost jigsaw-release' >"$root/etc/hosts"
    # In the background: bash takes a signal while it waits, not while a command in the foreground runs.
    JIGSAW_NETWORK=$network unshare "${options[@]}" bash -c "$sandbox_first" sandbox "$root" "$@" </dev/null &
    sandbox_pid=$!
    wait "$sandbox_pid" || status=$?
    sandbox_pid=
    return "$status"
}
