#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --spb and its companions, as users type them: what is taken arrives in the prolog, what is not is one line, exit status 1,
# and nothing queued.
. "$(dirname "$0")/spank.sh"
CLUSTER_NODES=1 CLUSTER_GPUS=2
start_spank_cluster

# refused LINE OPTIONS: by all three commands.
refused() {
    local line=$1 output status command
    shift
    for command in "sbatch -o /dev/null --wrap true" "salloc true" "srun true"; do
        output=$(slurm ${command%% *} "$@" ${command#* } 2>&1)
        status=$?
        is "${command%% *} $*: exit status" "$status" 1
        is "${command%% *} $*: one line" "$output" "${command%% *}: error: $line"
    done
}
refused "--spb=99: allowed: auto, off, full, or a number of levels from 2 to 16" --spb=99
refused "--spb-policy=fast: allowed: two-level, rotate, shuffle, fixed, uniform" --spb --spb-policy=fast
refused "--spb-warmup=-1: allowed: a whole number of iterations from 0 to 1000000000" --spb --spb-warmup=-1
refused "--spb-min-depth=nan: allowed: a fraction from 0 to 1" --spb-min-depth=nan --spb
refused "--spb-share=9: allowed: no, or a number of jobs from 2 to 8" --spb --spb-share=9
refused "--spb-mem=20: allowed: a size from 1M to 16T, such as 512M or 20G" --spb --spb-mem=20
refused "--spb-weight=0: allowed: a weight from 0.1 to 10" --spb --spb-weight 0
refused "--spb-profile=../x: allowed: 1 to 64 letters, digits, dots, underscores or dashes" --spb --spb-profile=../x
refused "--spb-weight=2: means nothing without --spb; add --spb" --spb-weight=2

printf '#!/bin/sh\n#SBATCH --spb --spb-policy=slow\ntrue\n' >"$CLUSTER_DIR/script"
output=$(slurm sbatch "$CLUSTER_DIR/script" 2>&1)
is "a bad value in the script: exit status" $? 1
is "a bad value in the script: one line" "$output" "sbatch: error: --spb-policy=slow: allowed: two-level, rotate, shuffle, fixed, uniform"
output=$(SLURM_SPANK__SLURM_SPANK_OPTION_jigsaw_spb=77 slurm sbatch --wrap true 2>&1)
is "a bad value in the environment: exit status" $? 1
like "a bad value in the environment" "$output" '--spb=77: allowed: auto'
is "nothing was queued" "$(slurm squeue -h -t all)" ""

# taken REQUEST OPTIONS: what the prolog wrote down. The first job ever also shows that the refused ones took no job id.
taken() {
    local request=$1 output
    shift
    output=$(slurm srun -Q --gres=gpu:1 "$@" sh -c "sed -n 's/^request=//p' $RUN/n1/jobs/\$SLURM_JOB_ID.0; exit 3" 2>"$CLUSTER_DIR/stderr")
    is "srun $*: the program's exit status" $? 3
    is "srun $*: request" "$output" "$request"
}
taken "spb=auto" --spb
is "its job id" "$(slurm squeue -h -t all -o %i | sort -n | tail -n 1)" 1
taken "spb=auto" --spb=auto
taken "spb=full" --spb=full
taken "spb=4 spb-policy=rotate" --spb=4 --spb-policy=rotate
taken "spb=16 spb-warmup=100 spb-min-depth=0.5 spb-share=3 spb-mem=20G spb-weight=2.5 spb-profile=net-1.0" \
    --spb=16 --spb-policy=two-level --spb-warmup=100 --spb-min-depth=0.5 --spb-share=3 --spb-mem=20g --spb-weight 2.5 \
    --spb-profile=net-1.0
taken "" --spb=off --spb-weight=2
taken "" --spb --spb-share=no
taken ""
taken "spb=8" --spb=2 --spb=8

# sbatch and salloc give the same, also to steps inside.
inside="sed -n 's/^request=//p' $RUN/n1/jobs/\$SLURM_JOB_ID.0; echo \$JIGSAW_JOB \$JIGSAW_STEP"
slurm sbatch -W -Q -o "$CLUSTER_DIR/out" --gres=gpu:1 --spb --spb-weight=2 --wrap "$inside; srun -Q --gres=gpu:1 sh -c '$inside'" >"$CLUSTER_DIR/id"
is "sbatch: exit status" $? 0
like "sbatch: in the batch step and in a step" "$(tr '\n' ' ' <"$CLUSTER_DIR/out")" \
    '^spb=auto spb-weight=2 ([0-9]+) 4294967291 spb=auto spb-weight=2 [0-9]+ 0 $'
output=$(slurm salloc -Q --gres=gpu:1 --spb=4 srun -Q sh -c "$inside" 2>&1)
like "salloc: in a step" "$(tr '\n' ' ' <<<"$output")" '^spb=4 [0-9]+ 0 $'

help=$(slurm sbatch --help)
for option in spb spb-policy spb-warmup spb-min-depth spb-share spb-mem spb-weight spb-profile; do
    like "sbatch --help lists --$option" "$help" "--$option="
done
ok "no node is down or drained" no_node_is_down
done_testing
