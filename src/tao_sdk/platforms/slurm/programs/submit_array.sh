# Stage the files of many jobs (a tar stream follows) and hand them to Slurm as one array.
mask=$(umask); umask 077
if ! error=$({ mkdir -p "$base/jobs" "$base/results" && tar -xf - -C "$base/jobs"; } 2>&1); then
  mark unwritable "$error"; exit
fi
if ! hand_over "$folder/said" --export=ALL,TAO_SUBMISSION=1 "$folder/array.sbatch"; then
  # The controller may have it all the same: then it is ours. Otherwise none of its tasks will run,
  # and each job can be submitted by itself.
  id=$(queued_id "$name" %F)
  if [ -z "$id" ] && ln -sn withdrawn "$folder/decided" 2>/dev/null; then
    scancel -u "$me" -n "$name" >/dev/null 2>&1
    mark refused; cat "$folder/said"; exit
  fi
  id=${id:-$(readlink "$folder/decided")}
  [ -n "$id" ] || { mark doubtful; cat "$folder/said"; exit; }
fi
index=0
while IFS= read -r job_dir; do
  echo "1 ${id}_$index" >> "$job_dir/submissions"
  # `settle` may have withdrawn this one meanwhile: it then ends at once.
  if grep -qsx withdrawn "$job_dir"/claims/*.1.0/owner; then rm -f "$job_dir"/env/*.sh; fi
  index=$((index + 1))
done < "$folder/list"
mark submitted "$id"
