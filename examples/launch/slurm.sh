#!/usr/bin/env bash
# One peer as a job of Slurm; an array of such jobs is a run. A job that Slurm preempts, whose node fails, or whose time
# is up goes back to the queue, and its peer joins the run again later. The others go on meanwhile.
#   sbatch --array=0-3 --time=4:00:00 launch/slurm.sh torchrun --standalone --max-restarts=3 train.py
# Each peer is a job of its own: a job of several nodes would end as a whole with any of them. `sbatch` passes the
# variables of peer.sh on. LAUNCH is the folder of these scripts (default: launch in the folder of the call of sbatch).
#SBATCH --job-name=pccl-peer
#SBATCH --ntasks=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
set -euo pipefail
program=slurm.sh  # Slurm runs a copy with another name, in another folder
launch=${LAUNCH:-${SLURM_SUBMIT_DIR:-.}/launch}
[ -r "$launch/common.sh" ] || {
  echo "$program: there is no $launch/common.sh: set LAUNCH to the folder of the start scripts" >&2
  exit 2
}
# shellcheck source=examples/launch/common.sh
. "$launch/common.sh"
need SLURM_JOB_ID "this script is for sbatch: sbatch --array=0-3 launch/slurm.sh COMMAND..."
[ $# -gt 0 ] || fail "usage: sbatch --array=0-3 launch/slurm.sh COMMAND..., such as torchrun --standalone train.py"

# One task of an array. The job id alone may be that of the whole array.
job=$SLURM_JOB_ID
[ -z "${SLURM_ARRAY_JOB_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID

again() {
  trap '' USR1
  say "job $job: its time is nearly up, so the peer leaves, and the job goes back to the queue"
  kill -TERM "$step" 2> /dev/null || true
  end_within 30 "$step"
  scontrol requeue "$job"
  exit 0
}

export PCCL_NAME=${PCCL_NAME:-$(hostname -s)-$job}
say "job $job, start $((${SLURM_RESTART_COUNT:-0} + 1)), peer $PCCL_NAME"
srun --ntasks=1 "$launch/peer.sh" "$@" &
step=$!
trap again USR1
wait "$step"
