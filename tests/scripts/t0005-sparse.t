#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# jigsaw-sparse on 1, 2 and 4 ranks: the same answers, checkpoints that move between numbers of ranks, ranks that die or
# fall silent, and one clear line for each bad request. Without MPI in the build only what needs one rank.
set -uo pipefail

. "$top_srcdir/tests/lib/tap.sh"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sparse=$top_builddir/runtime/sparse/jigsaw-sparse
digits=$top_srcdir/runtime/examples/data/optdigits.csv
# Open MPI frees less than it takes; that is not ours to find.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"

has_mpi() { grep -q '^#define HAVE_MPI' "$top_builddir/jigsaw_config.h" && [ -n "${MPIRUN:-}" ]; }

# ranks N COMMAND...: loopback only, more ranks than cores allowed.
ranks()
{
    local count=$1
    shift
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 "$MPIRUN" --oversubscribe -n "$count" \
        --mca btl self,vader --mca btl_vader_single_copy_mechanism none --mca oob_tcp_if_include lo \
        --mca plm isolated --mca rmaps_base_oversubscribe 1 "$@"
}

# A RadiX-Net of 64 neurons, 6 layers (two per line), and 200 inputs of which some survive.
awk 'BEGIN { for (b = 0; b < 3; ++b) { for (i = 0; i < 64; ++i) printf "%d ", int(i * (7 * b + 1) / (b ? 16 : 1)) % 4; print "" } }' \
    >"$folder/classes"
awk 'BEGIN { s = 1; for (i = 1; i <= 200; ++i) for (j = 1; j <= 64; ++j) { s = (s * 1103515245 + 12345) % 2147483648
     if (int(s / 65536) % 200 < i) print i, j, 1 } }' >"$folder/inputs"
gzip -k "$folder/inputs"

infer=(infer --bias -0.7 --inputs "$folder/inputs" "$folder/classes")
ok "inference on one rank" "$sparse" "${infer[@]}" --output "$folder/one"
left=$(wc -l <"$folder/one")
ok "some inputs are left and some are not ($left)" test "$left" -gt 10 -a "$left" -lt 190
ok "packed inputs, two threads, small batches" "$sparse" infer --bias -0.7 --threads 2 --batch 48 --categories "$folder/one" \
    --inputs "$folder/inputs.gz" "$folder/classes"
tail -n +2 "$folder/one" >"$folder/other"
"$sparse" "${infer[@]}" --categories "$folder/other" >"$folder/out" 2>&1
is "other categories are an exit status of their own" "$?" 3
like "... and said" "$(cat "$folder/out")" 'DO NOT MATCH'

train=(train --data "$digits" --topology radix:128x2-10 --repeat --json --epochs 8)
last_loss() { tail -n 1 "$1" | sed -E 's/.*"loss":([0-9.e+-]+),.*/\1/'; }
# near A B: within a relative 1e-4.
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && (d < 0 ? -d : d) < 1e-4 * a) }'; }
"$sparse" "${train[@]}" --model "$folder/one.model" >"$folder/one.json"
is "training prints an object per epoch" "$(grep -c '^{"epoch":.*}$' "$folder/one.json")" 8
right=$("$sparse" infer --data "$digits" --repeat --test 449 --json "$folder/one.model" | sed -E 's/.*"percent":([0-9]+).*/\1/')
ok "it learned: $right % of images of other writers" test "$right" -ge 75
ok "a pruned model" "$sparse" prune --keep .5 --output "$folder/pruned.model" "$folder/one.model"
ok "... trains on" "$sparse" train --data "$digits" --repeat --from "$folder/pruned.model" --epochs 1 -q

