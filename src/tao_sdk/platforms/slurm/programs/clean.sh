# Remove the credentials of jobs that have ended. A table follows: job id, folder.
while read -r job_id job_dir; do rm -f "$job_dir/env/$job_id.sh"; done
mark done
