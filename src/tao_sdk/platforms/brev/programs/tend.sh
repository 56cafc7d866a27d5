# Jobs that have ended lose their credentials; others get back a supervisor that was killed. A table
# follows: ids.
while read -r job_id; do
  job=$base/jobs/$job_id
  if [ -e "$job/end" ]; then rm -f "$job/env.sh"; : > "$job/taken"
  elif [ -e "$job/supervise.sh" ]; then supervise "$job_id"
  fi
done
mark done