# says STATUS TEXT ARGUMENTS...: one line, that exit status.
says()
{
    local status=$1 text=$2 got=0
    shift 2
    "$sparse" "$@" >"$folder/out" 2>"$folder/err" || got=$?
    is "$text: status" "$got" "$status"
    like "$text" "$(cat "$folder/err")" "^jigsaw-sparse: [^
]*${text}[^
]*$"
    is "$text: nothing else is printed" "$(cat "$folder/out")" ""
}
echo '1 65 1' >"$folder/bad"
says 2 'infer, train or prune\?'
says 2 '"guess" is not infer' guess
says 2 'unknown option "--what"' infer --what
says 2 '--rate takes a number from 0 to 1e\+06, not "x"' train --rate x
says 2 '--inputs or --data is missing' infer "$folder/classes"
says 2 'one of --topology, --from and --resume' train --data "$digits"
says 1 'the neuron is "65", not a whole number from 1 to 64' infer --inputs "$folder/bad" "$folder/classes"
says 1 'classes: does not exist|nowhere: No such file' infer --inputs "$folder/inputs" "$folder/nowhere"
says 1 '64 features, but the network takes 128; --repeat' train --data "$digits" --topology radix:128x2-10
says 1 'label 2, but the network has 2 outputs' train --data "$digits" --topology 64-2
says 1 '/nowhere/m: cannot be created' train --data "$digits" --topology 64-10 --model /nowhere/m
says 1 'no checkpoint of jigsaw-sparse' train --data "$digits" --resume "$digits"
head -c 3000 "$folder/one.model" >"$folder/short.model"
says 1 'short.model: 3000 bytes, but the header says' train --data "$digits" --resume "$folder/short.model"

if ! has_mpi; then
    done_testing
    exit
fi

for count in 2 4; do
    ok "inference on $count ranks leaves the same" ranks "$count" "$sparse" "${infer[@]}" --categories "$folder/one" \
        --partition random
    ranks "$count" "$sparse" "${train[@]}" --model "$folder/$count.model" >"$folder/$count.json" 2>"$folder/err"
    ok "training on $count ranks ends at the same loss" near "$(last_loss "$folder/one.json")" "$(last_loss "$folder/$count.json")"
done
# 7 epochs' weights of 4 ranks, one more epoch on 3.
ranks 4 "$sparse" "${train[@]}" --epochs 7 --model "$folder/seven.model" >/dev/null 2>&1
ranks 3 "$sparse" train --data "$digits" --repeat --json --epochs 8 --resume "$folder/seven.model" >"$folder/three.json" 2>&1
ok "a checkpoint of 4 ranks goes on on 3" near "$(last_loss "$folder/one.json")" "$(last_loss "$folder/three.json")"

ranks 2 "$sparse" infer --inputs "$folder/bad" "$folder/classes" >"$folder/out" 2>"$folder/err"
is "a bad file on 2 ranks: one line of ours" "$(grep -c '^jigsaw-sparse: ' "$folder/err")" 1

# interrupted SIGNAL: trains without end on 2 ranks, sends SIGNAL to one of them, prints the exit status.
interrupted()
{
    local victim status=0
    rm -f "$folder/endless.model"
    ranks 2 "$sparse" "${train[@]}" --epochs 1000000 --patience 2 --model "$folder/endless.model" >/dev/null 2>"$folder/err" &
    for _ in $(seq 300); do
        [ ! -e "$folder/endless.model" ] || break
        sleep 0.1
    done
    victim=$(pgrep -f "^$sparse .*$folder/endless.model" | tail -n 1)
    [ -n "$victim" ] && kill -"$1" "$victim"
    wait $! || status=$?
    echo "$status"
}
status=$(interrupted KILL)
ok "a killed rank ends the job (status $status)" test "$status" -ne 0 -a "$status" -ne 124
like "... the launcher says which" "$(cat "$folder/err")" 'rank [01].*signal 9|signal 9.*rank [01]'
ok "... and the last checkpoint is whole" "$sparse" infer --data "$digits" --repeat "$folder/endless.model"
status=$(interrupted STOP)
ok "a silent rank ends the job (status $status)" test "$status" -ne 0 -a "$status" -ne 124
like "... and another one says so" "$(cat "$folder/err")" 'jigsaw-sparse: rank [01]: (nothing from rank|a rank does not join).* for 2 s'
ok "... and the last checkpoint is whole" "$sparse" infer --data "$digits" --repeat "$folder/endless.model"

done_testing
