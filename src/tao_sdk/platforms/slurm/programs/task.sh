# Runs once on each node, inside the container. Its words: how many nodes, then their roles, if any.
# Not variables, whose names the job may use for its own.
if [ "$1" -gt 1 ]; then
  export NODE_RANK="${SLURM_NODEID:-0}"
else
  unset WORLD_SIZE NNODES NUM_GPU_PER_NODE NPROC_PER_NODE NODE_RANK MASTER_ADDR MASTER_PORT
fi
shift
if [ $# -gt 0 ]; then
  # The controller runs on the first node, beside the first role.
  shift "${NODE_RANK:-0}"
  export TAO_NODE_ROLE="$1"
  export COSMOS_CONTROLLER_HOST="${COSMOS_CONTROLLER_HOST:-$MASTER_ADDR:${CONTROLLER_PORT:-8082}}"
  case $1 in policy) export COSMOS_ROLE=Policy;; rollout) export COSMOS_ROLE=Rollout;; esac
fi
# Launchers that see Slurm's variables would count Slurm's tasks instead of starting their own.
unset SLURM_NTASKS SLURM_NPROCS SLURM_NNODES SLURM_PROCID SLURM_LOCALID SLURM_NTASKS_PER_NODE
unset RANK LOCAL_RANK GROUP_RANK
export SLURM_JOB_NAME=bash
set -- /bin/bash
[ -x /bin/bash ] || set -- /bin/sh
