# The submitter may have withdrawn the array, when sbatch seemed to have failed. The first of both
# decides, by a link, which is made together with its content.
ln -sn "$SLURM_ARRAY_JOB_ID" "$folder/decided" 2>/dev/null
if [ "$(readlink "$folder/decided")" = withdrawn ]; then
  echo "tao-sdk: this array was withdrawn: leaving" >&2
  exit 0
fi
job_dir=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$folder/list")
job_id=${job_dir##*/}
# What Slurm says about a task lies with the array; the job's own folder shows it, too.
id=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
for stream in out err; do
  ln -sf "$folder/logs/batch-$id.$stream" "$job_dir/slurm-logs/batch-$id.$stream"
done
exec /bin/bash "$job_dir/sbatch/job_$job_id.sbatch"
