# Stage a job's files (a tar stream follows this program) and hand the job to Slurm.
mask=$(umask); umask 077
if ! said=$({ mkdir -p "$base/jobs" "$base/results" && mkdir -p "$job_dir/claims"; } 2>&1); then
  mark unwritable "$said"; exit
fi
if ! said=$(tar -xf - -C "$job_dir" 2>&1); then mark unwritable "$said"; exit; fi
# Somebody gave this submission up while we were on our way.
if [ -e "$job_dir/claims/$token.1.0" ]; then rm -f "$job_dir/env/$job_id.sh"; mark withdrawn; exit; fi
# The job inherits our mask, so it gets the user's own.
if answer=$(umask "$mask"; sbatch --parsable --export=ALL,TAO_SUBMISSION=1 \
  "$job_dir/sbatch/job_$job_id.sbatch" 2>"$job_dir/sbatch/said"); then
  id=${answer%%;*}
  echo "1 $id" >> "$job_dir/submissions"
  mark submitted "$id"
else
  mark refused; cat "$job_dir/sbatch/said"
fi
