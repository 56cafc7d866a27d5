# Stage the files of many jobs (a tar stream follows) and hand them to Slurm as one array.
mask=$(umask); umask 077
if ! said=$({ mkdir -p "$base/jobs" "$base/results" && tar -xf - -C "$base/jobs"; } 2>&1); then
  mark unwritable "$said"; exit
fi
if ! answer=$(umask "$mask"; sbatch --parsable --export=ALL,TAO_SUBMISSION=1 \
  "$folder/array.sbatch" 2>"$folder/said"); then
  mark refused; cat "$folder/said"; exit
fi
id=${answer%%;*}
index=0
while IFS= read -r job_dir; do
  echo "1 ${id}_$index" >> "$job_dir/submissions"
  index=$((index + 1))
done < "$folder/list"
mark submitted "$id"
