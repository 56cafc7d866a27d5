# Remove the credentials of jobs that have ended, and say of which jobs none are left. A table
# follows: job id, folder, cluster.
here=$(cluster_name)
while read -r job_id job_dir cluster; do
  # Another cluster has another folder of that name; one that is not mounted looks empty.
  [ "$cluster" = "$here" ] && [ -d "${job_dir%/*}" ] || continue
  rm -f "$job_dir/env/$job_id.sh"
  [ -e "$job_dir/env/$job_id.sh" ] || mark cleaned "$job_id"
done
mark done
