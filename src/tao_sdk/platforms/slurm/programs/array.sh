job_dir=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$folder/list")
job_id=${job_dir##*/}
# What Slurm says about a task lies with the array; the job's own folder shows it, too.
id=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
for stream in out err; do
  ln -sf "$folder/logs/batch-$id.$stream" "$job_dir/slurm-logs/batch-$id.$stream"
done
exec /bin/bash "$job_dir/sbatch/job_$job_id.sbatch"
