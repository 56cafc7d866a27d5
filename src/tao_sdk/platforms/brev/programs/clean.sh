# Jobs that have ended, and of which everything is known: their credentials go. A table follows: ids.
while read -r job_id; do
  job=$base/jobs/$job_id
  [ ! -e "$job/end" ] || { rm -f "$job/env.sh"; : > "$job/taken"; }
done
mark done
