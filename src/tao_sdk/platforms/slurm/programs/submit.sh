# Stage a job's files (a tar stream follows this program) and hand the job to Slurm.
mask=$(umask); umask 077
if ! error=$({ mkdir -p "$base/jobs" "$base/results" && mkdir -p "$job_dir/claims"; } 2>&1); then
  mark unwritable "$error"; exit
fi
if ! error=$(tar -xf - -C "$job_dir" 2>&1); then mark unwritable "$error"; exit; fi
environment=$job_dir/env/$job_id.sh
claim=$job_dir/claims/$token.1.0
# `settle` has withdrawn this submission meanwhile.
if [ -e "$claim" ]; then rm -f "$environment"; mark withdrawn; exit; fi
complaints=$job_dir/sbatch/said
if ! hand_over "$complaints" --export=ALL,TAO_SUBMISSION=1 "$job_dir/sbatch/job_$job_id.sbatch"; then
  # The controller may have the job although sbatch failed: its answer can be lost.
  id=$(queued_id "$name")
  if [ -z "$id" ] && withdraw 1; then
    rm -f "$environment"
    mark refused; cat "$complaints"; exit
  fi
  id=${id:-$(cat "$claim/owner" 2>/dev/null)}
  case $id in
    '') mark doubtful; cat "$complaints"; exit;;
    withdrawn) rm -f "$environment"; mark withdrawn; exit;;
  esac
fi
echo "1 $id" >> "$job_dir/submissions"
mark submitted "$id"
