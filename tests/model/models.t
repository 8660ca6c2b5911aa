#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks the spin models beside this script exhaustively, and sees every mutant fail: a model that passes whatever is
# broken checks nothing. MODEL_LARGE=1 adds larger runs (700 MB, two minutes).
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../lib/tap.sh"
: "${SPIN:=spin}" "${CC:=cc}"
command -v "${SPIN%% *}" >/dev/null || skip_all "no spin: apt-get install spin"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# verdict MODEL FLAG...: "holds", what pan found first ("assertion", "deadlock"), or what went wrong with the checking.
verdict()
{
    local model=$1 output
    shift
    cd "$work" || return
    rm -f pan*
    $SPIN -a "$@" "$here/$model.pml" >spin.log 2>&1 || { cat spin.log; return; }
    $CC -O1 -w -DSAFETY -DCOLLAPSE -o pan pan.c >cc.log 2>&1 || { cat cc.log; return; }
    output=$(./pan -m500000 -w22 -n 2>&1)
    case $output in
        *'max search depth too small'* | *'out of memory'*) echo "$output" ;;
        *'pan:1: assertion violated'*) echo assertion ;;
        *'pan:1: invalid end state'*) echo deadlock ;;
        *'errors: 0'*) echo holds ;;
        *) echo "$output" ;;
    esac
}

check() { is "$1 ${*:3}" "$(verdict "$1" "${@:3}")" "$2"; }

check gate holds
check gate holds -DLOOKS
check gate holds -DKILLS
check gate holds -DRESTART
check gate holds -DCANCELS
check gate holds -DSILENCE -DTURNS=1
[ -z "${MODEL_LARGE:-}" ] || check gate holds -DN=3 -DTURNS=1
[ -z "${MODEL_LARGE:-}" ] || check agreement holds
check gate assertion -DIDLE_WAIT
check gate assertion -DBEGIN_ORDER
check gate assertion -DCLOSE_LATE
check gate deadlock -DBELL_FIRST
check gate deadlock -DEND_ORDER
check gate deadlock -DIGNORE_OPEN
check gate deadlock -DDRAIN_LATE
check gate deadlock -DNO_PIDFD -DKILLS

check gang holds
check gang holds -DEQUAL
check gang deadlock -DHOLD
check gang deadlock -DSPINS
check gang deadlock -DNEXT_FIRST -DEQUAL
check gang assertion -DALL_AT_ONCE

check agreement holds -DITERATIONS=3
check agreement holds -DK=2
check agreement assertion -DSTAMP_1
check agreement assertion -DLOCAL_READ
check agreement assertion -DPENDING_TWICE
check agreement assertion -DNO_CONFIRM
check agreement deadlock -DSILENT_LEAVE

done_testing
